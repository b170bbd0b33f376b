//! What becomes of a kind of rows at its limit, and of a map that is full?

use std::ops::ControlFlow;

use bytes::Bytes;
use porch_engine::{
    Answer, ApplyError, CheckEvent, ClaimAnswer, Code, Hit, Options, Outcome, Resolution, Response,
};

use crate::{
    damage::{ask, claim, complete},
    driver::{Driver, hit},
};

const SMALL: Options = Options {
    counter_bytes_max: 1 << 20,
    record_bytes_max: 1 << 20,
    walker: None,
};
const BUCKETS: usize = 100_000;

fn bucket(n: u32) -> [u8; 32] {
    let mut bucket = [0; 32];
    // Spread, as digests are.
    bucket[..4].copy_from_slice(&n.wrapping_mul(0x9E37_79B9).to_be_bytes());
    bucket
}

/// Opens new buckets until one is refused, many with each commit.
fn fill_counters(driver: &mut Driver, from: u32) {
    for first in (from..).step_by(500) {
        let mut refused = false;
        let mut answers = Vec::new();
        for n in first..first + 500 {
            let caller = driver.caller();
            let hit = Hit {
                bucket: bucket(n),
                ..hit(0, 10, 60)
            };
            driver
                .front
                .admit(driver.now_ms, caller, &[hit], &mut Vec::new());
        }
        driver.drain(&mut answers);
        for Answer { outcome, .. } in answers {
            match outcome {
                Outcome::Admitted { admitted: true, .. } => {}
                outcome if no_room(&outcome, "--max-counter-bytes") => refused = true,
                other => panic!("expected an admission or no room, came {other:?}"),
            }
        }
        if refused {
            return;
        }
        assert!(first < from + 30_000, "1 MiB holds no 30,000 buckets");
    }
}

fn no_room(outcome: &Outcome, flag: &str) -> bool {
    matches!(outcome, Outcome::Refused(refusal)
        if refusal.code == Code::Unavailable && refusal.message.contains(flag))
}

#[test]
fn counters_at_their_limit_refuse_new_buckets_and_nothing_else() {
    let mut driver = Driver::with(BUCKETS, SMALL);
    let known = Hit {
        reserve: 4,
        ..hit(0xEE, 50, 60)
    };
    driver.admit(&[known]);
    fill_counters(&mut driver, 0);
    // Neither kind starves the other.
    let granted = ask(&mut driver, &claim(1, 1));
    assert!(
        matches!(granted, Outcome::Claimed(ClaimAnswer::Granted)),
        "{granted:?}"
    );
    // The new record has its share of the index, so there may be room for a few more.
    fill_counters(&mut driver, 1 << 20);

    // Known buckets count on, and their rows are raised.
    for _ in 0..20 {
        let counted = driver.admit(&[known]);
        assert!(
            matches!(counted, Outcome::Admitted { admitted: true, .. }),
            "{counted:?}"
        );
    }
    // A request that would open one of its buckets charges none, whichever way its row would be written.
    let new = hit(0xDD, 10, 60);
    for hits in [&[known, new][..], &[new, known], &[new]] {
        let refused = driver.admit(hits);
        assert!(no_room(&refused, "--max-counter-bytes"), "{refused:?}");
    }
    assert_eq!(driver.peek(0xEE).count, 21);
    assert_eq!(driver.peek(0xDD).count, 0);

    // What is counted survives.
    driver.restart(&mut Vec::new());
    assert_eq!(driver.peek(0xEE).count, 21);

    // Rows that expire make room, though nothing but new buckets comes.
    driver.now_ms += 60_000;
    let admitted = (0..1_000).find(|n| {
        let new = Hit {
            bucket: bucket(0x00F0_0000 + n),
            ..hit(0, 10, 60)
        };
        matches!(
            driver.admit(&[new]),
            Outcome::Admitted { admitted: true, .. }
        )
    });
    assert!(admitted.is_some(), "expired buckets leave");
}

