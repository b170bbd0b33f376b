//! What a worker remembers of the buckets that it saw: spent ones, so that a flood of refused requests costs the
//! store nothing, and the rest, to count on by itself while the store is away.
//!
//! What it counts by itself it owes to the store. A bucket with a debt is counted here until the store has taken it: an
//! outage is per bucket, and ends with the answer to its charge.

use std::collections::{BTreeMap, BTreeSet};

use crate::limiter::rule::Rule;
use crate::store::{Bucket, Charge, Verdict};
use crate::time::Timestamp;

/// Buckets that one worker remembers at most. A full table drops no open window: a bucket that finds no place is
/// not remembered.
pub const BUCKETS_MAX: usize = 65_536;

/// Charges that are out at once, at most.
const CHARGES_MAX: usize = 256;

/// One worker's memory of buckets.
#[derive(Debug, Default)]
pub struct Seen {
    buckets: BTreeMap<Bucket, Window>,
    ends: BTreeSet<(Timestamp, Bucket)>,
    debts: BTreeMap<Bucket, Debt>,
    charges_out: usize,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    id: WindowId,
    end: Timestamp,
    quota: u32,
    remaining: u32,
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowId {
    /// As the store told it.
    Store { start_ms: u64 },
    /// Opened here, while the store was away.
    Local,
}

/// Hits that the store has not been told of.
#[derive(Clone, Copy, Debug)]
struct Debt {
    quota: u32,
    window_s: u32,
    reserve: u32,
    /// When the window that granted them ends.
    end: Timestamp,
    hits: u32,
    /// Of these, so many are on their way.
    out: u32,
}

/// What is left of a bucket by this worker's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Hits.
    pub remaining: u32,
    /// Milliseconds until the window ends.
    pub reset_ms: u64,
}

impl Seen {
    /// Remembers what the store said of a bucket.
    pub fn learn(&mut self, bucket: Bucket, quota: u32, verdict: &Verdict, now: Timestamp) {
        let id = WindowId::Store {
            start_ms: verdict.window_start_ms,
        };
        let settled = verdict.refused && verdict.settled;
        if let Some(window) = self.buckets.get_mut(&bucket)
            && window.id == id
        {
            window.quota = quota;
            window.remaining = verdict.remaining;
            window.settled = settled;
            return;
        }
        let end = now.after_ms(verdict.reset_ms);
        self.place(
            bucket,
            Window {
                id,
                end,
                quota,
                remaining: verdict.remaining,
                settled,
            },
            now,
        );
    }

    /// Milliseconds until a spent bucket opens again: the store said that its refusal stands until then, for this
    /// quota.
    pub fn spent(&self, bucket: &Bucket, quota: u32, now: Timestamp) -> Option<u64> {
        let window = self.buckets.get(bucket)?;
        let open = window.settled && window.quota == quota && window.end > now;
        open.then(|| window.end.ms_since(now))
    }

    /// Whether the store is still owed hits of this bucket, so that it is counted here.
    pub fn is_owed(&self, bucket: &Bucket) -> bool {
        self.debts.contains_key(bucket)
    }

    /// What is left of a bucket by this worker's own count: from what it last saw in the window, or a full window
    /// when it saw none. `None` when the bucket is new and the table is full.
    pub fn left(&mut self, bucket: Bucket, rule: &Rule, now: Timestamp) -> Option<Left> {
        let reset_ms = rule.window_ms();
        match self.buckets.get(&bucket) {
            Some(window) if window.end > now => {
                let used = window.quota.saturating_sub(window.remaining);
                Some(Left {
                    remaining: rule.quota.saturating_sub(used),
                    reset_ms: window.end.ms_since(now),
                })
            }
            Some(_) | None => {
                let end = now.after_ms(reset_ms);
                let (quota, remaining) = (rule.quota, rule.quota);
                let window = Window {
                    id: WindowId::Local,
                    end,
                    quota,
                    remaining,
                    settled: false,
                };
                self.place(bucket, window, now).then_some(Left {
                    remaining: rule.quota,
                    reset_ms,
                })
            }
        }
    }

