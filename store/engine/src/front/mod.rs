//! What is answered at once, and what waits for which write?
//!
//! The front holds the live buckets and is the truth while the process runs. For each bucket the file keeps a
//! *ceiling*, an upper bound of its count, so that a crash never grants a hit:
//! - A hit whose count stays at or under the ceiling is answered at once; one above it waits for the write of a
//!   higher one. The next raise is asked for when half of the reserve is used.
//! - The ceiling in memory is the least of the row in the file and every row on its way there. So no answer stands
//!   on a row that a crash may undo.
//! - An operation charges nothing until all its buckets are in memory; then check and charge are one step.
//! - A write that failed takes back, in its window only, the hits that waited for it, in all buckets of their
//!   operation. Hits under the ceiling stand.
//!
//! Calls go in with the time; nothing here does I/O. Everything that can grow is bounded, and answers
//! [`Code::Unavailable`] at its bound.

mod abandoned;
mod call;
mod cold;
mod counters;
mod delivery;
mod operator;
mod parked;
mod queue;
mod table;

use hashbrown::HashMap;
use porch_core::record::{Claim, ClaimId};
use slab::Slab;

use self::{
    abandoned::Abandoned,
    counters::Taken,
    parked::{Parked, Waiting},
    queue::Queue,
    table::Table,
};
use crate::batch::{
    Batch, Bucket, Caller, ClaimAnswer, ExactRow, Key, RecordAsk, RecordOp, Resolution,
};
use crate::{error::ApplyError, store::Store};

pub use call::{
    Admission, Answer, BucketView, Charge, ClaimCall, Code, Hit, Inspected, Outcome, Refund,
    Refusal, Verdict,
};

/// Operations that wait for rows or writes.
const HELD_MAX: usize = 65_536;

/// What the front may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Live buckets. Default 1,000,000, about 150 bytes each with their places in the tables.
    pub buckets_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            buckets_max: 1_000_000,
        }
    }
}

/// The live buckets, what waits, and the queue. See the module's documentation.
#[derive(Debug)]
pub struct Front {
    table: Table,
    queue: Queue,
    abandoned: Abandoned,
    parked: Parked,
    held: Slab<Held>,
    /// Who waits for a bucket's row, in the order they came, by slot.
    cold: HashMap<u32, Vec<usize>>,
    /// Who waits for a write, by its number.
    waiting: HashMap<u64, Vec<usize>>,
    /// Rows that operators have asked to be removed and that are not yet.
    erasing: usize,
    /// A batch is out.
    out: bool,
    closed: bool,
    /// Kept between calls, so that a hot admit allocates nothing.
    slots: Vec<u32>,
    taken: Vec<Taken>,
    waits: Vec<u64>,
}

/// An operation that waits.
#[derive(Debug)]
enum Held {
    /// For the rows of its buckets; nothing is charged.
    Cold {
        caller: Caller,
        job: Job,
        slots: Vec<u32>,
        /// Buckets whose rows have not come.
        missing: usize,
    },
    /// For writes; what it has taken is given back when one fails.
    Charged {
        caller: Caller,
        outcome: Outcome,
        taken: Vec<Taken>,
        writes: usize,
    },
    /// Answered, since a write failed; other writes still name it.
    Failed { taken: Vec<Taken>, writes: usize },
}

/// Counter work that runs when its buckets are in memory.
#[derive(Debug)]
enum Job {
    Admit(Vec<Hit>),
    Charge(Charge),
    Refund(Refund),
    Reset,
}

