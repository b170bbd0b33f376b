//! The harness: a demo service that counts what it ran, and everything needed to put a real Envoy, a real store and
//! that service together on this machine, for the acceptance tests and the demo.

pub mod bench;
pub mod client;
pub mod demo;
pub mod harness;
pub mod torture;
pub mod upstream;
