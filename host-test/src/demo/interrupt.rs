//! Ctrl-C: every process that was started ends, and no file stays.

use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::harness::end_all;

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// A watch over SIGINT, SIGTERM and SIGHUP.
pub(super) struct Interrupt {
    exit_code: Arc<AtomicI32>,
}

impl Interrupt {
    /// From now on such a signal ends all processes of the harness, removes `directory` and ends this process.
    pub(super) fn watch(directory: &Path) -> anyhow::Result<Self> {
        let exit_code = Arc::new(AtomicI32::new(INTERRUPTED));
        let (directory, code) = (directory.to_owned(), Arc::clone(&exit_code));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch SIGTERM")?;
        let mut hangup = signal(SignalKind::hangup()).context("cannot watch SIGHUP")?;
        drop(guard);
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            end_all();
            std::fs::remove_dir_all(&directory).ok(); // Gone already, or the system's to clean.
            // The story's thread is in the middle of something that has no end now.
            process::exit(code.load(Ordering::Relaxed));
        });
        Ok(Self { exit_code })
    }

    /// From now on the signal is how the demo is meant to end.
    pub(super) fn is_the_end(&self, well: bool) {
        self.exit_code.store(i32::from(!well), Ordering::Relaxed);
    }
}
