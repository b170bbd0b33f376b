//! The store.
fn main() {}
