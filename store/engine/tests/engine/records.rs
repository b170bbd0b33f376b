//! Do records keep to their model, whatever comes in whatever order?
//!
//! The model keeps facts (who was granted when, what was completed when) in a `BTreeMap`, and derives each answer by
//! plain arithmetic.

use std::collections::BTreeMap;

use bytes::Bytes;
use porch_engine::{Answer, Claim, ClaimAnswer, ClaimCall, Outcome, Resolution, Response};
use proptest::prelude::*;

use crate::driver::Driver;

const LEASE_MS: u64 = 500;
const TTL_MS: u64 = 1_000;
const REMEMBER_MS: u64 = 2_500;

#[derive(Debug, Clone)]
enum Step {
    Claim {
        key: u8,
        id: u8,
        fingerprint: u8,
        execute_unknown: bool,
    },
    Complete {
        key: u8,
        id: u8,
        resolution: Resolution,
    },
    Abandon {
        key: u8,
        id: u8,
    },
    Wait(u64),
    Commit,
    Fail,
    Crash,
}

fn resolution() -> impl Strategy<Value = Resolution> {
    let sizes = prop::sample::select(vec![0_usize, 1, 65_515, 65_516, 65_517, 200_000]);
    prop_oneof![
        3 => (sizes, any::<u8>()).prop_map(|(bytes, fill)| Resolution::Response(Response {
            status: 201,
            fields: vec![(Bytes::from_static(b"x-item"), Bytes::from(vec![fill]))],
            body: Bytes::from(vec![fill; bytes]),
        })),
        1 => Just(Resolution::Tombstone { status: 202 }),
        1 => Just(Resolution::Unknown { status: 504 }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, id) = (0..3_u8, 0..4_u8);
    let step = prop_oneof![
        6 => (key.clone(), id.clone(), prop::bool::weighted(0.1), prop::bool::weighted(0.2)).prop_map(
            |(key, id, other, execute_unknown)| Step::Claim {
                key,
                id,
                fingerprint: u8::from(other),
                execute_unknown,
            }
        ),
        5 => (key.clone(), id.clone(), resolution()).prop_map(|(key, id, resolution)| {
            Step::Complete { key, id, resolution }
        }),
        1 => (key, id).prop_map(|(key, id)| Step::Abandon { key, id }),
        3 => (1..700_u64).prop_map(Step::Wait),
        8 => Just(Step::Commit),
        1 => Just(Step::Fail),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

/// What has happened to a key.
#[derive(Debug, Clone)]
struct Facts {
    id: u8,
    fingerprint: u8,
    granted_ms: u64,
    completed: Option<(u64, Resolution)>,
}

/// How that reads at a time.
#[derive(Debug)]
enum Reads<'a> {
    Leased,
    Kept(&'a Response),
    Tombstone(u16),
    Unknown(u16),
}

impl Facts {
    fn at(&self, now_ms: u64) -> Option<Reads<'_>> {
        let (from_ms, reads) = match &self.completed {
            None if now_ms < self.granted_ms + LEASE_MS => return Some(Reads::Leased),
            None => (self.granted_ms + LEASE_MS, Reads::Unknown(0)),
            Some((at, Resolution::Response(response))) if now_ms < at + TTL_MS => {
                return Some(Reads::Kept(response));
            }
            Some((at, Resolution::Response(response))) => (*at, Reads::Tombstone(response.status)),
            Some((at, Resolution::Tombstone { status })) => (*at, Reads::Tombstone(*status)),
            Some((at, Resolution::Unknown { status })) => (*at, Reads::Unknown(*status)),
        };
        (now_ms < from_ms + REMEMBER_MS).then_some(reads)
    }
}

#[derive(Debug, Default, Clone)]
struct Model {
    facts: BTreeMap<u8, Facts>,
}

impl Model {
    fn carry_out(&mut self, step: &Step, now_ms: u64) -> Outcome {
        match step {
            Step::Claim {
                key,
                id,
                fingerprint,
                execute_unknown,
            } => Outcome::Claimed(self.claim(*key, *id, *fingerprint, *execute_unknown, now_ms)),
            Step::Complete {
                key,
                id,
                resolution,
            } => Outcome::Completed {
                fenced: !self.complete(*key, *id, resolution, now_ms),
            },
            Step::Abandon { key, id } => {
                let facts = self.facts.get(key);
                let released = facts.is_some_and(|facts| {
                    facts.id == *id && facts.completed.is_none() && facts.at(now_ms).is_some()
                });
                if released {
                    self.facts.remove(key);
                }
                Outcome::Abandoned { released }
            }
            Step::Wait(_) | Step::Commit | Step::Fail | Step::Crash => panic!("not a call"),
        }
    }

    fn claim(
        &mut self,
        key: u8,
        id: u8,
        fingerprint: u8,
        execute_unknown: bool,
        now_ms: u64,
    ) -> ClaimAnswer {
        if let Some(facts) = self.facts.get(&key)
            && let Some(reads) = facts.at(now_ms)
        {
            if facts.fingerprint != fingerprint {
                return ClaimAnswer::Mismatch;
            }
            match reads {
                Reads::Leased if facts.id != id => return ClaimAnswer::InFlight,
                Reads::Kept(response) => return ClaimAnswer::Replay(response.clone()),
                Reads::Tombstone(status) => return ClaimAnswer::Tombstone { status },
                Reads::Unknown(status) if !execute_unknown => {
                    return ClaimAnswer::Unknown { status };
                }
                Reads::Leased | Reads::Unknown(_) => {}
            }
        }
        let facts = Facts {
            id,
            fingerprint,
            granted_ms: now_ms,
            completed: None,
        };
        self.facts.insert(key, facts);
        ClaimAnswer::Granted
    }

    fn complete(&mut self, key: u8, id: u8, resolution: &Resolution, now_ms: u64) -> bool {
        let Some(facts) = self.facts.get_mut(&key) else {
            return false;
        };
        if facts.id != id || facts.at(now_ms).is_none() {
            return false;
        }
        let open = match &facts.completed {
            None => true,
            Some((_, Resolution::Unknown { .. })) => {
                !matches!(resolution, Resolution::Unknown { .. })
            }
            Some((_, Resolution::Response(_) | Resolution::Tombstone { .. })) => false,
        };
        if open {
            facts.completed = Some((now_ms, resolution.clone()));
        }
        true
    }
}

struct World {
    driver: Driver,
    model: Model,
    /// Calls in the queue, in their order.
    queued: Vec<(u64, Step)>,
    abandoned: BTreeMap<u8, u64>,
}

impl World {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Claim { .. } | Step::Complete { .. } | Step::Abandon { .. } => self.call(step),
            Step::Wait(ms) => self.driver.now_ms += ms,
            Step::Commit => self.commit(),
            Step::Fail => self.fail(),
            Step::Crash => {
                self.driver.crash();
                self.queued.clear();
                self.abandoned.clear();
            }
        }
    }

    fn call(&mut self, step: &Step) {
        let caller = self.driver.caller();
        let now_ms = self.driver.now_ms;
        let front = &mut self.driver.front;
        let at_once = match step {
            Step::Claim {
                key,
                id,
                fingerprint,
                execute_unknown,
            } => {
                let call = ClaimCall {
                    key: [*key; 32],
                    claim: Claim {
                        claim_id: [*id; 16],
                        fingerprint: [*fingerprint; 33],
                        lease_ms: LEASE_MS,
                        ttl_ms: TTL_MS,
                        remember_ms: REMEMBER_MS,
                        execute_unknown: *execute_unknown,
                    },
                    replay_bytes_max: u32::MAX,
                    wait_ms: 0,
                };
                let at_once = front.claim(now_ms, caller, &call);
                let abandoned = self.abandoned.get(id).is_some_and(|end| now_ms < *end);
                assert_eq!(at_once.is_some(), abandoned, "{at_once:?}");
                at_once
            }
            Step::Complete {
                key,
                id,
                resolution,
            } => front.complete(caller, [*key; 32], [*id; 16], resolution.clone()),
            Step::Abandon { key, id } => {
                self.abandoned.insert(*id, now_ms + LEASE_MS);
                front.abandon(now_ms, caller, [*key; 32], [*id; 16], LEASE_MS)
            }
            Step::Wait(_) | Step::Commit | Step::Fail | Step::Crash => panic!("not a call"),
        };
        if at_once.is_none() {
            self.queued.push((caller.call, step.clone()));
        }
    }

    fn commit(&mut self) {
        let mut answers = Vec::new();
        self.driver.batch(&mut answers);
        for Answer { caller, outcome } in answers {
            let (call, step) = self.queued.remove(0);
            assert_eq!(call, caller.call, "calls are carried out in their order");
            let expected = self.model.carry_out(&step, self.driver.now_ms);
            assert!(
                outcome == expected,
                "{step:?}: expected {expected:?}, came {outcome:?}"
            );
        }
    }

    fn fail(&mut self) {
        let mut answers = Vec::new();
        self.driver.fail(&mut answers);
        for Answer { caller, outcome } in answers {
            let (call, _) = self.queued.remove(0);
            assert_eq!(call, caller.call);
            assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        }
    }

    /// When all is forgotten, nothing is left in the file.
    fn forget(&mut self) {
        while !self.queued.is_empty() {
            self.commit();
        }
        self.driver.now_ms += LEASE_MS + REMEMBER_MS;
        // One write prunes four others, and each of these its own key.
        for key in 0..3 {
            self.driver.now_ms += LEASE_MS + REMEMBER_MS;
            self.take(&Step::Claim {
                key,
                id: 100 + key,
                fingerprint: 0,
                execute_unknown: false,
            });
            self.commit();
        }
        let caller = self.driver.caller();
        self.driver
            .front
            .inspect(caller, porch_engine::Look::default());
        let mut answers = Vec::new();
        self.driver.drain(&mut answers);
        match &answers[..] {
            [
                Answer {
                    outcome: Outcome::Inspected(inspected),
                    ..
                },
            ] => {
                let usage = inspected.usage;
                assert_eq!(
                    (usage.records.rows, usage.bodies.rows, usage.expiry.rows),
                    (1, 0, 1),
                    "the last claim's only"
                );
            }
            other => panic!("expected an inspection, came {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn records_keep_to_their_model(steps in steps()) {
        let mut world = World {
            driver: Driver::new(8),
            model: Model::default(),
            queued: Vec::new(),
            abandoned: BTreeMap::new(),
        };
        for step in &steps {
            world.take(step);
        }
        world.forget();
    }
}
