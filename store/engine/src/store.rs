//! How is a batch carried out?
//!
//! One transaction a batch, synced by its commit; the clock goes along in each. A batch that has only read is not
//! committed: there is nothing to lose.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use heed::{Database, Env, RoTxn, RwTxn, WithoutTls, types::Bytes as Raw};

use crate::{
    batch::{Batch, Bucket, CounterAnswer, CounterOp, ExactRow, Loaded, Outcomes},
    clock::Clock,
    error::ApplyError,
    layout::{CLOCK, CounterRow, Expiring, NEXT_BODY, Table, encode_number},
    operator,
    reader::{Reader, Reads},
    records,
    space::{AtLimit, Space},
};

/// Rows as bytes; `layout` knows what they mean.
pub(crate) type Rows = Database<'static, Raw, Raw>;

/// The file's databases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) meta: Rows,
    pub(crate) counters: Rows,
    pub(crate) records: Rows,
    pub(crate) bodies: Rows,
    pub(crate) expiry: Rows,
}

impl Tables {
    /// All rows but those of `meta`.
    pub(crate) fn count(&self, txn: &RoTxn<'_>) -> Result<u64, heed::Error> {
        Ok(self.counters.len(txn)? + self.records.len(txn)? + self.bodies.len(txn)?)
    }
}

/// The map grows to its double in so many steps, the last resort when it is full.
const MAP_STEPS: usize = 8;
/// No step is smaller: the largest response fits.
const MAP_STEP_BYTES_MIN: usize = 16 << 20;

/// The data directory, open. Belongs to one thread.
#[derive(Debug)]
pub struct Store {
    env: Env<WithoutTls>,
    tables: Tables,
    clock: Clock,
    next_body: u64,
    space: Space,
    /// The map never becomes larger.
    map_bytes_max: usize,
    data: PathBuf,
    reads: Reads,
    /// Held, not read: the directory is locked while it is open.
    _lock: File,
}

impl Store {
    pub(crate) fn new(
        env: Env<WithoutTls>,
        tables: Tables,
        clock: Clock,
        next_body: u64,
        space: Space,
        data: PathBuf,
        lock: File,
    ) -> Self {
        let map_bytes = env.info().map_size;
        Self {
            env,
            tables,
            clock,
            next_body,
            space,
            map_bytes_max: map_bytes.saturating_mul(2).max(MAP_STEP_BYTES_MIN),
            data,
            reads: Reads::default(),
            _lock: lock,
        }
    }

    /// The logical clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads the file beside this store, for `backup` and `check`.
    pub fn reader(&self) -> Reader {
        Reader::new(
            self.env.clone(),
            self.tables,
            self.data.clone(),
            self.reads.clone(),
        )
    }

    /// The data file.
    pub fn path(&self) -> &Path {
        &self.data
    }

    /// Carries out a batch in one transaction, durable when this returns.
    ///
    /// # Errors
    /// [`ApplyError`]; then nothing of the batch took effect.
    pub fn apply(&mut self, batch: &Batch) -> Result<Outcomes, ApplyError> {
        self.apply_at(self.clock.now_ms(), batch)
    }

