//! The store: a gRPC shell around the engine, and the commands of those who run it.

mod admin;
mod channel;
mod cli;
mod command;
mod desk;
mod invoke;
mod listen;
mod log;
mod metrics;
mod operation;
mod outlet;
mod parse;
mod reply;
mod serve;
mod target;
mod tls;
mod watch;
mod writer;

use std::{io::Write as _, process::ExitCode};

use clap::Parser as _;

use crate::{
    cli::Command,
    command::{backup, check, completions, forget, inspect, reset, settle, stats, walk},
};

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Forget(args) => forget::run(&args),
        Command::Settle(args) => settle::run(&args),
        Command::Reset(args) => reset::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Walk(args) => walk::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One line on stderr. When stderr is gone too, the exit code is all there is to say it with.
fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "porch-store: {line}"));
}
