//! How does a bucket that is not in memory get there?
//!
//! Its row is loaded through the same queue as the writes, so what an eviction wrote is what is read. Meanwhile the
//! operations that need it wait in the order they came, and pin all their buckets.

use porch_core::window::Window;

use super::{
    Front, HELD_MAX, Held, Job,
    call::{Answer, Outcome, Refusal},
};
use crate::{
    batch::{Bucket, Caller, CounterOp, Loaded},
    layout::CounterRow,
};

impl Front {
    /// Holds an operation until all its buckets are in memory. `open` is the row for a window that it opens for
    /// certain, if it comes first to its only bucket.
    pub(super) fn hold_cold<'a>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        buckets: impl Iterator<Item = &'a Bucket> + Clone,
        open: Option<CounterRow>,
        job: impl FnOnce() -> Job,
    ) -> Result<(), Refusal> {
        if self.held.len() >= HELD_MAX {
            return Err(Refusal::unavailable("too many operations wait"));
        }
        // What is here already must not leave while room is made for the rest.
        let mut missing: Vec<Bucket> = Vec::new();
        let mut pinned = Vec::new();
        for bucket in buckets.clone() {
            match self.table.find(bucket) {
                Some(slot) => {
                    self.pin(slot);
                    pinned.push(slot);
                }
                None if !missing.contains(bucket) => missing.push(*bucket),
                None => {}
            }
        }
        while !self.table.has_room(missing.len()) {
            if !self.evict(now_ms) {
                for slot in pinned {
                    self.unpin(slot);
                }
                return Err(Refusal::unavailable(
                    "every bucket in memory is waited for; raise --memory-buckets",
                ));
            }
        }
        for bucket in missing {
            let slot = self.table.insert_loading(bucket);
            self.queue
                .push_counter(CounterOp::Load { slot, bucket, open });
        }
        for slot in pinned {
            self.unpin(slot);
        }

        let slots: Vec<u32> = buckets
            .filter_map(|bucket| self.table.find(bucket))
            .collect();
        let id = self.held.vacant_key();
        let mut missing = 0;
        for slot in &slots {
            self.pin(*slot);
            if self.table.slot(*slot).loading {
                missing += 1;
                self.cold.entry(*slot).or_default().push(id);
            }
        }
        self.held.insert(Held::Cold {
            caller,
            job: job(),
            slots,
            missing,
        });
        Ok(())
    }

    /// Lets one bucket go. What the file has of it is its exact count then.
    fn evict(&mut self, now_ms: u64) -> bool {
        if self.table.remove_expired(now_ms) {
            return true;
        }
        let Some(slot) = self.table.least_recently_used() else {
            return false;
        };
        let gone = self.table.remove(slot);
        if let Some(window) = gone.open(now_ms)
            && window.count != gone.committed
        {
            self.queue.push_counter(CounterOp::Evict {
                bucket: gone.bucket,
                row: CounterRow {
                    start_ms: window.start_ms(),
                    length_s: window.length_s(),
                    ceiling: window.count,
                },
            });
        }
        true
    }

    /// A bucket's row has come: runs what has waited for nothing else.
    pub(super) fn loaded(
        &mut self,
        now_ms: u64,
        slot: u32,
        found: Loaded,
        answers: &mut Vec<Answer>,
    ) {
        let entry = self.table.slot_mut(slot);
        entry.loading = false;
        let (window, committed) = match found {
            Loaded::Nothing => (None, 0),
            Loaded::Row(row) => (Some(row.window()), row.ceiling),
            // Whoever asked for it comes first below.
            Loaded::Opened(row) => (
                Some(Window::new(row.start_ms, row.length_s, 0)),
                row.ceiling,
            ),
        };
        entry.window = window;
        entry.committed = committed;
        if window.is_some() {
            self.table.opened(slot);
        }
        for id in self.cold.remove(&slot).unwrap_or_default() {
            let Some(Held::Cold { missing, .. }) = self.held.get_mut(id) else {
                continue;
            };
            *missing -= 1;
            if *missing > 0 {
                continue;
            }
            let Held::Cold {
                caller, job, slots, ..
            } = self.held.remove(id)
            else {
                continue;
            };
            // It waits no more; what still does is pinned by the others.
            for slot in &slots {
                self.table.slot_mut(*slot).pins -= 1;
            }
            if let Some(outcome) = self.run(now_ms, caller, &job, &slots) {
                answers.push(Answer { caller, outcome });
            }
        }
        self.table.touch(slot);
    }

    /// A bucket's row cannot be had: refuses all that has waited for it, and forgets the bucket.
    pub(super) fn not_loaded(&mut self, slot: u32, refusal: &Refusal, answers: &mut Vec<Answer>) {
        for id in self.cold.remove(&slot).unwrap_or_default() {
            let Some(Held::Cold { caller, slots, .. }) = self.held.try_remove(id) else {
                continue;
            };
            for other in slots {
                if let Some(waiting) = self.cold.get_mut(&other) {
                    waiting.retain(|waiting| *waiting != id);
                }
                self.unpin(other);
            }
            let outcome = Outcome::Refused(refusal.clone());
            answers.push(Answer { caller, outcome });
        }
        self.table.remove(slot);
    }

    fn pin(&mut self, slot: u32) {
        self.table.slot_mut(slot).pins += 1;
        self.table.touch(slot);
    }

    pub(super) fn unpin(&mut self, slot: u32) {
        self.table.slot_mut(slot).pins -= 1;
        self.table.touch(slot);
    }
}
