//! Rate limits: which buckets a request hits, what the worker remembers of them, and what the client is told.

pub mod headers;
pub mod rule;
pub mod seen;
