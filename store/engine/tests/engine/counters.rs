//! Do counters hold whatever comes, in whatever order: failed writes, evictions, crashes, stops?
//!
//! The model knows only what callers know: which hits were answered as charged, in which window. What the engine
//! counts has to agree: exactly, as long as nothing crashed; never below, and at most a reserve above, after.

use std::collections::BTreeMap;

use porch_engine::{Admission, Answer, Caller, Charge, Hit, Outcome, Refund, Verdict};
use proptest::prelude::*;

use crate::driver::{Driver, hit};

const BUCKETS: u8 = 6;
/// Fewer than there are, so that buckets leave memory all the time.
const IN_MEMORY: usize = 4;
const QUOTA: u32 = 12;
const WINDOW_S: u32 = 3;
const WINDOW_MS: u64 = 3_000;
const RESERVE_MAX: u32 = 8;

#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<Hit>),
    /// Gives one of the charged hits back.
    Refund(prop::sample::Index),
    Wait(u64),
    /// A batch goes out; what comes next finds it under way.
    Take,
    Commit,
    Fail,
    Crash,
    Restart,
    /// Everything is answered, and the counts are looked at.
    Look,
}

fn hits() -> impl Strategy<Value = Vec<Hit>> {
    let hit = (
        0..BUCKETS,
        0..=3_u32,
        any::<bool>(),
        0..4_u8,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(bucket, cost, half, reserve, shadow)| Hit {
            cost,
            quota: if half { QUOTA / 2 } else { QUOTA },
            reserve: 1 << reserve,
            shadow,
            ..hit(bucket, QUOTA, WINDOW_S)
        });
    prop::collection::vec(hit, 1..=3)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => hits().prop_map(Step::Admit),
        2 => any::<prop::sample::Index>().prop_map(Step::Refund),
        2 => (1..1_500_u64).prop_map(Step::Wait),
        4 => Just(Step::Take),
        6 => Just(Step::Commit),
        1 => Just(Step::Fail),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        2 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..80)
}

/// What the callers know of one window.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// The count is at least this.
    low: u32,
    /// And at most this.
    high: u32,
}

/// A call that has no answer yet.
#[derive(Debug, Clone)]
enum Asked {
    Admit(Vec<Hit>),
    Refund(Charged),
}

#[derive(Debug, Clone, Copy)]
struct Charged {
    bucket: u8,
    start_ms: u64,
    cost: u32,
}

#[derive(Debug, Default)]
struct Model {
    windows: BTreeMap<(u8, u64), Known>,
    asked: BTreeMap<u64, Asked>,
    charged: Vec<Charged>,
    /// Hits that a bucket's rows may have been raised for, though they were taken back or never answered.
    doubtful: BTreeMap<u8, u32>,
}

impl Model {
    fn answer(&mut self, caller: Caller, outcome: &Outcome) {
        let asked = self.asked.remove(&caller.call);
        match (asked, outcome) {
            (Some(Asked::Admit(hits)), Outcome::Admitted { admitted, verdicts }) => {
                self.admitted(&hits, *admitted, verdicts);
            }
            (Some(Asked::Refund(charged)), Outcome::Refunded { applied }) => {
                let known = self.window(charged);
                if *applied {
                    known.high -= charged.cost;
                } else {
                    known.low += charged.cost;
                }
            }
            // It may have taken effect.
            (Some(Asked::Refund(_)), Outcome::Refused(_)) => {}
            (Some(Asked::Admit(hits)), Outcome::Refused(_)) => self.doubt(&hits),
            (asked, outcome) => panic!("{asked:?} was answered {outcome:?}"),
        }
    }

    fn window(&mut self, charged: Charged) -> &mut Known {
        self.windows
            .entry((charged.bucket, charged.start_ms))
            .or_default()
    }

