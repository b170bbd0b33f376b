//! What porch promises, through a real Envoy with two workers, a real store process and a real row count.
//!
//! Each test has a stack of its own. Waits are bounded and generous; nothing here passes or fails by speed.

#![expect(clippy::expect_used, reason = "a test's helper fails as a test does")]

mod bad_input;
mod clock;
mod idempotency;
mod kills;
mod limiter;
mod outage;
mod restarts;
mod retries;
mod support;
mod verify;
mod windows;