impl Front {
    /// An empty front.
    pub fn new(limits: Limits) -> Self {
        Self {
            table: Table::new(limits.buckets_max),
            queue: Queue::default(),
            abandoned: Abandoned::default(),
            parked: Parked::default(),
            held: Slab::new(),
            cold: HashMap::new(),
            waiting: HashMap::new(),
            erasing: 0,
            out: false,
            closed: false,
            slots: Vec::new(),
            taken: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// Checks all hits, then charges all of them or none. `verdicts` is filled when the answer is here at once.
    pub fn admit(
        &mut self,
        now_ms: u64,
        caller: Caller,
        hits: &[Hit],
        verdicts: &mut Vec<Verdict>,
    ) -> Admission {
        if self.closed {
            return Admission::Refused(Refusal::stopping());
        }
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots.extend(hits.iter().map_while(|hit| self.hot(&hit.bucket)));
        let admission = if slots.len() == hits.len() {
            let admitted = self.judge(now_ms, hits, &slots, verdicts);
            self.settle_or_hold(caller, &slots, || Outcome::Admitted {
                admitted,
                verdicts: verdicts.clone(),
            })
            .map_or(Admission::Waits, |()| Admission::Now { admitted })
        } else {
            let buckets = hits.iter().map(|hit| &hit.bucket);
            let open = Self::certain_first(now_ms, hits);
            match self.hold_cold(now_ms, caller, buckets, open, || Job::Admit(hits.to_vec())) {
                Ok(()) => Admission::Waits,
                Err(refusal) => Admission::Refused(refusal),
            }
        };
        self.slots = slots;
        admission
    }

    /// Counts hits that were granted while the store was away. `None`: the answer comes with a batch.
    pub fn charge(&mut self, now_ms: u64, caller: Caller, charge: &Charge) -> Option<Outcome> {
        self.run_or_hold(now_ms, caller, &charge.bucket, Job::Charge(*charge))
    }

    /// Gives a hit back to the window that was charged. `None`: the answer comes with a batch.
    pub fn refund(&mut self, now_ms: u64, caller: Caller, refund: &Refund) -> Option<Outcome> {
        self.run_or_hold(now_ms, caller, &refund.bucket, Job::Refund(*refund))
    }

    /// Asks to be the one that executes a key. `None`: the answer comes with a batch.
    pub fn claim(&mut self, now_ms: u64, caller: Caller, call: &ClaimCall) -> Option<Outcome> {
        let claim: &Claim = &call.claim;
        if self.abandoned.contains(now_ms, &claim.claim_id) {
            return Some(Outcome::Refused(Refusal::unavailable(
                "claim was abandoned",
            )));
        }
        let ask = RecordAsk::Claim {
            claim: *claim,
            replay_bytes_max: call.replay_bytes_max,
            until_ms: now_ms.saturating_add(call.wait_ms),
        };
        self.queue_record(caller, call.key, ask)
    }

    /// Ends a claim with its outcome. `None`: the answer comes with a batch.
    pub fn complete(
        &mut self,
        caller: Caller,
        key: Key,
        claim_id: ClaimId,
        resolution: Resolution,
    ) -> Option<Outcome> {
        let ask = RecordAsk::Complete {
            claim_id,
            resolution,
        };
        self.queue_record(caller, key, ask)
    }

    /// Ends a claim whose request never ran, and remembers its id for one lease. `None`: the answer comes with a
    /// batch.
    pub fn abandon(
        &mut self,
        now_ms: u64,
        caller: Caller,
        key: Key,
        claim_id: ClaimId,
        lease_ms: u64,
    ) -> Option<Outcome> {
        self.abandoned.insert(now_ms, claim_id, lease_ms);
        self.queue_record(caller, key, RecordAsk::Abandon { claim_id })
    }

    /// Whether [`Front::next_batch`] has something to hand out.
    pub fn has_work(&self) -> bool {
        !self.out && !self.queue.is_empty()
    }

    /// What the next transaction carries out. None when nothing waits, or while a batch is out.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if !self.has_work() {
            return None;
        }
        let batch = self.queue.take();
        self.fly(&batch);
        self.out = true;
        Some(batch)
    }

    /// From here on every new call is refused; what was taken in is still answered. Claims that wait for another are
    /// refused now: they may be sent again, to whoever runs next.
    pub fn close(&mut self, answers: &mut Vec<Answer>) {
        self.closed = true;
        let parked = self.parked.take_everything().into_iter();
        answers.extend(parked.map(|waiting| Answer {
            caller: waiting.caller,
            outcome: Outcome::Refused(Refusal::stopping()),
        }));
    }

