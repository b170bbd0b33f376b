//! How does an answer look in a terminal, or as JSON?

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use serde_json::Value;

/// Prints to stdout.
pub(super) fn text(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())
}

/// Prints one JSON object.
pub(super) fn json(value: &Value) -> anyhow::Result<()> {
    text(&format!("{value:#}\n"))
}

/// Prints bytes as they are.
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(bytes)
        .context("cannot write to stdout")
}

/// A time such as `1m 5s 20ms`.
pub(super) fn time(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let bytes = bytes.iter();
    bytes
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}
