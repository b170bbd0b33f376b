//! The limiter over restarts of the store: not one more passes.

use std::time::{Duration, Instant};

use porch_host::client::Answer;
use porch_host::harness::{Stack, Store};
use serde_json::json;

use crate::support::{Hammer, by_client, get_by, limited, ratelimit, store_is_back};

const QUOTA: u64 = 20;
const RESERVE: u64 = 5;
const HALF: u64 = 10;

#[test]
fn still_limited_after_sigterm_and_restart() -> anyhow::Result<()> {
    still_limited(Store::terminate, 0)
}

#[test]
fn still_limited_after_sigkill_and_restart() -> anyhow::Result<()> {
    still_limited(Store::kill, RESERVE - 1)
}

/// Spends one bucket wholly and one by half, restarts the store under fire, and looks at both again. At most
/// `lost_max` of the half that is left may be gone.
fn still_limited(end: fn(&mut Store) -> anyhow::Result<()>, lost_max: u64) -> anyhow::Result<()> {
    let mut stack = limited(json!([by_client(QUOTA, "3600s", RESERVE)]))?.start()?;
    for _ in 0..QUOTA {
        assert_eq!(stack.send(&get_by("spent"))?.status, 200);
    }
    let reset_before = Reset::of(&stack, "spent")?;
    for nth in 1..=HALF {
        assert_eq!(ratelimit(&stack.send(&get_by("half"))?)?.0, QUOTA - nth);
    }

    let hammer = Hammer::start(stack.envoy.address, &get_by("spent"));
    hammer.goes_on()?;
    end(&mut stack.store)?;
    hammer.goes_on()?;
    assert_eq!(
        stack.send(&get_by("never-seen"))?.status,
        503,
        "without the store nothing new passes"
    );
    stack.store.start()?;
    store_is_back(&stack)?;
    hammer.goes_on()?;
    let statuses = hammer.stop();
    assert!(
        statuses.keys().all(|status| matches!(status, 429 | 503)),
        "one got through, or no answer: {statuses:?}"
    );

    let reset_after = Reset::of(&stack, "spent")?;
    assert!(
        reset_after.is(&reset_before),
        "the window ends when it would have: {reset_before:?} {reset_after:?}"
    );
    let (left, _) = ratelimit(&stack.send(&get_by("half"))?)?;
    let exact = QUOTA - HALF - 1;
    assert!(
        left <= exact && left + lost_max >= exact,
        "{exact} left before, at most {lost_max} lost; {left} now"
    );
    for nth in 1..=left {
        assert_eq!(ratelimit(&stack.send(&get_by("half"))?)?.0, left - nth);
    }
    assert_eq!(
        stack.send(&get_by("half"))?.status,
        429,
        "what is left passes, and no more"
    );
    Ok(())
}

/// When a window ends: between two instants, since a client is told whole seconds.
#[derive(Debug)]
struct Reset {
    earliest: Instant,
    latest: Instant,
}

impl Reset {
    /// As a refused client is told.
    fn of(stack: &Stack, client: &str) -> anyhow::Result<Self> {
        let asked = Instant::now();
        let answer: Answer = stack.send(&get_by(client))?;
        assert_eq!(answer.status, 429, "{answer:?}");
        let (_, seconds) = ratelimit(&answer)?;
        Ok(Self {
            earliest: asked + Duration::from_secs(seconds - 1),
            latest: Instant::now() + Duration::from_secs(seconds),
        })
    }

    /// Whether both may be the same instant, give or take a second.
    fn is(&self, other: &Self) -> bool {
        let slack = Duration::from_secs(1);
        self.earliest <= other.latest + slack && other.earliest <= self.latest + slack
    }
}
