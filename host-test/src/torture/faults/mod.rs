//! What does the store do when the disk fails, and what is to be done? Each row of the table is carried out.

mod damage;
mod full;
mod injected;
mod used;

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use super::{Plan, tell};

/// A way in which a disk, or who handles it, may fail a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// The file system has no room.
    FullDisk,
    /// A flush fails with EIO.
    FlushFails,
    /// A write fails with EIO.
    WriteFails,
    /// The data file ends early.
    Truncated,
    /// A page of the data file reads as zeros, or as noise.
    DamagedPage,
    /// The data file holds something else.
    Garbage,
    /// The data file is empty.
    Empty,
    /// The data file is gone.
    Missing,
    /// Nothing can be written in the data directory.
    ReadOnly,
    /// Another process has the data directory.
    SecondProcess,
}

/// What an operator reads.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What has happened.
    pub fault: &'static str,
    /// What the store does.
    pub store: &'static str,
    /// What is to be done.
    pub operator: &'static str,
}

const RESTORE: &str = "Restore the directory from a backup.";

impl Fault {
    /// Its row of docs/operations.md.
    pub const fn row(self) -> Row {
        let (fault, store, operator) = match self {
            Self::FullDisk => (
                "The disk is full",
                "Answers UNAVAILABLE to what needs a new row: keyed requests get 503, limits follow `on_store_failure`. Replays and hits under a durable ceiling go on. Nothing acknowledged is lost.",
                "Make room. It goes on by itself.",
            ),
            Self::FlushFails => (
                "A flush fails (EIO) though there is room",
                "Ends at once, exit code 1, and names the file: what the disk was told last may not be there. Nothing acknowledged is lost.",
                "Look at the disk. Move the directory to a good one, then start again.",
            ),
            Self::WriteFails => (
                "A write fails (EIO) though there is room",
                "As for a flush.",
                "As for a flush.",
            ),
            Self::Truncated => (
                "`data.mdb` was cut off",
                "Does not start: exit code 1, and names the file and both lengths.",
                RESTORE,
            ),
            Self::DamagedPage => (
                "A page of `data.mdb` is damaged",
                "Does not start, or refuses the rows it held (DATA_LOSS: the key gets 500 `outcome-unknown`), or ends with exit code 1 and names the file. Never executes a key again, never counts less.",
                RESTORE,
            ),
            Self::Garbage => (
                "`data.mdb` holds something else",
                "Does not start: exit code 1, and names the file and what it found.",
                RESTORE,
            ),
            Self::Empty => (
                "`data.mdb` has 0 bytes, `porch.marker` is there",
                "Does not start: exit code 1, and names both files.",
                "Restore the directory from a backup; or remove it, and start with no counters and no records.",
            ),
            Self::Missing => (
                "`data.mdb` is missing, `porch.marker` is there",
                "As for 0 bytes.",
                "As for 0 bytes.",
            ),
            Self::ReadOnly => (
                "The directory cannot be written",
                "Does not start: exit code 1, and names the file that it could not make.",
                "Mount it writable, or give it to the store's user.",
            ),
            Self::SecondProcess => (
                "A second store is started on the directory",
                "The second does not start: exit code 1, and names `porch.lock`. The first goes on.",
                "Stop the other, or give this one its own `--data`.",
            ),
        };
        Row {
            fault,
            store,
            operator,
        }
    }

    /// Carries it out, and checks that the store does what its row says.
    ///
    /// # Errors
    /// When it does something else.
    pub fn prove(self, plan: Plan) -> anyhow::Result<()> {
        let proof = async {
            match self {
                Self::FullDisk => full::full_disk(plan.seed).await,
                Self::FlushFails => injected::flush_fails(plan.seed).await,
                Self::WriteFails => injected::write_fails(plan.seed).await,
                Self::Truncated => damage::truncated(plan.seed).await,
                Self::DamagedPage => damage::damaged(plan).await,
                Self::Garbage => damage::garbage(plan.seed).await,
                Self::Empty => damage::empty(plan.seed).await,
                Self::Missing => damage::missing(plan.seed).await,
                Self::ReadOnly => full::read_only(plan.seed).await,
                Self::SecondProcess => damage::second_process(plan.seed).await,
            }
        };
        super::block_on(proof).with_context(|| format!("{self:?}"))
    }
}

/// Carries out all of them, and tells which the store does not stand.
pub(super) fn run(plan: Plan) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for fault in Fault::value_variants() {
        match fault.prove(plan) {
            Ok(()) => tell(&format!("{fault:?}: as the table says")),
            Err(error) => {
                tell(&format!("{fault:?}: NOT as the table says"));
                failed.push(format!("{error:#}"));
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} faults:\n{}", failed.len(), failed.join("\n"))
}
