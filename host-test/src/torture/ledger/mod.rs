//! What was asked of the store, what did it promise, and is an answer in keeping with that?

mod buckets;
mod keys;

use std::collections::BTreeMap;

use anyhow::bail;
use porch_wire::call::Operation;
use porch_wire::reply::Outcome;
use porch_wire::{Abandon, Admit, Charge, Claim, Code, Complete, Hit, Refund, Verdict};

pub(super) use buckets::{Bucket, Slack, Spec};
pub(super) use keys::Key;

use super::draw;

/// A lease that outlives every torture.
pub(super) const LEASE_MS: u64 = 3_600_000;
const TTL_MS: u64 = 24 * 3_600_000;

/// One call, by numbers: [`Ledger::operation`] makes the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Hits: the bucket's place and the cost of each.
    Admit(Vec<(usize, u32)>),
    Charge {
        bucket: usize,
        hits: u32,
    },
    Refund {
        bucket: usize,
        cost: u32,
        window_start_ms: u64,
    },
    Claim {
        key: u64,
        claim: u64,
    },
    Complete {
        key: u64,
        claim: u64,
    },
    Abandon {
        key: u64,
        claim: u64,
    },
}

/// Everything that was sent and answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) buckets: Vec<Bucket>,
    pub(super) keys: BTreeMap<u64, Key>,
    /// Answers that were promises.
    pub(super) promises: u64,
    /// Calls that were answered UNAVAILABLE.
    pub(super) unavailable: u64,
}

impl Ledger {
    pub(super) fn new(specs: impl IntoIterator<Item = Spec>) -> Self {
        Self {
            buckets: specs.into_iter().map(Bucket::new).collect(),
            ..Self::default()
        }
    }

    /// The message of a deed.
    pub(super) fn operation(&self, deed: &Deed) -> Operation {
        match *deed {
            Deed::Admit(ref hits) => Operation::Admit(Admit {
                hit: hits.iter().map(|hit| self.hit(*hit)).collect(),
            }),
            Deed::Charge { bucket, hits } => {
                let spec = &self.buckets[bucket].spec;
                Operation::Charge(Charge {
                    bucket: spec.digest.clone(),
                    quota: spec.quota,
                    window_s: spec.window_s,
                    hits,
                    age_ms: 0,
                    reserve: spec.reserve,
                })
            }
            Deed::Refund {
                bucket,
                cost,
                window_start_ms,
            } => {
                let spec = &self.buckets[bucket].spec;
                Operation::Refund(Refund {
                    bucket: spec.digest.clone(),
                    window_s: spec.window_s,
                    cost,
                    window_start_ms,
                })
            }
            Deed::Claim { key, claim } => Operation::Claim(Claim {
                key: draw::digest(2, key),
                claim_id: draw::claim_id(claim),
                fingerprint: draw::fingerprint(key),
                lease_ms: LEASE_MS,
                ttl_ms: TTL_MS,
                remember_ms: TTL_MS,
                wait_ms: 0,
                execute_unknown: false,
            }),
            Deed::Complete { key, claim } => Operation::Complete(Complete {
                key: draw::digest(2, key),
                claim_id: draw::claim_id(claim),
                outcome: Some(draw::outcome(claim)),
            }),
            Deed::Abandon { key, claim } => Operation::Abandon(Abandon {
                key: draw::digest(2, key),
                claim_id: draw::claim_id(claim),
                lease_ms: LEASE_MS,
            }),
        }
    }

    fn hit(&self, (bucket, cost): (usize, u32)) -> Hit {
        let spec = &self.buckets[bucket].spec;
        Hit {
            bucket: spec.digest.clone(),
            quota: spec.quota,
            window_s: spec.window_s,
            cost,
            reserve: spec.reserve,
            shadow: false,
            refundable: spec.refundable,
        }
    }

    /// Notes that a call is on its way: from now on it may have taken effect.
    pub(super) fn sent(&mut self, deed: &Deed) {
        match *deed {
            Deed::Admit(ref hits) => {
                for (bucket, cost) in hits {
                    self.buckets[*bucket].unsure += u64::from(*cost);
                }
            }
            Deed::Charge { bucket, hits } => self.buckets[bucket].unsure += u64::from(hits),
            Deed::Refund { bucket, cost, .. } => {
                self.buckets[bucket].maybe_given_back += u64::from(cost);
            }
            Deed::Claim { key, claim } => self.keys.entry(key).or_default().claim_sent(claim),
            Deed::Complete { key, claim } => self.keys.entry(key).or_default().complete_sent(claim),
            Deed::Abandon { key, claim } => self.keys.entry(key).or_default().abandon_sent(claim),
        }
    }

    /// Notes an answer, which is a promise from now on.
    ///
    /// # Errors
    /// When it breaks an earlier one.
    pub(super) fn answered(&mut self, deed: &Deed, outcome: &Outcome) -> anyhow::Result<()> {
        if let Outcome::Error(error) = outcome {
            if error.code() == Code::Unavailable {
                self.unavailable += 1;
                return Ok(());
            }
            bail!("{deed:?}: expected an answer, came {error:?}");
        }
        self.promises += 1;
        match (deed, outcome) {
            (Deed::Admit(hits), Outcome::Admitted(admitted)) => {
                for ((bucket, cost), verdict) in hits.iter().zip(&admitted.verdict) {
                    self.buckets[*bucket].admitted(admitted.admitted, *cost, verdict)?;
                }
            }
            (Deed::Charge { bucket, hits }, Outcome::Charged(_)) => {
                self.buckets[*bucket].charged(*hits);
            }
            (Deed::Refund { bucket, cost, .. }, Outcome::Refunded(refunded)) => {
                self.buckets[*bucket].refunded(*cost, refunded.applied);
            }
            (Deed::Claim { key, claim }, Outcome::Claimed(claimed)) => {
                let record = self.keys.entry(*key).or_default();
                record.claimed(*key, *claim, claimed)?;
            }
            (Deed::Complete { key, claim }, Outcome::Completed(completed)) => {
                let record = self.keys.entry(*key).or_default();
                record.completed(*key, *claim, completed.fenced)?;
            }
            (Deed::Abandon { key, claim }, Outcome::Abandoned(_)) => {
                self.keys.entry(*key).or_default().abandoned(*claim);
            }
            (_, other) => bail!("{deed:?}: came an answer to something else: {other:?}"),
        }
        Ok(())
    }

    /// Compares a bucket with what a hit of cost 0 found, and goes on from there.
    ///
    /// # Errors
    /// When hits that were acknowledged are missing, or too many are counted.
    pub(super) fn peeked(
        &mut self,
        bucket: usize,
        verdict: &Verdict,
        slack: Slack,
    ) -> anyhow::Result<()> {
        self.buckets[bucket].peeked(verdict, slack)
    }
}