    fn admitted(&mut self, hits: &[Hit], admitted: bool, verdicts: &[Verdict]) {
        assert_eq!(hits.len(), verdicts.len());
        let refused = hits
            .iter()
            .zip(verdicts)
            .any(|(hit, verdict)| verdict.refused && !hit.shadow);
        assert_eq!(
            admitted, !refused,
            "a request passes unless a hit was refused"
        );
        for (hit, verdict) in hits.iter().zip(verdicts) {
            assert!((1..=WINDOW_MS).contains(&verdict.reset_ms), "{verdict:?}");
            assert!(!verdict.settled || verdict.refused, "{verdict:?}");
            if !admitted || verdict.refused || hit.cost == 0 {
                continue;
            }
            let charged = Charged {
                bucket: hit.bucket[0],
                start_ms: verdict.window_start_ms,
                cost: hit.cost,
            };
            let known = self.window(charged);
            known.low += hit.cost;
            known.high += hit.cost;
            assert!(
                known.low <= QUOTA,
                "more was granted than the quota: {known:?}"
            );
            self.charged.push(charged);
        }
    }

    fn doubt(&mut self, hits: &[Hit]) {
        for hit in hits {
            *self.doubtful.entry(hit.bucket[0]).or_default() += hit.cost;
        }
    }

    /// After a crash a count is its ceiling; hits without an answer may be in it.
    fn crash(&mut self) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            match asked {
                Asked::Admit(hits) => self.doubt(&hits),
                // Its effect was not promised.
                Asked::Refund(_) => {}
            }
        }
        self.reload();
    }

    /// A bucket that left memory and whose exact count was not written reloads with its ceiling.
    fn reload(&mut self) {
        for ((bucket, _), known) in &mut self.windows {
            let doubtful = self.doubtful.get(bucket).copied().unwrap_or(0);
            known.high += RESERVE_MAX - 1 + doubtful;
        }
    }

    fn look(&self, bucket: u8, now_ms: u64, count: u32, start_ms: u64) {
        let open = self.windows.iter().filter(|((other, start), known)| {
            *other == bucket && known.low > 0 && now_ms < start + WINDOW_MS
        });
        for ((_, open), known) in open {
            assert_eq!(
                *open, start_ms,
                "bucket {bucket}: {known:?} belongs to another window"
            );
        }
        let Some(known) = self.windows.get(&(bucket, start_ms)) else {
            return;
        };
        assert!(
            (known.low..=known.high).contains(&count),
            "bucket {bucket}: expected {known:?}, came {count}"
        );
    }
}

struct World {
    driver: Driver,
    model: Model,
    answers: Vec<Answer>,
}

impl World {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Admit(hits) => self.admit(hits),
            Step::Refund(index) => self.refund(*index),
            Step::Wait(ms) => self.driver.now_ms += ms,
            Step::Take => self.driver.take_and_keep(),
            Step::Commit => {
                self.driver.batch(&mut self.answers);
            }
            Step::Fail => {
                if self.driver.fail(&mut self.answers) {
                    self.model.reload();
                }
            }
            Step::Crash => {
                self.driver.crash();
                self.model.crash();
            }
            Step::Restart => self.driver.restart(&mut self.answers),
            Step::Look => self.look(),
        }
        for answer in self.answers.drain(..) {
            self.model.answer(answer.caller, &answer.outcome);
        }
    }

    fn admit(&mut self, hits: &[Hit]) {
        let caller = self.driver.caller();
        self.model
            .asked
            .insert(caller.call, Asked::Admit(hits.to_vec()));
        let mut verdicts = Vec::new();
        let now_ms = self.driver.now_ms;
        let outcome = match self.driver.front.admit(now_ms, caller, hits, &mut verdicts) {
            Admission::Now { admitted } => Outcome::Admitted { admitted, verdicts },
            Admission::Refused(refusal) => Outcome::Refused(refusal),
            Admission::Waits => return,
        };
        self.model.answer(caller, &outcome);
    }

    fn refund(&mut self, index: prop::sample::Index) {
        if self.model.charged.is_empty() {
            return;
        }
        let at = index.index(self.model.charged.len());
        let charged = self.model.charged.swap_remove(at);
        // From here on it may be gone.
        self.model.window(charged).low -= charged.cost;
        let caller = self.driver.caller();
        self.model.asked.insert(caller.call, Asked::Refund(charged));
        let refund = Refund {
            bucket: [charged.bucket; 32],
            cost: charged.cost,
            window_start_ms: charged.start_ms,
        };
        let now_ms = self.driver.now_ms;
        if let Some(outcome) = self.driver.front.refund(now_ms, caller, &refund) {
            self.model.answer(caller, &outcome);
        }
    }

    fn look(&mut self) {
        self.driver.drain(&mut self.answers);
        for answer in self.answers.drain(..) {
            self.model.answer(answer.caller, &answer.outcome);
        }
        assert!(
            self.model.asked.is_empty(),
            "unanswered: {:?}",
            self.model.asked
        );
        assert!(self.driver.front.live_buckets() <= IN_MEMORY);
        for bucket in 0..BUCKETS {
            let peek = self.driver.peek(bucket);
            self.model
                .look(bucket, self.driver.now_ms, peek.count, peek.start_ms);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn what_was_answered_is_counted(steps in steps()) {
        let mut world = World {
            driver: Driver::new(IN_MEMORY),
            model: Model::default(),
            answers: Vec::new(),
        };
        for step in &steps {
            world.take(step);
        }
        world.take(&Step::Look);
        world.take(&Step::Restart);
        world.take(&Step::Look);
    }
}

fn admitted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Admitted { admitted: true, .. })
}

