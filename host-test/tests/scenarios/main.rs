//! One suite of scenarios, many drivers: each is written once, and played on the pure core and on a real Envoy.
//!
//! `cases/` holds the scenarios, `coverage.rs` says where each case of the conformance list is shown. Scenarios that
//! share a setting share a stack.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test's helper fails as a test does"
)]

mod cases;
mod core;
mod coverage;
mod envoy;
mod play;
mod script;
mod settings;
mod store;

use crate::core::Core;
use crate::envoy::Envoy;
use crate::play::{Driver, play};
use crate::script::{On, Scenario, Setting};

/// All scenarios, by their setting.
fn all() -> Vec<(Setting, Vec<Scenario>)> {
    let breadth = [
        cases::limiter::scenarios(),
        cases::keys::scenarios(),
        cases::scope::scenarios(),
        cases::replay::scenarios(),
        cases::execution::scenarios(),
    ];
    let strict = [cases::keys::strict(), cases::outage::allow()];
    vec![
        (settings::breadth(), breadth.into_iter().flatten().collect()),
        (settings::strict(), strict.into_iter().flatten().collect()),
        (settings::local(), cases::outage::local()),
    ]
}

/// Plays all scenarios of one setting, and tells all that failed. `SCENARIO` picks those whose story contains it.
fn play_all(on: On, driver: &mut dyn Driver, scenarios: &[Scenario]) -> anyhow::Result<()> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let mut failed = vec![];
    for scenario in scenarios {
        let elsewhere = scenario.only.is_some_and(|(only, _)| only != on);
        if elsewhere || !scenario.story.contains(&wanted) {
            continue;
        }
        if let Err(error) = play(scenario, driver) {
            failed.push(format!("{error:#}"));
        }
    }
    anyhow::ensure!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n\n")
    );
    Ok(())
}

#[test]
fn on_the_pure_core() -> anyhow::Result<()> {
    let mut failed = vec![];
    for (setting, scenarios) in all() {
        let played = play_all(On::Core, &mut Core::new(&setting)?, &scenarios);
        failed.extend(played.err().map(|error| error.to_string()));
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

#[test]
fn on_a_real_envoy() -> anyhow::Result<()> {
    on_envoy(0)
}

#[test]
fn on_a_real_envoy_with_strict_keys() -> anyhow::Result<()> {
    on_envoy(1)
}

#[test]
fn on_a_real_envoy_that_counts_alone() -> anyhow::Result<()> {
    on_envoy(2)
}

fn on_envoy(nth: usize) -> anyhow::Result<()> {
    let (setting, scenarios) = all().swap_remove(nth);
    play_all(On::Envoy, &mut Envoy::new(&setting)?, &scenarios)
}
