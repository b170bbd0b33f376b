//! How is the whole file read beside the writer?
//!
//! Two operators' commands read beside the one writer: `backup` and `check`. While a transaction reads, no page that
//! it may look at is used again, so the file grows by all that is written meanwhile: hence at most one reader at a
//! time, and each with a time limit.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use heed::{Env, WithoutTls};

use crate::store::Tables;

/// Reads the file beside the writer. Cheap to keep: it holds a transaction only while it reads.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) env: Env<WithoutTls>,
    pub(crate) tables: Tables,
    pub(crate) data: PathBuf,
    reads: Reads,
}

/// Whether somebody reads beside the writer. The map must not be moved then: who moves it begins a read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reads(Arc<AtomicBool>);

/// One read beside the writer; over when dropped.
#[derive(Debug)]
pub(crate) struct Reading(Arc<AtomicBool>);

impl Reads {
    /// # Errors
    /// [`ReadError::Busy`] when somebody reads.
    pub(crate) fn begin(&self) -> Result<Reading, ReadError> {
        if self.0.swap(true, Ordering::AcqRel) {
            return Err(ReadError::Busy);
        }
        Ok(Reading(Arc::clone(&self.0)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Why a read of the whole file ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Another backup or check is at work.
    #[error("another backup or check is reading the file; wait until it is done")]
    Busy,
    /// The time limit is reached. Without one the file would go on growing by all that is written meanwhile.
    #[error("not done within {} s; give it more time, or less to do", limit.as_secs_f64())]
    TimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// Who asked for it is gone.
    #[error("who asked for it is gone")]
    Gone,
    /// A pipe or a thread could not be made, or the copy could not be read from it.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// LMDB cannot read the file.
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

/// When a read has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    limit: Option<Duration>,
    since: Instant,
}

impl Deadline {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            limit,
            since: Instant::now(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ReadError> {
        match self.limit {
            Some(limit) if self.since.elapsed() >= limit => Err(ReadError::TimeLimit { limit }),
            Some(_) | None => Ok(()),
        }
    }
}

impl Reader {
    pub(crate) const fn new(
        env: Env<WithoutTls>,
        tables: Tables,
        data: PathBuf,
        reads: Reads,
    ) -> Self {
        Self {
            env,
            tables,
            data,
            reads,
        }
    }

    pub(crate) fn begin(&self) -> Result<Reading, ReadError> {
        self.reads.begin()
    }

    pub(crate) fn lmdb(&self, what: &'static str) -> impl Fn(heed::Error) -> ReadError + '_ {
        move |source| ReadError::Lmdb {
            what,
            path: self.data.clone(),
            source,
        }
    }
}
