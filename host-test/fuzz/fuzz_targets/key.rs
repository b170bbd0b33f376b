//! Any bytes as the lines of an Idempotency-Key header: absent, a key within its bounds, or invalid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use porch_core::idempotency::key::{KEY_BYTES_MAX, KeyHeader};

fuzz_target!(|lines: (Vec<Vec<u8>>, bool)| {
    let (lines, strict) = lines;
    match KeyHeader::read(lines.iter().map(Vec::as_slice), strict) {
        KeyHeader::Absent => assert!(lines.is_empty()),
        KeyHeader::Key(key) => {
            assert_eq!(lines.len(), 1);
            assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
            assert!(key.iter().all(|byte| (0x20..0x7f).contains(byte)), "an RFC 9651 String is printable ASCII");
        }
        KeyHeader::Invalid(why) => assert!(!why.is_empty()),
    }
});
