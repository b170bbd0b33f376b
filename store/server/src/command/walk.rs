//! Can every page of the data file be read? Asked by a process that may end by a signal over it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};

/// This program, also when its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";

#[derive(Debug, Args)]
pub(crate) struct WalkArgs {
    /// The data directory.
    data: PathBuf,
}

/// How the engine starts this command.
pub(crate) fn walker(data: &Path) -> process::Command {
    let mut walker = process::Command::new(THIS_PROGRAM);
    walker.arg("walk").arg(data);
    walker
}

/// Exit code 1 and a line on stdout when something is wrong.
pub(crate) fn run(args: &WalkArgs) -> anyhow::Result<ExitCode> {
    // The file is mapped: an image of this process would be as large.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).context("cannot switch off core files")?;
    let Err(found) = porch_engine::walk(&args.data) else {
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(std::io::stdout(), "{found}").context("cannot write to stdout")?;
    Ok(ExitCode::FAILURE)
}
