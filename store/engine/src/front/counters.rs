//! How are hits checked and charged, once their buckets are in memory?

use core::num::NonZeroU32;

use porch_core::window::{self, Window};

use super::{
    Front,
    call::{Charge, Hit, Refund, Verdict},
    table::Flying,
};
use crate::{
    batch::{Batch, CounterOp},
    layout::CounterRow,
    operator::ResetAnswer,
};

/// What an operation has taken from a bucket, to be given back in that window when its write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) slot: u32,
    pub(super) start_ms: u64,
    pub(super) cost: u32,
}

impl Front {
    /// Checks all hits, then charges all of them or none, shadows beside. Leaves in `taken` what was charged and in
    /// `waits` the writes that have to commit before the answer may go.
    pub(super) fn judge(
        &mut self,
        now_ms: u64,
        hits: &[Hit],
        slots: &[u32],
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        self.taken.clear();
        self.waits.clear();
        verdicts.clear();
        let mut admitted = true;
        for (at, (hit, slot)) in hits.iter().zip(slots).enumerate() {
            // The same bucket twice in one request: the second has what the first leaves.
            let earlier = hits[..at].iter().zip(slots);
            let taken_before = earlier
                .filter(|(earlier, other)| *other == slot && !earlier.shadow)
                .fold(0_u32, |sum, (earlier, _)| sum.saturating_add(earlier.cost));
            let verdict = self.look(now_ms, hit, *slot, taken_before);
            admitted &= hit.shadow || !verdict.refused;
            verdicts.push(verdict);
        }
        if !admitted {
            return false;
        }
        for shadows in [false, true] {
            for (at, (hit, slot)) in hits.iter().zip(slots).enumerate() {
                if hit.shadow == shadows {
                    verdicts[at] = self.charge_hit(now_ms, hit, *slot, verdicts[at]);
                }
            }
        }
        true
    }

    fn look(&self, now_ms: u64, hit: &Hit, slot: u32, taken_before: u32) -> Verdict {
        let slot = self.table.slot(slot);
        let (count, reset_ms, window_start_ms) = match slot.open(now_ms) {
            Some(window) => (window.count, window.reset_ms(now_ms), window.start_ms()),
            None => (0, window::length_ms(hit.window_s), 0),
        };
        let refused = !window::has_room(hit.quota, count.saturating_add(taken_before), hit.cost);
        let remaining = window::remaining(hit.quota, count);
        // Who waits for a write, or for another bucket's row, pins the slot.
        let final_count = slot.pins == 0 && !slot.refundable && !hit.refundable;
        Verdict {
            refused,
            remaining,
            reset_ms,
            window_start_ms,
            settled: refused && remaining == 0 && final_count,
        }
    }

    /// Charges a hit that was found to have room; a shadow only if it still has.
    fn charge_hit(&mut self, now_ms: u64, hit: &Hit, slot: u32, found: Verdict) -> Verdict {
        let found = if hit.shadow {
            self.look(now_ms, hit, slot, 0)
        } else {
            found
        };
        if found.refused || hit.cost == 0 {
            return found;
        }
        let mut window = self.open_window(now_ms, slot, now_ms, hit.window_s);
        window.charge(hit.cost);
        let entry = self.table.slot_mut(slot);
        entry.window = Some(window);
        entry.reserve = hit.reserve;
        entry.refundable |= hit.refundable;
        self.taken.push(Taken {
            slot,
            start_ms: window.start_ms(),
            cost: hit.cost,
        });
        let write = self.cover(slot, &window, hit.quota, hit.reserve);
        self.waits.extend(write);
        Verdict {
            refused: false,
            remaining: window::remaining(hit.quota, window.count),
            reset_ms: window.reset_ms(now_ms),
            window_start_ms: window.start_ms(),
            settled: false,
        }
    }

    /// The row for a window that a request opens for certain, if its bucket has none: its only hit has room in any
    /// new window, so no other bucket can stand against it.
    pub(super) fn certain_first(now_ms: u64, hits: &[Hit]) -> Option<CounterRow> {
        let [hit] = hits else {
            return None;
        };
        let window = Window::new(now_ms, hit.window_s, hit.cost);
        let certain = hit.cost > 0 && window::has_room(hit.quota, 0, hit.cost);
        certain.then(|| {
            let ceiling = window::raised(0, hit.cost, hit.quota, u32::from(hit.reserve));
            row(&window, ceiling)
        })
    }

    /// Counts hits of an outage in the window that is open, or in the one that the worker had opened by itself.
    pub(super) fn charge_outage(&mut self, now_ms: u64, charge: &Charge, slots: &[u32]) {
        self.taken.clear();
        self.waits.clear();
        let Some(slot) = slots.first().copied() else {
            return;
        };
        let over = charge.age_ms >= window::length_ms(charge.window_s);
        if over && self.table.slot(slot).open(now_ms).is_none() {
            return;
        }
        let start_ms = now_ms.saturating_sub(charge.age_ms);
        let mut window = self.open_window(now_ms, slot, start_ms, charge.window_s);
        let before = window.count;
        window.count = window::after_outage(before, charge.hits, charge.quota);
        let entry = self.table.slot_mut(slot);
        entry.window = Some(window);
        entry.reserve = charge.reserve;
        self.taken.push(Taken {
            slot,
            start_ms: window.start_ms(),
            cost: window.count - before,
        });
        let write = self.cover(slot, &window, charge.quota, charge.reserve);
        self.waits.extend(write);
    }

