//! The store as the specification has it, in memory: small, and written without a look at the real one.

use std::collections::BTreeMap;

use porch_core::store::{
    Abandon, Charge, Claim, ClaimId, Claimed, Complete, Fingerprint, Hit, Operation, Outcome,
    Refund, Reply, Verdict,
};

type Digest = [u8; 32];

#[derive(Default)]
pub(crate) struct Store {
    windows: BTreeMap<(Digest, u32), Window>,
    records: BTreeMap<Digest, Record>,
}

#[derive(Clone, Copy)]
struct Window {
    start_ms: u64,
    count: u32,
}

struct Record {
    id: ClaimId,
    fingerprint: Fingerprint,
    lease_ends_ms: u64,
    ttl_ms: u64,
    remember_ms: u64,
    outcome: Option<(Outcome, u64)>,
}

impl Store {
    pub(crate) fn call(&mut self, operation: &Operation, now_ms: u64) -> Reply {
        match operation {
            Operation::Admit(hits) => self.admit(hits, now_ms),
            Operation::Charge(charge) => self.charge(charge, now_ms),
            Operation::Refund(refund) => self.refund(refund),
            Operation::Claim(claim) => Reply::Claimed(self.claim(claim, now_ms)),
            Operation::Complete(complete) => self.complete(complete, now_ms),
            Operation::Abandon(abandon) => self.abandon(abandon),
        }
    }

    fn open(&self, bucket: Digest, window_s: u32, now_ms: u64) -> Window {
        let fresh = Window {
            start_ms: now_ms,
            count: 0,
        };
        let known = self.windows.get(&(bucket, window_s)).copied();
        known
            .filter(|window| now_ms < window.start_ms + u64::from(window_s) * 1000)
            .unwrap_or(fresh)
    }

    fn admit(&mut self, hits: &[Hit], now_ms: u64) -> Reply {
        let refused = |window: Window, hit: &Hit| {
            hit.quota == 0 || (hit.cost > 0 && window.count + hit.cost > hit.quota)
        };
        let windows: Vec<Window> = hits
            .iter()
            .map(|hit| self.open(hit.bucket.0, hit.window_s, now_ms))
            .collect();
        let admitted = !hits
            .iter()
            .zip(&windows)
            .any(|(hit, window)| !hit.shadow && refused(*window, hit));
        let mut verdicts = vec![];
        for (hit, mut window) in hits.iter().zip(windows) {
            let refused = refused(window, hit);
            if admitted && !refused && hit.cost > 0 {
                window.count += hit.cost;
                self.windows.insert((hit.bucket.0, hit.window_s), window);
            }
            let remaining = hit.quota.saturating_sub(window.count);
            verdicts.push(Verdict {
                refused,
                remaining,
                reset_ms: window.start_ms + u64::from(hit.window_s) * 1000 - now_ms,
                window_start_ms: window.start_ms,
                settled: refused && remaining == 0 && !hit.refundable,
            });
        }
        Reply::Admitted { admitted, verdicts }
    }

    fn charge(&mut self, charge: &Charge, now_ms: u64) -> Reply {
        let key = (charge.bucket.0, charge.window_s);
        let mut window = self.open(charge.bucket.0, charge.window_s, now_ms);
        if !self.windows.contains_key(&key) {
            window.start_ms = now_ms.saturating_sub(charge.age_ms);
        }
        window.count = window
            .count
            .max((window.count + charge.hits).min(charge.quota));
        self.windows.insert(key, window);
        Reply::Charged
    }

    fn refund(&mut self, refund: &Refund) -> Reply {
        if let Some(window) = self.windows.get_mut(&(refund.bucket.0, refund.window_s))
            && window.start_ms == refund.window_start_ms
        {
            window.count = window.count.saturating_sub(refund.cost);
        }
        Reply::Refunded
    }

    fn claim(&mut self, claim: &Claim, now_ms: u64) -> Claimed {
        let over = |record: &Record| {
            let from_ms = match &record.outcome {
                Some((_, at_ms)) => *at_ms,
                None => record.lease_ends_ms,
            };
            now_ms >= from_ms + record.remember_ms
        };
        if self.records.get(&claim.key.0).is_some_and(over) {
            self.records.remove(&claim.key.0);
        }
        if let Some(record) = self.records.get(&claim.key.0) {
            if record.fingerprint != claim.fingerprint {
                return Claimed::Mismatch;
            }
            match &record.outcome {
                None if record.id != claim.id && now_ms < record.lease_ends_ms => {
                    return Claimed::InFlight;
                }
                None if now_ms >= record.lease_ends_ms && !claim.execute_unknown => {
                    return Claimed::Unknown { status: 0 };
                }
                Some((Outcome::Response(response), at_ms)) => {
                    return if now_ms < at_ms + record.ttl_ms {
                        Claimed::Replay(response.clone())
                    } else {
                        Claimed::Tombstone {
                            status: response.status,
                        }
                    };
                }
                Some((Outcome::Tombstone { status }, _)) => {
                    return Claimed::Tombstone { status: *status };
                }
                Some((Outcome::Unknown { status }, _)) if !claim.execute_unknown => {
                    return Claimed::Unknown { status: *status };
                }
                None | Some((Outcome::Unknown { .. }, _)) => {}
            }
        }
        let record = Record {
            id: claim.id,
            fingerprint: claim.fingerprint,
            lease_ends_ms: now_ms + claim.lease_ms,
            ttl_ms: claim.ttl_ms,
            remember_ms: claim.remember_ms,
            outcome: None,
        };
        self.records.insert(claim.key.0, record);
        Claimed::Granted
    }

    fn complete(&mut self, complete: &Complete, now_ms: u64) -> Reply {
        if let Some(record) = self.records.get_mut(&complete.key.0)
            && record.id == complete.id
            && record.outcome.is_none()
        {
            record.outcome = Some((complete.outcome.clone(), now_ms));
        }
        Reply::Completed
    }

    fn abandon(&mut self, abandon: &Abandon) -> Reply {
        let key = abandon.key.0;
        let own = |record: &Record| record.id == abandon.id && record.outcome.is_none();
        if self.records.get(&key).is_some_and(own) {
            self.records.remove(&key);
        }
        Reply::Abandoned
    }
}
