//! What does a store hold, in all and for one bucket or one key?

use std::process::ExitCode;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use clap::Args;
use porch_engine::{Bucket, Key};
use porch_wire::{BucketWindow, InspectReply, InspectRequest, RecordState, RecordView, Response};
use serde_json::{Value, json};

use super::{
    name::{self, BucketArgs, FleetArgs, KeyArgs, RecordArgs},
    print, run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

/// How it is used.
pub(crate) const EXAMPLES: &str = "\
Examples:
  One client's bucket of the rule `per-client`, 100 in 60 s, keyed by client_address:
    porch-store inspect --data DIR --namespace shop --rule per-client --window 60s --key client_address=1.2.3.4
  The record of one idempotency key of the policy `orders`:
    porch-store inspect --data DIR --namespace shop --policy orders --authority shop.example --principal ann --key K1";

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    bucket: BucketArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    key: KeyArgs,

    /// Show the response that is kept for the record too. It may hold what only its client is to see.
    #[arg(long)]
    body: bool,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is asked for.
struct Names {
    bucket: Option<Bucket>,
    record: Option<Key>,
}

/// Prints row counts, one bucket's window, and one record.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let names = Names {
        bucket: name::bucket(&args.fleet, &args.bucket, &args.key)?,
        record: name::record(&args.fleet, &args.record, &args.key)?,
    };
    if args.body && names.record.is_none() {
        anyhow::bail!("--body: expected --record or --policy too");
    }
    run_command(&args.store, |mut target| async move {
        let done = inspect(&mut target, &names, args).await;
        (target, done)
    })
}

