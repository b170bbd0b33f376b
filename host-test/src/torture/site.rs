//! Where does a store under torture live, and how is it started, wrapped, and brought to its end?

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use porch_wire::admin_client::AdminClient;
use porch_wire::{InspectReply, InspectRequest};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::client::Client;
use crate::harness::{PATIENCE, Process, eventually};

/// How long a store may take to end when it has much to write, on a busy machine.
const END_PATIENCE: Duration = Duration::from_mins(4);

/// What stands between the shell and the store: `strace`, `nsenter`, `unshare` and their arguments; variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrap {
    before: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
}

impl Wrap {
    /// Runs the store by another program: the words up to the store's own.
    pub(super) fn by(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let words = words.into_iter();
        Self {
            before: words.map(|word| word.as_ref().to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Takes over the variables that a command was given.
    #[must_use]
    pub(super) fn with_variables_of(mut self, command: &Command) -> Self {
        let set = command.get_envs();
        let set = set.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        self.variables.extend(set);
        self
    }

    /// Adds options of `porch-store serve`.
    #[must_use]
    pub(super) fn options(mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let words = words.into_iter();
        self.options
            .extend(words.map(|word| word.as_ref().to_owned()));
        self
    }
}

/// A directory with a data directory, a socket and a log in it.
#[derive(Debug)]
pub(super) struct Site {
    root: TempDir,
    binary: PathBuf,
    data: PathBuf,
}

impl Site {
    pub(super) fn new() -> anyhow::Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("porch-torture-")
            .tempdir()?;
        Ok(Self {
            binary: store_binary()?,
            data: root.path().join("data"),
            root,
        })
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The data directory.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// The data file.
    pub(super) fn file(&self) -> PathBuf {
        self.data.join("data.mdb")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.root.path().join("store.sock")
    }

    fn log(&self) -> PathBuf {
        self.root.path().join("store.log")
    }

    /// Runs a second store, with options that say where it listens, to its end.
    pub(super) fn run_beside(&self, wrap: &Wrap) -> anyhow::Result<Ended> {
        let log = self.root().join("second.log");
        let mut process = self.spawn(wrap, &log)?;
        let status = process.ended(PATIENCE)?;
        Ended::read(status, &log)
    }

    /// Lets every user look into the directory around the data directory.
    pub(super) fn open_to_all(&self) -> anyhow::Result<()> {
        let mode = Permissions::from_mode(0o777);
        Ok(fs::set_permissions(self.root(), mode)?)
    }

    fn spawn(&self, wrap: &Wrap, log: &Path) -> anyhow::Result<Process> {
        // What this store says, not what the one before did.
        fs::write(log, [])?;
        let program = wrap.before.first().map_or(self.binary.as_path(), Path::new);
        let arrange = |command: &mut Command| {
            command.args(wrap.before.iter().skip(1));
            if !wrap.before.is_empty() {
                command.arg(&self.binary);
            }
            command.arg("serve").arg("--data").arg(&self.data);
            if !wrap.options.iter().any(|option| option == "--listen") {
                command.arg("--listen");
                command.arg(format!("unix:{}", self.socket().display()));
            }
            command.args(&wrap.options);
            let variables = wrap.variables.iter();
            command.envs(variables.map(|(name, value)| (name, value)));
        };
        Process::start("store", program, arrange, log)
    }

    /// Starts the store, and waits until it takes connections.
    pub(super) fn start(&self, wrap: &Wrap) -> anyhow::Result<Running> {
        let socket = self.socket();
        // The file of a store that was killed would not tell whether the next one listens.
        drop(fs::remove_file(&socket));
        let mut process = self.spawn(wrap, &self.log())?;
        eventually("the store takes connections", PATIENCE, || {
            process.still_running()?;
            Ok(UnixStream::connect(&socket).ok())
        })?;
        Ok(Running {
            process,
            socket,
            admin: self.data.join("admin.sock"),
            log: self.log(),
        })
    }

    /// Starts the store and waits until it either listens or has ended.
    pub(super) fn try_start(&self, wrap: &Wrap) -> anyhow::Result<Started> {
        let socket = self.socket();
        drop(fs::remove_file(&socket));
        let mut process = self.spawn(wrap, &self.log())?;
        let ended = eventually("the store listens or ends", PATIENCE, || {
            if process.still_running().is_err() {
                return process.ended(PATIENCE).map(|status| Some(Some(status)));
            }
            Ok(UnixStream::connect(&socket).ok().map(|_| None))
        })?;
        let log = self.log();
        Ok(match ended {
            Some(status) => Started::Ended(Ended::read(status, &log)?),
            None => Started::Listens(Running {
                process,
                socket,
                admin: self.data.join("admin.sock"),
                log,
            }),
        })
    }
}

/// How a start went.
#[derive(Debug)]
pub(super) enum Started {
    /// It takes connections.
    Listens(Running),
    /// It has ended.
    Ended(Ended),
}

/// A store that takes connections; killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    socket: PathBuf,
    admin: PathBuf,
    log: PathBuf,
}

impl Running {
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// A channel to it.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.socket).await
    }

    /// What the operator's socket tells, also of one bucket.
    pub(super) async fn inspect(&self, bucket: Bytes) -> anyhow::Result<InspectReply> {
        let channel = Endpoint::from_shared(format!("unix:{}", self.admin.display()))?
            .connect()
            .await?;
        let request = InspectRequest {
            bucket,
            ..InspectRequest::default()
        };
        Ok(AdminClient::new(channel)
            .inspect(request)
            .await?
            .into_inner())
    }

    /// A crash.
    ///
    /// # Errors
    /// When it had ended before.
    pub(super) fn kill(self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Whether it still runs; the error has the end of its log.
    pub(super) fn still_running(&mut self) -> anyhow::Result<()> {
        self.process.still_running()
    }

    /// An orderly stop; answers how long it took. Its clients' connections live on meanwhile, or end if they were dropped.
    pub(super) async fn terminate(mut self) -> anyhow::Result<Duration> {
        let stop = move || {
            let since = Instant::now();
            self.process.signal(Signal::TERM)?;
            let status = self.process.ended(END_PATIENCE)?;
            ensure!(
                status.success(),
                "SIGTERM: expected exit code 0, came {status}\n{}",
                self.process.log_tail()
            );
            Ok(since.elapsed())
        };
        tokio::task::spawn_blocking(stop).await?
    }

    /// Waits for an end that it finds by itself.
    pub(super) fn ended(mut self) -> anyhow::Result<Ended> {
        let status = self.process.ended(PATIENCE)?;
        Ended::read(status, &self.log)
    }

    /// A number in KiB of `/proc/PID/status`.
    pub(super) fn memory_kib(&self, name: &str) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| {
            let mut words = line.trim_start_matches(':').split_whitespace();
            words.next()?.parse().ok()
        });
        number.with_context(|| format!("{path}: expected a line `{name}: N kB`, found none"))
    }
}

