//! How is the store started, stopped and killed?

use std::{
    fs,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;

/// A store is given so long before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place for a store: its data directory and its socket.
pub(crate) struct Place {
    root: TempDir,
    pub(crate) options: Vec<String>,
    /// Another address to listen on than the socket.
    pub(crate) listen: Option<String>,
}

impl Place {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            root: tempfile::tempdir()?,
            options: Vec::new(),
            listen: None,
        })
    }

    pub(crate) fn with(options: &[&str]) -> anyhow::Result<Self> {
        let mut place = Self::new()?;
        place.options = options.iter().map(ToString::to_string).collect();
        Ok(place)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.path().join("store.sock")
    }

    pub(crate) fn command(&self) -> Command {
        let socket = || format!("unix:{}", self.socket().display());
        let listen = self.listen.clone().unwrap_or_else(socket);
        let mut command = binary();
        command
            .arg("serve")
            .arg("--data")
            .arg(self.data())
            .arg("--listen")
            .arg(listen)
            .args(&self.options);
        command
    }

    /// Starts the store, and waits until it listens.
    pub(crate) fn start(&self) -> anyhow::Result<Process> {
        let log = fs::File::create(self.log())?;
        let child = self.command().stderr(log).spawn()?;
        let mut process = Process { child };
        let since = Instant::now();
        while !fs::read_to_string(self.log())?.contains("ready") {
            if let Some(status) = process.child.try_wait()? {
                bail!(
                    "ended at start, {status}: {}",
                    fs::read_to_string(self.log())?
                );
            }
            if since.elapsed() > PATIENCE {
                bail!("not ready after {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(process)
    }

    /// Starts a store that is expected to refuse; answers its exit status and what it said.
    pub(crate) fn refused(&self) -> anyhow::Result<(ExitStatus, String)> {
        let mut child = self.command().stderr(Stdio::piped()).spawn()?;
        let status = wait(&mut child)?;
        let mut told = String::new();
        let mut stderr = child.stderr.take().context("stderr is piped")?;
        stderr.read_to_string(&mut told)?;
        Ok((status, told))
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.socket()).await
    }

    /// The value of a field in the line that the store logs when it is ready.
    pub(crate) fn told(&self, field: &str) -> anyhow::Result<String> {
        let log = fs::read_to_string(self.log())?;
        let line = log.lines().find(|line| line.contains("ready"));
        let mut words = line.unwrap_or_default().split_whitespace();
        let told = words.find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        Ok(told
            .with_context(|| format!("{field} in {log}"))?
            .to_owned())
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.path().join("log")
    }
}

pub(crate) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_porch-store"))
}

/// A running store; killed when dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).context("the store is there to be signalled")
    }

    /// An orderly stop.
    pub(crate) fn terminate(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = wait(&mut self.child)?;
        if !status.success() {
            bail!("SIGTERM: expected exit code 0, came {status}");
        }
        Ok(())
    }

    /// A crash.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let status = wait(&mut self.child)?;
        if status.signal() != Some(9) {
            bail!("SIGKILL: expected to be killed, came {status}");
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if since.elapsed() > PATIENCE {
            child.kill()?;
            bail!("still there after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
