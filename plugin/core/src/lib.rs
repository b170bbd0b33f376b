//! Every decision of porch: events in, actions out.
//!
//! Nothing here does I/O, asks for the time or draws randomness: an adapter tells an [`exchange::Exchange`] what
//! happened and when, and carries out what it answers. The store's engine takes the pure parts that it runs inside
//! its transactions: [`window`] and [`record`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::float_arithmetic,
        clippy::wildcard_enum_match_arm
    )
)]

pub mod address;
pub mod channel;
pub mod config;
pub mod exchange;
pub mod hash;
pub mod http;
pub mod idempotency;
pub mod limiter;
pub mod matching;
pub mod principal;
pub mod problem;
pub mod record;
pub mod store;
pub mod time;
pub mod window;
