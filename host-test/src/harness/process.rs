//! One child process: started, watched, signalled and ended by its pid.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::patience::eventually;

const LOG_TAIL_LINES: usize = 60;
/// After this time SIGTERM is followed by SIGKILL.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A running child; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to the end of `log`. The child is told to die with this process, however
    /// that ends, and stands in a process group of its own, so that a Ctrl-C is ours to handle.
    ///
    /// # Errors
    /// When the program or the log file cannot be opened.
    pub fn start(
        name: &str,
        program: &Path,
        arrange: impl FnOnce(&mut Command),
        log: &Path,
    ) -> anyhow::Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("{}", log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        arrange(&mut command);
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = spawn(command)
            .with_context(|| format!("cannot start {name}, {}", program.display()))?;
        let process = Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        };
        running().insert(process.child.id());
        Ok(process)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = pid(self.child.id()).context("no such process id")?;
        kill_process(pid, signal).with_context(|| format!("{} takes no {signal:?}", self.name))
    }

    /// Ends it in order: SIGTERM, and a bounded wait.
    ///
    /// # Errors
    /// When it does not end, or ends with another code than 0.
    pub fn terminate(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.ended(STOP_PATIENCE)?;
        if status.success() {
            return Ok(());
        }
        Err(anyhow!(
            "{} ended with {status} on SIGTERM\n{}",
            self.name,
            self.log_tail()
        ))
    }

    /// Ends it at once: SIGKILL.
    ///
    /// # Errors
    /// When it was dead already: then it crashed.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.still_running()?;
        self.end();
        Ok(())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When it is still running after `patience`.
    pub fn ended(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} ends", self.name);
        eventually(&what, patience, || Ok(self.child.try_wait()?))
    }

    /// Checks that it runs.
    ///
    /// # Errors
    /// When it has ended; the error has the end of its log.
    pub fn still_running(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(anyhow!(
                "{} ended with {status}\n{}",
                self.name,
                self.log_tail()
            )),
        }
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(LOG_TAIL_LINES)..)
            .unwrap_or_default();
        format!(
            "---- {}, {} ----\n{}\n",
            self.name,
            self.log.display(),
            tail.join("\n")
        )
    }

    fn end(&mut self) {
        // Either fails only when it has ended already, which is what we want.
        drop(self.child.kill());
        drop(self.child.wait());
        running().remove(&self.child.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends every process that was started here and still runs: SIGTERM, a short wait, SIGKILL. For a command that was
/// told to stop; nothing may be started any more.
pub fn end_all() {
    let all: Vec<Pid> = running().iter().filter_map(|id| pid(*id)).collect();
    for signal in [Signal::TERM, Signal::KILL] {
        for pid in &all {
            kill_process(*pid, signal).ok(); // It may have ended by itself.
        }
        // Looks without reaping: the handle's owner may want the status.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let gone = |pid: &Pid| !matches!(waitid(WaitId::Pid(*pid), look), Ok(None));
        let all_gone = eventually("all processes end", Duration::from_secs(3), || {
            Ok(all.iter().all(gone).then_some(()))
        });
        if all_gone.is_ok() {
            return;
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

fn running() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spawns from a thread that lives as long as this process: a child that asked to die with its parent (Envoy does so
/// by itself) dies with the thread that made it.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in incoming {
                drop(reply.send(command.spawn())); // Who asked has left: its child is dropped with the reply.
            }
        });
        orders
    });
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}
