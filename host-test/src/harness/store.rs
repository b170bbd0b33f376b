//! The store as a process, and what its operator's socket tells.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use super::clock::WallClock;
use super::patience::{PATIENCE, eventually};
use super::process::Process;

/// A store with its data directory; it may be running or not.
#[derive(Debug)]
pub struct Store {
    binary: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    clock: Option<WallClock>,
    pub(super) process: Option<Process>,
}

impl Store {
    /// A store that is not running yet, with its data in `directory`; under `clock` when there is one.
    pub fn new(binary: &Path, directory: &Path, clock: Option<WallClock>) -> Self {
        Self {
            binary: binary.to_owned(),
            data: directory.join("data"),
            socket: directory.join("store.sock"),
            log: directory.join("store.log"),
            clock,
            process: None,
        }
    }

    /// The socket that the proxy connects to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The wall clock that it runs under, when that can be moved.
    pub fn clock(&self) -> Option<&WallClock> {
        self.clock.as_ref()
    }

    /// Starts it, and waits until it takes connections.
    ///
    /// # Errors
    /// When it runs already, or ends, or does not get ready.
    pub fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "the store runs already");
        let arrange = |command: &mut Command| {
            command.arg("serve").arg("--data").arg(&self.data);
            command
                .arg("--listen")
                .arg(format!("unix:{}", self.socket.display()));
            if let Some(clock) = &self.clock {
                clock.around(command);
            }
        };
        let mut process = Process::start("store", &self.binary, arrange, &self.log)?;
        eventually("the store takes connections", PATIENCE, || {
            process.still_running()?;
            Ok(UnixStream::connect(&self.socket).ok())
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When it is not running, or its end is no success.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.process
            .take()
            .context("the store is not running")?
            .terminate()
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process
            .take()
            .context("the store is not running")?
            .kill()
    }

    /// Stops its execution (true) or lets it go on: a store that hangs.
    ///
    /// # Errors
    /// When it is not running.
    pub fn hang(&self, hang: bool) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("the store is not running")?;
        process.signal(if hang { Signal::STOP } else { Signal::CONT })
    }

    /// Whether the faked clock's library is in the running process.
    ///
    /// # Errors
    /// When it is not running.
    pub fn runs_under_its_clock(&self) -> anyhow::Result<bool> {
        let id = self
            .process
            .as_ref()
            .context("the store is not running")?
            .id();
        Ok(std::fs::read_to_string(format!("/proc/{id}/maps"))?.contains("libfaketimeMT"))
    }

    /// Asks for the numbers of rows and, with a bucket's hash, for its window.
    ///
    /// # Errors
    /// When the store does not answer, or answers something else.
    pub fn inspect(&self, bucket: Option<&[u8; 32]>) -> anyhow::Result<Inspected> {
        let mut command = Command::new(&self.binary);
        command
            .args(["inspect", "--json", "--admin"])
            .arg(format!("unix:{}", self.data.join("admin.sock").display()));
        if let Some(bucket) = bucket {
            let hex: Vec<String> = bucket.iter().map(|byte| format!("{byte:02x}")).collect();
            command.arg("--bucket").arg(hex.concat());
        }
        let output = command.output().context("cannot run porch-store inspect")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "inspect failed: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_str(&said).with_context(|| format!("inspect printed {said}"))
    }
}

/// What the store holds: `InspectReply` of the protocol.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Inspected {
    /// Rows of the table of counters.
    pub counter_rows: u64,
    /// Rows of the table of records.
    pub record_rows: u64,
    /// Rows of the table of bodies.
    pub body_rows: u64,
    /// Rows of the index by expiry.
    pub expiry_rows: u64,
    /// Buckets in memory.
    pub live_buckets: u64,
    /// The logical clock, in milliseconds.
    pub now_ms: u64,
    /// The bucket that was asked for, when it is there.
    #[serde(default)]
    pub bucket: Option<Window>,
}

/// One bucket's window: `BucketWindow` of the protocol.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Window {
    /// When it opened, on the logical clock.
    pub window_start_ms: u64,
    /// Its length.
    pub window_s: u32,
    /// Hits in it.
    pub count: u64,
    /// The durable upper bound of `count`; 0 when there is no row.
    pub ceiling: u64,
    /// Whether it is in memory.
    pub live: bool,
    /// Whether it has ended.
    pub expired: bool,
}
