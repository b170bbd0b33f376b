//! The store: a gRPC shell around the engine, and the commands of those who run it.

mod admin;
mod channel;
mod cli;
mod desk;
mod inspect;
mod invoke;
mod listen;
mod operation;
mod outlet;
mod parse;
mod reply;
mod serve;
mod writer;

use std::{io::Write as _, process::ExitCode};

use clap::Parser as _;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(args) => serve::run(&args),
        cli::Command::Inspect(args) => inspect::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line, whatever the cause. When stderr is gone too, the exit code is all there is to say it with.
            let told = writeln!(std::io::stderr(), "porch-store: {error:#}");
            drop(told);
            ExitCode::FAILURE
        }
    }
}
