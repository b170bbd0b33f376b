//! What a worker remembers of the buckets that it saw: spent ones, so that a flood of refused requests costs the
//! store nothing, and the rest, to count on by itself while the store is away.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{Bucket, Verdict};
use crate::time::Timestamp;

/// Buckets that one worker remembers at most. A full table drops no open window: a bucket that finds no place is
/// not remembered.
pub const BUCKETS_MAX: usize = 65_536;

/// One worker's memory of buckets.
#[derive(Debug, Default)]
pub struct Seen {
    buckets: BTreeMap<Bucket, Window>,
    ends: BTreeSet<(Timestamp, Bucket)>,
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

    /// What is left of a bucket by this worker's own count: from what it last saw in the window, or a full window of
    /// `quota` when it saw none. `None` when the bucket is new and the table is full.
    pub fn left(
        &mut self,
        bucket: Bucket,
        quota: u32,
        window_s: u32,
        now: Timestamp,
    ) -> Option<Left> {
        let reset_ms = u64::from(window_s).saturating_mul(1_000);
        match self.buckets.get(&bucket) {
            Some(window) if window.end > now => {
                let used = window.quota.saturating_sub(window.remaining);
                Some(Left {
                    remaining: quota.saturating_sub(used),
                    reset_ms: window.end.ms_since(now),
                })
            }
            Some(_) | None => {
                let window = Window {
                    id: WindowId::Local,
                    end: now.after_ms(reset_ms),
                    quota,
                    remaining: quota,
                    settled: false,
                };
                self.place(bucket, window, now).then_some(Left {
                    remaining: quota,
                    reset_ms,
                })
            }
        }
    }

    /// Counts hits by this worker itself, in the window that [`Self::left`] told of.
    pub fn charge(&mut self, bucket: &Bucket, quota: u32, cost: u32) {
        if let Some(window) = self.buckets.get_mut(bucket) {
            let used = window
                .quota
                .saturating_sub(window.remaining)
                .saturating_add(cost);
            window.quota = quota;
            window.remaining = quota.saturating_sub(used);
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
            seen.left(bucket(1), 3, 10, at(1_000)),
            Some(Left {
                remaining: 2,
                reset_ms: 9_000
            })
        );
        seen.charge(&bucket(1), 3, 2);
        assert_eq!(
            seen.left(bucket(1), 3, 10, at(1_000))
                .map(|left| left.remaining),
            Some(0)
        );
        assert_eq!(
            seen.left(bucket(1), 5, 10, at(1_000))
                .map(|left| left.remaining),
            Some(2),
            "a raised quota"
        );
        assert_eq!(
            seen.left(bucket(1), 3, 10, at(10_000)),
            Some(Left {
                remaining: 3,
                reset_ms: 10_000
            })
        );
    }

    #[test]
    fn a_full_table_drops_no_open_window() {
        let mut seen = Seen::default();
        for n in 0..u64::try_from(BUCKETS_MAX).expect("fits") {
            assert!(seen.left(bucket(n), 3, 10, at(n / 100)).is_some());
        }
        assert_eq!(seen.left(bucket(u64::MAX), 3, 10, at(9_999)), None);
        assert!(
            seen.left(bucket(u64::MAX), 3, 10, at(10_000)).is_some(),
            "an ended window makes place"
        );
        assert_eq!(seen.buckets.len(), BUCKETS_MAX);
        assert_eq!(seen.ends.len(), BUCKETS_MAX);
    }
}
