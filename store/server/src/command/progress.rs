//! How far is a read of the whole file? Told on stderr: a bar in a terminal, else a line at each tenth.

use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Rows,
}

/// The progress of one read.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    unit: Unit,
    bar: Option<ProgressBar>,
    tenths: u64,
}

impl Progress {
    pub(super) fn new(what: &'static str, unit: Unit) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let template = match unit {
                Unit::Bytes => "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left",
                Unit::Rows => "{msg} {wide_bar} {human_pos} of {human_len} rows, {eta} left",
            };
            let style = ProgressStyle::with_template(template);
            let bar = ProgressBar::new(0).with_message(what);
            bar.enable_steady_tick(Duration::from_millis(250));
            match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self {
            what,
            unit,
            bar,
            tenths: 0,
        }
    }

    pub(super) fn at(&mut self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
            return;
        }
        let tenths = (done * 10).checked_div(all).unwrap_or(10).min(10);
        if tenths > self.tenths {
            self.tenths = tenths;
            let what = self.what;
            let percent = tenths * 10;
            crate::say(&match self.unit {
                Unit::Bytes => format!("{what}: {percent} %, {}", HumanBytes(done)),
                Unit::Rows => format!("{what}: {percent} %, {done} rows"),
            });
        }
    }

    /// Takes the bar away, so that what follows stands on a line of its own.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
