//! Is the whole file sound?

use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{self, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use porch_wire::{CheckRequest, check_reply::Event};
use serde_json::json;
use tokio_stream::StreamExt as _;

use super::{
    backup::limit_ms,
    print,
    progress::{Progress, Unit},
    run as run_command,
};
use crate::{cli::StoreArgs, target::Target};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// How long it may take, such as 10m [default: 5m beside a running store, whose file grows meanwhile; no limit on a
    /// stopped one]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time_limit: Option<Duration>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// Read the file in this process.
    #[arg(long, hide = true)]
    here: bool,
}

/// Looks at every row. Exit code 1 when anything is wrong.
///
/// A directory is looked at by a process of its own: a damaged page may end whoever reads it.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if let Some(data) = args.store.data.as_ref().filter(|_| !args.here) {
        return run_apart(data);
    }
    run_command(&args.store, |mut target| async move {
        let done = check(&mut target, args).await;
        (target, done)
    })
}

fn run_apart(data: &Path) -> anyhow::Result<ExitCode> {
    let program = env::current_exe().context("cannot find this program")?;
    let status = process::Command::new(program)
        .args(env::args_os().skip(1))
        .arg("--here")
        .status()
        .context("cannot start the process that reads the file")?;
    if let Some(signal) = status.signal() {
        bail!(
            "{}: damaged: reading it ended a process by signal {signal}; restore it from a backup",
            data.join("data.mdb").display()
        );
    }
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn check(target: &mut Target, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let ask = CheckRequest {
        time_limit_ms: limit_ms(args.time_limit),
    };
    let mut events = target.check(ask).await?;
    let mut progress = Progress::new("check", Unit::Rows);
    let mut findings = Vec::new();
    let mut summary = None;
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event.event,
            Err(status) => {
                progress.clear();
                return Err(target.failed(&status));
            }
        };
        match event {
            Some(Event::Progress(at)) => progress.at(at.done, at.rows),
            Some(Event::Finding(finding)) => findings.push(finding),
            Some(Event::Summary(told)) => summary = Some(told),
            None => {}
        }
    }
    progress.clear();
    let Some(summary) = summary else {
        bail!("expected a summary, came none: not every row was looked at");
    };
    if args.json {
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| {
                json!({"table": finding.table, "row": finding.row, "found": finding.found})
            })
            .collect();
        print::json(&json!({
            "answered_by": target.answered_by(),
            "rows": summary.rows,
            "wrong": summary.findings,
            "findings": findings,
        }))?;
    } else {
        for finding in &findings {
            let (table, row, found) = (&finding.table, &finding.row, &finding.found);
            print::text(&format!("{table} {row}: {found}\n"))?;
        }
        let (rows, wrong) = (summary.rows, summary.findings);
        print::text(&match wrong {
            0 => format!("{rows} rows, nothing is wrong\n"),
            wrong => format!("{rows} rows, {wrong} things are wrong\n"),
        })?;
    }
    Ok(if summary.findings == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
