//! How are claims, completions and abandons carried out?
//!
//! `porch_core::record` decides; here are the rows. A row that cannot be read is refused and left as it is: nothing
//! is executed or written on a guess.

use porch_core::record::{self, Claim, ClaimId, Claimed, Completed, Outcome};

use crate::{
    batch::{ClaimAnswer, Key, RecordAnswer, RecordAsk, RecordOp, Resolution},
    bodies,
    layout::{BodyRef, CHUNK_BYTES, RecordRow, body_key, seal_any},
    response::Response,
    store::Work,
};

/// A chunk of a response; its checksum fills it up to [`CHUNK_BYTES`].
pub(crate) const CHUNK_PAYLOAD_BYTES: usize = CHUNK_BYTES - 4;

/// Bytes of kept responses that one batch reads. A longer one is read by itself.
const REPLAY_BYTES_MAX: u64 = 8 << 20;

/// Why an operation ended early.
enum Stop {
    Lmdb(heed::Error),
    Corrupt(String),
}

impl From<heed::Error> for Stop {
    fn from(error: heed::Error) -> Self {
        Self::Lmdb(error)
    }
}

/// Carries out one operation.
pub(crate) fn apply(work: &mut Work<'_, '_>, op: &RecordOp) -> Result<RecordAnswer, heed::Error> {
    let answer = match &op.ask {
        RecordAsk::Claim {
            claim,
            replay_bytes_max,
            until_ms: _,
        } => claimed(work, &op.key, claim, *replay_bytes_max),
        RecordAsk::Complete {
            claim_id,
            resolution,
        } => completed(work, &op.key, claim_id, resolution),
        RecordAsk::Abandon { claim_id } => {
            abandoned(work, &op.key, claim_id).map(|released| RecordAnswer::Abandoned { released })
        }
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(Stop::Corrupt(found)) => Ok(RecordAnswer::Corrupt { found }),
        Err(Stop::Lmdb(error)) => Err(error),
    }
}

fn claimed(
    work: &mut Work<'_, '_>,
    key: &Key,
    claim: &Claim,
    replay_bytes_max: u32,
) -> Result<RecordAnswer, Stop> {
    let row = current(work, key)?;
    let answer = match record::claim(row.as_ref().map(|row| &row.record), claim, work.now_ms) {
        Claimed::Granted(record) => {
            if row.is_none() && !work.has_room_for_record()? {
                return Ok(RecordAnswer::NoRoom);
            }
            let pending = RecordRow { record, body: None };
            work.write_record(key, row.as_ref(), &pending)?;
            work.prune()?;
            ClaimAnswer::Granted
        }
        Claimed::Replay => match replay(work, row.as_ref(), replay_bytes_max)? {
            Some(answer) => answer,
            None => return Ok(RecordAnswer::Later),
        },
        Claimed::InFlight => {
            let lease_ends_ms = match row.map(|row| row.record.state) {
                Some(record::State::Pending { lease_ends_ms }) => lease_ends_ms,
                Some(_) | None => work.now_ms,
            };
            return Ok(RecordAnswer::InFlight { lease_ends_ms });
        }
        Claimed::Mismatch => ClaimAnswer::Mismatch,
        Claimed::Tombstone { status } => ClaimAnswer::Tombstone { status },
        Claimed::Unknown { status } => ClaimAnswer::Unknown { status },
    };
    Ok(RecordAnswer::Claimed(answer))
}

fn completed(
    work: &mut Work<'_, '_>,
    key: &Key,
    claim_id: &ClaimId,
    resolution: &Resolution,
) -> Result<RecordAnswer, Stop> {
    let row = current(work, key)?;
    let outcome = match resolution {
        Resolution::Response(response) => Outcome::Response {
            status: response.status,
        },
        Resolution::Tombstone { status } => Outcome::Tombstone { status: *status },
        Resolution::Unknown { status } => Outcome::Unknown { status: *status },
    };
    let before = row.as_ref();
    let before_record = before.map(|row| &row.record);
    match record::complete(before_record, claim_id, outcome, work.now_ms) {
        Completed::Fenced => Ok(RecordAnswer::Completed { fenced: true }),
        Completed::Already => Ok(RecordAnswer::Completed { fenced: false }),
        Completed::Write(record) => {
            let body = match resolution {
                Resolution::Response(_) if !work.has_room_for_response()? => {
                    return Ok(RecordAnswer::NoRoom);
                }
                Resolution::Response(response) => Some(write_body(work, response)?),
                Resolution::Tombstone { .. } | Resolution::Unknown { .. } => None,
            };
            work.write_record(key, before, &RecordRow { record, body })?;
            work.prune()?;
            Ok(RecordAnswer::Completed { fenced: false })
        }
    }
}

fn abandoned(work: &mut Work<'_, '_>, key: &Key, claim_id: &ClaimId) -> Result<bool, Stop> {
    let row = current(work, key)?;
    match row {
        Some(row) if record::abandon(Some(&row.record), claim_id) => {
            work.remove_record(key, &row)?;
            work.prune()?;
            Ok(true)
        }
        Some(_) | None => Ok(false),
    }
}

/// The key's row, brought to what it is by now.
fn current(work: &mut Work<'_, '_>, key: &Key) -> Result<Option<RecordRow>, Stop> {
    let Some(row) = work.tables.records.get(work.txn, key)? else {
        return Ok(None);
    };
    let row = RecordRow::decode(key, row)
        .map_err(|corrupt| Stop::Corrupt(format!("the record's row: {corrupt}")))?;
    Ok(work.expire_record(key, &row)?)
}

/// The kept response. `None`: so many were read in this batch that it has to wait for the next.
fn replay(
    work: &mut Work<'_, '_>,
    row: Option<&RecordRow>,
    replay_bytes_max: u32,
) -> Result<Option<ClaimAnswer>, Stop> {
    let Some(row) = row else {
        return Err(Stop::Corrupt(
            "the record's row: it has no response".to_owned(),
        ));
    };
    let bytes = row.body.map_or(0, |body| body.bytes);
    if bytes > replay_bytes_max {
        return Ok(Some(ClaimAnswer::Large));
    }
    let read = work.replay_bytes.saturating_add(u64::from(bytes));
    if work.replay_bytes > 0 && read > REPLAY_BYTES_MAX {
        return Ok(None);
    }
    work.replay_bytes = read;
    let response = bodies::read_response(work.tables, work.txn, row)?;
    let replay = response.map(ClaimAnswer::Replay);
    replay.map(Some).map_err(Stop::Corrupt)
}

fn write_body(work: &mut Work<'_, '_>, response: &Response) -> Result<BodyRef, heed::Error> {
    let bytes = response.encode();
    let id = work.next_body;
    let mut row = Vec::with_capacity(CHUNK_BYTES.min(bytes.len() + 4));
    for (chunk, payload) in (0..).zip(bytes.chunks(CHUNK_PAYLOAD_BYTES)) {
        let key = body_key(id, chunk);
        row.clear();
        row.extend_from_slice(payload);
        seal_any(&key, &mut row);
        work.tables.bodies.put(work.txn, &key, &row)?;
    }
    work.next_body += 1;
    Ok(BodyRef {
        id,
        bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
    })
}
