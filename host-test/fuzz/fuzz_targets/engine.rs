//! Any operations in any order on a real engine: no window grants more than its quota, and no key is granted to two
//! claims that both hold.
#![no_main]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use porch_engine::{
    Admission, Answer, Caller, Claim, ClaimAnswer, ClaimCall, Front, Hit, Limits, Machine, Options, Outcome,
    Resolution, Store,
};

const WINDOW_S: NonZeroU32 = NonZeroU32::new(2).unwrap();
const QUOTA: u32 = 5;
const LEASE_MS: u64 = 1_000;

#[derive(Arbitrary, Debug)]
enum Op {
    Admit { buckets: Vec<(u8, u8)> },
    Claim { key: u8, id: u8, fingerprint: bool },
    Tombstone { key: u8, id: u8 },
    Abandon { key: u8, id: u8 },
    Wait(u16),
    Commit,
}

enum Asked {
    Admit(Vec<Hit>),
    Claim { key: u8, id: u8 },
    Other,
}

struct Run {
    front: Front,
    store: Store,
    now_ms: u64,
    asked: BTreeMap<u64, Asked>,
    granted: BTreeMap<(u8, u64), u32>,
    leases: BTreeMap<u8, (u8, u64)>,
    answers: Vec<Answer>,
}

fn hash(n: u8) -> [u8; 32] {
    [n % 4; 32]
}

impl Run {
    fn call(&mut self, asked: Asked) -> Caller {
        let call = self.asked.len() as u64;
        self.asked.insert(call, asked);
        Caller { stream: 1, call }
    }

    fn admitted(&mut self, hits: &[Hit], admitted: bool, starts: impl Iterator<Item = (bool, u64)>) {
        for (hit, (refused, start_ms)) in hits.iter().zip(starts) {
            if admitted && !refused && hit.cost > 0 {
                let count = self.granted.entry((hit.bucket[0], start_ms)).or_default();
                *count += hit.cost;
                assert!(*count <= QUOTA, "bucket {} granted {count}", hit.bucket[0]);
            }
        }
    }

    fn answered(&mut self, caller: Caller, outcome: Outcome) {
        match (self.asked.insert(caller.call, Asked::Other), outcome) {
            (Some(Asked::Admit(hits)), Outcome::Admitted { admitted, verdicts }) => {
                let starts: Vec<_> =
                    verdicts.iter().map(|verdict| (verdict.refused, verdict.window_start_ms)).collect();
                self.admitted(&hits, admitted, starts.into_iter());
            }
            (Some(Asked::Claim { key, id }), Outcome::Claimed(ClaimAnswer::Granted)) => {
                if let Some((holder, until_ms)) = self.leases.get(&key) {
                    assert!(*holder == id || *until_ms <= self.now_ms, "key {key} is held by {holder}");
                }
                self.leases.insert(key, (id, self.now_ms + LEASE_MS));
            }
            _ => {}
        }
    }

    fn commit(&mut self) {
        if let Some(batch) = self.front.next_batch() {
            let outcomes = self.store.apply_at(self.now_ms, &batch).expect("memory has room");
            let mut answers = std::mem::take(&mut self.answers);
            self.front.committed(self.now_ms, batch, outcomes, &mut answers);
            for answer in answers.drain(..) {
                self.answered(answer.caller, answer.outcome);
            }
            self.answers = answers;
        }
    }

    fn take(&mut self, op: Op) {
        match op {
            Op::Wait(ms) => self.now_ms += u64::from(ms),
            Op::Commit => self.commit(),
            Op::Admit { buckets } => {
                let hits: Vec<Hit> = buckets
                    .into_iter()
                    .take(4)
                    .map(|(bucket, cost)| Hit {
                        bucket: hash(bucket),
                        quota: QUOTA,
                        window_s: WINDOW_S,
                        cost: u32::from(cost % 4),
                        reserve: 1 + cost % 8,
                        shadow: false,
                        refundable: false,
                    })
                    .collect();
                let caller = self.call(Asked::Admit(hits.clone()));
                let mut verdicts = vec![];
                if let Admission::Now { admitted } = self.front.admit(self.now_ms, caller, &hits, &mut verdicts) {
                    self.answered(caller, Outcome::Admitted { admitted, verdicts });
                }
            }
            Op::Claim { key, id, fingerprint } => {
                let call = ClaimCall {
                    key: hash(key),
                    claim: Claim {
                        claim_id: [id; 16],
                        fingerprint: [u8::from(fingerprint); 33],
                        lease_ms: LEASE_MS,
                        ttl_ms: 5_000,
                        remember_ms: 9_000,
                        execute_unknown: false,
                    },
                    replay_bytes_max: 1_024,
                    wait_ms: 0,
                };
                let caller = self.call(Asked::Claim { key: key % 4, id });
                if let Some(outcome) = self.front.claim(self.now_ms, caller, &call) {
                    self.answered(caller, outcome);
                }
            }
            Op::Tombstone { key, id } => {
                let caller = self.call(Asked::Other);
                self.front.complete(caller, hash(key), [id; 16], Resolution::Tombstone { status: 201 });
                self.commit();
                self.end(key, id);
            }
            Op::Abandon { key, id } => {
                let caller = self.call(Asked::Other);
                self.front.abandon(self.now_ms, caller, hash(key), [id; 16], LEASE_MS);
                self.commit();
                self.end(key, id);
            }
        }
    }

    fn end(&mut self, key: u8, id: u8) {
        if self.leases.get(&(key % 4)).is_some_and(|(holder, _)| *holder == id) {
            self.leases.remove(&(key % 4));
        }
    }
}

fuzz_target!(|ops: Vec<Op>| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let machine = Machine { boot_id: [1; 16], boottime_ms: 0, wall_ms: 1_000_000 };
    let (store, _) = Store::open_at(dir.path(), Options::default(), machine).expect("a new store opens");
    let mut run = Run {
        front: Front::new(Limits { buckets_max: 3 }),
        store,
        now_ms: 1_000_000,
        asked: BTreeMap::new(),
        granted: BTreeMap::new(),
        leases: BTreeMap::new(),
        answers: vec![],
    };
    for op in ops.into_iter().take(64) {
        run.take(op);
    }
    while run.front.has_work() {
        run.commit();
    }
});
