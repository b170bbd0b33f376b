//! The demo service: what stands behind the proxy and counts how often it ran.
//!
//! A row is committed before any byte of an answer, so its count is the truth about executions.

mod answer;
mod handler;
mod rows;
mod server;
mod wish;

pub use answer::{Answer, Framing};
pub use handler::{Handled, Outcome, Request, Table, handle};
pub use server::serve;
