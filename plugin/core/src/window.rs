//! How does a fixed window count, and how far ahead of it runs its durable ceiling?
//!
//! A window is `[start, start + length)` on the store's logical clock. It is opened by its first charged hit; at
//! `start + length` exactly it has ended, and the next charged hit opens a new one.

use core::num::NonZeroU32;

/// The longest window, in seconds: 30 days.
pub const LENGTH_S_MAX: u32 = 30 * 24 * 60 * 60;

/// The largest `reserve`: how far a ceiling may run ahead of its count, in hits.
pub const RESERVE_MAX: u32 = 64;

/// One window of a bucket, and what it has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    start_ms: u64,
    length_s: NonZeroU32,
    /// Hits charged in this window. Never above the largest quota that a caller has named.
    pub count: u32,
}

impl Window {
    /// A window that starts at `start_ms` of the logical clock and has counted `count` hits.
    pub const fn new(start_ms: u64, length_s: NonZeroU32, count: u32) -> Self {
        Self {
            start_ms,
            length_s,
            count,
        }
    }

    /// When it was opened, in milliseconds of the logical clock.
    pub const fn start_ms(&self) -> u64 {
        self.start_ms
    }

    /// How long it lasts, in seconds.
    pub const fn length_s(&self) -> NonZeroU32 {
        self.length_s
    }

    /// The first millisecond after it.
    pub fn end_ms(&self) -> u64 {
        self.start_ms.saturating_add(length_ms(self.length_s))
    }

    /// Whether a hit at `now_ms` falls into it.
    pub fn is_open(&self, now_ms: u64) -> bool {
        now_ms < self.end_ms()
    }

    /// How long until it ends, in milliseconds: from 1 to its length, whatever the clock says.
    pub fn reset_ms(&self, now_ms: u64) -> u64 {
        self.end_ms()
            .saturating_sub(now_ms)
            .clamp(1, length_ms(self.length_s))
    }

    /// Counts a hit that has room.
    pub const fn charge(&mut self, cost: u32) {
        self.count = self.count.saturating_add(cost);
    }

    /// Gives hits back, never below zero.
    pub const fn give_back(&mut self, cost: u32) {
        self.count = self.count.saturating_sub(cost);
    }
}

/// A window's length in milliseconds.
pub fn length_ms(length_s: NonZeroU32) -> u64 {
    u64::from(length_s.get()).saturating_mul(1_000)
}

/// Hits left under `quota`; 0 when a lowered quota is already exceeded.
pub const fn remaining(quota: u32, count: u32) -> u32 {
    quota.saturating_sub(count)
}

/// Whether a hit may be charged. A hit of cost 0 peeks: it has room unless the quota is 0, which refuses everything.
pub const fn has_room(quota: u32, count: u32, cost: u32) -> bool {
    quota > 0 && (cost == 0 || cost <= remaining(quota, count))
}

/// The ceiling that a raise writes: `max(last, count, min(quota, count + reserve - 1))`.
///
/// `last` is the last row queued or committed in this window, 0 when there is none. Two callers may name different
/// quotas, so `last` and `count` may lie above `quota`.
pub fn raised(last: u32, count: u32, quota: u32, reserve: u32) -> u32 {
    let ahead = count.saturating_add(reserve.saturating_sub(1)).min(quota);
    last.max(count).max(ahead)
}

/// Whether to ask for a raise now: the count has passed the last row, or half of the reserve is used and a raise
/// would gain something.
pub fn wants_raise(last: u32, count: u32, quota: u32, reserve: u32) -> bool {
    let ahead = last.saturating_sub(count);
    count > last || (ahead < reserve / 2 && raised(last, count, quota, reserve) > last)
}

/// The ceiling after hits were given back: at most `reserve - 1` above the count, and never above `last`.
pub fn lowered(last: u32, count: u32, reserve: u32) -> u32 {
    last.min(count.saturating_add(reserve.saturating_sub(1)))
        .max(count)
}

/// The count after hits that a worker granted by itself while the store was away:
/// `max(count, min(count + hits, quota))`.
pub fn after_outage(count: u32, hits: u32, quota: u32) -> u32 {
    count.max(count.saturating_add(hits).min(quota))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start_ms: u64, length_s: u32, count: u32) -> Window {
        Window::new(start_ms, NonZeroU32::new(length_s).unwrap(), count)
    }

    #[test]
    fn a_window_ends_at_start_plus_length_exactly() {
        let window = window(5_000, 60, 0);
        assert!(window.is_open(5_000));
        assert!(window.is_open(64_999));
        assert!(!window.is_open(65_000));
    }

    #[test]
    fn the_reset_stays_within_the_window() {
        let window = window(5_000, 60, 0);
        assert_eq!(window.reset_ms(5_000), 60_000);
        assert_eq!(window.reset_ms(64_999), 1);
        assert_eq!(window.reset_ms(70_000), 1);
        assert_eq!(window.reset_ms(0), 60_000);
    }

    #[test]
    fn room_is_what_the_quota_leaves() {
        assert!(has_room(10, 9, 1));
        assert!(!has_room(10, 10, 1));
        assert!(!has_room(10, 0, 11));
        // A peek is answered also when nothing is left, or when the quota was lowered below the count.
        assert!(has_room(10, 10, 0));
        assert!(has_room(10, 12, 0));
        assert!(!has_room(0, 0, 0));
        assert!(!has_room(0, 0, 1));
        assert_eq!(remaining(10, 12), 0);
    }

    #[test]
    fn a_raise_runs_ahead_by_the_reserve_and_stops_at_the_quota() {
        assert_eq!(raised(0, 1, 100, 10), 10);
        assert_eq!(raised(10, 6, 100, 10), 15);
        assert_eq!(raised(95, 96, 100, 10), 100);
        // Another caller's higher quota has been there before.
        assert_eq!(raised(150, 120, 100, 10), 150);
        assert_eq!(raised(0, 7, 100, 1), 7);
        assert_eq!(raised(0, u32::MAX, u32::MAX, 64), u32::MAX);
    }

    #[test]
    fn a_raise_is_asked_for_when_half_of_the_reserve_is_used() {
        assert!(wants_raise(0, 1, 100, 10));
        assert!(!wants_raise(10, 5, 100, 10));
        assert!(wants_raise(10, 6, 100, 10));
        // At the quota a raise gains nothing.
        assert!(!wants_raise(100, 99, 100, 10));
        // A reserve of 1 asks with each hit, and only then.
        assert!(!wants_raise(7, 7, 100, 1));
        assert!(wants_raise(7, 8, 100, 1));
    }

    #[test]
    fn an_outage_never_lowers_a_count_and_never_passes_the_quota() {
        assert_eq!(after_outage(3, 4, 10), 7);
        assert_eq!(after_outage(8, 4, 10), 10);
        assert_eq!(after_outage(12, 4, 10), 12);
    }

    #[test]
    fn giving_back_keeps_the_reserve_above_the_count() {
        assert_eq!(lowered(20, 10, 4), 13);
        assert_eq!(lowered(11, 10, 4), 11);
        assert_eq!(lowered(20, 10, 1), 10);
        let mut window = window(0, 1, 2);
        window.give_back(5);
        assert_eq!(window.count, 0);
    }
}
