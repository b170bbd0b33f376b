//! The whole set-up: store, service and Envoy in one temporary directory.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::artifacts::Artifacts;
use super::clock::WallClock;
use super::config::EnvoyConfig;
use super::envoy::Envoy;
use super::store::Store;
use super::upstream::Upstream;
use crate::client::{Answer, Request};

/// What is to be started.
#[derive(Debug)]
pub struct Setup {
    /// The shipped configuration, edited.
    pub config: EnvoyConfig,
    /// Put the store under a wall clock that can be moved.
    pub movable_clock: bool,
    /// Envoy's worker threads.
    pub workers: u32,
    /// Another service than the demo's.
    pub upstream: Option<SocketAddr>,
    /// Print the end of each process's log when the stack is dropped. A test runner shows that when a test fails.
    pub prints_logs: bool,
    directory: TempDir,
}

impl Setup {
    /// The shipped configuration on two workers.
    ///
    /// # Errors
    /// When the shipped file cannot be read, or there is no room for a temporary directory.
    pub fn shipped() -> anyhow::Result<Self> {
        Ok(Self {
            config: EnvoyConfig::shipped()?,
            movable_clock: false,
            workers: 2,
            upstream: None,
            prints_logs: false,
            directory: tempfile::Builder::new().prefix("porch-").tempdir()?,
        })
    }

    /// Replaces the limiter's rules.
    ///
    /// # Errors
    /// When the shipped file has no limiter.
    pub fn rules(mut self, rules: Value) -> anyhow::Result<Self> {
        self.limiter_field("rules", rules)?;
        Ok(self)
    }

    /// Says what the limiter does without the store: local or deny.
    ///
    /// # Errors
    /// When the shipped file has no limiter.
    pub fn on_store_failure(mut self, action: &str) -> anyhow::Result<Self> {
        self.limiter_field("on_store_failure", action.into())?;
        Ok(self)
    }

    fn limiter_field(&mut self, field: &str, value: Value) -> anyhow::Result<()> {
        if let Some(limiter) = self
            .config
            .limiter()?
            .get_mut("limiter")
            .and_then(Value::as_object_mut)
        {
            limiter.insert(field.to_owned(), value);
        }
        Ok(())
    }

    /// Where all files of this run will be.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts everything.
    ///
    /// # Errors
    /// When a part is missing or does not get ready; the error has the end of its log.
    pub fn start(self) -> anyhow::Result<Stack> {
        Stack::start(self)
    }
}

/// Everything, running. Dropping it ends every process and removes the directory.
#[derive(Debug)]
pub struct Stack {
    /// In front. First, so that it ends first.
    pub envoy: Envoy,
    /// The service.
    pub upstream: Upstream,
    /// The store.
    pub store: Store,
    prints_logs: bool,
    directory: TempDir,
}

impl Stack {
    fn start(setup: Setup) -> anyhow::Result<Self> {
        let artifacts = Artifacts::find()?;
        let path = setup.directory.path();
        let clock = if setup.movable_clock {
            Some(WallClock::new(path)?)
        } else {
            None
        };
        let mut store = Store::new(&artifacts.store, path, clock);
        store.start()?;
        let upstream = Upstream::start(&artifacts.host, path)?;
        let mut config = setup.config.clone();
        if config.has_plugin() {
            config.set_wasm(&artifacts.wasm)?;
        }
        config.set_store_socket(store.socket())?;
        config.set_upstream(setup.upstream.unwrap_or(upstream.address))?;
        let mut envoy = Envoy::new(&artifacts.envoy, path, config, setup.workers);
        envoy.start()?;
        Ok(Self {
            envoy,
            upstream,
            store,
            prints_logs: setup.prints_logs,
            directory: setup.directory,
        })
    }

    /// Sends a request through Envoy.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        request.send(self.envoy.address)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The last lines that each process has printed.
    pub fn logs(&self) -> String {
        let all = [
            self.store.process.as_ref(),
            self.upstream.process.as_ref(),
            self.envoy.process.as_ref(),
        ];
        all.into_iter()
            .flatten()
            .map(super::process::Process::log_tail)
            .collect()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.prints_logs {
            #[expect(clippy::print_stderr, reason = "what a failing test shows")]
            {
                eprintln!("{}", self.logs());
            }
        }
    }
}
