//! The shared-data channel (`proto/shared_data.proto`): messages always, gRPC stubs behind the features `client`
//! and `server`. The generated code is checked in, so that no build needs protoc; a test proves it fresh.

#[rustfmt::skip]
#[allow(
    clippy::pedantic, clippy::allow_attributes, clippy::allow_attributes_without_reason, clippy::use_self, clippy::or_fun_call, missing_docs, unreachable_pub,
    unused_qualifications, clippy::large_futures, reason = "generated code"
)]
#[path = "generated/porch.v1.rs"]
mod v1;

pub use v1::*;

/// The protocol that this crate's messages speak: `Calls.protocol` and the `porch-protocol` metadata of Invoke.
pub const PROTOCOL: u32 = 1;

/// The largest message either side sends or accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Response bodies above this many bytes go by Invoke, so that they never block the channel.
pub const CHANNEL_BODY_BYTES_MAX: usize = 64 * 1024;