    /// Counts hits by this worker itself, in the window that [`Self::left`] told of; the store is owed them.
    pub fn charge(&mut self, bucket: Bucket, rule: &Rule, cost: u32) {
        let Some(window) = self.buckets.get_mut(&bucket) else {
            return;
        };
        let used = window
            .quota
            .saturating_sub(window.remaining)
            .saturating_add(cost);
        window.quota = rule.quota;
        window.remaining = rule.quota.saturating_sub(used);
        let end = window.end;
        let debt = self.debts.entry(bucket).or_insert(Debt {
            quota: rule.quota,
            window_s: rule.window_s,
            reserve: rule.reserve,
            end,
            hits: 0,
            out: 0,
        });
        if debt.end != end {
            // Another window: the hits of the one that has ended count no more.
            debt.end = end;
            debt.hits = debt.out;
        }
        debt.hits = debt.hits.saturating_add(cost);
        debt.quota = rule.quota;
    }

    /// What the store is to be told now. Each charge is to be answered by [`Self::charged`].
    pub fn charges(&mut self, now: Timestamp) -> Vec<Charge> {
        self.debts.retain(|_, debt| debt.end > now || debt.out > 0);
        let room = CHARGES_MAX.saturating_sub(self.charges_out);
        let mut charges = Vec::new();
        for (bucket, debt) in self
            .debts
            .iter_mut()
            .filter(|(_, debt)| debt.out == 0)
            .take(room)
        {
            let length_ms = u64::from(debt.window_s).saturating_mul(1_000);
            debt.out = debt.hits;
            charges.push(Charge {
                bucket: *bucket,
                quota: debt.quota,
                window_s: debt.window_s,
                hits: debt.hits,
                age_ms: length_ms.saturating_sub(debt.end.ms_since(now)),
                reserve: debt.reserve,
            });
        }
        self.charges_out = self.charges_out.saturating_add(charges.len());
        charges
    }

    /// A charge was answered, or, when not `taken`, given up: it is told again later. What was counted meanwhile is
    /// still owed.
    pub fn charged(&mut self, bucket: &Bucket, taken: bool) {
        self.charges_out = self.charges_out.saturating_sub(1);
        let Some(debt) = self.debts.get_mut(bucket) else {
            return;
        };
        if taken {
            debt.hits = debt.hits.saturating_sub(debt.out);
        }
        debt.out = 0;
        if debt.hits == 0 {
            self.debts.remove(bucket);
        }
    }

