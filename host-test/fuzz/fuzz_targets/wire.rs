//! Any bytes as messages of the channel: refused, or read, and the same again when written and read once more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use porch_wire::{Calls, Replies};
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(calls) = Calls::decode(bytes) {
        assert_eq!(Calls::decode(calls.encode_to_vec().as_slice()).as_ref(), Ok(&calls));
    }
    if let Ok(replies) = Replies::decode(bytes) {
        assert_eq!(Replies::decode(replies.encode_to_vec().as_slice()).as_ref(), Ok(&replies));
    }
});
