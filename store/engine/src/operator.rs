//! What may an operator ask, and how is it carried out on the rows?
//!
//! Operators' work goes through the same batches as everything else, after the counters and records of its batch. A
//! row that cannot be read is shown as damaged, and may be removed: the one way out for a key or a bucket that is
//! refused because of it.

use porch_core::record::{self, Settled, Settlement, State};

use crate::{
    batch::{Bucket, Caller, Key},
    bodies,
    layout::{Corrupt, CounterRow, Expiring, RecordRow, Table},
    response::Response,
    store::Work,
    usage::Usage,
};

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// Show this bucket's window.
    pub bucket: Option<Bucket>,
    /// Show this record.
    pub record: Option<Key>,
    /// With the response that is kept for it. Default: only its length.
    pub body: bool,
}

/// An operator's work for the writer.
#[derive(Debug)]
pub(crate) struct OperatorOp {
    pub(crate) caller: Caller,
    pub(crate) ask: OperatorAsk,
}

#[derive(Debug)]
pub(crate) enum OperatorAsk {
    Look(Look),
    Forget { key: Key },
    Settle { key: Key, settlement: Settlement },
}

/// What operators' work came to.
#[derive(Debug)]
pub(crate) enum OperatorAnswer {
    Seen(Box<Seen>),
    Forgotten(Forgotten),
    Settled(SettleAnswer),
}

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Rows and bytes by table.
    pub usage: Usage,
    /// The row of the bucket that was asked for.
    pub counter: Option<Result<CounterRow, Damage>>,
    /// The record that was asked for.
    pub record: Option<Result<RecordView, Damage>>,
}

/// What is wrong with a row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(pub String);

impl From<Corrupt> for Damage {
    fn from(found: Corrupt) -> Self {
        Self(found.to_string())
    }
}

/// A record as it reads now. All times are counted from now, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordView {
    /// Where it stands.
    pub state: RecordState,
    /// The response's status; 0 when there is none, or nobody was told one.
    pub status: u16,
    /// The claim that it belongs to.
    pub claim_id: [u8; 16],
    /// The request that the key stands for.
    pub fingerprint: [u8; 33],
    /// How long the lease still holds; 0 unless it is pending.
    pub lease_left_ms: u64,
    /// How long ago it was completed, or became unknown; 0 while it is pending.
    pub completed_ago_ms: u64,
    /// How long the response is still kept; 0 when none is.
    pub kept_for_ms: u64,
    /// How long until the key is new again.
    pub remembered_for_ms: u64,
    /// The length of the kept response with its header lines; 0 when none is.
    pub response_bytes: u32,
    /// The kept response, when it was asked for.
    pub response: Option<Result<Response, Damage>>,
}

/// Where a record stands, as it reads now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// Leased to its claim.
    Pending,
    /// Executed, and the response is kept.
    Done,
    /// Executed; the response is not kept.
    Tombstone,
    /// It cannot be known whether upstream executed.
    Unknown,
}

impl From<State> for RecordState {
    fn from(state: State) -> Self {
        match state {
            State::Pending { .. } => Self::Pending,
            State::Done { .. } => Self::Done,
            State::Tombstone { .. } => Self::Tombstone,
            State::Unknown { .. } => Self::Unknown,
        }
    }
}

/// What forgetting a key did. A retry executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// There was no record.
    Missing,
    /// It was removed. Where it was pending, its lease is fenced: what its claim completes is refused.
    Removed(RecordState),
    /// It could not be read, and was removed.
    Damaged(Damage),
}

/// What settling a record did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettleAnswer {
    /// There is no record.
    Missing,
    /// Its outcome was unknown, and is settled.
    Settled,
    /// Its outcome is not unknown: it stays as it is.
    Known(RecordState),
    /// It cannot be read, and stays as it is.
    Damaged(Damage),
}

/// What resetting a bucket did. The next hit opens a window, or is the first in one that is open and empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetAnswer {
    /// No window was open.
    Missing,
    /// A window was open and had counted so many hits, or had at most so many when it was not in memory.
    Reset {
        /// Hits.
        count: u32,
    },
    /// Its row could not be read, and was removed.
    Damaged(Damage),
}

/// Carries out one operation.
pub(crate) fn apply(
    work: &mut Work<'_, '_>,
    op: &OperatorOp,
) -> Result<OperatorAnswer, heed::Error> {
    match &op.ask {
        OperatorAsk::Look(look) => Ok(OperatorAnswer::Seen(Box::new(seen(work, look)?))),
        OperatorAsk::Forget { key } => forgotten(work, key).map(OperatorAnswer::Forgotten),
        OperatorAsk::Settle { key, settlement } => {
            settled(work, key, *settlement).map(OperatorAnswer::Settled)
        }
    }
}

fn seen(work: &Work<'_, '_>, look: &Look) -> Result<Seen, heed::Error> {
    let counter = match &look.bucket {
        Some(bucket) => {
            let row = work.tables.counters.get(work.txn, bucket)?;
            row.map(|row| CounterRow::decode(bucket, row).map_err(Damage::from))
        }
        None => None,
    };
    let record = match &look.record {
        Some(key) => record_view(work, key, look.body)?,
        None => None,
    };
    Ok(Seen {
        usage: Usage::read(work.tables, work.txn)?,
        counter,
        record,
    })
}

