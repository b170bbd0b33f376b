//! Is there room for another row?
//!
//! Counters and records have a limit each, so that neither starves the other. A limit is soft: it is looked at before
//! a *new* row is written, never for a row that is there. So replays, hits under a ceiling, raises, completions and
//! pruning go on at it, and the map has room for what they add.

use crate::{store::Work, usage::Usage};

/// The map is larger than both limits together by this share of them: 1 / 2.
const SLACK: u64 = 2;
/// How far above their limit responses of claims that were granted below it may go: 1 / 4 of it.
const OVERSHOOT: u64 = 4;
/// The map is a multiple of this, which is one of every page size.
const MAP_UNIT_BYTES: u64 = 1 << 16;

/// The least that either limit may be.
pub const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// The most that either limit may be: an address space has room for both and more.
pub const LIMIT_BYTES_MAX: u64 = 1 << 44;

/// The two soft limits, in bytes of pages in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) counter_bytes_max: u64,
    pub(crate) record_bytes_max: u64,
}

/// Which of the two kinds of rows are at their limit: new ones are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtLimit {
    /// Counters.
    pub counters: bool,
    /// Records with their responses.
    pub records: bool,
}

impl AtLimit {
    /// Whether any kind is.
    pub const fn any(self) -> bool {
        self.counters || self.records
    }
}

impl Space {
    /// The size of the map.
    pub(crate) fn map_bytes(self) -> u64 {
        let both = self.counter_bytes_max.saturating_add(self.record_bytes_max);
        let map = both.saturating_add(both / SLACK);
        map.checked_next_multiple_of(MAP_UNIT_BYTES).unwrap_or(map)
    }
}

impl Work<'_, '_> {
    /// Whether a bucket's first row may be written. At the limit expired rows are removed before the answer is no.
    pub(crate) fn has_room_for_counter(&mut self) -> Result<bool, heed::Error> {
        let max = self.space.counter_bytes_max;
        let has_room = self.prune_until(|usage| usage.counter_bytes() < max)?;
        self.at_limit.counters |= !has_room;
        Ok(has_room)
    }

    /// Whether a key's first row may be written, as above.
    pub(crate) fn has_room_for_record(&mut self) -> Result<bool, heed::Error> {
        let max = self.space.record_bytes_max;
        let has_room = self.prune_until(|usage| usage.record_bytes() < max)?;
        self.at_limit.records |= !has_room;
        Ok(has_room)
    }

    /// Whether a response may be kept for a claim that was granted.
    pub(crate) fn has_room_for_response(&mut self) -> Result<bool, heed::Error> {
        let max = self.space.record_bytes_max;
        let max = max.saturating_add(max / OVERSHOOT);
        self.prune_until(|usage| usage.record_bytes() < max)
    }

    fn prune_until(&mut self, fits: impl Fn(&Usage) -> bool) -> Result<bool, heed::Error> {
        if fits(&Usage::read(self.tables, self.txn)?) {
            return Ok(true);
        }
        self.prune()?;
        Ok(fits(&Usage::read(self.tables, self.txn)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_half_again_as_large_as_both_limits() {
        let space = Space {
            counter_bytes_max: 1 << 30,
            record_bytes_max: 4 << 30,
        };
        assert_eq!(space.map_bytes(), 15 << 29);
        let odd = Space {
            counter_bytes_max: LIMIT_BYTES_MIN + 1,
            record_bytes_max: LIMIT_BYTES_MIN,
        };
        assert_eq!(odd.map_bytes(), (3 << 20) + MAP_UNIT_BYTES);
    }
}
