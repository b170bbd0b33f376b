//! The demo service as a process.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;

use super::patience::{PATIENCE, eventually};
use super::process::Process;
use crate::client::Request;

/// The running service.
#[derive(Debug)]
pub struct Upstream {
    /// What it listens on.
    pub address: SocketAddr,
    pub(super) process: Process,
}

impl Upstream {
    /// Starts it on a free port, with its rows in `directory`.
    ///
    /// # Errors
    /// When it does not say where it listens.
    pub fn start(host: &Path, directory: &Path) -> anyhow::Result<Self> {
        let log = directory.join("upstream.log");
        let database = directory.join("orders.sqlite");
        let arrange = |command: &mut std::process::Command| {
            command
                .args(["upstream", "--listen", "127.0.0.1:0", "--database"])
                .arg(database);
        };
        let mut process = Process::start("upstream", host, arrange, &log)?;
        let address = eventually("upstream listens", PATIENCE, || {
            process.still_running()?;
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let address = said
                .split_once('\n')
                .and_then(|(line, _)| line.strip_prefix("listening on http://"));
            Ok(address.and_then(|address| address.parse().ok()))
        })?;
        Ok(Self { address, process })
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
