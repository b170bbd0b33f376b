//! The configuration, in three stages: the document (as written), the [`Settings`] (validated), and the exchanges
//! that use them.

mod attribute;
mod check;
mod document;
mod error;
mod idempotency;
mod limiter;
mod nearest;
#[cfg(feature = "schema")]
pub mod schema;
mod settings;
#[cfg(test)]
mod tests;
mod unread;

pub use attribute::Attribute;
pub use document::{OnStoreFailure, OnUnknown, Trailers};
pub use error::ConfigError;
pub use idempotency::{Execute, Idempotency};
pub use limiter::{Exempt, Limiter};
pub use settings::{Demands, Settings, Store};
