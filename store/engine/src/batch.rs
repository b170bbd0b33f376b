//! What does one transaction carry out, and what comes of it?

use core::num::NonZeroU32;

use porch_core::record::{Claim, ClaimId};

use crate::{
    layout::{BodyRef, Corrupt, CounterRow},
    operator::{OperatorAnswer, OperatorOp, ResetAnswer},
    response::Response,
    space::AtLimit,
};

/// A SHA-256.
pub(crate) type Hash = [u8; 32];

/// Names a bucket: a SHA-256 over all that makes it one.
pub type Bucket = Hash;

/// Names a record: a SHA-256 over all that makes it one.
pub type Key = Hash;

/// Who waits for an answer. Opaque here: the caller's stream, and its call on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Names the stream.
    pub stream: u64,
    /// Names the call on it.
    pub call: u64,
}

/// Work for one transaction, as [`Front::next_batch`](crate::Front::next_batch) chose it.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) counters: Vec<CounterOp>,
    pub(crate) records: Vec<RecordOp>,
    pub(crate) operations: Vec<OperatorOp>,
}

impl Batch {
    /// How many operations it carries.
    pub fn len(&self) -> usize {
        self.counters.len() + self.records.len() + self.operations.len()
    }

    /// How many operations it carries that are not an operator's.
    pub fn calls(&self) -> usize {
        self.counters.len() + self.records.len()
    }

    /// How many ceilings of live buckets it writes.
    pub fn ceilings(&self) -> usize {
        let writes = self.counters.iter().filter(|op| match op {
            CounterOp::Write { .. } => true,
            CounterOp::Load { open, .. } => open.is_some(),
            CounterOp::Erase { .. } | CounterOp::Evict { .. } => false,
        });
        writes.count()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Counter work. Each write names its window, so that nobody takes it for another's.
#[derive(Debug)]
pub(crate) enum CounterOp {
    /// Read a bucket's row into the slot that waits for it. When no window is open, `open` is written in its place:
    /// the first hit of a window then waits for one commit, not for two.
    Load {
        slot: u32,
        bucket: Bucket,
        open: Option<CounterRow>,
    },
    /// Write a row for a bucket in memory.
    Write {
        slot: u32,
        seq: u64,
        bucket: Bucket,
        row: CounterRow,
    },
    /// Remove the row of a bucket that is not in memory, for an operator.
    Erase { caller: Caller, bucket: Bucket },
    /// Write the exact count of a bucket that has left memory.
    Evict { bucket: Bucket, row: CounterRow },
}

/// Record work.
#[derive(Debug)]
pub(crate) struct RecordOp {
    pub(crate) caller: Caller,
    pub(crate) key: Key,
    pub(crate) ask: RecordAsk,
}

#[derive(Debug)]
pub(crate) enum RecordAsk {
    Claim {
        claim: Claim,
        /// A longer replay is answered [`ClaimAnswer::Large`].
        replay_bytes_max: u32,
        /// Until when it waits for a claim in flight.
        until_ms: u64,
    },
    Complete {
        claim_id: ClaimId,
        resolution: Resolution,
    },
    Abandon {
        claim_id: ClaimId,
    },
}

impl RecordOp {
    /// What it adds to the transaction's pages, besides its row.
    pub(crate) fn body_bytes(&self) -> usize {
        match &self.ask {
            RecordAsk::Complete {
                resolution: Resolution::Response(response),
                ..
            } => response.encoded_bytes(),
            RecordAsk::Complete { .. } | RecordAsk::Claim { .. } | RecordAsk::Abandon { .. } => 0,
        }
    }
}

/// How a claim ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Upstream answered, and the answer is kept.
    Response(Response),
    /// Upstream answered, and the answer is not kept.
    Tombstone {
        /// The answer's status.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the caller was told; 0 for none.
        status: u16,
    },
}

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// No window is open.
    Nothing,
    /// The row of an open window.
    Row(CounterRow),
    /// No window was open, and the load's own row was written. Nothing is counted in it.
    Opened(CounterRow),
}

/// What a committed batch found, in the order of its operations.
#[derive(Debug, Default)]
pub struct Outcomes {
    pub(crate) counters: Vec<CounterAnswer>,
    pub(crate) records: Vec<RecordAnswer>,
    pub(crate) operations: Vec<OperatorAnswer>,
    /// Something was written, and is durable.
    pub(crate) wrote: bool,
    /// New rows that it refused since there was no room for them.
    pub at_limit: AtLimit,
}

impl Outcomes {
    /// Whether the batch has written something. One that has only read says nothing of the disk.
    pub const fn wrote(&self) -> bool {
        self.wrote
    }
}

/// What counter work is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CounterAnswer {
    /// To a load.
    Loaded(Loaded),
    /// To a write.
    Written,
    /// To a removal.
    Erased(ResetAnswer),
    /// It would have been a new row, and counters are at their limit. Nothing was done.
    NoRoom,
    /// The row cannot be read. Nothing was done.
    Corrupt(Corrupt),
}

/// What record work is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordAnswer {
    /// To a claim.
    Claimed(ClaimAnswer),
    /// To a claim while another holds the lease.
    InFlight {
        /// The lease's end.
        lease_ends_ms: u64,
    },
    /// To a completion.
    Completed {
        /// The record belongs to another claim, or is gone.
        fenced: bool,
    },
    /// To an abandon.
    Abandoned {
        /// A record was removed.
        released: bool,
    },
    /// It would have been a new row, and records are at their limit. Nothing was done.
    NoRoom,
    /// To a claim whose replay has no place in this batch. Nothing was done; it is asked again.
    Later,
    /// The record cannot be read. Nothing was done.
    Corrupt {
        /// What is wrong with which row.
        found: String,
    },
}

/// What a claim is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// Execute, then complete or abandon.
    Granted,
    /// The kept response.
    Replay(Response),
    /// A kept response that is longer than the caller takes here.
    Large,
    /// Another claim holds the lease.
    InFlight,
    /// The key was used with another fingerprint.
    Mismatch,
    /// Executed, the response is not kept.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the first caller saw; 0 for none.
        status: u16,
    },
}

/// A row that an orderly stop writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExactRow {
    pub(crate) bucket: Bucket,
    pub(crate) row: CounterRow,
}

impl ExactRow {
    pub(crate) const fn new(
        bucket: Bucket,
        start_ms: u64,
        length_s: NonZeroU32,
        count: u32,
    ) -> Self {
        Self {
            bucket,
            row: CounterRow {
                start_ms,
                length_s,
                ceiling: count,
            },
        }
    }
}

/// How many chunks an encoded response takes.
pub(crate) fn chunks(body: BodyRef) -> u32 {
    let payload = u32::try_from(crate::records::CHUNK_PAYLOAD_BYTES).unwrap_or(u32::MAX);
    body.bytes.div_ceil(payload)
}
