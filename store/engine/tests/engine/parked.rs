//! Does a claim that waits for another get what it has waited for, in time?

use bytes::Bytes;
use porch_engine::{Answer, Caller, Claim, ClaimAnswer, ClaimCall, Outcome, Resolution, Response};

use crate::driver::Driver;

const KEY: [u8; 32] = [5; 32];
const LEASE_MS: u64 = 10_000;

struct World {
    driver: Driver,
    answers: Vec<Answer>,
}

impl World {
    /// Claim 1 holds the lease.
    fn new() -> Self {
        let mut world = Self {
            driver: Driver::new(8),
            answers: Vec::new(),
        };
        let first = world.claim(1, 0);
        world.drain();
        assert_eq!(world.answer(first), Some(claimed(ClaimAnswer::Granted)));
        world
    }

    fn claim(&mut self, id: u8, wait_ms: u64) -> Caller {
        let caller = self.driver.caller();
        let call = ClaimCall {
            key: KEY,
            claim: Claim {
                claim_id: [id; 16],
                fingerprint: [9; 33],
                lease_ms: LEASE_MS,
                ttl_ms: 60_000,
                remember_ms: 60_000,
                execute_unknown: false,
            },
            replay_bytes_max: u32::MAX,
            wait_ms,
        };
        let now_ms = self.driver.now_ms;
        assert_eq!(self.driver.front.claim(now_ms, caller, &call), None);
        caller
    }

    fn abandon(&mut self, id: u8) {
        let caller = self.driver.caller();
        let now_ms = self.driver.now_ms;
        self.driver
            .front
            .abandon(now_ms, caller, KEY, [id; 16], LEASE_MS);
    }

    fn drain(&mut self) {
        let now_ms = self.driver.now_ms;
        self.driver.front.expire(now_ms, &mut self.answers);
        self.driver.drain(&mut self.answers);
    }

    fn answer(&mut self, caller: Caller) -> Option<Outcome> {
        let mut found = self.answers.iter().filter(|answer| answer.caller == caller);
        let answer = found.next().map(|answer| answer.outcome.clone());
        assert!(found.next().is_none(), "answered once");
        answer
    }
}

fn claimed(answer: ClaimAnswer) -> Outcome {
    Outcome::Claimed(answer)
}

#[test]
fn all_that_wait_get_the_answer() {
    let mut world = World::new();
    let waiting = [world.claim(2, 5_000), world.claim(3, 5_000)];
    world.drain();
    let response = Response {
        status: 201,
        fields: Vec::new(),
        body: Bytes::from_static(b"once"),
    };
    let caller = world.driver.caller();
    let resolution = Resolution::Response(response.clone());
    assert_eq!(world.answer(waiting[0]), None);
    world
        .driver
        .front
        .complete(caller, KEY, [1; 16], resolution);
    world.drain();
    for waiting in waiting {
        let replay = claimed(ClaimAnswer::Replay(response.clone()));
        assert_eq!(world.answer(waiting), Some(replay));
    }
}

#[test]
fn one_gets_a_lease_that_was_given_up_and_the_others_wait_on() {
    let mut world = World::new();
    let second = world.claim(2, 5_000);
    let third = world.claim(3, 5_000);
    world.drain();
    world.abandon(1);
    world.drain();
    assert_eq!(world.answer(second), Some(claimed(ClaimAnswer::Granted)));
    assert_eq!(world.answer(third), None);
    world.abandon(2);
    world.drain();
    assert_eq!(world.answer(third), Some(claimed(ClaimAnswer::Granted)));
}

#[test]
fn one_that_was_given_up_itself_does_not_take_the_lease() {
    let mut world = World::new();
    let second = world.claim(2, 5_000);
    let third = world.claim(3, 5_000);
    world.drain();
    world.abandon(2);
    world.abandon(1);
    world.drain();
    assert!(matches!(world.answer(second), Some(Outcome::Refused(_))));
    assert_eq!(world.answer(third), Some(claimed(ClaimAnswer::Granted)));
}

#[test]
fn patience_ends_in_flight_and_a_lease_that_ends_is_unknown() {
    let mut world = World::new();
    let brief = world.claim(2, 500);
    let patient = world.claim(3, 60_000);
    world.drain();
    assert_eq!(
        world.driver.front.next_due_ms(),
        Some(world.driver.now_ms + 500)
    );
    world.driver.now_ms += 500;
    world.drain();
    assert_eq!(world.answer(brief), Some(claimed(ClaimAnswer::InFlight)));
    assert_eq!(world.answer(patient), None);
    world.driver.now_ms += LEASE_MS - 500;
    world.drain();
    let unknown = claimed(ClaimAnswer::Unknown { status: 0 });
    assert_eq!(world.answer(patient), Some(unknown));
}

#[test]
fn a_stream_takes_its_waiting_claims_along() {
    let mut world = World::new();
    let second = world.claim(2, 5_000);
    world.drain();
    world.driver.front.stream_closed(second.stream);
    world.abandon(1);
    world.drain();
    assert_eq!(world.answer(second), None);
    let third = world.claim(3, 0);
    world.drain();
    assert_eq!(world.answer(third), Some(claimed(ClaimAnswer::Granted)));
}

#[test]
fn at_most_256_wait_for_a_key() {
    let mut world = World::new();
    let waiting: Vec<_> = (0..257).map(|_| world.claim(2, 5_000)).collect();
    world.drain();
    assert_eq!(world.answer(waiting[255]), None);
    assert_eq!(
        world.answer(waiting[256]),
        Some(claimed(ClaimAnswer::InFlight))
    );
}

#[test]
fn a_stop_refuses_those_that_wait() {
    let mut world = World::new();
    let second = world.claim(2, 5_000);
    world.drain();
    let late = world.claim(3, 5_000);
    world.driver.front.close(&mut world.answers);
    world.drain();
    for waiting in [second, late] {
        assert!(matches!(world.answer(waiting), Some(Outcome::Refused(_))));
    }
}

#[test]
fn a_failed_commit_wakes_the_next() {
    let mut world = World::new();
    let second = world.claim(2, 5_000);
    let third = world.claim(3, 5_000);
    world.drain();
    world.abandon(1);
    world.driver.batch(&mut world.answers);
    // The second was woken, and its batch fails.
    world.driver.fail(&mut world.answers);
    world.drain();
    assert!(matches!(world.answer(second), Some(Outcome::Refused(_))));
    assert_eq!(world.answer(third), Some(claimed(ClaimAnswer::Granted)));
}
