//! What the demo prints as it goes.

#![expect(clippy::print_stdout, reason = "the demo is for people to read")]

use crate::client::Answer;

/// Header lines that the story shows, when an answer has them.
const SHOWN: &[&str] = &[
    "ratelimit-policy",
    "ratelimit",
    "retry-after",
    "location",
    "etag",
    "x-item",
    "idempotent-replayed",
];

/// A line that stands out.
pub(super) fn title(text: &str) {
    println!("\n{text}");
}

/// A line of the story.
pub(super) fn line(text: &str) {
    println!("   {text}");
}

/// An exchange: what was sent, and the answer in short.
pub(super) fn exchange(sent: &str, answer: &Answer) {
    let shown = |name: &str| SHOWN.contains(&name.to_ascii_lowercase().as_str());
    let lines = answer.lines.iter().filter(|(name, _)| shown(name));
    let lines: Vec<String> = lines
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    println!("   {sent:<44} -> {}  {}", answer.status, lines.join("  "));
    if !answer.problem().is_empty() {
        println!(
            "   {:<44}    {}",
            "",
            String::from_utf8_lossy(&answer.body).trim_end()
        );
    }
}
