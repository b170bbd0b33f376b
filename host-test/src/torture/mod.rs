//! Is the store worth its promises? Each is tortured by the faults that it speaks of.
//!
//! Every torture has a short form, which the tests run, and a long one for `scripts/torture`. All choices come from a
//! seed, which is told, so that a failure can be run again.

mod audit;
mod churn;
mod client;
mod clock;
mod draw;
mod faults;
mod hostile;
mod kills;
mod ledger;
mod load;
mod memory;
mod power;
mod site;
mod stop;
mod watch;

use std::future::Future;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::ValueEnum;

pub use faults::{Fault, Row};

/// The tortures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// kill -9 under mixed load, at random moments.
    Kills,
    /// A power loss: each state that it may leave of the data file.
    Power,
    /// A power loss during the very first start.
    FirstStart,
    /// A disk that is full, fails, lies or was damaged.
    Faults,
    /// Clocks that jump, reboots, and restarts much later.
    Clock,
    /// An orderly stop with as many buckets in memory as there may be.
    Stop,
    /// Many more buckets than memory may hold.
    Memory,
    /// Nothing but new keys, which expire.
    Churn,
    /// Messages that no filter would send.
    Hostile,
    /// All of them, one after the other.
    All,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As the tests run it.
    Short,
    /// As `scripts/torture` runs it.
    Long,
}

/// How a torture is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How much of it.
    pub extent: Extent,
    /// Where all choices come from.
    pub seed: u64,
}

impl Plan {
    /// The short form, always with the same choices.
    pub const SHORT: Self = Self {
        extent: Extent::Short,
        seed: 1,
    };

    /// As a command line says; without a seed, another one each time.
    pub fn chosen(long: bool, seed: Option<u64>) -> Self {
        let extent = if long { Extent::Long } else { Extent::Short };
        let now = || SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| now().map_or(1, |since| since.as_secs()));
        Self { extent, seed }
    }
}

/// Runs a torture.
///
/// # Errors
/// When a promise was broken; the error says which, and with what seed.
pub fn run(what: What, plan: Plan) -> anyhow::Result<()> {
    let all = What::value_variants().iter().copied();
    let chosen = all.filter(|one| match what {
        What::All => *one != What::All,
        _ => *one == what,
    });
    for one in chosen {
        let name = format!("{one:?}").to_lowercase();
        tell(&format!("-- {name}, {:?}, seed {}", plan.extent, plan.seed));
        let since = Instant::now();
        let outcome = match one {
            What::Kills => kills::run(plan),
            What::Power => power::run(plan),
            What::FirstStart => power::first_start(plan),
            What::Faults => faults::run(plan),
            What::Clock => clock::run(plan),
            What::Stop => stop::run(plan),
            What::Memory => memory::run(plan),
            What::Churn => churn::run(plan),
            What::Hostile => hostile::run(plan),
            What::All => Ok(()),
        };
        outcome.with_context(|| format!("{name}, seed {}", plan.seed))?;
        tell(&format!("   {:.1} s", since.elapsed().as_secs_f64()));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a torture tells what it measured")]
fn tell(text: &str) {
    println!("{text}");
}

/// Runs a torture's clients, all on this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?
        .block_on(work)
}
