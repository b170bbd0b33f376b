//! Which buckets are in memory, and which of them leaves when there is no room?
//!
//! Expired buckets leave first, then the least recently used. A bucket that somebody waits for is pinned: it stays,
//! and stands outside the order of use.

use std::{cmp::Reverse, collections::BinaryHeap, hash::BuildHasher as _};

use hashbrown::{DefaultHashBuilder, HashTable};
use porch_core::window::Window;
use slab::Slab;

use crate::batch::Bucket;

/// No slot.
const NONE: u32 = u32::MAX;

/// A row on its way to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flying {
    /// No batch that is out writes this bucket.
    No,
    /// The batch that is out writes this ceiling for the window in memory.
    Row { seq: u64, ceiling: u32 },
    /// The batch that is out writes a row for a window that has ended since.
    Past,
}

/// A bucket in memory.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) bucket: Bucket,
    /// The last window; none when no hit was ever charged, or while its row is loaded.
    pub(super) window: Option<Window>,
    /// The ceiling in the file for this window, 0 when it has no row.
    pub(super) committed: u32,
    pub(super) flying: Flying,
    /// The write in the queue that still can be changed, by its number.
    pub(super) queued: Option<u64>,
    /// Operations that wait and would charge it or have charged it.
    pub(super) pins: u32,
    /// Its row is being loaded.
    pub(super) loading: bool,
    /// A hit of this window may be given back.
    pub(super) refundable: bool,
    /// As its last caller named it, for writes that no caller brings.
    pub(super) reserve: u8,
    linked: bool,
    newer: u32,
    older: u32,
}

impl Slot {
    const fn is_pinned(&self) -> bool {
        self.loading || self.pins > 0 || self.queued.is_some() || !matches!(self.flying, Flying::No)
    }

    /// The window, if it is open at `now_ms`.
    pub(super) fn open(&self, now_ms: u64) -> Option<&Window> {
        self.window.as_ref().filter(|window| window.is_open(now_ms))
    }
}

/// The buckets in memory, at most a fixed number.
#[derive(Debug)]
pub(super) struct Table {
    slots: Slab<Slot>,
    /// Slots by bucket. A bucket is a digest of what a client sends, so its bits are hashed with a secret once more:
    /// nobody can aim at one place of the table.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Ends of windows. An entry whose slot has another window by now means nothing.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    newest: u32,
    oldest: u32,
    buckets_max: usize,
}

impl Table {
    pub(super) fn new(buckets_max: usize) -> Self {
        Self {
            slots: Slab::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            ends: BinaryHeap::new(),
            newest: NONE,
            oldest: NONE,
            // Slots are numbered by u32, and the last number means none.
            buckets_max: buckets_max.min(u32::MAX as usize - 1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().map(|(_, slot)| slot)
    }

    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    pub(super) fn find(&self, bucket: &Bucket) -> Option<u32> {
        let slots = &self.slots;
        self.index
            .find(hash(&self.hasher, bucket), |slot| {
                slots[*slot as usize].bucket == *bucket
            })
            .copied()
    }

    /// Whether `more` buckets fit without any leaving.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.slots.len() + more <= self.buckets_max
    }

    /// Adds a bucket whose row is to be loaded. There must be room.
    pub(super) fn insert_loading(&mut self, bucket: Bucket) -> u32 {
        let key = self.slots.insert(Slot {
            bucket,
            window: None,
            committed: 0,
            flying: Flying::No,
            queued: None,
            pins: 0,
            loading: true,
            refundable: false,
            reserve: 1,
            linked: false,
            newer: NONE,
            older: NONE,
        });
        // `buckets_max` fits, so each key does.
        let slot = u32::try_from(key).unwrap_or(NONE);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index
            .insert_unique(hash(hasher, &bucket), slot, |slot| {
                hash(hasher, &slots[*slot as usize].bucket)
            });
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Slot {
        self.unlink(slot);
        let removed = self.slots.remove(slot as usize);
        let found = self
            .index
            .find_entry(hash(&self.hasher, &removed.bucket), |other| *other == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
        removed
    }

    /// Notes when the slot's new window ends. Entries that mean nothing any more are dropped when they are more than
    /// those that do.
    pub(super) fn opened(&mut self, slot: u32) {
        const SLACK: usize = 1_024;
        if self.ends.len() > 2 * self.slots.len() + SLACK {
            let ends = self.slots.iter().filter_map(|(key, slot)| {
                let end_ms = slot.window.as_ref()?.end_ms();
                Some(Reverse((end_ms, u32::try_from(key).ok()?)))
            });
            self.ends = ends.collect();
        } else if let Some(window) = &self.slot(slot).window {
            self.ends.push(Reverse((window.end_ms(), slot)));
        }
    }

    /// Lets one bucket go whose window has ended. False when none is known.
    pub(super) fn remove_expired(&mut self, now_ms: u64) -> bool {
        while let Some(Reverse((end_ms, slot))) = self.ends.peek().copied() {
            if end_ms > now_ms {
                return false;
            }
            self.ends.pop();
            let Some(ended) = self.slots.get(slot as usize) else {
                continue;
            };
            let is_it = ended.window.is_some_and(|window| window.end_ms() == end_ms);
            if is_it && !ended.is_pinned() {
                self.remove(slot);
                return true;
            }
        }
        false
    }

    /// The bucket that was used longest ago and that nobody waits for.
    pub(super) const fn least_recently_used(&self) -> Option<u32> {
        if self.oldest == NONE {
            None
        } else {
            Some(self.oldest)
        }
    }

    /// Marks a bucket as just used; called after each change of what pins it.
    pub(super) fn touch(&mut self, slot: u32) {
        let entry = self.slot(slot);
        if entry.is_pinned() {
            self.unlink(slot);
        } else if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let before = self.newest;
        let entry = self.slot_mut(slot);
        entry.linked = true;
        entry.newer = NONE;
        entry.older = before;
        if before == NONE {
            self.oldest = slot;
        } else {
            self.slot_mut(before).newer = slot;
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let entry = self.slot_mut(slot);
        if !entry.linked {
            return;
        }
        entry.linked = false;
        let (newer, older) = (entry.newer, entry.older);
        if newer == NONE {
            self.newest = older;
        } else {
            self.slot_mut(newer).older = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            self.slot_mut(older).newer = newer;
        }
    }
}

/// The first half of a digest is as good as the whole.
fn hash(hasher: &DefaultHashBuilder, bucket: &Bucket) -> u64 {
    let (half, _) = bucket.split_at(16);
    hasher.hash_one(half)
}
