//! What is compared: bare Envoy, and what the plugin does on top.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Artifacts, Envoy, EnvoyConfig, Setup, Stack};

/// One thing to measure, and what it is held against.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// The name of the variant that its ratios are to.
    pub(super) base: &'static str,
    pub(super) expected: Expected,
    pub(super) address: SocketAddr,
    pub(super) path: &'static str,
    pub(super) script: PathBuf,
    pub(super) envoy_pid: u32,
}

/// What every answer must be, or the run is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Success,
    Refusal,
}

/// All variants, running.
#[derive(Debug)]
pub(super) struct Bench {
    variants: Vec<Variant>,
    _stacks: Vec<Stack>,
    _service: (Envoy, TempDir),
}

const CLIENTS: u32 = 10_000;

impl Bench {
    pub(super) fn start() -> anyhow::Result<Self> {
        let (service, directory) = service()?;
        let bare = stack(service.address, EnvoyConfig::remove_plugin)?;
        let noop = stack(service.address, |config| {
            set_rules(config, &json!([rule("never", 1, "/never")]))?;
            set_policies(config, "/never")
        })?;
        let limiter = stack(service.address, |config| {
            set_rules(config, &json!([rule("per-client", 4_000_000_000_u32, "/")]))?;
            set_policies(config, "/never")
        })?;
        let alone = stack(service.address, |config| {
            set_rules(config, &json!([rule("per-client", 4_000_000_000_u32, "/")]))?;
            config.remove_idempotency()
        })?;
        let refusing = stack(service.address, |config| {
            set_rules(config, &json!([rule("per-client", 0, "/")]))?;
            set_policies(config, "/never")
        })?;
        let keyed = stack(service.address, |config| {
            set_rules(config, &json!([rule("never", 1, "/never")]))?;
            set_policies(config, "/")
        })?;
        let scripts = Scripts::write(bare.directory())?;
        let variants = vec![
            variant("bare GET", "bare GET", &bare, "/direct", &scripts.get)?,
            variant(
                "both, nothing to do",
                "bare GET",
                &noop,
                "/direct",
                &scripts.get,
            )?,
            variant(
                "limiter alone, 10,000 clients",
                "bare GET",
                &alone,
                "/direct",
                &scripts.get,
            )?,
            variant(
                "both, limiter with 10,000 clients",
                "bare GET",
                &limiter,
                "/direct",
                &scripts.get,
            )?,
            Variant {
                expected: Expected::Refusal,
                ..variant(
                    "both, all refused",
                    "bare GET",
                    &refusing,
                    "/direct",
                    &scripts.get,
                )?
            },
            variant("bare POST", "bare POST", &bare, "/orders", &scripts.post)?,
            variant(
                "POST without a key",
                "bare POST",
                &keyed,
                "/orders",
                &scripts.post,
            )?,
            variant(
                "POST with a new key",
                "bare POST",
                &keyed,
                "/orders",
                &scripts.keyed,
            )?,
            variant(
                "POST replayed",
                "bare POST",
                &keyed,
                "/orders",
                &scripts.replayed,
            )?,
        ];
        Ok(Self {
            variants,
            _stacks: vec![bare, noop, limiter, alone, refusing, keyed],
            _service: (service, directory),
        })
    }

    pub(super) fn variants(&self) -> &[Variant] {
        &self.variants
    }
}

fn variant(
    name: &'static str,
    base: &'static str,
    stack: &Stack,
    path: &'static str,
    script: &Path,
) -> anyhow::Result<Variant> {
    Ok(Variant {
        name,
        base,
        expected: Expected::Success,
        address: stack.envoy.address,
        path,
        script: script.to_owned(),
        envoy_pid: stack.envoy.pid()?,
    })
}

/// A service that costs little: another Envoy, which answers by itself.
fn service() -> anyhow::Result<(Envoy, TempDir)> {
    let artifacts = Artifacts::find()?;
    let directory = tempfile::Builder::new().prefix("porch-").tempdir()?;
    let mut config = EnvoyConfig::shipped()?;
    config.remove_plugin()?;
    config.remove_access_logs()?;
    config.add_route(&direct("/"))?;
    let mut envoy = Envoy::new(&artifacts.envoy, directory.path(), config, 1);
    envoy.start()?;
    Ok((envoy, directory))
}

fn stack(
    service: SocketAddr,
    edit: impl FnOnce(&mut EnvoyConfig) -> anyhow::Result<()>,
) -> anyhow::Result<Stack> {
    let mut setup = Setup::shipped()?;
    setup.workers = 1;
    setup.upstream = Some(service);
    setup.config.add_route(&direct("/direct"))?;
    setup.config.remove_access_logs()?;
    // wrk speaks for all clients: each says who it is, as a load balancer in front would.
    setup.config.trust_hops(1)?;
    edit(&mut setup.config)?;
    setup.start()
}

fn direct(prefix: &str) -> Value {
    json!({"match": {"prefix": prefix}, "direct_response": {"status": 200, "body": {"inline_string": "ok\n"}}})
}

fn rule(name: &str, quota: u32, path_prefix: &str) -> Value {
    json!({
        "name": name, "quota": quota, "window": "3600s", "key": ["client_address"], "reserve": 64,
        "match": {"path_prefix": path_prefix},
    })
}

fn set_rules(config: &mut EnvoyConfig, rules: &Value) -> anyhow::Result<()> {
    let limiter = config.limiter()?;
    limiter["limiter"]["rules"] = rules.clone();
    limiter["limiter"]["on_store_failure"] = json!("deny");
    Ok(())
}

fn set_policies(config: &mut EnvoyConfig, path_prefix: &str) -> anyhow::Result<()> {
    config.idempotency()?["idempotency"]["policies"] =
        json!([{"name": "all", "match": {"path_prefix": path_prefix}, "principal": "none"}]);
    Ok(())
}

/// What wrk sends.
struct Scripts {
    get: PathBuf,
    post: PathBuf,
    keyed: PathBuf,
    replayed: PathBuf,
}

impl Scripts {
    fn write(directory: &Path) -> anyhow::Result<Self> {
        let write = |name: &str, text: &str| -> anyhow::Result<PathBuf> {
            let path = directory.join(name);
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let mut get = String::from("local all = {}\nlocal next = 0\ninit = function()\n");
        write!(
            get,
            "  for n = 0, {CLIENTS} - 1 do\n    \
             local ip = '10.' .. math.floor(n / 65536) .. '.' .. math.floor(n / 256) % 256 .. '.' .. n % 256\n    \
             all[n] = wrk.format('GET', nil, {{['x-forwarded-for'] = ip}})\n  end\nend\n\
             request = function()\n  next = (next + 1) % {CLIENTS}\n  return all[next]\nend\n"
        )?;
        // Keys are new in every run: a run's first key is drawn from the clock.
        let keyed = "local run = tostring(os.time()) .. tostring({}):sub(8)\nlocal next = 0\n\
                     request = function()\n  next = next + 1\n  \
                     return wrk.format('POST', nil, {['idempotency-key'] = run .. '-' .. next}, 'body')\nend\n";
        let replayed = "request = function()\n  \
                        return wrk.format('POST', nil, {['idempotency-key'] = 'one'}, 'body')\nend\n";
        Ok(Self {
            get: write("get.lua", &get)?,
            post: write("post.lua", "wrk.method = 'POST'\nwrk.body = 'body'\n")?,
            keyed: write("keyed.lua", keyed)?,
            replayed: write("replayed.lua", replayed)?,
        })
    }
}
