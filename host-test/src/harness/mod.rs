//! Real parts put together on this machine: the store, the demo service and Envoy, each a process of its own on free
//! loopback ports in a temporary directory.

mod artifacts;
mod clock;
mod config;
mod envoy;
mod patience;
mod process;
mod stack;
mod store;
mod upstream;

pub use artifacts::Artifacts;
pub use clock::WallClock;
pub use config::EnvoyConfig;
pub use envoy::Envoy;
pub use patience::{PATIENCE, eventually};
pub use process::{Process, end_all};
pub use stack::{Setup, Stack};
pub use store::{Inspected, Store, Window};
pub use upstream::Upstream;
