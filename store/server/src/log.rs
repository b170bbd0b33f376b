//! How does the log look?

use std::io::{IsTerminal as _, stderr};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; in colour on a terminal.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Logs to stderr from here on.
pub(crate) fn start(level: LevelFilter, format: Format) {
    let log = tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_max_level(level);
    match format {
        Format::Text => log.with_ansi(stderr().is_terminal()).init(),
        Format::Json => log
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .init(),
    }
}
