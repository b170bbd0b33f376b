//! Which answers may a claim still get?

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use porch_wire::complete::Outcome as Completion;
use porch_wire::{Claimed, claimed};

use crate::torture::draw;

/// What was asked for one key and promised, by claim.
#[derive(Clone, Debug, Default)]
pub(in crate::torture) struct Key {
    pub(in crate::torture) claims: BTreeMap<u64, Attempt>,
}

/// One claim's life. Each is set once and stays.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts of a ledger, each true or not yet"
)]
pub(in crate::torture) struct Attempt {
    pub(in crate::torture) granted: bool,
    pub(in crate::torture) complete_sent: bool,
    pub(in crate::torture) completed: bool,
    pub(in crate::torture) abandon_sent: bool,
    pub(in crate::torture) abandoned: bool,
    /// It was answered that another one has the key: it holds nothing.
    refused: bool,
    /// When it was sent, the key was completed. Answers of several streams may overtake each other, so an answer is
    /// measured by what was known before it was asked for.
    sent_when_completed: bool,
    /// When it was sent, another claim may have had the lease.
    sent_when_held: bool,
}

impl Attempt {
    /// Its caller may execute, or has.
    const fn holds(self) -> bool {
        self.granted && !self.abandon_sent
    }

    /// The store may have it as the key's lease.
    const fn may_hold(self) -> bool {
        !self.refused && !self.abandoned
    }
}

impl Key {
    pub(super) fn claim_sent(&mut self, claim: u64) {
        let mut others = self.claims.iter().filter(|(other, _)| **other != claim);
        let held = others.any(|(_, attempt)| attempt.may_hold());
        let completed = self.claims.values().any(|attempt| attempt.completed);
        let attempt = self.claims.entry(claim).or_default();
        attempt.sent_when_completed = completed;
        attempt.sent_when_held = held;
    }

    pub(super) fn complete_sent(&mut self, claim: u64) {
        self.claims.entry(claim).or_default().complete_sent = true;
    }

    pub(super) fn abandon_sent(&mut self, claim: u64) {
        self.claims.entry(claim).or_default().abandon_sent = true;
    }

    pub(super) fn abandoned(&mut self, claim: u64) {
        self.claims.entry(claim).or_default().abandoned = true;
    }

    pub(super) fn completed(&mut self, key: u64, claim: u64, fenced: bool) -> anyhow::Result<()> {
        let attempt = self.claims.entry(claim).or_default();
        ensure!(
            !fenced || !attempt.holds(),
            "key {key}: claim {claim} was granted, and its completion is fenced"
        );
        attempt.completed |= !fenced;
        Ok(())
    }

    pub(super) fn claimed(&mut self, key: u64, claim: u64, answer: &Claimed) -> anyhow::Result<()> {
        use claimed::Outcome;
        let others = || self.claims.iter().filter(|(other, _)| **other != claim);
        let done = self.claims.iter().find(|(_, attempt)| attempt.completed);
        let done = done.map(|(done, _)| *done);
        let mine = self.claims.get(&claim).copied().unwrap_or_default();
        match &answer.outcome {
            // Given up meanwhile: the grant may be from before.
            Some(Outcome::Granted(_)) if mine.abandon_sent => {}
            Some(Outcome::Granted(_)) => {
                let holder = others().find(|(_, attempt)| attempt.holds());
                ensure!(
                    holder.is_none(),
                    "key {key}: granted to claim {claim}, and also to {holder:?}"
                );
                // Sent again, its answer may come after that of its own completion.
                ensure!(
                    !mine.sent_when_completed && done.is_none_or(|done| done == claim),
                    "key {key}: granted to claim {claim}, and completed by claim {done:?}"
                );
                self.claims.entry(claim).or_default().granted = true;
            }
            Some(Outcome::InFlight(_)) => {
                ensure!(
                    !mine.sent_when_completed,
                    "key {key}: in flight, and completed by claim {done:?}"
                );
                ensure!(
                    mine.sent_when_held || others().any(|(_, attempt)| attempt.may_hold()),
                    "key {key}: in flight for claim {claim}, and no other claim can hold it: {self:?}"
                );
                self.claims.entry(claim).or_default().refused = true;
            }
            Some(Outcome::Replay(response)) => {
                self.check_kept(key, &Completion::Response(response.clone()))?;
            }
            Some(Outcome::Tombstone(tombstone)) => {
                self.check_kept(key, &Completion::Tombstone(*tombstone))?;
            }
            // The one who asked asks again by Invoke.
            Some(Outcome::Large(_)) => {}
            Some(other @ (Outcome::Mismatch(_) | Outcome::Unknown(_))) => {
                bail!("key {key}: expected no such answer here, came {other:?}")
            }
            None => bail!("key {key}: an answer to a claim without an outcome"),
        }
        Ok(())
    }

    /// A kept outcome is the one that was acknowledged, byte for byte; or one that was sent, if none was acknowledged.
    fn check_kept(&self, key: u64, came: &Completion) -> anyhow::Result<()> {
        let acknowledged = self.claims.iter().find(|(_, attempt)| attempt.completed);
        let fits = |claim: u64| draw::outcome(claim) == *came;
        let fits = match acknowledged {
            Some((claim, _)) => fits(*claim),
            None => self
                .claims
                .iter()
                .any(|(claim, attempt)| attempt.complete_sent && fits(*claim)),
        };
        ensure!(
            fits,
            "key {key}: expected the response of claim {:?} byte for byte, came {}",
            acknowledged.map(|(claim, _)| claim),
            short(came)
        );
        Ok(())
    }
}

fn short(outcome: &Completion) -> String {
    match outcome {
        Completion::Response(response) => format!(
            "status {}, {:?}, {} bytes",
            response.status,
            response.field,
            response.body.len()
        ),
        Completion::Tombstone(_) | Completion::Unknown(_) => format!("{outcome:?}"),
    }
}