    /// [`Store::apply`] at a given time of the logical clock: for tests.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn apply_at(&mut self, now_ms: u64, batch: &Batch) -> Result<Outcomes, ApplyError> {
        self.transact(now_ms, |work| {
            let mut outcomes = Outcomes::default();
            for op in &batch.counters {
                outcomes.counters.push(match op {
                    CounterOp::Load { bucket, open, .. } => work.load(bucket, open.as_ref())?,
                    CounterOp::Write { bucket, row, .. } | CounterOp::Evict { bucket, row } => {
                        work.raise(bucket, row)?
                    }
                    CounterOp::Erase { bucket, .. } => {
                        CounterAnswer::Erased(work.erase_counter(bucket)?)
                    }
                });
            }
            for op in &batch.records {
                outcomes.records.push(records::apply(work, op)?);
            }
            for op in &batch.operations {
                outcomes.operations.push(operator::apply(work, op)?);
            }
            outcomes.wrote = work.dirty;
            outcomes.at_limit = work.at_limit;
            Ok(outcomes)
        })
    }

    /// Writes the exact counts of an orderly stop, sorted by bucket, in one transaction.
    ///
    /// # Errors
    /// [`ApplyError`]; then the counts are their ceilings.
    pub(crate) fn write_exact(&mut self, now_ms: u64, rows: &[ExactRow]) -> Result<(), ApplyError> {
        self.transact(now_ms, |work| {
            // The clock is saved also when no count differs.
            work.dirty = true;
            for exact in rows {
                work.write_counter(&exact.bucket, &exact.row)?;
            }
            Ok(())
        })
    }

    fn transact<T>(
        &mut self,
        now_ms: u64,
        apply: impl Fn(&mut Work<'_, '_>) -> Result<T, heed::Error>,
    ) -> Result<T, ApplyError> {
        let mut result = self.try_transact(now_ms, &apply);
        if let Err(heed::Error::Mdb(heed::MdbError::MapFull)) = result
            && self.grow().map_err(|source| self.fatal(source))?
        {
            result = self.try_transact(now_ms, &apply);
        }
        result.map_err(|error| {
            if is_full(&error, &self.data) {
                ApplyError::Full(error)
            } else {
                ApplyError::Fatal {
                    path: self.data.clone(),
                    source: error,
                }
            }
        })
    }

    fn fatal(&self, source: heed::Error) -> ApplyError {
        ApplyError::Fatal {
            path: self.data.clone(),
            source,
        }
    }

    fn try_transact<T>(
        &mut self,
        now_ms: u64,
        apply: impl Fn(&mut Work<'_, '_>) -> Result<T, heed::Error>,
    ) -> Result<T, heed::Error> {
        let mut txn = self.env.write_txn()?;
        let mut work = Work {
            tables: &self.tables,
            txn: &mut txn,
            now_ms,
            next_body: self.next_body,
            space: self.space,
            at_limit: AtLimit::default(),
            replay_bytes: 0,
            dirty: false,
            pruned: false,
        };
        let done = apply(&mut work)?;
        let Work {
            next_body, dirty, ..
        } = work;
        if !dirty {
            return Ok(done);
        }
        let meta = &self.tables.meta;
        let saved = self.clock.saved(now_ms).encode();
        meta.put(&mut txn, CLOCK.as_bytes(), &saved)?;
        if next_body != self.next_body {
            let row = encode_number(NEXT_BODY, next_body);
            meta.put(&mut txn, NEXT_BODY.as_bytes(), &row)?;
        }
        txn.commit()?;
        self.next_body = next_body;
        Ok(done)
    }

    /// Makes the map larger. False: somebody reads the file right now, or it is as large as it may become.
    fn grow(&self) -> Result<bool, heed::Error> {
        let Ok(_reading) = self.reads.begin() else {
            return Ok(false);
        };
        let came = self.env.info().map_size;
        let step = (self.map_bytes_max / MAP_STEPS).max(MAP_STEP_BYTES_MIN);
        let grown = came.saturating_add(step).min(self.map_bytes_max);
        if grown <= came {
            return Ok(false);
        }
        #[expect(unsafe_code, reason = "LMDB maps the file anew")]
        // SAFETY: this process has no transaction open: the writer's was aborted, and its thread is this one; another
        // reader would hold what `begin` has just taken, and cannot begin before it is dropped.
        unsafe { self.env.resize(grown) }?;
        Ok(true)
    }
}

/// One transaction at work.
pub(crate) struct Work<'t, 'e> {
    pub(crate) tables: &'t Tables,
    pub(crate) txn: &'t mut RwTxn<'e>,
    pub(crate) now_ms: u64,
    pub(crate) next_body: u64,
    pub(crate) space: Space,
    /// New rows that were refused.
    pub(crate) at_limit: AtLimit,
    /// Bytes of kept responses that were read.
    pub(crate) replay_bytes: u64,
    /// Something was written.
    pub(crate) dirty: bool,
    /// Nothing expired is left in the index.
    pub(crate) pruned: bool,
}