#[test]
fn records_at_their_limit_refuse_new_keys_and_nothing_else() {
    let mut driver = Driver::with(BUCKETS, SMALL);
    let granted = ask(&mut driver, &claim(0xF0, 1));
    assert!(
        matches!(granted, Outcome::Claimed(ClaimAnswer::Granted)),
        "{granted:?}"
    );
    let body = Bytes::from(vec![7; 20_000]);
    let refused = (0..0xF0).find(|key| match ask(&mut driver, &claim(*key, 1)) {
        Outcome::Claimed(ClaimAnswer::Granted) => {
            complete(&mut driver, *key, 1, body.clone());
            false
        }
        outcome => no_room(&outcome, "--max-record-bytes"),
    });
    let refused = refused.expect("1 MiB does not hold 240 responses of 20,000 bytes");
    assert!(refused > 40, "it holds more than {refused}");

    // Replays go on, and so does a completion of a claim that was granted.
    for key in 0..refused {
        match ask(&mut driver, &claim(key, 2)) {
            Outcome::Claimed(ClaimAnswer::Replay(response)) => assert_eq!(response.body, body),
            other => panic!("expected a replay of {key}, came {other:?}"),
        }
    }
    complete(&mut driver, 0xF0, 1, body.clone());
    let replayed = ask(&mut driver, &claim(0xF0, 2));
    assert!(
        matches!(replayed, Outcome::Claimed(ClaimAnswer::Replay(_))),
        "{replayed:?}"
    );
    // Neither kind starves the other.
    let counted = driver.admit(&[hit(1, 10, 60)]);
    assert!(
        matches!(counted, Outcome::Admitted { admitted: true, .. }),
        "{counted:?}"
    );

    driver.now_ms += 60_000;
    let granted = ask(&mut driver, &claim(refused, 3));
    assert!(
        matches!(granted, Outcome::Claimed(ClaimAnswer::Granted)),
        "{granted:?}"
    );
}

fn response(bytes: usize) -> Resolution {
    Resolution::Response(Response {
        status: 200,
        fields: Vec::new(),
        body: Bytes::from(vec![0; bytes]),
    })
}

#[test]
fn responses_of_claims_that_were_granted_have_a_bound_too() {
    let mut driver = Driver::with(BUCKETS, SMALL);
    for key in 1..=2 {
        ask(&mut driver, &claim(key, 1));
    }
    complete(&mut driver, 1, 1, Bytes::from(vec![0; 3 << 19]));
    let caller = driver.caller();
    driver.front.complete(caller, [2; 32], [1; 16], response(1));
    let mut answers = Vec::new();
    driver.drain(&mut answers);
    let Some(Answer { outcome, .. }) = answers.pop() else {
        panic!("a completion is answered");
    };
    assert!(no_room(&outcome, "--max-record-bytes"), "{outcome:?}");
    // It is still this claim's, and may be completed again.
    let pending = ask(&mut driver, &claim(2, 2));
    assert!(
        matches!(pending, Outcome::Claimed(ClaimAnswer::InFlight)),
        "{pending:?}"
    );
}

#[test]
fn a_full_map_grows_and_the_batch_is_carried_out_once() {
    let mut driver = Driver::with(BUCKETS, SMALL);
    assert_eq!(SMALL.map_bytes(), 3 << 20);
    for key in 1..=2 {
        ask(&mut driver, &claim(key, 1));
    }
    complete(&mut driver, 1, 1, Bytes::from(vec![1; 1 << 20]));
    complete(&mut driver, 2, 1, Bytes::from(vec![2; 3 << 20]));
    for key in 1..=2 {
        match ask(&mut driver, &claim(key, 2)) {
            Outcome::Claimed(ClaimAnswer::Replay(response)) => assert_eq!(response.body[0], key),
            other => panic!("expected a replay, came {other:?}"),
        }
    }
    let checked = driver
        .store
        .reader()
        .check(None, |_| ControlFlow::Continue(()));
    assert_eq!(checked.expect("the check ends").findings, 0);
}

#[test]
fn a_full_map_that_is_read_refuses_the_batch_and_keeps_what_was_there() {
    let mut driver = Driver::with(BUCKETS, SMALL);
    for key in 1..=2 {
        ask(&mut driver, &claim(key, 1));
    }
    complete(&mut driver, 1, 1, Bytes::from_static(b"kept"));
    let caller = driver.caller();
    driver
        .front
        .complete(caller, [2; 32], [1; 16], response(3 << 20));
    let batch = driver.front.next_batch().expect("a completion waits");
    let mut refused = None;
    let checked = driver.store.reader().check(None, |event| {
        if matches!(event, CheckEvent::Progress { .. }) {
            refused = Some(driver.store.apply_at(driver.now_ms, &batch));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(checked.expect("the check ends").findings, 0);
    assert!(
        matches!(refused, Some(Err(ApplyError::Full(_)))),
        "{refused:?}"
    );
    let mut answers = Vec::new();
    driver
        .front
        .failed(driver.now_ms, batch, "no room", &mut answers);
    let refused = answers.pop().expect("a failed call is answered").outcome;
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");

    // It goes on, and nothing of the failed batch is there.
    let pending = ask(&mut driver, &claim(2, 2));
    assert!(
        matches!(pending, Outcome::Claimed(ClaimAnswer::InFlight)),
        "{pending:?}"
    );
    match ask(&mut driver, &claim(1, 2)) {
        Outcome::Claimed(ClaimAnswer::Replay(response)) => assert_eq!(&response.body[..], b"kept"),
        other => panic!("expected a replay, came {other:?}"),
    }
}
