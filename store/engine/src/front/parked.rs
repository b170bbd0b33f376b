//! Who waits for a claim that is in flight?
//!
//! A claim that may wait is parked until the claim before it ends: when that completes, all ask again and get its
//! outcome; when it is abandoned, one asks again and gets the lease. A lease that runs out wakes all, for the record
//! reads as UNKNOWN then. Parked claims belong to their stream and leave with it.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use porch_core::record::Claim;

use crate::batch::{Caller, Key};

/// Claims parked on one key.
const KEY_MAX: usize = 256;
/// Claims parked in all.
const ALL_MAX: usize = 16_384;

/// A parked claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) caller: Caller,
    pub(super) key: Key,
    pub(super) claim: Claim,
    pub(super) replay_bytes_max: u32,
    /// Its caller waits no longer than this.
    pub(super) until_ms: u64,
    /// The lease that it waits for ends then.
    pub(super) lease_ends_ms: u64,
}

impl Waiting {
    fn due_ms(&self) -> u64 {
        self.until_ms.min(self.lease_ends_ms)
    }
}

/// All parked claims, by key in the order they came.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_key: HashMap<Key, VecDeque<Waiting>>,
    all: usize,
    /// When to look at a key. An entry that is too early finds nothing to do.
    due: BTreeSet<(u64, Key)>,
}

impl Parked {
    /// False when there are too many; then it was not parked.
    pub(super) fn park(&mut self, waiting: Waiting) -> bool {
        if self.all >= ALL_MAX {
            return false;
        }
        let on_key = self.by_key.entry(waiting.key).or_default();
        if on_key.len() >= KEY_MAX {
            return false;
        }
        on_key.push_back(waiting);
        self.all += 1;
        self.due.insert((waiting.due_ms(), waiting.key));
        true
    }

    /// Takes the claim that has waited longest for a key.
    pub(super) fn take_one(&mut self, key: &Key) -> Option<Waiting> {
        let on_key = self.by_key.get_mut(key)?;
        let first = on_key.pop_front()?;
        self.all -= 1;
        if on_key.is_empty() {
            self.by_key.remove(key);
        }
        Some(first)
    }

    /// Takes all that wait for a key.
    pub(super) fn take_all(&mut self, key: &Key) -> VecDeque<Waiting> {
        let taken = self.by_key.remove(key).unwrap_or_default();
        self.all -= taken.len();
        taken
    }

    /// Takes every claim.
    pub(super) fn take_everything(&mut self) -> Vec<Waiting> {
        self.all = 0;
        self.due.clear();
        self.by_key
            .drain()
            .flat_map(|(_, waiting)| waiting)
            .collect()
    }

    /// Takes those whose patience, or whose predecessor's lease, is over.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<Waiting> {
        let mut taken = Vec::new();
        while let Some((due_ms, key)) = self.due.first().copied() {
            if due_ms > now_ms {
                break;
            }
            self.due.pop_first();
            if let Some(on_key) = self.by_key.get_mut(&key) {
                let before = on_key.len();
                on_key.retain(|waiting| {
                    let stays = waiting.due_ms() > now_ms;
                    if !stays {
                        taken.push(*waiting);
                    }
                    stays
                });
                self.all -= before - on_key.len();
                if on_key.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
        taken
    }

    /// When [`Parked::take_due`] is to be called next.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// A stream has gone, and what it had parked goes with it.
    pub(super) fn leave(&mut self, stream: u64) {
        if self.all == 0 {
            return;
        }
        self.by_key.retain(|_, on_key| {
            on_key.retain(|waiting| waiting.caller.stream != stream);
            !on_key.is_empty()
        });
        self.all = self.by_key.values().map(VecDeque::len).sum();
    }
}
