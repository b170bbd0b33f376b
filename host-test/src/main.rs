//! The harness.
fn main() {}