async fn inspect(
    target: &mut Target,
    names: &Names,
    args: &InspectArgs,
) -> anyhow::Result<ExitCode> {
    let bytes =
        |name: Option<[u8; 32]>| name.map_or_else(Bytes::new, |name| Bytes::copy_from_slice(&name));
    let ask = InspectRequest {
        bucket: bytes(names.bucket),
        record: bytes(names.record),
        body: args.body,
    };
    let reply = target.inspect(ask).await?;
    if args.json {
        print::json(&json(&reply, names, target.answered_by()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print::text(&text(&reply, names))?;
    let response = reply.record.and_then(|record| record.response);
    if let Some(response) = response {
        print::text("\n")?;
        for field in &response.field {
            print::bytes(&[&field.name, &b": "[..], &field.value, b"\n"].concat())?;
        }
        print::text("\n")?;
        print::bytes(&response.body)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn json(reply: &InspectReply, names: &Names, answered_by: &str) -> Value {
    json!({
        "answered_by": answered_by,
        "counter_rows": reply.counter_rows,
        "record_rows": reply.record_rows,
        "body_rows": reply.body_rows,
        "expiry_rows": reply.expiry_rows,
        "live_buckets": reply.live_buckets,
        "now_ms": reply.now_ms,
        "bucket": names.bucket.map(|name| bucket_json(&name, reply)),
        "record": names.record.map(|name| record_json(&name, reply)),
    })
}

fn bucket_json(name: &Bucket, reply: &InspectReply) -> Value {
    let name = print::hex(name);
    if !reply.bucket_damage.is_empty() {
        return json!({"bucket": name, "found": true, "damage": reply.bucket_damage});
    }
    match &reply.bucket {
        Some(window) => json!({
            "bucket": name,
            "found": true,
            "window_start_ms": window.window_start_ms,
            "window_s": window.window_s,
            "count": window.count,
            "ceiling": window.ceiling,
            "live": window.live,
            "expired": window.expired,
        }),
        None => json!({"bucket": name, "found": false}),
    }
}

fn record_json(name: &Key, reply: &InspectReply) -> Value {
    let name = print::hex(name);
    if !reply.record_damage.is_empty() {
        return json!({"record": name, "found": true, "damage": reply.record_damage});
    }
    let Some(record) = &reply.record else {
        return json!({"record": name, "found": false});
    };
    json!({
        "record": name,
        "found": true,
        "state": state(record.state()),
        "status": record.status,
        "claim_id": print::hex(&record.claim_id),
        "fingerprint": print::hex(&record.fingerprint),
        "lease_left_ms": record.lease_left_ms,
        "completed_ago_ms": record.completed_ago_ms,
        "kept_for_ms": record.kept_for_ms,
        "remembered_for_ms": record.remembered_for_ms,
        "response_bytes": record.response_bytes,
        "response": record.response.as_ref().map(response_json),
        "response_damage": (!record.response_damage.is_empty()).then_some(&record.response_damage),
    })
}

fn response_json(response: &Response) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = response.field.iter();
    let fields: Vec<Value> = fields
        .map(|field| json!([text(&field.name), text(&field.value)]))
        .collect();
    json!({
        "status": response.status,
        "fields": fields,
        "body_base64": BASE64.encode(&response.body),
    })
}

fn text(reply: &InspectReply, names: &Names) -> String {
    let mut text = format!(
        "counters      {} rows\n\
         records       {} rows\n\
         bodies        {} chunks\n\
         expiry        {} entries\n\
         live buckets  {}\n\
         clock         {} ms\n",
        reply.counter_rows,
        reply.record_rows,
        reply.body_rows,
        reply.expiry_rows,
        reply.live_buckets,
        reply.now_ms,
    );
    if let Some(name) = &names.bucket {
        let window = match &reply.bucket {
            _ if !reply.bucket_damage.is_empty() => format!(
                "  its row cannot be read ({}); `reset` removes it\n",
                reply.bucket_damage
            ),
            Some(window) => bucket_text(window, reply.now_ms),
            None => "  neither in memory nor in the file\n".to_owned(),
        };
        text = format!("{text}bucket        {}\n{window}", print::hex(name));
    }
    if let Some(name) = &names.record {
        let record = match &reply.record {
            _ if !reply.record_damage.is_empty() => format!(
                "  its row cannot be read ({}); `forget` removes it\n",
                reply.record_damage
            ),
            Some(record) => record_text(record),
            None => "  there is none: the key is new\n".to_owned(),
        };
        text = format!("{text}record        {}\n{record}", print::hex(name));
    }
    text
}

fn bucket_text(window: &BucketWindow, now_ms: u64) -> String {
    let end_ms = window.window_start_ms + u64::from(window.window_s) * 1_000;
    let length = print::time(u64::from(window.window_s) * 1_000);
    let ends = if window.window_s == 0 {
        "none was opened".to_owned()
    } else if window.expired {
        let ago = print::time(now_ms.saturating_sub(end_ms));
        format!("{length}, ended {ago} ago")
    } else {
        let left = print::time(end_ms.saturating_sub(now_ms));
        format!("{length}, ends in {left}")
    };
    let (place, exact) = if window.live {
        ("in memory", "exact")
    } else {
        ("in the file", "its ceiling")
    };
    format!(
        "  window      {ends}\n  count       {} ({exact}, {place})\n  ceiling     {}\n",
        window.count, window.ceiling
    )
}

fn record_text(record: &RecordView) -> String {
    let status = match record.status {
        0 => String::new(),
        status => format!(", status {status}"),
    };
    let completed = print::time(record.completed_ago_ms);
    let state = match record.state() {
        RecordState::Pending => format!(
            "pending: its lease holds for another {}",
            print::time(record.lease_left_ms)
        ),
        RecordState::Done => format!(
            "done{status}, {completed} ago; {} bytes of response are kept for another {}",
            record.response_bytes,
            print::time(record.kept_for_ms)
        ),
        RecordState::Tombstone => {
            format!("tombstone{status}, {completed} ago: its response is not kept")
        }
        RecordState::Unknown => format!("unknown{status}, since {completed}; `settle` settles it"),
        RecordState::Unspecified => "a state that this release does not know".to_owned(),
    };
    let damage = match &record.response_damage[..] {
        "" => String::new(),
        damage => format!("  response    cannot be read: {damage}\n"),
    };
    format!(
        "  state       {state}\n  remembered  for another {}\n  claim       {}\n  fingerprint {}\n{damage}",
        print::time(record.remembered_for_ms),
        print::hex(&record.claim_id),
        print::hex(&record.fingerprint),
    )
}

/// A state's name; none when there is no record.
pub(super) const fn state(state: RecordState) -> Option<&'static str> {
    match state {
        RecordState::Unspecified => None,
        RecordState::Pending => Some("pending"),
        RecordState::Done => Some("done"),
        RecordState::Tombstone => Some("tombstone"),
        RecordState::Unknown => Some("unknown"),
    }
}
