//! The scenarios, by what they are about.

pub(crate) mod execution;
pub(crate) mod keys;
pub(crate) mod limiter;
pub(crate) mod outage;
pub(crate) mod replay;
pub(crate) mod scope;
