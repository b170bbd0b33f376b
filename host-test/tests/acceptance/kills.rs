//! Processes killed in the middle of a keyed request: never twice, and an honest answer after it.

use std::thread;
use std::time::Duration;

use porch_host::client::{Answer, Request};
use porch_host::harness::{PATIENCE, Stack, eventually};

use crate::support::{
    is_in_flight, is_outcome_unknown, is_store_unavailable, keyed_in_a_hurry, settled,
};

const ROUNDS: u64 = 10;
/// In these rounds upstream runs when the kill comes; in the others the kill comes at various moments before that.
const ROUNDS_WHILE_RUNNING: u64 = 6;

#[test]
fn store_killed_mid_flight_never_twice() -> anyhow::Result<()> {
    let mut stack = keyed_in_a_hurry()?.start()?;
    for round in 0..ROUNDS {
        let (path, request) = round_request(round);
        let first = request.start(stack.envoy.address)?;
        wait_for_the_moment(&stack, round, &path)?;
        stack.store.kill()?;
        stack.store.start()?;
        let first = first.finish()?;
        let told = first.status == 201 && !first.replayed();
        assert!(
            told || is_store_unavailable(&first),
            "round {round}: {first:?}"
        );
        assert!(
            told || round >= ROUNDS_WHILE_RUNNING,
            "round {round}: upstream ran, so its answer is told: {first:?}"
        );
        // Envoy lives and the store is back within the lease, so whatever happened ends in the answer.
        let last = settled(&stack, &request, Duration::from_secs(30))?;
        assert_eq!(last.status, 201, "round {round}: {last:?}");
        if told {
            assert!(last.replayed(), "round {round}: {last:?}");
            assert_eq!(last.kept(), first.kept(), "round {round}");
        }
        assert_eq!(stack.upstream.rows_of(&path)?, 1, "round {round}");
    }
    Ok(())
}

#[test]
fn envoy_killed_mid_flight_never_twice() -> anyhow::Result<()> {
    let mut setup = keyed_in_a_hurry()?;
    // A short lease: execute timeout + 2 store timeouts + 5 s.
    setup.config.set_timeouts("1s", "2s")?;
    let mut stack = setup.start()?;
    for round in 0..ROUNDS {
        let (path, request) = round_request(round);
        let first = request.start(stack.envoy.address)?;
        wait_for_the_moment(&stack, round, &path)?;
        stack.envoy.kill()?;
        first.finish().expect_err("nobody is left to answer");
        stack.envoy.start()?;
        if round < ROUNDS_WHILE_RUNNING {
            let meanwhile = stack.send(&request)?;
            assert!(
                is_in_flight(&meanwhile) || is_outcome_unknown(&meanwhile),
                "round {round}: {meanwhile:?}"
            );
            assert_eq!(stack.upstream.rows_of(&path)?, 1, "round {round}");
        }
    }
    for round in 0..ROUNDS {
        let (path, request) = round_request(round);
        let rows_before = stack.upstream.rows_of(&path)?;
        let last: Answer = settled(&stack, &request, Duration::from_secs(30))?;
        let rows = stack.upstream.rows_of(&path)?;
        if round < ROUNDS_WHILE_RUNNING {
            assert!(
                last.status == 500 && is_outcome_unknown(&last),
                "round {round}: {last:?}"
            );
            assert_eq!(rows, 1, "round {round}");
        } else if is_outcome_unknown(&last) {
            assert_eq!(
                rows, rows_before,
                "round {round}: unknown, so it is not run again"
            );
            assert!(rows <= 1, "round {round}: {rows} rows");
        } else {
            // The kill came before the claim: the retry is the first.
            assert_eq!((last.status, rows), (201, 1), "round {round}: {last:?}");
        }
    }
    Ok(())
}

fn round_request(round: u64) -> (String, Request) {
    let path = format!("/orders/round-{round}");
    let request =
        Request::post(&format!("{path}?delay_ms=300"), "tea").key(&format!("round-{round}"));
    (path, request)
}

fn wait_for_the_moment(stack: &Stack, round: u64, path: &str) -> anyhow::Result<()> {
    if round < ROUNDS_WHILE_RUNNING {
        return eventually("upstream runs", PATIENCE, || {
            Ok((stack.upstream.rows_of(path)? == 1).then_some(()))
        });
    }
    thread::sleep(Duration::from_micros((round - ROUNDS_WHILE_RUNNING) * 400));
    Ok(())
}
