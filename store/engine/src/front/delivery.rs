//! What comes of a batch: which answers may go, and what is taken back?

use super::{
    Front, Held,
    call::{Answer, Outcome, Refusal},
    parked::Waiting,
    table::Flying,
};
use crate::{
    batch::{
        Batch, Caller, ClaimAnswer, CounterAnswer, CounterOp, Outcomes, RecordAnswer, RecordAsk,
        RecordOp,
    },
    layout::CounterRow,
};

impl Front {
    /// The batch is durable: adds the answers that waited for it.
    pub fn committed(
        &mut self,
        now_ms: u64,
        batch: Batch,
        outcomes: Outcomes,
        answers: &mut Vec<Answer>,
    ) {
        self.out = false;
        debug_assert_eq!(
            batch.counters.len(),
            outcomes.counters.len(),
            "each operation has its answer"
        );
        for (op, answer) in batch.counters.into_iter().zip(outcomes.counters) {
            self.counter_done(now_ms, &op, answer, answers);
        }
        let mut later = Vec::new();
        for (op, answer) in batch.records.into_iter().zip(outcomes.records) {
            if let RecordAnswer::Later = answer {
                later.push(op);
            } else {
                self.record_done(now_ms, &op, answer, answers);
            }
        }
        self.queue.put_back(later);
        for (op, answer) in batch.operations.iter().zip(outcomes.operations) {
            self.operated(now_ms, op, answer, answers);
        }
    }

    /// Nothing of the batch took effect: gives back what waited for it, and answers all of it
    /// [`Code::Unavailable`](super::Code::Unavailable).
    pub fn failed(&mut self, now_ms: u64, batch: Batch, why: &str, answers: &mut Vec<Answer>) {
        self.out = false;
        let refusal = Refusal::unavailable(why);
        for op in batch.counters {
            match op {
                CounterOp::Load { slot, .. } => self.not_loaded(slot, &refusal, answers),
                CounterOp::Write { slot, seq, .. } => {
                    self.not_written(slot, seq, &refusal, answers);
                }
                CounterOp::Erase { caller, .. } => {
                    self.erasing -= 1;
                    let outcome = Outcome::Refused(refusal.clone());
                    answers.push(Answer { caller, outcome });
                }
                // The file keeps the bucket's ceiling, as after a crash.
                CounterOp::Evict { .. } => {}
            }
        }
        let records = batch.records.iter().map(|op| op.caller);
        let operations = batch.operations.iter().map(|op| op.caller);
        answers.extend(records.chain(operations).map(|caller| Answer {
            caller,
            outcome: Outcome::Refused(refusal.clone()),
        }));
        // A claim that was woken to take a free key has not taken it.
        for op in &batch.records {
            self.wake_one(now_ms, &op.key, answers);
        }
    }

    /// Counter work is done: lets go on who has waited for it.
    fn counter_done(
        &mut self,
        now_ms: u64,
        op: &CounterOp,
        answer: CounterAnswer,
        answers: &mut Vec<Answer>,
    ) {
        match op {
            CounterOp::Load { slot, .. } => match answer {
                CounterAnswer::Loaded(found) => self.loaded(now_ms, *slot, found, answers),
                CounterAnswer::Corrupt(corrupt) => {
                    let refusal = Refusal::data_loss(format!("the bucket's row: {corrupt}"));
                    self.not_loaded(*slot, &refusal, answers);
                }
                CounterAnswer::NoRoom | CounterAnswer::Written | CounterAnswer::Erased(_) => {
                    self.not_loaded(*slot, &Refusal::no_room_for_counter(), answers);
                }
            },
            CounterOp::Write { slot, seq, row, .. } => {
                if let CounterAnswer::NoRoom = answer {
                    self.not_written(*slot, *seq, &Refusal::no_room_for_counter(), answers);
                } else {
                    self.written(*slot, *seq, row, answers);
                }
            }
            CounterOp::Erase { caller, .. } => {
                self.erasing -= 1;
                let outcome = match answer {
                    CounterAnswer::Erased(answer) => Outcome::Reset(answer),
                    CounterAnswer::Loaded(_)
                    | CounterAnswer::Written
                    | CounterAnswer::NoRoom
                    | CounterAnswer::Corrupt(_) => {
                        Outcome::Refused(Refusal::unavailable("not removed"))
                    }
                };
                answers.push(Answer {
                    caller: *caller,
                    outcome,
                });
            }
            CounterOp::Evict { .. } => {}
        }
    }