    /// Gives a hit back to the window that was charged, if that is still open. It waits until no row that a crash may
    /// leave stands further above the count than the reserve allows.
    pub(super) fn give_back(&mut self, now_ms: u64, refund: &Refund, slots: &[u32]) -> bool {
        self.taken.clear();
        self.waits.clear();
        let Some(slot) = slots.first().copied() else {
            return false;
        };
        let entry = self.table.slot_mut(slot);
        let reserve = u32::from(entry.reserve);
        let window = match &mut entry.window {
            Some(window)
                if window.is_open(now_ms) && window.start_ms() == refund.window_start_ms =>
            {
                window
            }
            Some(_) | None => return false,
        };
        window.give_back(refund.cost);
        let window = *window;
        let bound = window::lowered(u32::MAX, window.count, reserve);
        let highest = self.rows(slot).into_iter().flatten().max().unwrap_or(0);
        if highest > bound {
            let seq = self.write(
                slot,
                &window,
                window::lowered(highest, window.count, reserve),
            );
            // It gives nothing back when the write fails, but keeps the slot until then.
            self.taken.push(Taken {
                slot,
                start_ms: window.start_ms(),
                cost: 0,
            });
            self.waits.push(seq);
        }
        true
    }

    /// Opens an empty window in the place of the one that is open, and writes that. What a failed write takes back is
    /// taken back from the old window, so nothing of it reaches the new one.
    pub(super) fn start_over(&mut self, now_ms: u64, slots: &[u32]) -> ResetAnswer {
        self.taken.clear();
        self.waits.clear();
        let Some(slot) = slots.first().copied() else {
            return ResetAnswer::Missing;
        };
        let entry = self.table.slot_mut(slot);
        let Some(old) = entry.open(now_ms).copied() else {
            return ResetAnswer::Missing;
        };
        entry.window = None;
        let window = self.open_window(now_ms, slot, now_ms, old.length_s());
        let seq = self.write(slot, &window, 0);
        self.taken.push(Taken {
            slot,
            start_ms: window.start_ms(),
            cost: 0,
        });
        self.waits.push(seq);
        ResetAnswer::Reset { count: old.count }
    }

    /// The open window of a slot, or a new one. A row of the window before that is still on its way counts no more.
    fn open_window(
        &mut self,
        now_ms: u64,
        slot: u32,
        start_ms: u64,
        length_s: NonZeroU32,
    ) -> Window {
        let entry = self.table.slot_mut(slot);
        if let Some(window) = entry.open(now_ms) {
            return *window;
        }
        let window = Window::new(start_ms, length_s, 0);
        entry.window = Some(window);
        entry.committed = 0;
        entry.refundable = false;
        if let Flying::Row { .. } = entry.flying {
            entry.flying = Flying::Past;
        }
        if let Some(seq) = entry.queued {
            self.queue.set_row(seq, row(&window, 0));
        }
        self.table.opened(slot);
        window
    }

    /// Asks for a higher ceiling if it is time, and answers the write that has to commit before this count may be
    /// told, if any.
    fn cover(&mut self, slot: u32, window: &Window, quota: u32, reserve: u8) -> Option<u64> {
        let count = window.count;
        let last = self.last_row(slot);
        if window::wants_raise(last, count, quota, u32::from(reserve)) {
            let ceiling = window::raised(last, count, quota, u32::from(reserve));
            self.write(slot, window, ceiling);
        }
        let ceiling = self.rows(slot).into_iter().flatten().min().unwrap_or(0);
        if count <= ceiling {
            return None;
        }
        let entry = self.table.slot(slot);
        match entry.flying {
            Flying::Row { seq, ceiling } if count <= ceiling => Some(seq),
            Flying::Row { .. } | Flying::Past | Flying::No => entry.queued,
        }
    }

    /// The rows of the slot's window: in the file, in the batch that is out, in the queue.
    fn rows(&self, slot: u32) -> [Option<u32>; 3] {
        let entry = self.table.slot(slot);
        let flying = match entry.flying {
            Flying::Row { ceiling, .. } => Some(ceiling),
            Flying::No | Flying::Past => None,
        };
        let queued = entry.queued.and_then(|seq| self.queue.row(seq));
        [Some(entry.committed), flying, queued.map(|row| row.ceiling)]
    }

    /// The last row queued or committed.
    fn last_row(&self, slot: u32) -> u32 {
        let [committed, flying, queued] = self.rows(slot);
        queued.or(flying).or(committed).unwrap_or(0)
    }

    /// Puts a write into the queue, or changes the one that still waits there.
    fn write(&mut self, slot: u32, window: &Window, ceiling: u32) -> u64 {
        let row = row(window, ceiling);
        let entry = self.table.slot_mut(slot);
        if let Some(seq) = entry.queued {
            self.queue.set_row(seq, row);
            return seq;
        }
        let seq = self.queue.next_seq();
        entry.queued = Some(seq);
        self.queue.push_counter(CounterOp::Write {
            slot,
            seq,
            bucket: entry.bucket,
            row,
        })
    }

    /// Notes which rows are in the batch that goes out.
    pub(super) fn fly(&mut self, batch: &Batch) {
        for op in &batch.counters {
            if let CounterOp::Write { slot, seq, row, .. } = op {
                let entry = self.table.slot_mut(*slot);
                entry.queued = None;
                entry.flying = Flying::Row {
                    seq: *seq,
                    ceiling: row.ceiling,
                };
            }
        }
    }
}

const fn row(window: &Window, ceiling: u32) -> CounterRow {
    CounterRow {
        start_ms: window.start_ms(),
        length_s: window.length_s(),
        ceiling,
    }
}
