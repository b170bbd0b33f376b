//! The store's engine: counters under durable ceilings, records of idempotency keys, and time, in one LMDB file.
//!
//! Two halves, both synchronous, meet at a [`Batch`]:
//! - [`Front`] holds the live buckets in memory and does no I/O. Calls go in with the time; each is answered at once
//!   or waits for a batch. It decides what the next batch holds.
//! - [`Store`] owns the data directory. [`Store::apply`] carries out one batch in one fully synced transaction.
//!
//! The caller's loop: take [`Front::next_batch`], [`Store::apply`] it, tell the front how that went with
//! [`Front::committed`] or [`Front::failed`], and deliver the answers. At most one batch is out at a time.

mod backup;
mod batch;
mod bodies;
mod check;
mod clock;
mod error;
mod front;
mod layout;
mod open;
mod operator;
mod preflight;
mod prune;
mod reader;
mod records;
mod response;
mod space;
mod store;
mod usage;
mod walk;

pub use batch::{Batch, Bucket, Caller, ClaimAnswer, Key, Outcomes, Resolution};
pub use check::{CheckEvent, Checked, Finding};
pub use clock::{Clock, Machine, Start};
pub use error::{ApplyError, OpenError};
pub use front::{
    Admission, Answer, BucketView, Charge, ClaimCall, Code, Front, Hit, Inspected, Limits, Outcome,
    Refund, Refusal, Verdict,
};
pub use layout::{CounterRow, FORMAT};
pub use open::Options;
pub use operator::{
    Damage, Forgotten, Look, RecordState, RecordView, ResetAnswer, Seen, SettleAnswer,
};
pub use reader::{ReadError, Reader};
pub use response::Response;
pub use space::{AtLimit, LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};
pub use store::Store;
pub use usage::{TableUsage, Usage};
pub use walk::walk;

pub use porch_core::{
    address::ClientAddress,
    idempotency::policy::record_key,
    limiter::rule::BucketName,
    record::{Claim, ClaimId, Fingerprint, Settlement},
    window::{LENGTH_S_MAX, RESERVE_MAX},
};
