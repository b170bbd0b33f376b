//! How is a kept response read?

use bytes::{Bytes, BytesMut};
use heed::RoTxn;
use porch_core::record::State;

use crate::{
    batch::chunks,
    layout::{BodyRef, Corrupt, RecordRow, body_key, unseal_any},
    response::Response,
    store::Tables,
};

/// The response of a DONE record, or what is wrong with it.
pub(crate) fn read_response(
    tables: &Tables,
    txn: &RoTxn<'_>,
    row: &RecordRow,
) -> Result<Result<Response, String>, heed::Error> {
    let Some(body) = row.body else {
        return Ok(Err("the record's row: it has no response".to_owned()));
    };
    let State::Done { status, .. } = row.record.state else {
        return Ok(Err("the record's row: it is not DONE".to_owned()));
    };
    let bytes = match read(tables, txn, body)? {
        Ok(bytes) => bytes,
        Err(found) => return Ok(Err(found)),
    };
    let response = Response::decode(status, bytes);
    Ok(response.ok_or_else(|| "the response: its lengths do not fit".to_owned()))
}

fn read(
    tables: &Tables,
    txn: &RoTxn<'_>,
    body: BodyRef,
) -> Result<Result<Bytes, String>, heed::Error> {
    let expected = usize::try_from(body.bytes).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(expected);
    for chunk in 0..chunks(body) {
        let key = body_key(body.id, chunk);
        let bad = |corrupt| format!("chunk {chunk} of the response: {corrupt}");
        let payload = match tables.bodies.get(txn, &key)? {
            Some(row) => unseal_any(&key, row).map_err(bad),
            None => Err(bad(Corrupt::Missing)),
        };
        match payload {
            Ok(payload) => bytes.extend_from_slice(payload),
            Err(found) => return Ok(Err(found)),
        }
    }
    if bytes.len() != expected {
        let found = bytes.len();
        let corrupt = Corrupt::Length { expected, found };
        return Ok(Err(format!("the response: {corrupt}")));
    }
    Ok(Ok(bytes.freeze()))
}