    fn place(&mut self, bucket: Bucket, window: Window, now: Timestamp) -> bool {
        if let Some(old) = self.buckets.get(&bucket) {
            self.ends.remove(&(old.end, bucket));
        } else if self.buckets.len() >= BUCKETS_MAX {
            match self.ends.first() {
                Some((end, ended)) if *end <= now => {
                    self.buckets.remove(&{ *ended });
                    self.ends.pop_first();
                }
                Some(_) | None => return false,
            }
        }
        self.ends.insert((window.end, bucket));
        self.buckets.insert(bucket, window);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::rule::KeyPart;
    use crate::limiter::rule::tests::parts;

    fn rule(quota: u32) -> Rule {
        Rule::new("n", parts("r", quota, 10, vec![KeyPart::ClientAddress]))
    }

    fn bucket(n: u64) -> Bucket {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Bucket(bytes)
    }

    fn verdict(remaining: u32, start: u64, refused: bool) -> Verdict {
        Verdict {
            refused,
            remaining,
            reset_ms: 10_000,
            window_start_ms: start,
            settled: refused,
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn a_spent_bucket_is_remembered_until_its_reset_for_its_quota() {
        let mut seen = Seen::default();
        seen.learn(bucket(1), 3, &verdict(0, 7, true), at(0));
        assert_eq!(seen.spent(&bucket(1), 3, at(4_000)), Some(6_000));
        assert_eq!(seen.spent(&bucket(1), 4, at(4_000)), None);
        assert_eq!(seen.spent(&bucket(1), 3, at(10_000)), None);
        assert_eq!(seen.spent(&bucket(2), 3, at(0)), None);
    }

    #[test]
    fn a_new_answer_of_the_same_window_does_not_move_its_end() {
        let mut seen = Seen::default();
        seen.learn(bucket(1), 3, &verdict(0, 7, true), at(0));
        seen.learn(bucket(1), 3, &verdict(0, 7, true), at(5_000));
        assert_eq!(seen.spent(&bucket(1), 3, at(9_000)), Some(1_000));
    }

    #[test]
    fn counting_alone_goes_on_from_what_was_seen() {
        let mut seen = Seen::default();
        seen.learn(bucket(1), 3, &verdict(2, 7, false), at(0));
        assert_eq!(
            seen.left(bucket(1), &rule(3), at(1_000)),
            Some(Left {
                remaining: 2,
                reset_ms: 9_000
            })
        );
        seen.charge(bucket(1), &rule(3), 2);
        assert_eq!(
            seen.left(bucket(1), &rule(3), at(1_000))
                .map(|left| left.remaining),
            Some(0)
        );
        assert_eq!(
            seen.left(bucket(1), &rule(5), at(1_000))
                .map(|left| left.remaining),
            Some(2),
            "a raised quota"
        );
        assert_eq!(
            seen.left(bucket(1), &rule(3), at(10_000)),
            Some(Left {
                remaining: 3,
                reset_ms: 10_000
            })
        );
    }

    #[test]
    fn the_store_is_told_what_was_counted_without_it() {
        let mut seen = Seen::default();
        seen.left(bucket(1), &rule(5), at(0));
        seen.charge(bucket(1), &rule(5), 2);
        assert!(seen.is_owed(&bucket(1)));
        let charge = seen.charges(at(4_000));
        assert_eq!(charge.len(), 1);
        assert_eq!(
            (
                charge[0].hits,
                charge[0].age_ms,
                charge[0].quota,
                charge[0].window_s
            ),
            (2, 4_000, 5, 10)
        );
        assert_eq!(seen.charges(at(4_000)), [], "once");
        seen.charge(bucket(1), &rule(5), 1);
        seen.charged(&bucket(1), true);
        assert!(seen.is_owed(&bucket(1)), "what was counted meanwhile");
        assert_eq!(seen.charges(at(4_000))[0].hits, 1);
        seen.charged(&bucket(1), false);
        assert_eq!(seen.charges(at(5_000))[0].hits, 1, "told again");
        seen.charged(&bucket(1), true);
        assert!(!seen.is_owed(&bucket(1)));
        assert_eq!(seen.charges(at(5_000)), []);
    }

    #[test]
    fn hits_of_a_window_that_has_ended_are_owed_no_more() {
        let mut seen = Seen::default();
        seen.left(bucket(1), &rule(5), at(0));
        seen.charge(bucket(1), &rule(5), 2);
        assert_eq!(seen.charges(at(10_000)), []);
        assert!(!seen.is_owed(&bucket(1)));
        seen.left(bucket(2), &rule(5), at(0));
        seen.charge(bucket(2), &rule(5), 2);
        seen.left(bucket(2), &rule(5), at(11_000));
        seen.charge(bucket(2), &rule(5), 1);
        assert_eq!(seen.charges(at(11_000))[0].hits, 1);
    }

    #[test]
    fn charges_are_bounded() {
        let mut seen = Seen::default();
        for n in 0..300 {
            seen.left(bucket(n), &rule(5), at(0));
            seen.charge(bucket(n), &rule(5), 1);
        }
        let charges = seen.charges(at(1));
        assert_eq!(charges.len(), CHARGES_MAX);
        for charge in charges {
            seen.charged(&charge.bucket, true);
        }
        assert_eq!(seen.charges(at(1)).len(), 300 - CHARGES_MAX);
    }

    #[test]
    fn a_full_table_drops_no_open_window() {
        let mut seen = Seen::default();
        for n in 0..u64::try_from(BUCKETS_MAX).expect("fits") {
            assert!(seen.left(bucket(n), &rule(3), at(n / 100)).is_some());
        }
        assert_eq!(seen.left(bucket(u64::MAX), &rule(3), at(9_999)), None);
        assert!(
            seen.left(bucket(u64::MAX), &rule(3), at(10_000)).is_some(),
            "an ended window makes place"
        );
        assert_eq!(seen.buckets.len(), BUCKETS_MAX);
        assert_eq!(seen.ends.len(), BUCKETS_MAX);
    }
}
