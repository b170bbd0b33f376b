//! What porch promises, through a real Envoy with two workers, a real store process and a real row count.
//!
//! Each test has a stack of its own. Waits are bounded and generous; nothing here passes or fails by speed.

#![expect(clippy::expect_used, reason = "a test's helper fails as a test does")]

mod bad_input;
mod bodies;
mod clock;
mod demo;
mod drain;
mod gone;
mod http2;
mod idempotency;
mod kills;
mod limiter;
mod outage;
mod restarts;
mod retries;
mod scope;
mod support;
mod verify;
mod windows;
