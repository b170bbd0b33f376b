//! A real Envoy, store and service as a driver.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use porch_host::client::{Answer, Request, Started};
use porch_host::harness::{PATIENCE, Setup, Stack, eventually};
use serde_json::{Value, json};

use crate::play::Driver;
use crate::script::{Begun, Route, Setting};
use crate::settings::jwt_filter;

pub(crate) struct Envoy {
    stack: Stack,
    started: BTreeMap<&'static str, Started>,
}

impl Envoy {
    pub(crate) fn new(setting: &Setting) -> anyhow::Result<Self> {
        let mut setup = Setup::shipped()?;
        setup.prints_logs = true;
        setup.workers = setting.workers;
        let config = &mut setup.config;
        config.limiter()?["limiter"] = setting.limiter.clone();
        config.idempotency()?["idempotency"] = setting.idempotency.clone();
        config.set_store("timeout", &json!(setting.store_timeout))?;
        config.trust_hops(1)?;
        config.set_on_main("upgrade_configs", &json!([{"upgrade_type": "websocket"}]))?;
        config.add_filter("porch.limiter", &jwt_filter())?;
        config.accept_all_of_http1()?;
        for route in setting.routes.iter().rev() {
            config.add_route(&written(route))?;
        }
        Ok(Self {
            stack: setup.start()?,
            started: BTreeMap::new(),
        })
    }
}

fn written(route: &Route) -> Value {
    let mut written = json!({"name": route.name, "match": {"prefix": route.prefix}});
    match route.direct {
        Some(status) => written["direct_response"] = json!({"status": status}),
        None => written["route"] = json!({"cluster": "upstream", "timeout": "15s"}),
    }
    if route.retries {
        written["route"]["retry_policy"] = json!({
            "retry_on": "5xx,reset,connect-failure", "num_retries": 3,
            "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.02s"},
        });
    }
    let mut porch = json!({});
    for (field, names) in [("rules", route.rules), ("policies", route.policies)] {
        if let Some(names) = names {
            porch[field] = json!(names);
        }
    }
    written["metadata"] = json!({"filter_metadata": {"porch": porch}});
    written
}

impl Driver for Envoy {
    fn send(&mut self, request: &Request) -> anyhow::Result<Answer> {
        self.stack.send(request)
    }

    fn start(&mut self, name: &'static str, request: &Request, begun: Begun) -> anyhow::Result<()> {
        let path = request
            .path()
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned();
        let before = self.stack.upstream.rows_of(&path)?;
        let started = request.start(self.stack.envoy.address)?;
        if begun == Begun::Running {
            eventually("the service runs it", PATIENCE, || {
                Ok((self.stack.upstream.rows_of(&path)? > before).then_some(()))
            })?;
        }
        self.started.insert(name, started);
        Ok(())
    }

    fn head(&mut self, name: &'static str) -> anyhow::Result<Answer> {
        self.started
            .get_mut(name)
            .context("no such request")?
            .head()
    }

    fn finish(&mut self, name: &'static str) -> anyhow::Result<Answer> {
        self.started
            .remove(name)
            .context("no such request")?
            .finish()
    }

    fn leave(&mut self, name: &'static str) -> anyhow::Result<()> {
        drop(self.started.remove(name).context("no such request")?);
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<()> {
        thread::sleep(time);
        Ok(())
    }

    fn rows(&mut self, path: &str) -> anyhow::Result<u64> {
        self.stack.upstream.rows_of(path)
    }

    fn counted(&mut self, metric: &str) -> anyhow::Result<u64> {
        self.stack.envoy.stat(&format!("wasmcustom.porch.{metric}"))
    }

    fn store(&mut self, up: bool) -> anyhow::Result<()> {
        if up {
            self.stack.store.start()
        } else {
            self.stack.store.terminate()
        }
    }
}
