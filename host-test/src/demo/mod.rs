//! `porch-host demo`: what porch does, told step by step on real parts.

mod interrupt;
mod report;
mod story;
mod tell;

use std::thread;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::harness::{Setup, Stack};
use interrupt::Interrupt;
use report::Report;

/// Runs the demo; with `keep` everything runs on afterwards, until Ctrl-C.
///
/// # Errors
/// When a part does not start, or a step does not hold.
pub fn run(keep: bool) -> anyhow::Result<()> {
    let mut setup = Setup::shipped()?.rules(json!([{
        "name": "per-client", "quota": story::QUOTA, "window": "60s",
        "key": [{"header": story::CLIENT}], "match": {"path_prefix": "/hello"},
    }]))?;
    setup = setup.on_store_failure("deny")?;
    // A busy machine is no outage.
    setup.config.set_store("timeout", &json!("2s"))?;
    let interrupt = Interrupt::watch(setup.directory())?;
    let mut report = Report::default();
    tell::title(
        "porch: a real Envoy with two workers, the store on LMDB, and a service that counts what it runs",
    );
    let mut stack = setup.start().context("the parts do not start")?;
    tell::line(&format!(
        "clients come in at http://{}",
        stack.envoy.address
    ));
    for (title, step) in story::STEPS {
        report.step(title, |report| step(&mut stack, report));
    }
    let failed = report.summary();
    if failed > 0 {
        tell::line(&stack.logs());
    }
    if keep {
        try_it(&stack);
        interrupt.is_the_end(failed == 0);
        loop {
            thread::park();
        }
    }
    ensure!(
        failed == 0,
        "{failed} of {} steps did not hold",
        story::STEPS.len()
    );
    Ok(())
}

fn try_it(stack: &Stack) {
    let (proxy, service) = (stack.envoy.address, stack.upstream.address);
    tell::title("Still running; Ctrl-C ends it. To try:");
    for command in [
        format!("curl -i -H '{}: you' http://{proxy}/hello", story::CLIENT),
        format!("curl -i -H 'Idempotency-Key: \"tea-1\"' -d 'a cup of tea' http://{proxy}/orders"),
        format!(
            "curl -i -m 1 -H 'Idempotency-Key: \"slow-1\"' -d tea 'http://{proxy}/orders?delay_ms=3000'"
        ),
        format!("curl -s http://{service}/orders/count"),
    ] {
        tell::line(&command);
    }
}