    /// When [`Front::expire`] has something to do, in milliseconds of the logical clock.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.parked.next_due_ms()
    }

    /// Answers the claims that have waited long enough, and lets those ask again whose predecessor's lease is over.
    pub fn expire(&mut self, now_ms: u64, answers: &mut Vec<Answer>) {
        for waiting in self.parked.take_due(now_ms) {
            if waiting.lease_ends_ms <= now_ms {
                self.ask_again(now_ms, waiting, answers);
            } else {
                answers.push(Answer {
                    caller: waiting.caller,
                    outcome: Outcome::Claimed(ClaimAnswer::InFlight),
                });
            }
        }
    }

    /// A stream has gone: its claims wait no more.
    pub fn stream_closed(&mut self, stream: u64) {
        self.parked.leave(stream);
    }

    /// Whether [`Front::close`] was called.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Buckets in memory.
    pub fn live_buckets(&self) -> usize {
        self.table.len()
    }

    /// The last step of an orderly stop: writes the exact count of every live bucket whose ceiling differs, in one
    /// transaction. Answers how many rows it wrote. Call it when [`Front::has_work`] is false and no batch is out.
    ///
    /// # Errors
    /// [`ApplyError`]; then those counts are their ceilings.
    pub fn write_exact(&self, now_ms: u64, store: &mut Store) -> Result<usize, ApplyError> {
        let mut rows: Vec<ExactRow> = self
            .table
            .iter()
            .filter_map(|slot| {
                let window = slot.open(now_ms)?;
                (window.count != slot.committed).then(|| {
                    ExactRow::new(
                        slot.bucket,
                        window.start_ms(),
                        window.length_s(),
                        window.count,
                    )
                })
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.bucket);
        store.write_exact(now_ms, &rows)?;
        Ok(rows.len())
    }

    /// Puts a claim that was parked into the queue again. True when it is there.
    fn ask_again(&mut self, now_ms: u64, waiting: Waiting, answers: &mut Vec<Answer>) -> bool {
        let refusal = if self.abandoned.contains(now_ms, &waiting.claim.claim_id) {
            Refusal::abandoned()
        } else {
            let ask = RecordAsk::Claim {
                claim: waiting.claim,
                replay_bytes_max: waiting.replay_bytes_max,
                until_ms: waiting.until_ms,
            };
            let op = RecordOp {
                caller: waiting.caller,
                key: waiting.key,
                ask,
            };
            if self.queue.push_record(op) {
                return true;
            }
            Refusal::too_many_records()
        };
        answers.push(Answer {
            caller: waiting.caller,
            outcome: Outcome::Refused(refusal),
        });
        false
    }

    /// The key is free: lets one that waits for it ask again.
    fn wake_one(&mut self, now_ms: u64, key: &Key, answers: &mut Vec<Answer>) {
        while let Some(waiting) = self.parked.take_one(key) {
            if self.ask_again(now_ms, waiting, answers) {
                break;
            }
        }
    }

    /// The key has an outcome: lets all that wait for it ask again.
    fn wake_all(&mut self, now_ms: u64, key: &Key, answers: &mut Vec<Answer>) {
        for waiting in self.parked.take_all(key) {
            self.ask_again(now_ms, waiting, answers);
        }
    }

    fn queue_record(&mut self, caller: Caller, key: Key, ask: RecordAsk) -> Option<Outcome> {
        if self.closed {
            return Some(Outcome::Refused(Refusal::stopping()));
        }
        if self.queue.push_record(RecordOp { caller, key, ask }) {
            None
        } else {
            Some(Outcome::Refused(Refusal::too_many_records()))
        }
    }

    /// The slot of a bucket that is in memory with its row.
    fn hot(&self, bucket: &Bucket) -> Option<u32> {
        let slot = self.table.find(bucket)?;
        (!self.table.slot(slot).loading).then_some(slot)
    }

    fn run_or_hold(
        &mut self,
        now_ms: u64,
        caller: Caller,
        bucket: &Bucket,
        job: Job,
    ) -> Option<Outcome> {
        if self.closed {
            return Some(Outcome::Refused(Refusal::stopping()));
        }
        if let Some(slot) = self.hot(bucket) {
            return self.run(now_ms, caller, &job, &[slot]);
        }
        let held = self.hold_cold(now_ms, caller, std::iter::once(bucket), None, || job);
        held.err().map(Outcome::Refused)
    }

    /// Carries out counter work whose buckets are in memory. `None`: it waits for writes.
    fn run(&mut self, now_ms: u64, caller: Caller, job: &Job, slots: &[u32]) -> Option<Outcome> {
        let outcome = match job {
            Job::Admit(hits) => {
                let mut verdicts = Vec::with_capacity(hits.len());
                let admitted = self.judge(now_ms, hits, slots, &mut verdicts);
                Outcome::Admitted { admitted, verdicts }
            }
            Job::Charge(charge) => {
                self.charge_outage(now_ms, charge, slots);
                Outcome::Charged
            }
            Job::Refund(refund) => Outcome::Refunded {
                applied: self.give_back(now_ms, refund, slots),
            },
            Job::Reset => Outcome::Reset(self.start_over(now_ms, slots)),
        };
        let mut outcome = Some(outcome);
        let settled =
            self.settle_or_hold(caller, slots, || outcome.take().unwrap_or(Outcome::Charged));
        settled.and(outcome)
    }

    /// After a judgement: marks its buckets as used, and holds the answer when it waits for writes. `Some`: it does
    /// not.
    fn settle_or_hold(
        &mut self,
        caller: Caller,
        slots: &[u32],
        outcome: impl FnOnce() -> Outcome,
    ) -> Option<()> {
        let settled = self.waits.is_empty();
        if !settled {
            let taken = std::mem::take(&mut self.taken);
            for taken in &taken {
                self.table.slot_mut(taken.slot).pins += 1;
            }
            let id = self.held.insert(Held::Charged {
                caller,
                outcome: outcome(),
                taken,
                writes: self.waits.len(),
            });
            for seq in self.waits.drain(..) {
                self.waiting.entry(seq).or_default().push(id);
            }
        }
        for slot in slots {
            self.table.touch(*slot);
        }
        settled.then_some(())
    }
}