impl Work<'_, '_> {
    /// A row whose window has ended reads as none; the write that follows replaces it.
    fn load(
        &mut self,
        bucket: &Bucket,
        open: Option<&CounterRow>,
    ) -> Result<CounterAnswer, heed::Error> {
        let row = self.tables.counters.get(self.txn, bucket)?;
        let row = match row.map(|row| CounterRow::decode(bucket, row)).transpose() {
            Ok(row) => row,
            Err(corrupt) => {
                // When its window is over, it goes as any other.
                self.prune()?;
                if self.tables.counters.get(self.txn, bucket)?.is_some() {
                    return Ok(CounterAnswer::Corrupt(corrupt));
                }
                None
            }
        };
        let current = row.filter(|row| row.window().is_open(self.now_ms));
        Ok(CounterAnswer::Loaded(match (current, open) {
            (Some(row), _) => Loaded::Row(row),
            (None, Some(open)) => {
                if row.is_none() && !self.has_room_for_counter()? {
                    return Ok(CounterAnswer::NoRoom);
                }
                // The window before may have ended while this waited: the new one begins at its end, and not before.
                let ended_ms = row.map_or(0, |row| row.expires_ms());
                let open = CounterRow {
                    start_ms: open.start_ms.max(ended_ms),
                    ..*open
                };
                self.write_counter(bucket, &open)?;
                self.prune()?;
                Loaded::Opened(open)
            }
            (None, None) => Loaded::Nothing,
        }))
    }

    /// Writes a row over the one that is there; a new one only when there is room.
    fn raise(&mut self, bucket: &Bucket, row: &CounterRow) -> Result<CounterAnswer, heed::Error> {
        let is_new = self.tables.counters.get(self.txn, bucket)?.is_none();
        if is_new && !self.has_room_for_counter()? {
            return Ok(CounterAnswer::NoRoom);
        }
        self.write_counter(bucket, row)?;
        self.prune()?;
        Ok(CounterAnswer::Written)
    }

    fn write_counter(&mut self, bucket: &Bucket, row: &CounterRow) -> Result<(), heed::Error> {
        self.dirty = true;
        let before = self.tables.counters.get(self.txn, bucket)?;
        let before = before.map(|row| CounterRow::decode(bucket, row));
        let entry = |row: &CounterRow| Expiring {
            expires_ms: row.expires_ms(),
            table: Table::Counters,
            key: *bucket,
        };
        // The entry of a row that became unreadable is not known any more; pruning drops it when its time comes.
        let before = before.and_then(Result::ok).as_ref().map(entry);
        self.tables
            .counters
            .put(self.txn, bucket, &row.encode(bucket))?;
        self.reindex(before, entry(row))
    }

    /// Moves a row's entry in the expiry index.
    pub(crate) fn reindex(
        &mut self,
        before: Option<Expiring>,
        after: Expiring,
    ) -> Result<(), heed::Error> {
        if before == Some(after) {
            return Ok(());
        }
        if let Some(before) = before {
            self.tables.expiry.delete(self.txn, &before.encode())?;
        }
        self.tables.expiry.put(self.txn, &after.encode(), &[])
    }
}

/// Whether there was no room. A full disk may also show as EIO, so the file system is asked.
fn is_full(error: &heed::Error, data: &Path) -> bool {
    /// Below this many free bytes the file system counts as full.
    const FREE_BYTES_MIN: u64 = 1 << 20;
    match error {
        heed::Error::Mdb(heed::MdbError::MapFull) => true,
        heed::Error::Io(error) if is(error, rustix::io::Errno::NOSPC) => true,
        heed::Error::Io(error) if is(error, rustix::io::Errno::DQUOT) => true,
        heed::Error::Io(error) if is(error, rustix::io::Errno::IO) => rustix::fs::statvfs(data)
            .is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) < FREE_BYTES_MIN),
        heed::Error::Io(_)
        | heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened => false,
    }
}

fn is(error: &io::Error, errno: rustix::io::Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
