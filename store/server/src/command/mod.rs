//! What do operators' commands do?
//!
//! Each finds out who answers, asks, prints, and closes what it has opened.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod forget;
pub(crate) mod inspect;
pub(crate) mod name;
mod print;
mod progress;
pub(crate) mod reset;
pub(crate) mod settle;
pub(crate) mod stats;
pub(crate) mod walk;

use std::{future::Future, process::ExitCode};

use anyhow::Context as _;
use tokio::runtime;

use crate::{cli::StoreArgs, target::Target};

/// Runs a command against whoever answers.
fn run<'a, F>(args: &'a StoreArgs, command: impl FnOnce(Target) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = (Target, anyhow::Result<ExitCode>)> + 'a,
{
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let target = Target::find(args).await?;
        let (target, done) = command(target).await;
        let closed = target.close();
        let code = done?;
        closed.map(|()| code)
    })
}
