//! The configuration, in three stages: the document (as written), the [`Settings`] (validated), and the exchanges
//! that use them.

mod document;
mod error;
mod settings;
#[cfg(test)]
mod tests;

pub use document::{OnStoreFailure, Principal};
pub use error::ConfigError;
pub use settings::{Demands, Idempotency, Limiter, Settings, Store};