#[test]
fn a_hit_under_the_ceiling_is_answered_at_once_and_one_above_it_waits() {
    let mut driver = Driver::new(10);
    let ten = Hit {
        reserve: 10,
        ..hit(1, 100, 60)
    };
    let mut verdicts = Vec::new();
    let mut waited = Vec::new();
    for n in 1..=20 {
        let caller = driver.caller();
        let now_ms = driver.now_ms;
        if driver.front.admit(now_ms, caller, &[ten], &mut verdicts) == Admission::Waits {
            waited.push(n);
            driver.drain(&mut Vec::new());
        }
    }
    // The first opens the window. The sixth asks for a raise, which is not written before somebody waits for it.
    assert_eq!(waited, [1, 11]);
}

#[test]
fn the_first_hit_of_a_window_waits_for_one_batch() {
    let mut driver = Driver::new(10);
    let hits = [Hit {
        reserve: 10,
        ..hit(1, 100, 60)
    }];
    let mut verdicts = Vec::new();
    let mut answers = Vec::new();
    let begin_ms = driver.now_ms;
    // Two at once: the second is counted after the first.
    for _ in 0..2 {
        let caller = driver.caller();
        driver.front.admit(begin_ms, caller, &hits, &mut verdicts);
    }
    driver.now_ms += 5;
    driver.batch(&mut answers);
    assert_eq!(answers.len(), 2, "{answers:?}");
    driver.drain(&mut answers);
    let peek = driver.peek(1);
    assert_eq!((peek.count, peek.start_ms), (2, begin_ms));
    // What has no room opens nothing.
    let dear = Hit {
        cost: 101,
        ..hit(2, 100, 60)
    };
    driver.admit(&[dear]);
    assert_eq!(driver.peek(2).start_ms, 0);
    driver.crash();
    assert_eq!(driver.peek(1).count, 10, "the ceiling");
    assert_eq!(driver.peek(2).count, 0);
}

#[test]
fn a_failed_write_takes_back_what_waited_for_it_in_all_buckets() {
    let mut driver = Driver::new(10);
    let far = |bucket| Hit {
        reserve: 20,
        ..hit(bucket, 100, 60)
    };
    assert!(admitted(&driver.admit(&[far(1)])));
    // Bucket 1 is far under its ceiling; bucket 2 opens its window, and waits.
    let caller = driver.caller();
    let hits = [far(1), far(2)];
    let now_ms = driver.now_ms;
    let mut answers = Vec::new();
    driver.front.admit(now_ms, caller, &hits, &mut Vec::new());
    driver.batch(&mut answers);
    assert!(answers.is_empty(), "loaded, not written: {answers:?}");
    driver.fail(&mut answers);
    assert!(
        matches!(
            &answers[..],
            [Answer {
                outcome: Outcome::Refused(_),
                ..
            }]
        ),
        "{answers:?}"
    );
    assert_eq!(driver.peek(1).count, 1);
    let second = driver.peek(2);
    assert_eq!(
        (second.count, second.start_ms),
        (0, 0),
        "it was never opened"
    );
}

