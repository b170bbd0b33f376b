//! The store's clock: a wall clock that jumps grants nothing.

use porch_host::client::Request;
use porch_host::harness::{PATIENCE, eventually};
use serde_json::json;

use crate::support::{CLIENT, by_client, get_by, limited, ratelimit, store_is_back};

const QUOTA: u64 = 5;
const WINDOW_S: u64 = 600;

#[test]
fn clock_backwards_grants_nothing() -> anyhow::Result<()> {
    grants_nothing(-7200)
}

#[test]
fn clock_forwards_grants_nothing() -> anyhow::Result<()> {
    grants_nothing(86_400)
}

/// Moves the store's wall clock while it runs, and starts it again under the moved one. Nothing is granted, and
/// nothing is withheld either: a window that is over by the true measure serves again.
fn grants_nothing(offset_s: i64) -> anyhow::Result<()> {
    let short = json!({
        "name": "short", "quota": 1, "window": "2s", "key": [{"literal": "all"}], "match": {"path_prefix": "/short"},
    });
    let mut setup = limited(json!([by_client(QUOTA, &format!("{WINDOW_S}s"), 2), short]))?;
    setup.movable_clock = true;
    let mut stack = setup.start()?;
    assert!(
        stack.store.runs_under_its_clock()?,
        "libfaketime is in the store's process"
    );
    for _ in 0..QUOTA {
        assert_eq!(stack.send(&get_by("spent"))?.status, 200);
    }
    assert_eq!(ratelimit(&stack.send(&get_by("open"))?)?.0, QUOTA - 1);
    let started_ms = stack.store.inspect(None)?.now_ms;

    let once = Request::get("/short").header(CLIENT, "short");
    assert_eq!(stack.send(&once)?.status, 200);
    let clock = stack.store.clock().expect("it was set up");
    let right = clock.now_s()?;
    clock.shift(offset_s)?;
    let moved = clock.now_s()? - right;
    assert!(
        (offset_s..offset_s + 60).contains(&moved),
        "a process under this clock sees it move: {moved}"
    );

    let served = || Ok((stack.send(&once)?.status == 200).then_some(()));
    eventually("the short window ends", PATIENCE, served)?;
    // Another client, so that the answers are the store's and not a worker's memory.
    still_limited(&stack, QUOTA - 2)?;
    stack.store.terminate()?;
    stack.store.start()?;
    store_is_back(&stack)?;
    still_limited(&stack, QUOTA - 3)?;
    let passed_ms = stack.store.inspect(None)?.now_ms - started_ms;
    assert!(
        passed_ms < WINDOW_S * 1000,
        "the logical clock went on and did not jump: {passed_ms} ms"
    );
    Ok(())
}

fn still_limited(stack: &porch_host::harness::Stack, left: u64) -> anyhow::Result<()> {
    let refused = stack.send(&get_by("spent"))?;
    assert_eq!(refused.status, 429, "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap_or_default().parse()?;
    assert!(
        (1..=WINDOW_S).contains(&wait),
        "a wait within the window: {refused:?}"
    );
    let open = ratelimit(&stack.send(&get_by("open"))?)?;
    assert_eq!(open.0, left, "the open bucket goes on");
    assert!((1..=WINDOW_S).contains(&open.1), "{open:?}");
    Ok(())
}
