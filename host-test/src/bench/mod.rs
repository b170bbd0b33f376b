//! The benchmark: what the plugin costs beside bare Envoy, as ratios within one run.
//!
//! Absolute figures of a shared machine are noise, so every variant runs in turn, several rounds over, and only its
//! ratio to bare Envoy in the same round counts. Load comes from wrk, with Envoy on one worker.

mod report;
mod variant;
mod wrk;

use std::time::Duration;

use report::Report;
use variant::Bench;

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every variant runs once a round.
    pub rounds: u32,
    /// How long each variant runs in a round.
    pub each: Duration,
    /// Only the variants whose name has one of these texts in it, and what they are held against; all, when empty.
    pub only: Vec<String>,
}

/// Connections at which each variant is measured.
const CONNECTIONS: [u32; 2] = [CONNECTIONS_MAX, 1];
const CONNECTIONS_MAX: u32 = 32;

/// Starts everything, measures, and prints the tables.
///
/// # Errors
/// When a part is missing or fails, or an answer was not the one that a variant is about.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let wanted =
        |name: &str| plan.only.is_empty() || plan.only.iter().any(|text| name.contains(text));
    let bases: Vec<&str> = bench
        .variants()
        .iter()
        .filter(|variant| wanted(variant.name))
        .map(|variant| variant.base)
        .collect();
    let variants = || {
        bench
            .variants()
            .iter()
            .filter(|variant| wanted(variant.name) || bases.contains(&variant.name))
    };
    let mut report = Report::default();
    // Connections are made, code is warm, and every bucket is open before anything counts.
    for variant in variants() {
        progress("warming up", CONNECTIONS_MAX, variant.name);
        wrk::warm_up(variant, CONNECTIONS_MAX)?;
    }
    for round in 1..=plan.rounds {
        for connections in CONNECTIONS {
            for variant in variants() {
                progress(
                    &format!("round {round} of {}", plan.rounds),
                    connections,
                    variant.name,
                );
                let figures = wrk::run(variant, connections, plan.each)?;
                report.add(round, connections, variant, figures);
            }
        }
    }
    #[expect(clippy::print_stdout, reason = "the tables are this command's output")]
    {
        println!("{report}");
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "long work shows progress")]
fn progress(stage: &str, connections: u32, name: &str) {
    eprintln!("bench: {stage}, {connections} connections, {name}");
}
