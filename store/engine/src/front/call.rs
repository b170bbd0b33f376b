//! What may the front be asked, and what does it answer?

use core::num::NonZeroU32;

use porch_core::record::Claim;

use crate::{
    batch::{Bucket, Caller, ClaimAnswer, Key},
    operator::{Damage, Forgotten, RecordView, ResetAnswer, SettleAnswer},
    usage::Usage,
};

/// One request's cost against one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// The bucket.
    pub bucket: Bucket,
    /// Hits per window; 0 refuses everything.
    pub quota: u32,
    /// The length of a window that this hit opens, in seconds. A window that is open keeps its own.
    pub window_s: NonZeroU32,
    /// 0 peeks.
    pub cost: u32,
    /// How far the ceiling runs ahead of the count, 1 to 64.
    pub reserve: u8,
    /// Never refuses; charged when the others admit and it has room.
    pub shadow: bool,
    /// May be given back, so a refusal is never settled.
    pub refundable: bool,
}

/// What one hit is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// It had no room.
    pub refused: bool,
    /// Hits left in the window, after this one when it was charged.
    pub remaining: u32,
    /// Until the window ends; the whole length when none is open.
    pub reset_ms: u64,
    /// When the window was opened; 0 when none is open.
    pub window_start_ms: u64,
    /// The refusal stands until the window ends: nothing is left, no hit waits for a write, and none can come back.
    pub settled: bool,
}

/// What becomes of an admit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It is answered; the verdicts are there.
    Now {
        /// No hit that is not a shadow was refused.
        admitted: bool,
    },
    /// The answer comes with a batch.
    Waits,
    /// It is not carried out.
    Refused(Refusal),
}

/// Hits that were granted while the store was away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// The bucket.
    pub bucket: Bucket,
    /// Hits per window; they never charge beyond it.
    pub quota: u32,
    /// The window's length in seconds.
    pub window_s: NonZeroU32,
    /// How many.
    pub hits: u32,
    /// How long ago the window that granted them was opened.
    pub age_ms: u64,
    /// As in [`Hit`].
    pub reserve: u8,
}

/// A hit to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refund {
    /// The bucket.
    pub bucket: Bucket,
    /// What it had cost.
    pub cost: u32,
    /// The window that was charged, as the verdict told it.
    pub window_start_ms: u64,
}

/// A claim on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimCall {
    /// The key.
    pub key: Key,
    /// The claim.
    pub claim: Claim,
    /// A longer replay is answered [`ClaimAnswer::Large`].
    pub replay_bytes_max: u32,
    /// How long to wait for a claim in flight; 0 does not wait. When that is over, or too many wait, it is answered
    /// [`ClaimAnswer::InFlight`].
    pub wait_ms: u64,
}

/// An answer that came with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whose it is.
    pub caller: Caller,
    /// The answer.
    pub outcome: Outcome,
}

/// What an operation is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// To an admit.
    Admitted {
        /// No hit that is not a shadow was refused.
        admitted: bool,
        /// In the order of the hits.
        verdicts: Vec<Verdict>,
    },
    /// To a charge.
    Charged,
    /// To a refund.
    Refunded {
        /// Whether that window was still open.
        applied: bool,
    },
    /// To a claim.
    Claimed(ClaimAnswer),
    /// To a completion.
    Completed {
        /// The record belongs to another claim, or is gone.
        fenced: bool,
    },
    /// To an abandon.
    Abandoned {
        /// A record of this claim was removed.
        released: bool,
    },
    /// To an operator who looks.
    Inspected(Box<Inspected>),
    /// To an operator who forgets a key.
    Forgotten(Forgotten),
    /// To an operator who settles a record.
    Settled(SettleAnswer),
    /// To an operator who resets a bucket.
    Reset(ResetAnswer),
    /// To anything: it was not carried out.
    Refused(Refusal),
}

/// Why an operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What the caller may do about it.
    pub code: Code,
    /// For the log.
    pub message: String,
}

/// What the caller of a refused operation may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Try again later; it may have taken effect.
    Unavailable,
    /// Nothing: a row fails its checksum.
    DataLoss,
}

impl Refusal {
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self {
            code: Code::Unavailable,
            message: message.into(),
        }
    }

    pub(super) fn data_loss(message: impl Into<String>) -> Self {
        Self {
            code: Code::DataLoss,
            message: message.into(),
        }
    }

    pub(super) fn abandoned() -> Self {
        Self::unavailable("claim was abandoned")
    }

    pub(super) fn too_many_records() -> Self {
        Self::unavailable("too many claims and completions wait")
    }

    pub(super) fn no_room_for_counter() -> Self {
        Self::unavailable("a new bucket, and counters take all that --max-counter-bytes allows")
    }

    pub(super) fn no_room_for_record() -> Self {
        Self::unavailable("records take all that --max-record-bytes allows")
    }

    pub(super) fn stopping() -> Self {
        Self::unavailable("the store is stopping")
    }
}

/// What the store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Rows and bytes by table.
    pub usage: Usage,
    /// Buckets in memory.
    pub live_buckets: usize,
    /// The bucket that was asked for, when it is in memory or has a row.
    pub bucket: Option<Result<BucketView, Damage>>,
    /// The record that was asked for, when there is one.
    pub record: Option<Result<RecordView, Damage>>,
}

/// One bucket's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketView {
    /// When it was opened; 0 when no window was.
    pub window_start_ms: u64,
    /// Its length in seconds; 0 when no window was opened.
    pub window_s: u32,
    /// The exact count when the bucket is in memory, else its ceiling.
    pub count: u32,
    /// The row in the file for this window; 0 when it has none.
    pub ceiling: u32,
    /// Whether the bucket is in memory.
    pub live: bool,
    /// Whether the window has ended.
    pub expired: bool,
}
