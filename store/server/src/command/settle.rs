//! How is a record settled whose outcome is unknown?

use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{ArgGroup, Args, ValueEnum};
use porch_wire::{Released, SettleReply, SettleRequest, Tombstone, settle_request::Outcome};
use serde_json::json;

use super::{
    inspect::state,
    name::{self, FleetArgs, KeyArgs, RecordArgs},
    print, run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["record", "policy"]).required(true))]
pub(crate) struct SettleArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    key: KeyArgs,

    /// What upstream has done.
    #[arg(long = "as", value_name = "OUTCOME")]
    settle_as: SettleAs,

    /// The status that upstream answered, 200 to 599.
    #[arg(
        long,
        value_name = "STATUS",
        value_parser = clap::value_parser!(u16).range(200..=599),
        required_if_eq("settle_as", "tombstone")
    )]
    status: Option<u16>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SettleAs {
    /// It did not execute: the record goes, and a retry executes.
    Released,
    /// It executed: a retry is refused, and told the status.
    Tombstone,
}

/// Settles a record whose outcome is unknown. Exit code 1 when there is none such.
pub(crate) fn run(args: &SettleArgs) -> anyhow::Result<ExitCode> {
    let record = name::record(&args.fleet, &args.record, &args.key)?;
    let record = record.context("expected --record or --policy, came neither")?;
    let outcome = match (args.settle_as, args.status) {
        (SettleAs::Released, _) => Outcome::Released(Released {}),
        (SettleAs::Tombstone, status) => Outcome::Tombstone(Tombstone {
            status: status
                .context("--as tombstone: expected --status too")?
                .into(),
        }),
    };
    run_command(&args.store, |mut target| async move {
        let done = settle(&mut target, &record, outcome, args.json).await;
        (target, done)
    })
}

async fn settle(
    target: &mut Target,
    record: &[u8],
    outcome: Outcome,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let ask = SettleRequest {
        record: Bytes::copy_from_slice(record),
        outcome: Some(outcome),
    };
    let reply = target.settle(ask).await?;
    if json {
        print::json(&json!({
            "answered_by": target.answered_by(),
            "record": print::hex(record),
            "settled": reply.settled,
            "state": state(reply.state()),
            "damage": (!reply.damage.is_empty()).then_some(&reply.damage),
        }))?;
    } else {
        print::text(&format!(
            "record {}: {}\n",
            print::hex(record),
            text(&reply)
        ))?;
    }
    Ok(if reply.settled {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(reply: &SettleReply) -> String {
    if reply.settled {
        return "settled".to_owned();
    }
    if !reply.damage.is_empty() {
        return format!(
            "left as it is; its row cannot be read ({}), and `forget` removes it",
            reply.damage
        );
    }
    match state(reply.state()) {
        None => "there is none".to_owned(),
        Some(state) => format!("left as it is; expected an unknown outcome, found {state}"),
    }
}

#[cfg(test)]
mod tests {
    use porch_wire::RecordState;

    use super::*;

    #[test]
    fn a_record_that_is_left_says_why() {
        let known = SettleReply {
            state: RecordState::Done.into(),
            ..SettleReply::default()
        };
        assert!(text(&known).contains("found done"));
        assert_eq!(text(&SettleReply::default()), "there is none");
    }
}
