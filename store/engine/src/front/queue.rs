//! What waits for the next batch, and what does a batch take?
//!
//! Batches form by themselves: whatever has come while the last one was written. Counters go first, since their
//! answers are the shorter work, but leave a share to records.

use std::collections::VecDeque;

use crate::{
    batch::{Batch, CounterOp, RecordOp},
    layout::CounterRow,
    operator::OperatorOp,
};

/// Operations in a batch.
const BATCH_OPS_MAX: usize = 1_024;
/// Counter operations in a batch while records wait.
const BATCH_COUNTERS_MAX: usize = 768;
/// Bytes of responses in a batch. A longer one makes a batch by itself.
const BATCH_BODY_BYTES_MAX: usize = 128 * 1024;
/// Record operations that wait.
const RECORDS_MAX: usize = 65_536;
/// Bytes of responses that wait.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Operators' calls that wait.
const OPERATIONS_MAX: usize = 64;

/// Work in the order it came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    counters: VecDeque<CounterOp>,
    /// The number of the first operation in `counters`.
    first: u64,
    records: VecDeque<RecordOp>,
    body_bytes: usize,
    operations: VecDeque<OperatorOp>,
    /// Counters went before a large response; now it is its turn.
    large_next: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.records.is_empty() && self.operations.is_empty()
    }

    /// The number that the next counter operation gets.
    pub(super) fn next_seq(&self) -> u64 {
        self.first + self.counters.len() as u64
    }

    pub(super) fn push_counter(&mut self, op: CounterOp) -> u64 {
        let seq = self.next_seq();
        self.counters.push_back(op);
        seq
    }

    fn position(&self, seq: u64) -> Option<usize> {
        usize::try_from(seq.checked_sub(self.first)?).ok()
    }

    /// The row of a write that still waits.
    pub(super) fn row(&self, seq: u64) -> Option<&CounterRow> {
        match self.counters.get(self.position(seq)?)? {
            CounterOp::Write { row, .. } => Some(row),
            CounterOp::Load { .. } | CounterOp::Erase { .. } | CounterOp::Evict { .. } => None,
        }
    }

    /// Changes the row of a write that still waits.
    pub(super) fn set_row(&mut self, seq: u64, new: CounterRow) {
        let position = self.position(seq);
        if let Some(CounterOp::Write { row, .. }) =
            position.and_then(|position| self.counters.get_mut(position))
        {
            *row = new;
        }
    }

    /// False when it does not fit; then it was not taken.
    pub(super) fn push_record(&mut self, op: RecordOp) -> bool {
        let bytes = op.body_bytes();
        if self.records.len() >= RECORDS_MAX || self.body_bytes + bytes > BODY_BYTES_MAX {
            return false;
        }
        self.body_bytes += bytes;
        self.records.push_back(op);
        true
    }

    /// Puts operations back that a batch took and did not carry out: they are the next.
    pub(super) fn put_back(&mut self, ops: Vec<RecordOp>) {
        for op in ops.into_iter().rev() {
            self.body_bytes += op.body_bytes();
            self.records.push_front(op);
        }
    }

    /// False when it does not fit; then it was not taken.
    pub(super) fn push_operation(&mut self, op: OperatorOp) -> bool {
        if self.operations.len() >= OPERATIONS_MAX {
            return false;
        }
        self.operations.push_back(op);
        true
    }

    /// Takes the next batch; an empty one when nothing waits.
    pub(super) fn take(&mut self) -> Batch {
        let is_large = |op: &RecordOp| op.body_bytes() > BATCH_BODY_BYTES_MAX;
        let large_waits = self.records.front().is_some_and(is_large);
        let mut batch = Batch::default();
        if large_waits && (self.large_next || self.counters.is_empty()) {
            self.large_next = false;
            batch.records.extend(self.pop_record());
            return batch;
        }
        self.large_next = large_waits;
        let counters_max = if self.records.is_empty() {
            BATCH_OPS_MAX
        } else {
            BATCH_COUNTERS_MAX
        };
        let counters = self.counters.len().min(counters_max);
        self.first += counters as u64;
        batch.counters.extend(self.counters.drain(..counters));
        let mut room = BATCH_BODY_BYTES_MAX;
        while batch.len() < BATCH_OPS_MAX {
            let Some(bytes) = self.records.front().map(RecordOp::body_bytes) else {
                break;
            };
            if bytes > room {
                break;
            }
            room -= bytes;
            batch.records.extend(self.pop_record());
        }
        batch.operations.extend(self.operations.drain(..));
        batch
    }

    fn pop_record(&mut self) -> Option<RecordOp> {
        let op = self.records.pop_front()?;
        self.body_bytes -= op.body_bytes();
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        batch::{Caller, RecordAsk, Resolution},
        response::Response,
    };

    fn load(n: u8) -> CounterOp {
        CounterOp::Load {
            slot: u32::from(n),
            bucket: [n; 32],
            open: None,
        }
    }

    fn complete(body_bytes: usize) -> RecordOp {
        RecordOp {
            caller: Caller { stream: 1, call: 1 },
            key: [1; 32],
            ask: RecordAsk::Complete {
                claim_id: [1; 16],
                resolution: Resolution::Response(Response {
                    status: 200,
                    fields: Vec::new(),
                    body: Bytes::from(vec![0; body_bytes]),
                }),
            },
        }
    }

    #[test]
    fn counters_go_first_and_leave_a_share_to_records() {
        let mut queue = Queue::default();
        for _ in 0..2_000 {
            queue.push_counter(load(1));
        }
        assert_eq!(queue.take().counters.len(), 1_024);
        for _ in 0..1_000 {
            assert!(queue.push_record(complete(0)));
        }
        let batch = queue.take();
        assert_eq!((batch.counters.len(), batch.records.len()), (768, 256));
    }

    #[test]
    fn a_batch_takes_at_most_128_kib_of_responses() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            assert!(queue.push_record(complete(60 * 1024)));
        }
        assert_eq!(queue.take().records.len(), 2);
        assert_eq!(queue.take().records.len(), 1);
    }

    #[test]
    fn a_large_response_goes_alone_and_counters_take_turns_with_it() {
        let mut queue = Queue::default();
        for _ in 0..2 {
            assert!(queue.push_record(complete(1 << 20)));
        }
        for _ in 0..2_000 {
            queue.push_counter(load(1));
        }
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let batch = queue.take();
            (!batch.is_empty()).then_some((batch.counters.len(), batch.records.len()))
        })
        .collect();
        assert_eq!(sizes, [(768, 0), (0, 1), (768, 0), (0, 1), (464, 0)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut queue = Queue::default();
        let fits = (0..100)
            .take_while(|_| queue.push_record(complete(1 << 20)))
            .count();
        assert_eq!(fits, 63);
        queue.take();
        assert!(queue.push_record(complete(1 << 20)));
    }
}