/// The record as it reads now; `None` when there is none, or it is no longer remembered.
fn record_view(
    work: &Work<'_, '_>,
    key: &Key,
    with_body: bool,
) -> Result<Option<Result<RecordView, Damage>>, heed::Error> {
    let row = match work.tables.records.get(work.txn, key)? {
        Some(row) => RecordRow::decode(key, row),
        None => return Ok(None),
    };
    let row = match row {
        Ok(row) => row,
        Err(corrupt) => return Ok(Some(Err(corrupt.into()))),
    };
    let now_ms = work.now_ms;
    let Some(record) = row.record.at(now_ms) else {
        return Ok(None);
    };
    let left_ms = |end_ms: u64| end_ms.saturating_sub(now_ms);
    let mut view = RecordView {
        state: record.state.into(),
        status: 0,
        claim_id: record.claim_id,
        fingerprint: record.fingerprint,
        lease_left_ms: 0,
        completed_ago_ms: 0,
        kept_for_ms: 0,
        remembered_for_ms: left_ms(record.forgotten_ms()),
        response_bytes: 0,
        response: None,
    };
    match record.state {
        State::Pending { lease_ends_ms } => view.lease_left_ms = left_ms(lease_ends_ms),
        State::Done {
            status,
            completed_ms,
        } => {
            view.status = status;
            view.completed_ago_ms = now_ms.saturating_sub(completed_ms);
            view.kept_for_ms = left_ms(record.expires_ms());
            view.response_bytes = row.body.map_or(0, |body| body.bytes);
            if with_body {
                let response = bodies::read_response(work.tables, work.txn, &row)?;
                view.response = Some(response.map_err(Damage));
            }
        }
        State::Tombstone {
            status,
            completed_ms,
        }
        | State::Unknown {
            status,
            completed_ms,
        } => {
            view.status = status;
            view.completed_ago_ms = now_ms.saturating_sub(completed_ms);
        }
    }
    Ok(Some(Ok(view)))
}

fn forgotten(work: &mut Work<'_, '_>, key: &Key) -> Result<Forgotten, heed::Error> {
    let row = match work.tables.records.get(work.txn, key)? {
        Some(row) => RecordRow::decode(key, row),
        None => return Ok(Forgotten::Missing),
    };
    match row {
        Ok(row) => {
            let state = row.record.at(work.now_ms).map(|record| record.state);
            work.remove_record(key, &row)?;
            Ok(state.map_or(Forgotten::Missing, |state| Forgotten::Removed(state.into())))
        }
        Err(corrupt) => {
            // Where its response lies is not known any more, nor its entry in the index; pruning drops the latter.
            work.dirty = true;
            work.tables.records.delete(work.txn, key)?;
            Ok(Forgotten::Damaged(corrupt.into()))
        }
    }
}

fn settled(
    work: &mut Work<'_, '_>,
    key: &Key,
    settlement: Settlement,
) -> Result<SettleAnswer, heed::Error> {
    let row = match work.tables.records.get(work.txn, key)? {
        Some(row) => RecordRow::decode(key, row),
        None => return Ok(SettleAnswer::Missing),
    };
    let row = match row {
        Ok(row) => row,
        Err(corrupt) => return Ok(SettleAnswer::Damaged(corrupt.into())),
    };
    match record::settle(Some(&row.record), settlement, work.now_ms) {
        Settled::Remove => {
            work.remove_record(key, &row)?;
            Ok(SettleAnswer::Settled)
        }
        Settled::Write(record) => {
            work.write_record(key, Some(&row), &RecordRow { record, body: None })?;
            Ok(SettleAnswer::Settled)
        }
        Settled::Known(state) => Ok(SettleAnswer::Known(state.into())),
        Settled::Missing => Ok(SettleAnswer::Missing),
    }
}

impl Work<'_, '_> {
    /// Removes a bucket's row and its entry in the index, whether it can be read or not.
    pub(crate) fn erase_counter(&mut self, bucket: &Bucket) -> Result<ResetAnswer, heed::Error> {
        let row = match self.tables.counters.get(self.txn, bucket)? {
            Some(row) => CounterRow::decode(bucket, row),
            None => return Ok(ResetAnswer::Missing),
        };
        self.dirty = true;
        self.tables.counters.delete(self.txn, bucket)?;
        let row = match row {
            Ok(row) => row,
            // Its entry in the index is not known any more; pruning drops it when its time comes.
            Err(corrupt) => return Ok(ResetAnswer::Damaged(corrupt.into())),
        };
        let entry = Expiring {
            expires_ms: row.expires_ms(),
            table: Table::Counters,
            key: *bucket,
        };
        self.tables.expiry.delete(self.txn, &entry.encode())?;
        if row.window().is_open(self.now_ms) {
            Ok(ResetAnswer::Reset { count: row.ceiling })
        } else {
            Ok(ResetAnswer::Missing)
        }
    }
}
