//! What the filter asks of the store and what the store answers, in the filter's own terms. Adapters translate
//! these to the channel's messages and back.

use crate::hash::Sha256Digest;
use crate::http::Response;

/// A bucket: one rule's count for one value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(pub Sha256Digest);

/// Where a record is kept: one policy, authority, principal and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKey(pub Sha256Digest);

/// A claim's id, and the id of the lease that it may get: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimId(pub [u8; 16]);

/// What makes two requests the same: a version and a SHA-256 digest. An unknown version never equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// How the digest was made.
    pub version: u8,
    /// Over the parts that [`crate::idempotency::policy`] names.
    pub digest: Sha256Digest,
}

/// One operation of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Check all hits, then charge all of them or none.
    Admit(Vec<Hit>),
    /// Tell of hits that were granted while the store was away.
    Charge(Charge),
    /// Give a hit back.
    Refund(Refund),
    /// Ask to be the one that executes a key.
    Claim(Claim),
    /// End a claim with its outcome.
    Complete(Complete),
    /// End a claim whose request never ran.
    Abandon(Abandon),
}

/// One request's cost against one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Which count.
    pub bucket: Bucket,
    /// Hits per window.
    pub quota: u32,
    /// The window's length in seconds.
    pub window_s: u32,
    /// How many hits this request is.
    pub cost: u32,
    /// How far the durable ceiling may run ahead.
    pub reserve: u32,
    /// Never refuses.
    pub shadow: bool,
    /// May be given back, so a refusal is never settled.
    pub refundable: bool,
}

/// Hits that a worker granted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which count.
    pub bucket: Bucket,
    /// Hits per window.
    pub quota: u32,
    /// The window's length in seconds.
    pub window_s: u32,
    /// How many.
    pub hits: u32,
    /// How long ago the worker's window was opened, in milliseconds.
    pub age_ms: u64,
    /// How far the durable ceiling may run ahead.
    pub reserve: u32,
}

/// A hit to be given back to the window that was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Which count.
    pub bucket: Bucket,
    /// The window's length in seconds.
    pub window_s: u32,
    /// How many hits.
    pub cost: u32,
    /// As the verdict told it.
    pub window_start_ms: u64,
}

/// A claim on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The record.
    pub key: RecordKey,
    /// Sent again with the same id, it is the same claim.
    pub id: ClaimId,
    /// Of the request that would be executed.
    pub fingerprint: Fingerprint,
    /// How long the claim holds, in milliseconds.
    pub lease_ms: u64,
    /// How long the answer is kept, in milliseconds.
    pub ttl_ms: u64,
    /// How long it is remembered that the key was used, in milliseconds.
    pub remember_ms: u64,
    /// How long to wait for a claim in flight, in milliseconds.
    pub wait_ms: u64,
    /// Grant a key whose outcome is unknown.
    pub execute_unknown: bool,
    /// The answer may be too large for the channel.
    pub large: bool,
}

/// The end of a claim that executed, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complete {
    /// The record.
    pub key: RecordKey,
    /// The lease.
    pub id: ClaimId,
    /// What is kept.
    pub outcome: Outcome,
}

/// What is kept of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer, to be replayed.
    Response(Response),
    /// Executed; the answer is not kept.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the first caller saw.
        status: u16,
    },
}

/// The end of a claim whose request never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandon {
    /// The record.
    pub key: RecordKey,
    /// The lease.
    pub id: ClaimId,
    /// How long a late claim with this id must be refused, in milliseconds.
    pub lease_ms: u64,
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Operation::Admit`].
    Admitted {
        /// No hit refused.
        admitted: bool,
        /// In the order of the hits.
        verdicts: Vec<Verdict>,
    },
    /// To [`Operation::Charge`].
    Charged,
    /// To [`Operation::Refund`].
    Refunded,
    /// To [`Operation::Claim`].
    Claimed(Claimed),
    /// To [`Operation::Complete`]: it is durable, or the record is another's.
    Completed,
    /// To [`Operation::Abandon`].
    Abandoned,
    /// The operation was not carried out.
    Error(Error),
}

/// A bucket after its hit was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The hit had no room.
    pub refused: bool,
    /// Hits left.
    pub remaining: u32,
    /// Until the window ends, in milliseconds.
    pub reset_ms: u64,
    /// Which window; opaque.
    pub window_start_ms: u64,
    /// The refusal stands until the window ends.
    pub settled: bool,
}

/// What a claim got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Execute, then complete or abandon.
    Granted,
    /// Answered before.
    Replay(Response),
    /// Answered before, and too large for the channel.
    Large,
    /// Another claim with this key and fingerprint holds the lease.
    InFlight,
    /// The key was used with another fingerprint.
    Mismatch,
    /// Executed, and the answer is not kept.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the first caller saw; 0 when nobody was told one.
        status: u16,
    },
}

/// Why the store did not carry an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It cannot now; the same may succeed later.
    Unavailable,
    /// What it keeps of this key is damaged.
    DataLoss,
    /// It does not take this operation: the caller's fault, or its age's.
    Refused,
}
