//! Any text as a configuration: taken, or refused with a field.
#![no_main]

use libfuzzer_sys::fuzz_target;
use porch_core::config::Settings;

fuzz_target!(|text: &[u8]| {
    if let Err(refused) = Settings::parse(text) {
        assert!(!refused.path.is_empty() && !refused.problem.is_empty());
    }
});
