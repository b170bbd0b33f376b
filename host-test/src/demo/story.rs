//! The steps: each does something to the running parts and says what must come of it.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::report::Report;
use super::tell;
use crate::client::{Answer, Request};
use crate::harness::{PATIENCE, Stack, eventually};

/// Requests per client and minute in the demo.
pub(super) const QUOTA: usize = 5;
/// The header that names a client in the demo.
pub(super) const CLIENT: &str = "x-client";

type Step = fn(&mut Stack, &mut Report) -> anyhow::Result<()>;

/// The story.
pub(super) const STEPS: &[(&str, Step)] = &[
    ("Each client has 5 requests a minute", the_limit),
    (
        "The store is stopped by SIGTERM and started again",
        still_limited,
    ),
    ("A POST with an Idempotency-Key is sent twice", sent_twice),
    ("The same key with another body", other_body),
    ("Two at once", two_at_once),
    ("A client gives up half-way, and tries again", gives_up),
];

const TEA: &str = r#"{"item":"tea"}"#;

fn the_limit(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    let mut passed = 0;
    for _ in 0..=QUOTA {
        passed += usize::from(hello(stack, "anna")?.status == 200);
    }
    report.holds(
        passed == QUOTA,
        "5 passed, and the next one was told when to come again",
    )?;
    let others = [hello(stack, "ben")?, hello(stack, "ben")?];
    report.holds(
        others.iter().all(|answer| answer.status == 200),
        "anna: 5 passed, then 429; ben used 2 of his 5",
    )
}

fn still_limited(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    stack.store.terminate()?;
    tell::line("SIGTERM: the store wrote its exact counts and ended");
    let meanwhile = hello(stack, "ben")?;
    report.holds(
        meanwhile.status == 503,
        "without the store nobody passes (on_store_failure: deny)",
    )?;
    stack.store.start()?;
    tell::line("the store is started again on its directory");
    let refused = hello_when_served(stack, "anna")?;
    let next = hello_when_served(stack, "ben")?;
    let left = next.header("x-ratelimit-remaining");
    report.holds(
        refused.status == 429 && left == Some("2"),
        "anna still 429; ben has exactly 2 left after his third",
    )
}

fn hello(stack: &Stack, client: &str) -> anyhow::Result<Answer> {
    let answer = stack.send(&Request::get("/hello").header(CLIENT, client))?;
    tell::exchange(&format!("GET /hello  {CLIENT}: {client}"), &answer);
    Ok(answer)
}

/// Each worker finds the store again by itself; until it has, it answers 503, and nothing is charged.
fn hello_when_served(stack: &Stack, client: &str) -> anyhow::Result<Answer> {
    let request = Request::get("/hello").header(CLIENT, client);
    let answer = eventually("the store is found again", PATIENCE, || {
        let answer = stack.send(&request)?;
        Ok((answer.status != 503).then_some(answer))
    })?;
    tell::exchange(&format!("GET /hello  {CLIENT}: {client}"), &answer);
    Ok(answer)
}

fn sent_twice(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    let before = stack.upstream.rows()?;
    let request = order("/orders?body=binary&bytes=1000", "tea-1");
    // After the restart of the store: a 503 would ask to come again.
    let first = answered(stack, &request)?;
    tell::exchange("POST /orders  Idempotency-Key: \"tea-1\"", &first);
    let again = answered(stack, &request)?;
    tell::exchange("the same again", &again);
    report.holds(
        first.status == 201 && !first.replayed() && again.replayed(),
        "the second is marked as a replay",
    )?;
    let rows = stack.upstream.rows()? - before;
    report.holds(rows == 1, "the service ran it once: one row")?;
    let same = compare(stack, &first, &again)?;
    report.holds(same, "one row, and both answers are the same to the byte")
}

/// Compares what must be the same, less the lines that each exchange has of its own, with cmp(1).
fn compare(stack: &Stack, first: &Answer, again: &Answer) -> anyhow::Result<bool> {
    let files = ["first", "again"].map(|name| stack.directory().join(name));
    for (file, answer) in files.iter().zip([first, again]) {
        fs::write(file, answer.kept().bytes())?;
    }
    tell::line(
        "cmp first again  # status, header lines and body, without Date, RateLimit and the replay's marker",
    );
    let cmp = Command::new("cmp")
        .args(&files)
        .output()
        .context("cannot run cmp")?;
    let said = if cmp.status.success() {
        "no difference".into()
    } else {
        String::from_utf8_lossy(&cmp.stdout)
    };
    tell::line(&format!("cmp: {}", said.trim_end()));
    Ok(cmp.status.success())
}

fn other_body(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    let before = stack.upstream.rows()?;
    let refused = stack
        .send(&order("/orders?body=binary&bytes=1000", "tea-1").body(r#"{"item":"coffee"}"#))?;
    tell::exchange("POST /orders  Idempotency-Key: \"tea-1\"", &refused);
    report.holds(
        refused.status == 422 && stack.upstream.rows()? == before,
        "refused, and no row",
    )
}

fn two_at_once(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    let before = stack.upstream.rows()?;
    let request = order("/orders?delay_ms=500", "tea-2");
    let both = [
        request.start(stack.envoy.address)?,
        request.start(stack.envoy.address)?,
    ];
    let mut executed = 0;
    for started in both {
        let answer = started.finish()?;
        tell::exchange("POST /orders  Idempotency-Key: \"tea-2\"", &answer);
        executed += usize::from(answer.status == 201 && !answer.replayed());
    }
    let rows = stack.upstream.rows()? - before;
    report.holds(executed == 1 && rows == 1, "one was executed: one row")
}

fn gives_up(stack: &mut Stack, report: &mut Report) -> anyhow::Result<()> {
    let before = stack.upstream.rows()?;
    let request = order("/orders?delay_ms=1000", "tea-3");
    let given_up = request.start(stack.envoy.address)?;
    eventually("the service runs", PATIENCE, || {
        Ok((stack.upstream.rows()? > before).then_some(()))
    })?;
    drop(given_up);
    tell::line(
        "POST /orders  Idempotency-Key: \"tea-3\": the client closed its connection while the service ran",
    );
    let again = answered(stack, &request)?;
    tell::exchange("the same again, after the service is done", &again);
    let rows = stack.upstream.rows()? - before;
    report.holds(
        again.replayed() && rows == 1,
        "it got the answer to its first attempt: one row",
    )
}

fn order(path: &str, key: &str) -> Request {
    Request::post(path, TEA)
        .header("content-type", "application/json")
        .key(key)
}

/// Comes again as long as it is asked to, as a client that follows Retry-After does.
fn answered(stack: &Stack, request: &Request) -> anyhow::Result<Answer> {
    eventually("an answer", PATIENCE, || {
        let answer = stack.send(request)?;
        if answer.header("retry-after").is_none() {
            return Ok(Some(answer));
        }
        thread::sleep(Duration::from_millis(100));
        Ok(None)
    })
}
