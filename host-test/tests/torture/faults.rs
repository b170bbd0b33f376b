//! Does each fault of a disk have the end that docs/operations.md tells?

use porch_host::torture::{Fault, Plan};

#[test]
fn a_full_disk_refuses_new_rows_and_recovers() -> anyhow::Result<()> {
    Fault::FullDisk.prove(Plan::SHORT)
}

#[test]
fn a_flush_that_fails_ends_the_store() -> anyhow::Result<()> {
    Fault::FlushFails.prove(Plan::SHORT)
}

#[test]
fn a_write_that_fails_ends_the_store() -> anyhow::Result<()> {
    Fault::WriteFails.prove(Plan::SHORT)
}

#[test]
fn a_truncated_file_is_not_opened() -> anyhow::Result<()> {
    Fault::Truncated.prove(Plan::SHORT)
}

#[test]
fn a_damaged_page_is_never_guessed_at() -> anyhow::Result<()> {
    Fault::DamagedPage.prove(Plan::SHORT)
}

#[test]
fn garbage_is_not_opened() -> anyhow::Result<()> {
    Fault::Garbage.prove(Plan::SHORT)
}

#[test]
fn an_empty_file_is_not_taken_for_a_new_one() -> anyhow::Result<()> {
    Fault::Empty.prove(Plan::SHORT)
}

#[test]
fn a_missing_file_is_not_made_anew() -> anyhow::Result<()> {
    Fault::Missing.prove(Plan::SHORT)
}

#[test]
fn a_directory_that_cannot_be_written_is_told() -> anyhow::Result<()> {
    Fault::ReadOnly.prove(Plan::SHORT)
}

#[test]
fn a_second_process_is_refused_and_the_first_goes_on() -> anyhow::Result<()> {
    Fault::SecondProcess.prove(Plan::SHORT)
}
