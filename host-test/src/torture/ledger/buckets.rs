//! Between which bounds does a bucket's count have to lie?

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;
use bytes::Bytes;
use porch_wire::Verdict;

use crate::torture::draw;

/// A window that outlives every torture.
const LONG_S: u32 = 7 * 24 * 3_600;

/// A bucket and its rule.
#[derive(Clone)]
pub(in crate::torture) struct Spec {
    pub(in crate::torture) digest: Bytes,
    pub(in crate::torture) quota: u32,
    pub(in crate::torture) window_s: u32,
    pub(in crate::torture) reserve: u32,
    pub(in crate::torture) refundable: bool,
}

impl Spec {
    /// The `n`-th bucket, with a window that does not end.
    pub(in crate::torture) fn long(n: u64, quota: u32, reserve: u32) -> Self {
        Self {
            digest: draw::digest(1, n),
            quota,
            window_s: LONG_S,
            reserve,
            refundable: false,
        }
    }

    /// The `n`-th bucket, with windows that end while the torture lasts.
    pub(in crate::torture) fn short(n: u64, quota: u32, window_s: u32, reserve: u32) -> Self {
        Self {
            window_s,
            ..Self::long(n, quota, reserve)
        }
    }

    fn is_long(&self) -> bool {
        self.window_s == LONG_S
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.digest {
            write!(f, "{byte:02x}")?;
        }
        let (quota, window_s, reserve) = (self.quota, self.window_s, self.reserve);
        write!(
            f,
            " (quota {quota}, window {window_s} s, reserve {reserve})"
        )
    }
}

/// What may have become of a count since the store last ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::torture) enum Slack {
    /// An orderly stop, or none: exact.
    None,
    /// A crash: up to `reserve` - 1 hits more.
    Reserve,
}

/// What was asked of a bucket and promised.
#[derive(Clone, Debug)]
pub(in crate::torture) struct Bucket {
    pub(in crate::torture) spec: Spec,
    /// The count when it was last known.
    known: u64,
    /// Hits that were acknowledged since.
    acknowledged: u64,
    /// Hits that were sent since and not answered: they may count or not.
    pub(in crate::torture) unsure: u64,
    given_back: u64,
    pub(in crate::torture) maybe_given_back: u64,
    /// Hits granted in each window, by its start.
    pub(in crate::torture) windows: BTreeMap<u64, u64>,
}

impl Bucket {
    pub(super) fn new(spec: Spec) -> Self {
        Self {
            spec,
            known: 0,
            acknowledged: 0,
            unsure: 0,
            given_back: 0,
            maybe_given_back: 0,
            windows: BTreeMap::new(),
        }
    }

    /// The window whose hits may be given back.
    pub(in crate::torture) fn last_start(&self) -> Option<u64> {
        self.windows.last_key_value().map(|(start, _)| *start)
    }

    /// The least that it has counted.
    pub(in crate::torture) fn at_least(&self) -> u64 {
        (self.known + self.acknowledged).saturating_sub(self.given_back + self.maybe_given_back)
    }

    fn at_most(&self, slack: Slack) -> u64 {
        let ahead = match slack {
            Slack::None => 0,
            Slack::Reserve => u64::from(self.spec.reserve) - 1,
        };
        let most =
            (self.known + self.acknowledged + self.unsure + ahead).saturating_sub(self.given_back);
        most.min(u64::from(self.spec.quota))
    }

    pub(super) fn admitted(
        &mut self,
        admitted: bool,
        cost: u32,
        verdict: &Verdict,
    ) -> anyhow::Result<()> {
        self.unsure -= u64::from(cost);
        self.check_reset(verdict)?;
        if !admitted {
            return Ok(());
        }
        self.acknowledged += u64::from(cost);
        if cost == 0 {
            return Ok(());
        }
        self.check_start(verdict.window_start_ms)?;
        let granted = self.windows.entry(verdict.window_start_ms).or_default();
        *granted += u64::from(cost);
        let quota = u64::from(self.spec.quota);
        // A refund makes room again.
        let room = quota + self.given_back + self.maybe_given_back;
        ensure!(
            *granted <= room,
            "bucket {:?}: expected at most its quota of {quota} hits in one window, came {granted}",
            self.spec
        );
        Ok(())
    }

    pub(super) fn charged(&mut self, hits: u32) {
        self.unsure -= u64::from(hits);
        self.acknowledged += u64::from(hits);
    }

    pub(super) fn refunded(&mut self, cost: u32, applied: bool) {
        self.maybe_given_back -= u64::from(cost);
        if applied {
            self.given_back += u64::from(cost);
        }
    }

    pub(super) fn peeked(&mut self, verdict: &Verdict, slack: Slack) -> anyhow::Result<()> {
        self.check_reset(verdict)?;
        let start = verdict.window_start_ms;
        let count = u64::from(self.spec.quota.saturating_sub(verdict.remaining));
        let (least, most) = if self.spec.is_long() {
            (self.at_least(), self.at_most(slack))
        } else {
            let granted = self.windows.get(&start).copied().unwrap_or(0);
            (granted, u64::from(self.spec.quota))
        };
        ensure!(
            (least..=most).contains(&count),
            "bucket {:?}: expected a count of {least} to {most}, came {count}; known {}, acknowledged {}, unanswered {}, \
             given back {} to {}",
            self.spec,
            self.known,
            self.acknowledged,
            self.unsure,
            self.given_back,
            self.given_back + self.maybe_given_back
        );
        if start != 0 {
            self.check_start(start)?;
        }
        self.known = count;
        self.acknowledged = 0;
        self.unsure = 0;
        self.given_back = 0;
        self.maybe_given_back = 0;
        Ok(())
    }

    fn check_reset(&self, verdict: &Verdict) -> anyhow::Result<()> {
        let window_ms = u64::from(self.spec.window_s) * 1_000;
        ensure!(
            (1..=window_ms).contains(&verdict.reset_ms),
            "bucket {:?}: expected a reset of 1 to {window_ms} ms, came {}",
            self.spec,
            verdict.reset_ms
        );
        Ok(())
    }

    /// No window begins before the one before it has ended.
    fn check_start(&self, start: u64) -> anyhow::Result<()> {
        let window_ms = u64::from(self.spec.window_s) * 1_000;
        let near = self
            .windows
            .keys()
            .find(|other| **other != start && other.abs_diff(start) < window_ms);
        ensure!(
            near.is_none(),
            "bucket {:?}: expected no second window beside the one of {near:?}, came one of {start}",
            self.spec
        );
        Ok(())
    }
}