    /// Record work is done: answers it, and wakes who has waited for it.
    fn record_done(
        &mut self,
        now_ms: u64,
        op: &RecordOp,
        answer: RecordAnswer,
        answers: &mut Vec<Answer>,
    ) {
        let caller = op.caller;
        let outcome = match answer {
            RecordAnswer::Claimed(answer) => Outcome::Claimed(answer),
            RecordAnswer::InFlight { lease_ends_ms } => {
                match self.park(now_ms, op, lease_ends_ms) {
                    Some(outcome) => outcome,
                    None => return,
                }
            }
            RecordAnswer::Completed { fenced } => {
                if !fenced {
                    self.wake_all(now_ms, &op.key, answers);
                }
                Outcome::Completed { fenced }
            }
            RecordAnswer::Abandoned { released } => {
                if released {
                    self.wake_one(now_ms, &op.key, answers);
                }
                Outcome::Abandoned { released }
            }
            // `committed` has put it back.
            RecordAnswer::Later => return,
            RecordAnswer::NoRoom => {
                // If it was woken to take a free key, it has not taken it.
                self.wake_one(now_ms, &op.key, answers);
                Outcome::Refused(Refusal::no_room_for_record())
            }
            RecordAnswer::Corrupt { found } => Outcome::Refused(Refusal::data_loss(found)),
        };
        answers.push(Answer { caller, outcome });
    }

    /// Parks a claim that waits. `Some`: it does not, or cannot.
    fn park(&mut self, now_ms: u64, op: &RecordOp, lease_ends_ms: u64) -> Option<Outcome> {
        let in_flight = Some(Outcome::Claimed(ClaimAnswer::InFlight));
        let RecordAsk::Claim {
            claim,
            replay_bytes_max,
            until_ms,
        } = op.ask
        else {
            return in_flight;
        };
        if until_ms <= now_ms {
            return in_flight;
        }
        if self.is_closed() {
            return Some(Outcome::Refused(Refusal::stopping()));
        }
        let parked = self.parked.park(Waiting {
            caller: op.caller,
            key: op.key,
            claim,
            replay_bytes_max,
            until_ms,
            lease_ends_ms,
        });
        if parked { None } else { in_flight }
    }

    fn written(&mut self, slot: u32, seq: u64, row: &CounterRow, answers: &mut Vec<Answer>) {
        let entry = self.table.slot_mut(slot);
        if let Flying::Row { ceiling, .. } = entry.flying {
            debug_assert_eq!(ceiling, row.ceiling, "one write of a slot is out");
            entry.committed = ceiling;
        }
        entry.flying = Flying::No;
        for id in self.waiting.remove(&seq).unwrap_or_default() {
            match &mut self.held[id] {
                Held::Charged { writes, .. } | Held::Failed { writes, .. } if *writes > 1 => {
                    *writes -= 1;
                }
                Held::Charged { .. } | Held::Failed { .. } | Held::Cold { .. } => {
                    self.finish(id, answers);
                }
            }
        }
        self.table.touch(slot);
    }

    fn not_written(&mut self, slot: u32, seq: u64, refusal: &Refusal, answers: &mut Vec<Answer>) {
        self.table.slot_mut(slot).flying = Flying::No;
        for id in self.waiting.remove(&seq).unwrap_or_default() {
            self.fail(id, refusal, answers);
        }
        self.table.touch(slot);
    }

    /// A write that an operation waited for failed.
    fn fail(&mut self, id: usize, refusal: &Refusal, answers: &mut Vec<Answer>) {
        let failed = match &mut self.held[id] {
            Held::Charged {
                caller,
                taken,
                writes,
                ..
            } => Some((*caller, std::mem::take(taken), *writes)),
            Held::Failed { .. } | Held::Cold { .. } => None,
        };
        if let Some((caller, taken, writes)) = failed {
            for taken in &taken {
                let entry = self.table.slot_mut(taken.slot);
                if let Some(window) = &mut entry.window
                    && window.start_ms() == taken.start_ms
                {
                    window.give_back(taken.cost);
                    // Its first hit did not count, so it was never opened.
                    if window.count == 0 && entry.committed == 0 && entry.queued.is_none() {
                        entry.window = None;
                    }
                }
            }
            let outcome = Outcome::Refused(refusal.clone());
            answers.push(Answer { caller, outcome });
            self.held[id] = Held::Failed { taken, writes };
        }
        match &mut self.held[id] {
            Held::Failed { writes, .. } if *writes > 1 => *writes -= 1,
            Held::Failed { .. } | Held::Charged { .. } | Held::Cold { .. } => {
                self.finish(id, answers);
            }
        }
    }

    /// The last write that named an operation is done.
    fn finish(&mut self, id: usize, answers: &mut Vec<Answer>) {
        match self.held.remove(id) {
            Held::Charged {
                caller,
                outcome,
                taken,
                ..
            } => {
                for taken in taken {
                    self.unpin(taken.slot);
                }
                answers.push(Answer { caller, outcome });
            }
            Held::Failed { taken, .. } => {
                for taken in taken {
                    self.unpin(taken.slot);
                }
            }
            Held::Cold { .. } => debug_assert!(false, "what waits for a row waits for no write"),
        }
    }
}

/// Names the waiting caller in logs.
impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call {} of stream {}", self.call, self.stream)
    }
}
