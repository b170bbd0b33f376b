//! `porch-host`: the commands of the harness.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "porch-host", version, about = "Demo and test harness of porch")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the demo service: each POST to /orders inserts a row, GET /orders/count tells how many there are.
    Upstream {
        /// Address and port; port 0 takes a free one. The first line of output says which.
        #[arg(long)]
        listen: SocketAddr,
        /// The database file that keeps the rows; made when it is missing.
        #[arg(long)]
        database: PathBuf,
    },
    /// Measure what the plugin costs beside bare Envoy, as ratios within one run.
    Bench {
        /// Every variant runs once a round.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// How long each variant runs in a round, in seconds.
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        /// Only variants with this text in their name, and what they are held against; may be given again.
        #[arg(long)]
        only: Vec<String>,
    },
    /// Show, step by step, what porch does, on real parts.
    Demo {
        /// Leave everything running afterwards and print commands to try; Ctrl-C ends it.
        #[arg(long)]
        keep: bool,
    },
    /// Put the store through faults, and check that it keeps its promises.
    Torture {
        /// Which fault.
        what: porch_host::torture::What,
        /// The long form; else the one that the tests run.
        #[arg(long)]
        long: bool,
        /// Where all choices come from; the same seed makes the same ones [default: another one each time].
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Upstream { listen, database } => porch_host::upstream::serve(listen, &database),
        Command::Bench {
            rounds,
            seconds,
            only,
        } => {
            let each = Duration::from_secs(seconds);
            porch_host::bench::run(&porch_host::bench::Plan { rounds, each, only })
        }
        Command::Demo { keep } => porch_host::demo::run(keep),
        Command::Torture { what, long, seed } => {
            porch_host::torture::run(what, porch_host::torture::Plan::chosen(long, seed))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a command says why it failed")]
            {
                eprintln!("porch-host: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
