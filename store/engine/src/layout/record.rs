//! How does a row of `records` look?

use porch_core::record::{Record, State};

use super::{Corrupt, Writer, unseal};
use crate::batch::Key;

const BYTES: usize = 1 + 2 + 16 + 33 + 8 + 8 + 8 + 8 + 8 + 4 + 4;

const PENDING: u8 = 1;
const DONE: u8 = 2;
const TOMBSTONE: u8 = 3;
const UNKNOWN: u8 = 4;

/// Where a kept response lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyRef {
    /// The key of its chunks in `bodies`.
    pub(crate) id: u64,
    /// The encoded response's length.
    pub(crate) bytes: u32,
}

/// A record and where its response lies. Only DONE has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordRow {
    /// The record as written.
    pub(crate) record: Record,
    /// Its response.
    pub(crate) body: Option<BodyRef>,
}

impl RecordRow {
    pub(crate) fn encode(&self, key: &Key) -> [u8; BYTES] {
        let (state, status, time_ms) = match self.record.state {
            State::Pending { lease_ends_ms } => (PENDING, 0, lease_ends_ms),
            State::Done {
                status,
                completed_ms,
            } => (DONE, status, completed_ms),
            State::Tombstone {
                status,
                completed_ms,
            } => (TOMBSTONE, status, completed_ms),
            State::Unknown {
                status,
                completed_ms,
            } => (UNKNOWN, status, completed_ms),
        };
        let body = self.body.unwrap_or(BodyRef { id: 0, bytes: 0 });
        Writer::new()
            .put(&[state])
            .put(&status.to_le_bytes())
            .put(&self.record.claim_id)
            .put(&self.record.fingerprint)
            .put(&self.record.ttl_ms.to_le_bytes())
            .put(&self.record.remember_ms.to_le_bytes())
            .put(&time_ms.to_le_bytes())
            .put(&self.record.expires_ms().to_le_bytes())
            .put(&body.id.to_le_bytes())
            .put(&body.bytes.to_le_bytes())
            .seal(key)
    }

    pub(crate) fn decode(key: &Key, row: &[u8]) -> Result<Self, Corrupt> {
        let mut fields = unseal::<BYTES>(key, row)?;
        let state = fields.u8();
        let status = fields.u16();
        let claim_id = fields.array();
        let fingerprint = fields.array();
        let ttl_ms = fields.u64();
        let remember_ms = fields.u64();
        let time_ms = fields.u64();
        let expires_ms = fields.u64();
        let body = BodyRef {
            id: fields.u64(),
            bytes: fields.u32(),
        };
        let state = match state {
            PENDING => State::Pending {
                lease_ends_ms: time_ms,
            },
            DONE => State::Done {
                status,
                completed_ms: time_ms,
            },
            TOMBSTONE => State::Tombstone {
                status,
                completed_ms: time_ms,
            },
            UNKNOWN => State::Unknown {
                status,
                completed_ms: time_ms,
            },
            _ => return Err(Corrupt::Field("state")),
        };
        let row = Self {
            record: Record {
                claim_id,
                fingerprint,
                ttl_ms,
                remember_ms,
                state,
            },
            body: matches!(state, State::Done { .. }).then_some(body),
        };
        if expires_ms != row.record.expires_ms() {
            return Err(Corrupt::Field("expiry"));
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<RecordRow> {
        let record = |state| Record {
            claim_id: [3; 16],
            fingerprint: [4; 33],
            ttl_ms: 5,
            remember_ms: 60,
            state,
        };
        let (status, completed_ms) = (201, 1_000);
        let bare = |state| RecordRow {
            record: record(state),
            body: None,
        };
        vec![
            bare(State::Pending {
                lease_ends_ms: 1_000,
            }),
            RecordRow {
                record: record(State::Done {
                    status,
                    completed_ms,
                }),
                body: Some(BodyRef { id: 9, bytes: 77 }),
            },
            bare(State::Tombstone {
                status,
                completed_ms,
            }),
            bare(State::Unknown {
                status: 504,
                completed_ms,
            }),
        ]
    }

    #[test]
    fn each_state_reads_back_and_any_flipped_bit_is_noticed() {
        for row in rows() {
            let bytes = row.encode(&[1; 32]);
            assert_eq!(RecordRow::decode(&[1; 32], &bytes), Ok(row));
            assert_eq!(RecordRow::decode(&[2; 32], &bytes), Err(Corrupt::Checksum));
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(RecordRow::decode(&[1; 32], &bad), Err(Corrupt::Checksum));
            }
        }
    }
}
