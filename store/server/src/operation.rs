//! How is a call carried out?

use porch_engine::{Admission, Caller, Front, Hit, Outcome, Verdict};
use porch_wire::{Call, call::Operation, reply};

use crate::{
    parse::{self, Invalid},
    reply as to_wire,
};

/// Buffers kept between calls, and what the way in allows.
#[derive(Debug)]
pub(crate) struct Operations {
    hits: Vec<Hit>,
    verdicts: Vec<Verdict>,
    /// A longer replay is answered `large`.
    replay_bytes_max: u32,
}

impl Operations {
    pub(crate) const fn new(replay_bytes_max: u32) -> Self {
        Self {
            hits: Vec::new(),
            verdicts: Vec::new(),
            replay_bytes_max,
        }
    }

    /// Puts a call in. `None`: its answer comes with a batch.
    pub(crate) fn call(
        &mut self,
        front: &mut Front,
        now_ms: u64,
        caller: Caller,
        call: Call,
    ) -> Option<reply::Outcome> {
        let Some(operation) = call.operation else {
            return Some(to_wire::unknown_operation());
        };
        if let Operation::Admit(admit) = &operation {
            return match parse::admit(admit, &mut self.hits) {
                Ok(()) => self.admit(front, now_ms, caller),
                Err(invalid) => Some(to_wire::invalid(invalid)),
            };
        }
        match self.other(front, now_ms, caller, operation) {
            Ok(outcome) => outcome.map(to_wire::outcome),
            Err(invalid) => Some(to_wire::invalid(invalid)),
        }
    }

    fn admit(&mut self, front: &mut Front, now_ms: u64, caller: Caller) -> Option<reply::Outcome> {
        match front.admit(now_ms, caller, &self.hits, &mut self.verdicts) {
            Admission::Now { admitted } => Some(to_wire::admitted(admitted, &self.verdicts)),
            Admission::Waits => None,
            Admission::Refused(refusal) => Some(to_wire::outcome(Outcome::Refused(refusal))),
        }
    }

    fn other(
        &self,
        front: &mut Front,
        now_ms: u64,
        caller: Caller,
        operation: Operation,
    ) -> Result<Option<Outcome>, Invalid> {
        Ok(match operation {
            // Answered by `call`.
            Operation::Admit(_) => None,
            Operation::Charge(charge) => front.charge(now_ms, caller, &parse::charge(&charge)?),
            Operation::Refund(refund) => front.refund(now_ms, caller, &parse::refund(&refund)?),
            Operation::Claim(claim) => {
                let call = parse::claim(&claim, self.replay_bytes_max)?;
                front.claim(now_ms, caller, &call)
            }
            Operation::Complete(complete) => {
                let complete = parse::complete(complete)?;
                front.complete(caller, complete.key, complete.claim_id, complete.resolution)
            }
            Operation::Abandon(abandon) => {
                let abandon = parse::abandon(&abandon)?;
                let (key, claim_id) = (abandon.key, abandon.claim_id);
                front.abandon(now_ms, caller, key, claim_id, abandon.lease_ms)
            }
        })
    }
}
