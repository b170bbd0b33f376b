//! How a scenario is played: its steps on a driver, its expectations on what comes.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use porch_host::client::{Answer, Request};
use porch_host::harness::PATIENCE;

use crate::script::{Begun, Check, Expect, Scenario, Step};

/// What a scenario is played on.
pub(crate) trait Driver {
    fn send(&mut self, request: &Request) -> anyhow::Result<Answer>;
    fn start(&mut self, name: &'static str, request: &Request, begun: Begun) -> anyhow::Result<()>;
    fn head(&mut self, name: &'static str) -> anyhow::Result<Answer>;
    fn finish(&mut self, name: &'static str) -> anyhow::Result<Answer>;
    fn leave(&mut self, name: &'static str) -> anyhow::Result<()>;
    fn wait(&mut self, time: Duration) -> anyhow::Result<()>;
    fn rows(&mut self, path: &str) -> anyhow::Result<u64>;
    fn counted(&mut self, metric: &str) -> anyhow::Result<u64>;
    fn store(&mut self, up: bool) -> anyhow::Result<()>;
}

/// Plays it, and tells the first step that went otherwise.
pub(crate) fn play(scenario: &Scenario, driver: &mut dyn Driver) -> anyhow::Result<()> {
    let mut called = BTreeMap::new();
    for (nth, step) in scenario.steps.iter().enumerate() {
        take(step, driver, &mut called).with_context(|| {
            format!("{:?}, {}: step {}", scenario.cases, scenario.story, nth + 1)
        })?;
    }
    Ok(())
}

type Called = BTreeMap<&'static str, Answer>;

fn take(step: &Step, driver: &mut dyn Driver, called: &mut Called) -> anyhow::Result<()> {
    match step {
        Step::Send(request, expect) => {
            check(expect, &driver.send(request)?, called).with_context(|| format!("{request:?}"))
        }
        Step::Start(name, request, begun) => driver.start(name, request, *begun),
        Step::Head(name, expect) => check(expect, &driver.head(name)?, called),
        Step::Finish(name, expect) => check(expect, &driver.finish(name)?, called),
        Step::Leave(name) => driver.leave(name),
        Step::Wait(ms) => driver.wait(Duration::from_millis(*ms)),
        Step::Rows(path, expected) => {
            let rows = driver.rows(path)?;
            ensure!(
                rows == *expected,
                "expected {expected} rows of {path}, came {rows}"
            );
            Ok(())
        }
        Step::Counted(metric, expected) => {
            let count = driver.counted(metric)?;
            ensure!(
                count == *expected,
                "expected {metric} = {expected}, came {count}"
            );
            Ok(())
        }
        Step::Store(up) => driver.store(*up),
        Step::Until(request, expect) => until(driver, &mut |driver| {
            check(expect, &driver.send(request)?, called)
        }),
        Step::UntilCounted(request, metric, least) => until(driver, &mut |driver| {
            driver.send(request)?;
            let count = driver.counted(metric)?;
            ensure!(
                count >= *least,
                "expected {metric} >= {least}, came {count}"
            );
            Ok(())
        }),
    }
}

fn until(
    driver: &mut dyn Driver,
    attempt: &mut dyn FnMut(&mut dyn Driver) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let Err(error) = attempt(driver) else {
            return Ok(());
        };
        if start.elapsed() > PATIENCE {
            return Err(error.context("in vain"));
        }
        driver.wait(Duration::from_millis(50))?;
        thread::yield_now();
    }
}

fn check(expect: &Expect, answer: &Answer, called: &mut Called) -> anyhow::Result<()> {
    let say = || format!("expected {expect:?}, came {answer:?}");
    ensure!(answer.status == expect.status, say());
    for check in &expect.checks {
        let holds = match check {
            Check::Problem(name) => answer.problem().rsplit([':', '#']).next() == Some(name),
            Check::Replayed(replayed) => {
                answer.header("idempotent-replayed") == replayed.then_some("true")
            }
            Check::Has(name, value) => answer.header(name) == Some(value),
            Check::Lacks(name) => answer.header(name).is_none(),
            Check::Times(name, lines) => {
                let all = answer.lines.iter();
                all.filter(|(line, _)| line.eq_ignore_ascii_case(name))
                    .count()
                    == *lines
            }
            Check::Left(rule, hits) => answer
                .header("ratelimit")
                .is_some_and(|text| text.contains(&format!("\"{rule}\";r={hits};"))),
            Check::ComeAgain(again) => {
                let seconds = answer.header("retry-after").map(str::parse::<u64>);
                match seconds {
                    Some(seconds) => *again && seconds? >= 1,
                    None => !again,
                }
            }
            Check::Called(_) => true,
            Check::LikeThat(name) => {
                let that = called.get(name).context("no such answer")?;
                kept(answer) == kept(that)
            }
            Check::Bytes(bytes) => answer.body.len() == *bytes,
            Check::Original(status) => answer.json()["original-status"] == *status,
        };
        ensure!(holds, "{check:?}: {}", say());
    }
    for check in &expect.checks {
        if let Check::Called(name) = check {
            called.insert(name, answer.clone());
        }
    }
    if expect.status == 0 {
        bail!("an expectation without a status");
    }
    Ok(())
}

/// What must be the same in a replay: of each name all lines in order. How the body is framed is the connection's
/// business.
fn kept(answer: &Answer) -> Answer {
    let mut kept = answer.kept();
    kept.lines.retain(|(name, _)| {
        ![
            "connection",
            "content-length",
            "transfer-encoding",
            "set-cookie",
            "traceparent",
            "trailer",
        ]
        .contains(&name.as_str())
    });
    kept.lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    kept
}
