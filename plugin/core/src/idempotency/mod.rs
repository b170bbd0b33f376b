//! Idempotency keys: what a key is, what makes two requests the same, what became of an execution, and what of its
//! answer is kept.

pub mod kept;
pub mod key;
pub mod outcome;
pub mod policy;
