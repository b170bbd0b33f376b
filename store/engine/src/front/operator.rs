//! How do operators' calls go in and come out?

use porch_core::record::Settlement;

use super::{
    Front, Job,
    call::{Answer, BucketView, Inspected, Outcome, Refusal},
};
use crate::{
    batch::{Bucket, Caller, CounterOp, Key},
    layout::CounterRow,
    operator::{
        Damage, Forgotten, Look, OperatorAnswer, OperatorAsk, OperatorOp, Seen, SettleAnswer,
    },
};

/// Removals of rows that wait.
const ERASING_MAX: usize = 64;

impl Front {
    /// Counts rows, and shows one bucket's window and one record. `None`: the answer comes with a batch.
    pub fn inspect(&mut self, caller: Caller, look: Look) -> Option<Outcome> {
        self.operate(caller, OperatorAsk::Look(look))
    }

    /// Removes a key's record, and fences its lease if one is out. `None`: the answer comes with a batch.
    pub fn forget(&mut self, caller: Caller, key: Key) -> Option<Outcome> {
        self.operate(caller, OperatorAsk::Forget { key })
    }

    /// Settles a record whose outcome is unknown. `None`: the answer comes with a batch.
    pub fn settle(&mut self, caller: Caller, key: Key, settlement: Settlement) -> Option<Outcome> {
        self.operate(caller, OperatorAsk::Settle { key, settlement })
    }

    /// Takes back all that a bucket has counted. `None`: the answer comes with a batch.
    pub fn reset(&mut self, now_ms: u64, caller: Caller, bucket: Bucket) -> Option<Outcome> {
        if self.is_closed() {
            return Some(Outcome::Refused(Refusal::stopping()));
        }
        let counts = self.table.find(&bucket).is_some_and(|slot| {
            let slot = self.table.slot(slot);
            slot.loading || slot.open(now_ms).is_some()
        });
        if counts {
            return self.run_or_hold(now_ms, caller, &bucket, Job::Reset);
        }
        // Without a window in memory the file may still have one: of a reset whose write failed.
        if self.erasing >= ERASING_MAX {
            return Some(Outcome::Refused(too_many()));
        }
        // A row that was evicted stands before it in the queue, one that is loaded behind it.
        self.erasing += 1;
        self.queue.push_counter(CounterOp::Erase { caller, bucket });
        None
    }

    fn operate(&mut self, caller: Caller, ask: OperatorAsk) -> Option<Outcome> {
        if self.is_closed() {
            return Some(Outcome::Refused(Refusal::stopping()));
        }
        if self.queue.push_operation(OperatorOp { caller, ask }) {
            None
        } else {
            Some(Outcome::Refused(too_many()))
        }
    }

    /// An operator's work is done: answers it, and wakes who has waited for the key.
    pub(super) fn operated(
        &mut self,
        now_ms: u64,
        op: &OperatorOp,
        answer: OperatorAnswer,
        answers: &mut Vec<Answer>,
    ) {
        let freed = match (&op.ask, &answer) {
            (OperatorAsk::Forget { key }, OperatorAnswer::Forgotten(forgotten)) => {
                (!matches!(forgotten, Forgotten::Missing)).then_some(key)
            }
            (OperatorAsk::Settle { key, .. }, OperatorAnswer::Settled(SettleAnswer::Settled)) => {
                Some(key)
            }
            _ => None,
        };
        if let Some(key) = freed {
            self.wake_all(now_ms, key, answers);
        }
        let outcome = match answer {
            OperatorAnswer::Seen(seen) => {
                let bucket = match &op.ask {
                    OperatorAsk::Look(look) => look.bucket,
                    OperatorAsk::Forget { .. } | OperatorAsk::Settle { .. } => None,
                };
                Outcome::Inspected(Box::new(self.inspected(now_ms, bucket.as_ref(), *seen)))
            }
            OperatorAnswer::Forgotten(forgotten) => Outcome::Forgotten(forgotten),
            OperatorAnswer::Settled(settled) => Outcome::Settled(settled),
        };
        answers.push(Answer {
            caller: op.caller,
            outcome,
        });
    }

    fn inspected(&self, now_ms: u64, bucket: Option<&Bucket>, seen: Seen) -> Inspected {
        let Seen {
            usage,
            counter,
            record,
        } = seen;
        Inspected {
            usage,
            live_buckets: self.table.len(),
            bucket: bucket.and_then(|bucket| self.bucket_view(now_ms, bucket, counter)),
            record,
        }
    }

    /// Memory is the truth; the file is shown beside, or in its place.
    fn bucket_view(
        &self,
        now_ms: u64,
        bucket: &Bucket,
        counter: Option<Result<CounterRow, Damage>>,
    ) -> Option<Result<BucketView, Damage>> {
        let slot = self.table.find(bucket);
        let row = match counter {
            Some(Err(damage)) if slot.is_none() => return Some(Err(damage)),
            Some(Err(_)) | None => None,
            Some(Ok(row)) => Some(row),
        };
        if slot.is_none() && row.is_none() {
            return None;
        }
        let window = match slot {
            Some(slot) => self.table.slot(slot).window,
            None => row.map(|row| row.window()),
        };
        let in_file =
            row.filter(|row| window.is_some_and(|window| window.start_ms() == row.start_ms));
        Some(Ok(BucketView {
            window_start_ms: window.map_or(0, |window| window.start_ms()),
            window_s: window.map_or(0, |window| window.length_s().get()),
            count: window.map_or(0, |window| window.count),
            ceiling: in_file.map_or(0, |row| row.ceiling),
            live: slot.is_some(),
            expired: window.is_some_and(|window| !window.is_open(now_ms)),
        }))
    }
}

fn too_many() -> Refusal {
    Refusal::unavailable("too many operators' calls wait")
}
