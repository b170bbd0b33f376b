//! How do opening a data directory and committing a batch fail?

use std::{io, path::PathBuf};

/// Why a data directory was not opened. Each message names the file, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or folder could not be made, read or written.
    #[error("{path}: cannot {what}: {source}; check that it is on a writable disk and belongs to this user", path = path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error("{path}: locked by another process; stop the other store, or give this one its own --data", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory was used before, and its data is gone.
    #[error(
        "{path}: {found}, but {marker} says that this directory was in use; restore the file from a backup, or remove the \
         directory to start with empty counters and records", path = path.display(), marker = marker.display()
    )]
    DataGone {
        /// The data file.
        path: PathBuf,
        /// The marker file.
        marker: PathBuf,
        /// `missing` or `0 bytes`.
        found: &'static str,
    },
    /// The data file is not one of LMDB's.
    #[error("{path}: not a data file of this store: {found}; restore it from a backup", path = path.display())]
    NotData {
        /// The data file.
        path: PathBuf,
        /// What it holds instead.
        found: String,
    },
    /// The data file is shorter than its own header says.
    #[error("{path}: truncated: expected at least {expected_bytes} bytes, found {found_bytes}; restore it from a backup", path = path.display())]
    Truncated {
        /// The data file.
        path: PathBuf,
        /// The end of the last page in use.
        expected_bytes: u64,
        /// The file's size.
        found_bytes: u64,
    },
    /// A page of the data file cannot be read.
    #[error("{path}: damaged: {found}; restore it from a backup", path = path.display())]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// What came of reading it.
        found: String,
    },
    /// Another release wrote the data.
    #[error("{path}: expected format {expected}, found {found}, which {} release wrote; start that one, nothing was changed",
        if found > expected { "a newer" } else { "an older" }, path = path.display())]
    Format {
        /// The data file.
        path: PathBuf,
        /// This release's version.
        expected: u32,
        /// The file's version.
        found: u32,
    },
    /// A row that opening needs fails its checksum or is missing.
    #[error("{path}: the row `{row}` of `meta` is {found}; restore the file from a backup", path = path.display())]
    Meta {
        /// The data file.
        path: PathBuf,
        /// The row's key.
        row: &'static str,
        /// What is wrong with it.
        found: String,
    },
    /// LMDB refused.
    #[error("{path}: LMDB cannot {what}: {source}; if the file is damaged, restore it from a backup", path = path.display())]
    Lmdb {
        /// What was to be done.
        what: &'static str,
        /// The data file.
        path: PathBuf,
        /// What LMDB said.
        source: heed::Error,
    },
}

/// Why a batch was not committed. Nothing of it took effect.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// There is no room: the disk or the map is full. Later batches may succeed, so the store goes on.
    #[error("no room for the batch: {0}")]
    Full(#[source] heed::Error),
    /// The file can no longer be trusted to hold what it is told, for example after an EIO, which the next sync
    /// would not repeat. The process has to end; opening the directory again reads what is really there.
    #[error("{path}: the data file failed: {source}; {}", what_to_do(source), path = path.display())]
    Fatal {
        /// The data file.
        path: PathBuf,
        /// What LMDB or the system said.
        source: heed::Error,
    },
}

/// A disk that fails may be mended; a file that is damaged is not.
fn what_to_do(source: &heed::Error) -> &'static str {
    match source {
        heed::Error::Io(_) => {
            "what the disk was told last may not be there: look at the disk, then start again"
        }
        heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened => "restore it from a backup",
    }
}