/// How a store ended, and what it said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// Everything that it wrote.
    pub(super) told: String,
}

impl Ended {
    fn read(status: ExitStatus, log: &Path) -> anyhow::Result<Self> {
        let told = fs::read(log).with_context(|| format!("{}", log.display()))?;
        Ok(Self {
            status,
            told: String::from_utf8_lossy(&told).into_owned(),
        })
    }

    /// Checks that this is a defined end: exit code 1, and one line of the command itself that holds each of these words.
    pub(super) fn check(&self, words: &[&str]) -> anyhow::Result<()> {
        let Self { status, told } = self;
        ensure!(
            status.code() == Some(1),
            "expected exit code 1, came {status}: {told}"
        );
        let lines = told.lines();
        let lines: Vec<&str> = lines
            .filter(|line| line.starts_with("porch-store:"))
            .collect();
        let [line] = lines.as_slice() else {
            bail!("expected one line that starts with `porch-store:`, came: {told}");
        };
        for word in words {
            ensure!(
                line.contains(word),
                "expected `{word}` in the last line, came: {line}"
            );
        }
        Ok(())
    }
}

/// The store: `PORCH_STORE`, else the newest build in target/.
fn store_binary() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = here.parent().unwrap_or(here);
    if let Some(named) = env::var_os("PORCH_STORE").filter(|named| !named.is_empty()) {
        let named = project.join(named);
        ensure!(
            named.is_file(),
            "PORCH_STORE: expected a file, and there is none at {}",
            named.display()
        );
        return Ok(named);
    }
    let written = |path: &PathBuf| {
        let metadata = path.metadata();
        metadata
            .and_then(|metadata| metadata.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    ["debug", "release"]
        .map(|profile| project.join("target").join(profile).join("porch-store"))
        .into_iter()
        .filter(|path| path.is_file())
        .max_by_key(written)
        .context("no porch-store in target/; run `scripts/build`, or name the file in PORCH_STORE")
}
