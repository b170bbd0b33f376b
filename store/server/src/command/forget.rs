//! How is a key forgotten?

use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use porch_wire::{ForgetReply, ForgetRequest, RecordState};
use serde_json::json;

use super::{
    inspect::state,
    name::{self, FleetArgs, KeyArgs, RecordArgs},
    print, run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["record", "policy"]).required(true))]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    key: KeyArgs,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Removes a record: a retry executes.
pub(crate) fn run(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    let record = name::record(&args.fleet, &args.record, &args.key)?;
    let record = record.context("expected --record or --policy, came neither")?;
    run_command(&args.store, |mut target| async move {
        let done = forget(&mut target, &record, args.json).await;
        (target, done)
    })
}

async fn forget(target: &mut Target, record: &[u8], json: bool) -> anyhow::Result<ExitCode> {
    let ask = ForgetRequest {
        record: Bytes::copy_from_slice(record),
    };
    let reply = target.forget(ask).await?;
    if json {
        print::json(&json!({
            "answered_by": target.answered_by(),
            "record": print::hex(record),
            "removed": reply.removed,
            "state": state(reply.state()),
            "fenced": reply.state() == RecordState::Pending,
            "damage": (!reply.damage.is_empty()).then_some(&reply.damage),
        }))?;
    } else {
        print::text(&format!(
            "record {}: {}\n",
            print::hex(record),
            text(&reply)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(reply: &ForgetReply) -> String {
    if !reply.removed {
        return "there is none".to_owned();
    }
    if !reply.damage.is_empty() {
        return format!("removed; its row could not be read: {}", reply.damage);
    }
    match reply.state() {
        RecordState::Pending => {
            "removed; it was pending, and what its claim completes is refused".to_owned()
        }
        RecordState::Done => "removed; it was done, with its response".to_owned(),
        RecordState::Tombstone => "removed; it was a tombstone".to_owned(),
        RecordState::Unknown | RecordState::Unspecified => "removed; it was unknown".to_owned(),
    }
}
