//! Envoy as a process.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::config::EnvoyConfig;
use super::patience::{PATIENCE, eventually};
use super::process::Process;
use crate::client::{Answer, Request};

const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// An Envoy with its configuration; it may be running or not. Its ports stay when it is started again.
#[derive(Debug)]
pub struct Envoy {
    binary: PathBuf,
    directory: PathBuf,
    config: EnvoyConfig,
    workers: u32,
    /// Where clients come in.
    pub address: SocketAddr,
    admin: SocketAddr,
    pub(super) process: Option<Process>,
}

impl Envoy {
    /// An Envoy that is not running yet, with its files in `directory`.
    pub fn new(binary: &Path, directory: &Path, config: EnvoyConfig, workers: u32) -> Self {
        Self {
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            config,
            workers,
            address: ANY_PORT,
            admin: ANY_PORT,
            process: None,
        }
    }

    /// Starts it, and waits until it serves.
    ///
    /// # Errors
    /// When it runs already, refuses its configuration, or does not get ready.
    pub fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "Envoy runs already");
        self.config.set_ports(self.address, self.admin)?;
        let file = self.directory.join("envoy.json");
        std::fs::write(&file, self.config.text())?;
        let admin_file = self.directory.join("envoy-admin-address");
        drop(std::fs::remove_file(&admin_file)); // There is none at the first start.
        let arrange = |command: &mut Command| {
            command.arg("-c").arg(&file).args([
                "--concurrency",
                &self.workers.to_string(),
                "--use-dynamic-base-id",
            ]);
            command.args(["-l", "warning", "--component-log-level", "wasm:info"]);
            command.arg("--admin-address-path").arg(&admin_file);
        };
        let mut process = Process::start(
            "envoy",
            &self.binary,
            arrange,
            &self.directory.join("envoy.log"),
        )?;
        self.admin = eventually("Envoy is ready", PATIENCE, || {
            process.still_running()?;
            let said = std::fs::read_to_string(&admin_file).unwrap_or_default();
            let Ok(admin) = said.trim().parse() else {
                return Ok(None);
            };
            let ready = Request::get("/ready").send(admin);
            Ok(ready
                .is_ok_and(|answer| answer.status == 200)
                .then_some(admin))
        })?;
        self.process = Some(process);
        self.address = self.main_address()?;
        Ok(())
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.process.as_ref().context("Envoy is not running")?.id())
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().context("Envoy is not running")?.kill()
    }

    /// Stops it in order, in two steps: this one takes no more connections, and waits until nothing is in flight.
    ///
    /// # Errors
    /// When it does not answer, or something stays in flight.
    pub fn drain(&self) -> anyhow::Result<()> {
        for path in ["/healthcheck/fail", "/drain_listeners?graceful"] {
            let answer = Request::new("POST", path).send(self.admin)?;
            ensure!(answer.status == 200, "{path}: {answer:?}");
        }
        eventually("nothing is in flight", PATIENCE, || {
            let executing = self.stat("cluster.porch_execute.upstream_rq_active")?;
            let clients = self.stat("http.main.downstream_rq_active")?;
            Ok((executing + clients == 0).then_some(()))
        })
    }

    /// Ends it in order. It cuts off what is in flight: see [`Self::drain`].
    ///
    /// # Errors
    /// When it is not running, or its end is no success.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.process
            .take()
            .context("Envoy is not running")?
            .terminate()
    }

    /// Asks its admin listener.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn admin(&self, path: &str) -> anyhow::Result<Answer> {
        Request::get(path)
            .send(self.admin)
            .with_context(|| format!("Envoy's admin listener, {path}"))
    }

    /// The value of a counter or gauge; 0 when there is none.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let answer = self.admin("/stats")?;
        let text = String::from_utf8_lossy(&answer.body);
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// How many client connections each worker has taken.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connections_by_worker(&self) -> anyhow::Result<Vec<u64>> {
        let all = self
            .admin("/stats?filter=listener.main.worker_.*downstream_cx_total")?
            .body;
        let all = String::from_utf8_lossy(&all).into_owned();
        Ok(all
            .lines()
            .filter_map(|line| line.rsplit_once(": ")?.1.parse().ok())
            .collect())
    }

    fn main_address(&self) -> anyhow::Result<SocketAddr> {
        let listeners = self.admin("/listeners?format=json")?.json();
        let all = listeners
            .get("listener_statuses")
            .and_then(Value::as_array)
            .context("Envoy lists no listeners")?;
        let main = all
            .iter()
            .find(|listener| listener.get("name").and_then(Value::as_str) == Some("main"));
        let address = main.and_then(|main| main.pointer("/local_address/socket_address"));
        let field = |name| address.and_then(|address| address.get(name));
        let ip = field("address")
            .and_then(Value::as_str)
            .context("no address of the listener main")?;
        let port = field("port_value")
            .and_then(Value::as_u64)
            .context("no port of the listener main")?;
        Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
    }
}