#[test]
fn when_everything_is_waited_for_nothing_is_evicted() {
    let mut driver = Driver::new(2);
    let mut verdicts = Vec::new();
    for bucket in 0..3 {
        let caller = driver.caller();
        let hits = [hit(bucket, 10, 60)];
        let now_ms = driver.now_ms;
        let admission = driver.front.admit(now_ms, caller, &hits, &mut verdicts);
        match bucket {
            0 | 1 => assert_eq!(admission, Admission::Waits),
            _ => assert!(matches!(admission, Admission::Refused(_)), "{admission:?}"),
        }
    }
    driver.drain(&mut Vec::new());
    assert!(admitted(&driver.admit(&[hit(2, 10, 60)])));
}

#[test]
fn a_spent_bucket_is_settled_only_when_nothing_can_change_it() {
    let mut driver = Driver::new(10);
    let settled = |outcome: Outcome| match outcome {
        Outcome::Admitted { verdicts, .. } => verdicts[0].settled,
        other => panic!("expected an admission, came {other:?}"),
    };
    driver.admit(&[hit(1, 1, 60)]);
    assert!(settled(driver.admit(&[hit(1, 1, 60)])));
    // More is left than nothing.
    let dear = Hit {
        cost: 5,
        ..hit(2, 4, 60)
    };
    assert!(!settled(driver.admit(&[dear])));
    // It may be given back.
    let back = Hit {
        refundable: true,
        ..hit(3, 1, 60)
    };
    driver.admit(&[back]);
    assert!(!settled(driver.admit(&[hit(3, 1, 60)])));
    // The hit that spent it has not been written, and may be taken back.
    driver.admit(&[Hit {
        cost: 0,
        ..hit(4, 1, 60)
    }]);
    let caller = driver.caller();
    let now_ms = driver.now_ms;
    let mut verdicts = Vec::new();
    driver
        .front
        .admit(now_ms, caller, &[hit(4, 1, 60)], &mut verdicts);
    let again = driver
        .front
        .admit(now_ms, caller, &[hit(4, 1, 60)], &mut verdicts);
    assert_eq!(again, Admission::Now { admitted: false });
    assert!(!verdicts[0].settled);
}

#[test]
fn an_outage_is_charged_to_the_window_that_granted_it() {
    let mut driver = Driver::new(10);
    let charge = Charge {
        bucket: [1; 32],
        quota: 10,
        window_s: hit(1, 1, 60).window_s,
        hits: 4,
        age_ms: 20_000,
        reserve: 4,
    };
    let mut answers = Vec::new();
    for expected in [4, 8, 10] {
        let caller = driver.caller();
        let now_ms = driver.now_ms;
        driver.front.charge(now_ms, caller, &charge);
        driver.drain(&mut answers);
        let peek = driver.peek(1);
        assert_eq!((peek.count, peek.start_ms), (expected, now_ms - 20_000));
    }
    // A local window that is over charges nothing.
    driver.now_ms += 60_000;
    let over = Charge {
        age_ms: 60_000,
        ..charge
    };
    let caller = driver.caller();
    let now_ms = driver.now_ms;
    driver.front.charge(now_ms, caller, &over);
    driver.drain(&mut answers);
    assert_eq!(driver.peek(1).count, 0);
}

#[test]
fn rows_stay_few_when_every_bucket_is_new() {
    let mut driver = Driver::new(8);
    for n in 0..500_u16 {
        let mut bucket = [0; 32];
        bucket[..2].copy_from_slice(&n.to_le_bytes());
        let hit = Hit {
            bucket,
            ..hit(0, 10, 1)
        };
        assert!(admitted(&driver.admit(&[hit])));
        driver.now_ms += 100;
    }
    let caller = driver.caller();
    driver.front.inspect(caller, porch_engine::Look::default());
    let mut answers = Vec::new();
    driver.drain(&mut answers);
    match &answers[..] {
        [
            Answer {
                outcome: Outcome::Inspected(inspected),
                ..
            },
        ] => {
            // Ten are open at any time; what has ended goes with the next write.
            assert!(inspected.usage.counters.rows <= 11, "{inspected:?}");
            assert_eq!(inspected.usage.expiry.rows, inspected.usage.counters.rows);
        }
        other => panic!("expected an inspection, came {other:?}"),
    }
}
