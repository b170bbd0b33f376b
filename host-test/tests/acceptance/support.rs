//! What the tests share: set-ups, clients in parallel, and waiting for an outcome.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use porch_host::client::{Answer, Request};
use porch_host::harness::{PATIENCE, Setup, Stack, eventually};
use serde_json::{Value, json};

/// The header that names a client for the limiter, so that one test has many clients.
pub(crate) const CLIENT: &str = "x-client";

/// A rule that counts by [`CLIENT`].
pub(crate) fn by_client(quota: u64, window: &str, reserve: u64) -> Value {
    json!({
        "name": "by-client", "quota": quota, "window": window, "reserve": reserve,
        "key": [{"header": CLIENT}], "match": {"path_prefix": "/"},
    })
}

/// The shipped set-up with these rules. The store may take long to answer: a busy machine is no outage.
pub(crate) fn limited(rules: Value) -> anyhow::Result<Setup> {
    let mut setup = Setup::shipped()?.rules(rules)?.on_store_failure("deny")?;
    setup.config.set_store("timeout", &json!("5s"))?;
    setup.prints_logs = true;
    Ok(setup)
}

/// The shipped set-up with a limit that no test reaches.
pub(crate) fn keyed() -> anyhow::Result<Setup> {
    limited(json!([by_client(1_000_000, "60s", 64)]))
}

/// The shipped set-up with a limit that no test reaches, and less patience with the store: for tests that take it away.
pub(crate) fn keyed_in_a_hurry() -> anyhow::Result<Setup> {
    let mut setup = keyed()?;
    setup.config.set_store("timeout", &json!("1s"))?;
    Ok(setup)
}

/// A request of a client.
pub(crate) fn get_by(client: &str) -> Request {
    Request::get("/").header(CLIENT, client)
}

/// What `RateLimit` says of the one rule: what is left and the seconds until the reset.
pub(crate) fn ratelimit(answer: &Answer) -> anyhow::Result<(u64, u64)> {
    let text = answer
        .header("ratelimit")
        .with_context(|| format!("no RateLimit in {answer:?}"))?;
    let field = |name: &str| {
        let found = text
            .split(';')
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("no {name} in RateLimit: {text}"))
    };
    Ok((field("r")?, field("t")?))
}

/// Runs one client per number at the same time, each in a thread of its own, and gives their results in order.
pub(crate) fn parallel<T: Send>(clients: usize, client: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(clients);
    thread::scope(|scope| {
        let client = &client;
        let barrier = &barrier;
        let start = |number| {
            scope.spawn(move || {
                barrier.wait();
                client(number)
            })
        };
        let all: Vec<_> = (0..clients).map(start).collect();
        all.into_iter()
            .map(|thread| thread.join().expect("a client does not panic"))
            .collect()
    })
}

/// Clients that send one request over and over, until they are told to stop.
pub(crate) struct Hammer {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    clients: Vec<JoinHandle<BTreeMap<u16, u64>>>,
}

impl Hammer {
    /// Starts hammering with four clients.
    pub(crate) fn start(server: SocketAddr, request: &Request) -> Self {
        let (stop, sent) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let client = |_| {
            let (stop, sent, request) = (Arc::clone(&stop), Arc::clone(&sent), request.clone());
            thread::spawn(move || {
                let mut statuses = BTreeMap::new();
                while !stop.load(Ordering::Relaxed) {
                    // 0: no answer at all.
                    let status = request.send(server).map_or(0, |answer| answer.status);
                    *statuses.entry(status).or_insert(0) += 1;
                    sent.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                }
                statuses
            })
        };
        let clients = (0..4).map(client).collect();
        Self {
            stop,
            sent,
            clients,
        }
    }

    /// Waits until 40 more answers have come, so that every client has met what is the case now.
    pub(crate) fn goes_on(&self) -> anyhow::Result<()> {
        let before = self.sent.load(Ordering::Relaxed);
        let more = || Ok((self.sent.load(Ordering::Relaxed) >= before + 40).then_some(()));
        eventually("the clients go on", PATIENCE, more)
    }

    /// Stops, and tells how often which status was answered.
    pub(crate) fn stop(self) -> BTreeMap<u16, u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        for client in self.clients {
            for (status, times) in client.join().expect("a client does not panic") {
                *all.entry(status).or_insert(0) += times;
            }
        }
        all
    }
}

/// Waits until every worker is served by the store again: many connections spread over the workers, each in a bucket
/// of its own, so that no test's bucket is charged.
pub(crate) fn store_is_back(stack: &Stack) -> anyhow::Result<()> {
    eventually("the store serves every worker again", PATIENCE, || {
        let served = |_| Ok(stack.send(&get_by("probe"))?.status != 503);
        let all: anyhow::Result<Vec<bool>> = (0..16).map(served).collect();
        Ok(all?.into_iter().all(|served| served).then_some(()))
    })
}

/// Sends a keyed request until its outcome stands: again after a 409 while it is in flight, and after a 503 that
/// says that nothing was executed. So does a client that follows `Retry-After`, only more slowly.
pub(crate) fn settled(
    stack: &Stack,
    request: &Request,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let mut last = None;
    let settled = eventually("the request's outcome stands", patience, || {
        let answer = stack.send(request)?;
        let again = is_in_flight(&answer) || is_store_unavailable(&answer);
        if again {
            last = Some(answer);
            thread::sleep(Duration::from_millis(20));
            return Ok(None);
        }
        Ok(Some(answer))
    });
    settled.map_err(|error| anyhow!("{error}; the last answer: {last:?}"))
}

/// Whether it says that the first request with this key is under way, and when to come again.
pub(crate) fn is_in_flight(answer: &Answer) -> bool {
    answer.status == 409
        && answer.problem() == "urn:porch:problem:in-flight"
        && asks_to_wait(answer)
}

/// Whether it says that nothing was executed for want of the store, and when to come again.
pub(crate) fn is_store_unavailable(answer: &Answer) -> bool {
    answer.status == 503
        && answer.problem() == "urn:porch:problem:store-unavailable"
        && asks_to_wait(answer)
}

/// Whether it says that nobody knows whether the request ran. Such an answer invites no retry and is no replay.
pub(crate) fn is_outcome_unknown(answer: &Answer) -> bool {
    answer.problem() == "urn:porch:problem:outcome-unknown"
        && answer.header("retry-after").is_none()
        && answer.header("idempotent-replayed").is_none()
}

fn asks_to_wait(answer: &Answer) -> bool {
    let seconds = answer
        .header("retry-after")
        .and_then(|text| text.parse::<u64>().ok());
    seconds.is_some_and(|seconds| seconds >= 1)
}
