//! The demo service as a process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::patience::{PATIENCE, eventually};
use super::process::Process;
use crate::client::Request;

/// The service with its rows; it may be running or not. Its port stays when it is started again.
#[derive(Debug)]
pub struct Upstream {
    /// What it listens on.
    pub address: SocketAddr,
    host: PathBuf,
    directory: PathBuf,
    pub(super) process: Option<Process>,
}

impl Upstream {
    /// Starts it on a free port, with its rows in `directory`.
    ///
    /// # Errors
    /// When it does not say where it listens.
    pub fn start(host: &Path, directory: &Path) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (host, directory) = (host.to_owned(), directory.to_owned());
        let mut upstream = Self {
            address,
            host,
            directory,
            process: None,
        };
        upstream.start_again()?;
        Ok(upstream)
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process
            .take()
            .context("upstream is not running")?
            .kill()
    }

    /// Starts it on the port that it had, with the rows that it had.
    ///
    /// # Errors
    /// When it runs already, or does not say where it listens.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_none(), "upstream runs already");
        let log = self.directory.join("upstream.log");
        let arrange = |command: &mut Command| {
            command.args([
                "upstream",
                "--listen",
                &self.address.to_string(),
                "--database",
            ]);
            command.arg(self.directory.join("orders.sqlite"));
        };
        drop(fs::remove_file(&log)); // There is none at the first start; an old one tells an old port.
        let mut process = Process::start("upstream", &self.host, arrange, &log)?;
        self.address = eventually("upstream listens", PATIENCE, || {
            process.still_running()?;
            let said = fs::read_to_string(&log).unwrap_or_default();
            let address = said
                .split_once('\n')
                .and_then(|(line, _)| line.strip_prefix("listening on http://"));
            Ok(address.and_then(|address| address.parse().ok()))
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// How often it ran a handler that inserts a row.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn rows(&self) -> anyhow::Result<u64> {
        self.count("/orders/count")
    }

    /// How often it ran one for this path.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn rows_of(&self, path: &str) -> anyhow::Result<u64> {
        self.count(&format!("/orders/count?path={path}"))
    }

    fn count(&self, path: &str) -> anyhow::Result<u64> {
        let answer = Request::get(path)
            .send(self.address)
            .context("upstream's count")?;
        answer
            .json()
            .get("rows")
            .and_then(serde_json::Value::as_u64)
            .context("upstream's count is no number")
    }
}
