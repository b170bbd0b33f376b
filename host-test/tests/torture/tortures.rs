//! Does the store keep its promises under load, loss of power, moving clocks, too many buckets, and messages of malice?

use porch_host::torture::{Plan, What, run};

#[test]
fn kill_9_at_any_moment_loses_nothing_that_was_acknowledged() -> anyhow::Result<()> {
    run(What::Kills, Plan::SHORT)
}

#[test]
fn a_power_loss_loses_nothing_that_was_acknowledged_and_a_disk_that_lies_is_found_out()
-> anyhow::Result<()> {
    run(What::Power, Plan::SHORT)
}

#[test]
fn a_power_loss_in_the_first_start_leaves_a_directory_that_opens() -> anyhow::Result<()> {
    run(What::FirstStart, Plan::SHORT)
}

#[test]
fn no_clock_grants_a_window_or_makes_a_record_immortal() -> anyhow::Result<()> {
    run(What::Clock, Plan::SHORT)
}

#[test]
fn an_orderly_stop_leaves_exact_counts() -> anyhow::Result<()> {
    run(What::Stop, Plan::SHORT)
}

#[test]
fn memory_stays_flat_however_many_buckets_there_are() -> anyhow::Result<()> {
    run(What::Memory, Plan::SHORT)
}

#[test]
fn the_file_stays_flat_when_every_key_is_new() -> anyhow::Result<()> {
    run(What::Churn, Plan::SHORT)
}

#[test]
fn a_hostile_message_is_refused_by_name_and_others_go_on() -> anyhow::Result<()> {
    run(What::Hostile, Plan::SHORT)
}
