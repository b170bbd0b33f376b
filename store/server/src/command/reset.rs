//! How is a bucket reset?

use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use porch_wire::{ResetReply, ResetRequest};
use serde_json::json;

use super::{
    name::{self, BucketArgs, FleetArgs, KeyArgs},
    print, run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["bucket", "rule"]).required(true))]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    bucket: BucketArgs,
    #[command(flatten)]
    key: KeyArgs,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Takes back all that a bucket has counted.
pub(crate) fn run(args: &ResetArgs) -> anyhow::Result<ExitCode> {
    let bucket = name::bucket(&args.fleet, &args.bucket, &args.key)?;
    let bucket = bucket.context("expected --bucket or --rule, came neither")?;
    run_command(&args.store, |mut target| async move {
        let done = reset(&mut target, &bucket, args.json).await;
        (target, done)
    })
}

async fn reset(target: &mut Target, bucket: &[u8], json: bool) -> anyhow::Result<ExitCode> {
    let ask = ResetRequest {
        bucket: Bytes::copy_from_slice(bucket),
    };
    let reply = target.reset(ask).await?;
    if json {
        print::json(&json!({
            "answered_by": target.answered_by(),
            "bucket": print::hex(bucket),
            "reset": reply.reset,
            "count": reply.count,
            "damage": (!reply.damage.is_empty()).then_some(&reply.damage),
        }))?;
    } else {
        print::text(&format!(
            "bucket {}: {}\n",
            print::hex(bucket),
            text(&reply)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(reply: &ResetReply) -> String {
    if !reply.reset {
        "no window is open".to_owned()
    } else if reply.damage.is_empty() {
        format!("reset; it had counted {}", reply.count)
    } else {
        format!("removed; its row could not be read: {}", reply.damage)
    }
}
