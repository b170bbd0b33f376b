//! How is an engine driven, with the time and the failures of a test?

use std::num::NonZeroU32;

use porch_engine::{
    Admission, Answer, Batch, Caller, Front, Hit, Limits, Machine, Options, Outcome, Store, Verdict,
};
use tempfile::TempDir;

/// A front and a store, and the time.
pub(crate) struct Driver {
    pub(crate) front: Front,
    pub(crate) store: Store,
    pub(crate) now_ms: u64,
    limits: Limits,
    next_call: u64,
    /// The batch that is out.
    out: Option<Batch>,
    pub(crate) dir: TempDir,
}

/// The wall clock when a test begins.
const BEGIN_MS: u64 = 1_000_000_000;

impl Driver {
    pub(crate) fn new(buckets_max: usize) -> Self {
        Self::with(buckets_max, Options::default())
    }

    pub(crate) fn with(buckets_max: usize, options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (store, _) = Store::open_at(dir.path(), options, machine()).expect("a new store opens");
        let limits = Limits { buckets_max };
        Self {
            front: Front::new(limits),
            store,
            now_ms: BEGIN_MS,
            limits,
            next_call: 0,
            out: None,
            dir,
        }
    }

    pub(crate) fn caller(&mut self) -> Caller {
        self.next_call += 1;
        Caller {
            stream: 1,
            call: self.next_call,
        }
    }

    /// Lets a batch go out, if none is; calls that come from here on find it under way.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        if self.out.is_none() {
            self.out = self.front.next_batch();
        } else {
            assert!(self.front.next_batch().is_none(), "one batch is out");
        }
        self.out.take()
    }

    /// Lets a batch go out and stay out until the next commit or failure.
    pub(crate) fn take_and_keep(&mut self) {
        self.out = self.take();
    }

    /// Carries out one batch; false when nothing waits.
    pub(crate) fn batch(&mut self, answers: &mut Vec<Answer>) -> bool {
        let Some(batch) = self.take() else {
            return false;
        };
        let outcomes = self
            .store
            .apply_at(self.now_ms, &batch)
            .expect("the batch commits");
        self.front.committed(self.now_ms, batch, outcomes, answers);
        true
    }

    /// Lets one batch fail; false when nothing waits.
    pub(crate) fn fail(&mut self, answers: &mut Vec<Answer>) -> bool {
        let Some(batch) = self.take() else {
            return false;
        };
        self.front
            .failed(self.now_ms, batch, "the disk is full", answers);
        true
    }

    /// Carries out batches until nothing waits.
    pub(crate) fn drain(&mut self, answers: &mut Vec<Answer>) {
        while self.batch(answers) {}
    }

    /// What was in memory is gone.
    pub(crate) fn crash(&mut self) {
        self.front = Front::new(self.limits);
        self.out = None;
    }

    /// An orderly stop, and a start.
    pub(crate) fn restart(&mut self, answers: &mut Vec<Answer>) {
        self.front.close(answers);
        self.drain(answers);
        self.front
            .write_exact(self.now_ms, &mut self.store)
            .expect("the exact counts are written");
        self.crash();
    }

    /// An admit by itself, with its answer.
    pub(crate) fn admit(&mut self, hits: &[Hit]) -> Outcome {
        let caller = self.caller();
        let mut verdicts = Vec::new();
        match self.front.admit(self.now_ms, caller, hits, &mut verdicts) {
            Admission::Now { admitted } => Outcome::Admitted { admitted, verdicts },
            Admission::Refused(refusal) => Outcome::Refused(refusal),
            Admission::Waits => {
                let mut answers = Vec::new();
                self.drain(&mut answers);
                let answer = answers.into_iter().find(|answer| answer.caller == caller);
                answer.expect("a drained call is answered").outcome
            }
        }
    }

    /// What a peek at a bucket says, under a quota that is never spent.
    pub(crate) fn peek(&mut self, bucket: u8) -> Peek {
        let hit = Hit {
            cost: 0,
            ..hit(bucket, u32::MAX, 60)
        };
        match self.admit(&[hit]) {
            Outcome::Admitted { verdicts, .. } => {
                let Verdict {
                    remaining,
                    window_start_ms,
                    ..
                } = verdicts[0];
                Peek {
                    count: u32::MAX - remaining,
                    start_ms: window_start_ms,
                }
            }
            other => panic!("expected an answer to a peek, came {other:?}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    pub(crate) count: u32,
    pub(crate) start_ms: u64,
}

pub(crate) const fn machine() -> Machine {
    Machine {
        boot_id: [1; 16],
        boottime_ms: 1,
        wall_ms: BEGIN_MS,
    }
}

/// A hit of cost 1.
pub(crate) fn hit(bucket: u8, quota: u32, window_s: u32) -> Hit {
    Hit {
        bucket: [bucket; 32],
        quota,
        window_s: NonZeroU32::new(window_s).expect("a window has a length"),
        cost: 1,
        reserve: 1,
        shadow: false,
        refundable: false,
    }
}
