//! What does a running store hold?

use std::io::Write as _;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use porch_wire::{BucketWindow, InspectReply, InspectRequest, admin_client::AdminClient};
use serde_json::json;
use tokio::runtime;
use tonic::transport::Endpoint;

use crate::cli::{InspectArgs, UnixAddress};

/// Asks a running store, and prints what it says.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let address = match (&args.admin, &args.data) {
        (Some(admin), _) => admin.clone(),
        (None, Some(data)) => UnixAddress::admin_in(data),
        (None, None) => return Err(anyhow!("expected --admin or --data, came neither")),
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let reply = runtime.block_on(ask(&address, args))?;
    let text = if args.json {
        let value = json(&reply, args);
        format!("{value:#}\n")
    } else {
        text(&reply, args)
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to stdout")
}

async fn ask(address: &UnixAddress, args: &InspectArgs) -> anyhow::Result<InspectReply> {
    let path = address.0.display();
    let endpoint = Endpoint::from_shared(format!("unix:{path}"))
        .with_context(|| format!("{path}: not a socket's path"))?;
    let channel = endpoint.connect().await.map_err(|error| {
        // The layers above the cause only say that something failed.
        let error = anyhow::Error::from(error);
        let cause = error.root_cause();
        anyhow!(
            "{path}: no store answers there ({cause}); is it running, and is this its admin socket?"
        )
    })?;
    let bucket = args.bucket.as_ref().map(|bucket| bucket.to_vec());
    let request = InspectRequest {
        bucket: Bytes::from(bucket.unwrap_or_default()),
    };
    match AdminClient::new(channel).inspect(request).await {
        Ok(reply) => Ok(reply.into_inner()),
        Err(status) => Err(anyhow!("{path}: {}: {}", status.code(), status.message())),
    }
}

fn json(reply: &InspectReply, args: &InspectArgs) -> serde_json::Value {
    let bucket = args.bucket.as_ref().map(|name| match &reply.bucket {
        Some(window) => json!({
            "bucket": hex(name),
            "found": true,
            "window_start_ms": window.window_start_ms,
            "window_s": window.window_s,
            "count": window.count,
            "ceiling": window.ceiling,
            "live": window.live,
            "expired": window.expired,
        }),
        None => json!({"bucket": hex(name), "found": false}),
    });
    json!({
        "counter_rows": reply.counter_rows,
        "record_rows": reply.record_rows,
        "body_rows": reply.body_rows,
        "expiry_rows": reply.expiry_rows,
        "live_buckets": reply.live_buckets,
        "now_ms": reply.now_ms,
        "bucket": bucket,
    })
}

fn text(reply: &InspectReply, args: &InspectArgs) -> String {
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
    if let Some(name) = &args.bucket {
        let window = match &reply.bucket {
            Some(window) => bucket_text(window, reply.now_ms),
            None => "  neither in memory nor in the file\n".to_owned(),
        };
        text = format!("{text}bucket        {}\n{window}", hex(name));
    }
    text
}

fn bucket_text(window: &BucketWindow, now_ms: u64) -> String {
    let end_ms = window.window_start_ms + u64::from(window.window_s) * 1_000;
    let ends = if window.window_s == 0 {
        "none was opened".to_owned()
    } else if window.expired {
        format!(
            "{} s, ended {} ms ago",
            window.window_s,
            now_ms.saturating_sub(end_ms)
        )
    } else {
        format!(
            "{} s, ends in {} ms",
            window.window_s,
            end_ms.saturating_sub(now_ms)
        )
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

fn hex(bucket: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let bytes = bucket.iter();
    bytes
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}
