//! How full is the store, and what has it done?

use std::{fmt::Write as _, process::ExitCode};

use clap::Args;
use indicatif::HumanBytes;
use porch_wire::StatsReply;
use serde_json::{Value, json};

use super::{print, run as run_command};
use crate::cli::StoreArgs;

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Prints how full the store is, and what it has answered since it started.
pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    run_command(&args.store, |mut target| async move {
        let done = async {
            let reply = target.stats().await?;
            if args.json {
                print::json(&json(&reply, target.answered_by()))?;
            } else {
                print::text(&text(&reply))?;
            }
            Ok(ExitCode::SUCCESS)
        };
        let done = done.await;
        (target, done)
    })
}

fn json(reply: &StatsReply, answered_by: &str) -> Value {
    let tables = reply.table.iter();
    let tables: serde_json::Map<String, Value> = tables
        .map(|table| {
            let usage = json!({"rows": table.rows, "bytes": table.bytes});
            (table.name.clone(), usage)
        })
        .collect();
    let totals = reply.total.iter();
    let totals: Vec<Value> = totals
        .map(|total| json!({"name": total.name, "label": total.label, "value": total.value}))
        .collect();
    json!({
        "answered_by": answered_by,
        "version": reply.version,
        "protocol": reply.protocol,
        "format": reply.format,
        "now_ms": reply.now_ms,
        "tables": tables,
        "file_bytes": reply.file_bytes,
        "limit_bytes": reply.limit_bytes,
        "live_buckets": reply.live_buckets,
        "channels": reply.channels,
        "totals": totals,
    })
}

fn text(reply: &StatsReply) -> String {
    let mut text = format!(
        "release       {}, protocol {}, format {}\n\
         clock         {} ms\n\
         file          {} of at most {}\n\
         live buckets  {}\n\
         channels      {}\n",
        reply.version,
        reply.protocol,
        reply.format,
        reply.now_ms,
        HumanBytes(reply.file_bytes),
        HumanBytes(reply.limit_bytes),
        reply.live_buckets,
        reply.channels,
    );
    // Writing to a string does not fail, so `ok` loses nothing.
    for table in &reply.table {
        let (name, rows) = (&table.name, table.rows);
        writeln!(text, "{name:<13} {rows} rows, {}", HumanBytes(table.bytes)).ok();
    }
    for total in reply.total.iter().filter(|total| total.value > 0) {
        let (name, label, value) = (&total.name, &total.label, total.value);
        if label.is_empty() {
            writeln!(text, "{name} {value}").ok();
        } else {
            writeln!(text, "{name} {label} {value}").ok();
        }
    }
    text
}
