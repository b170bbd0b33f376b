//! How does an answer to an operator look on the wire?

use std::fs;

use bytes::Bytes;
use porch_engine::{
    BucketView, Code, Damage, FORMAT, Forgotten, Inspected, Outcome, RecordState, RecordView,
    Refusal, ResetAnswer, SettleAnswer,
};
use porch_wire as wire;
use tonic::Status;

use super::DataFile;
use crate::{desk::Desk, reply};

pub(super) fn refused(refusal: Refusal) -> Status {
    match refusal.code {
        Code::Unavailable => Status::unavailable(refusal.message),
        Code::DataLoss => Status::data_loss(refusal.message),
    }
}

pub(super) fn inspected(outcome: Outcome, now_ms: u64) -> Result<wire::InspectReply, Status> {
    let Outcome::Inspected(inspected) = outcome else {
        return Err(other("an inspection", &outcome));
    };
    let Inspected {
        usage,
        live_buckets,
        bucket,
        record,
    } = *inspected;
    let (bucket, bucket_damage) = whole(bucket);
    let (record, record_damage) = whole(record);
    Ok(wire::InspectReply {
        counter_rows: usage.counters.rows,
        record_rows: usage.records.rows,
        body_rows: usage.bodies.rows,
        expiry_rows: usage.expiry.rows,
        live_buckets: count(live_buckets),
        now_ms,
        bucket: bucket.as_ref().map(window),
        bucket_damage,
        record: record.map(view),
        record_damage,
    })
}

pub(super) fn stats(
    outcome: Outcome,
    desk: &Desk,
    file: &DataFile,
) -> Result<wire::StatsReply, Status> {
    let Outcome::Inspected(inspected) = outcome else {
        return Err(other("an inspection", &outcome));
    };
    let tables = inspected.usage.tables();
    let table = tables.map(|(name, usage)| wire::TableUsage {
        name: name.to_owned(),
        rows: usage.rows,
        bytes: usage.bytes,
    });
    let file_bytes = fs::metadata(&file.path).map_err(|error| {
        Status::internal(format!(
            "{}: cannot look at it: {error}",
            file.path.display()
        ))
    })?;
    Ok(wire::StatsReply {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: wire::PROTOCOL,
        format: FORMAT,
        now_ms: desk.now_ms(),
        table: table.to_vec(),
        file_bytes: file_bytes.len(),
        limit_bytes: file.limit_bytes,
        live_buckets: count(inspected.live_buckets),
        channels: count(desk.channels()),
        total: desk.metrics().totals(),
    })
}

pub(super) fn forgotten(outcome: Outcome) -> Result<wire::ForgetReply, Status> {
    let Outcome::Forgotten(forgotten) = outcome else {
        return Err(other("that a key was forgotten", &outcome));
    };
    Ok(match forgotten {
        Forgotten::Missing => wire::ForgetReply::default(),
        Forgotten::Removed(found) => wire::ForgetReply {
            removed: true,
            state: state(found).into(),
            damage: String::new(),
        },
        Forgotten::Damaged(damage) => wire::ForgetReply {
            removed: true,
            damage: damage.0,
            ..wire::ForgetReply::default()
        },
    })
}

pub(super) fn settled(outcome: Outcome) -> Result<wire::SettleReply, Status> {
    let Outcome::Settled(settled) = outcome else {
        return Err(other("that a record was settled", &outcome));
    };
    let nothing = wire::SettleReply::default();
    Ok(match settled {
        SettleAnswer::Missing => nothing,
        SettleAnswer::Settled => wire::SettleReply {
            settled: true,
            ..nothing
        },
        SettleAnswer::Known(found) => wire::SettleReply {
            state: state(found).into(),
            ..nothing
        },
        SettleAnswer::Damaged(damage) => wire::SettleReply {
            damage: damage.0,
            ..nothing
        },
    })
}

pub(super) fn reset(outcome: Outcome) -> Result<wire::ResetReply, Status> {
    let Outcome::Reset(reset) = outcome else {
        return Err(other("that a bucket was reset", &outcome));
    };
    let nothing = wire::ResetReply::default();
    Ok(match reset {
        ResetAnswer::Missing => nothing,
        ResetAnswer::Reset { count } => wire::ResetReply {
            reset: true,
            count,
            ..nothing
        },
        ResetAnswer::Damaged(damage) => wire::ResetReply {
            reset: true,
            damage: damage.0,
            ..nothing
        },
    })
}

fn whole<T>(seen: Option<Result<T, Damage>>) -> (Option<T>, String) {
    match seen {
        None => (None, String::new()),
        Some(Ok(seen)) => (Some(seen), String::new()),
        Some(Err(damage)) => (None, damage.0),
    }
}

fn window(view: &BucketView) -> wire::BucketWindow {
    wire::BucketWindow {
        window_start_ms: view.window_start_ms,
        window_s: view.window_s,
        count: u64::from(view.count),
        ceiling: u64::from(view.ceiling),
        live: view.live,
        expired: view.expired,
    }
}

fn view(view: RecordView) -> wire::RecordView {
    let (response, response_damage) = whole(view.response);
    wire::RecordView {
        state: state(view.state).into(),
        status: u32::from(view.status),
        claim_id: Bytes::copy_from_slice(&view.claim_id),
        fingerprint: Bytes::copy_from_slice(&view.fingerprint),
        lease_left_ms: view.lease_left_ms,
        completed_ago_ms: view.completed_ago_ms,
        kept_for_ms: view.kept_for_ms,
        remembered_for_ms: view.remembered_for_ms,
        response_bytes: u64::from(view.response_bytes),
        response: response.map(reply::replay),
        response_damage,
    }
}

const fn state(state: RecordState) -> wire::RecordState {
    match state {
        RecordState::Pending => wire::RecordState::Pending,
        RecordState::Done => wire::RecordState::Done,
        RecordState::Tombstone => wire::RecordState::Tombstone,
        RecordState::Unknown => wire::RecordState::Unknown,
    }
}

fn other(expected: &str, came: &Outcome) -> Status {
    Status::internal(format!("expected {expected}, came {came:?}"))
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
