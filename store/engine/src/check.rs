//! Is every row of the file what it should be?
//!
//! Each row's checksum and fields, each row's entry in the expiry index, each entry's row, each record's response,
//! each chunk's record. Nothing is changed.

use std::{ops::ControlFlow, time::Duration};

use heed::RoTxn;

use crate::{
    batch::{Hash, chunks},
    bodies,
    clock::Saved,
    layout::{
        CLOCK, Corrupt, CounterRow, Expiring, FORMAT, FORMAT_ROW, NEXT_BODY, RecordRow, Table,
        decode_number,
    },
    reader::{Deadline, ReadError, Reader},
    usage::Usage,
};

/// Findings that are told one by one; beyond, they are only counted.
const FINDINGS_TOLD_MAX: u64 = 1_000;
/// So many rows lie between two looks at the clock.
const ROWS_A_STEP: u64 = 256;

/// What a check has to say while it is at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckEvent {
    /// How far it is.
    Progress {
        /// Rows looked at.
        done: u64,
        /// Rows in all.
        rows: u64,
    },
    /// Something is wrong.
    Finding(Finding),
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The table.
    pub table: &'static str,
    /// The row's key: hexadecimal digits, or its name in `meta`.
    pub row: String,
    /// What is wrong with it.
    pub found: String,
}

/// What a whole check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Rows looked at.
    pub rows: u64,
    /// How many things are wrong; the first 1,000 were told.
    pub findings: u64,
}

impl Reader {
    /// Looks at every row, as of one moment. `told` takes what it finds; it may break off.
    ///
    /// # Errors
    /// [`ReadError`]; then not every row was looked at.
    pub fn check(
        &self,
        limit: Option<Duration>,
        told: impl FnMut(CheckEvent) -> ControlFlow<()>,
    ) -> Result<Checked, ReadError> {
        let _reading = self.begin()?;
        let txn = self
            .env
            .read_txn()
            .map_err(self.lmdb("begin a transaction"))?;
        let usage =
            Usage::read(&self.tables, &txn).map_err(self.lmdb("count the rows of its tables"))?;
        let mut check = Check {
            reader: self,
            txn: &txn,
            deadline: Deadline::new(limit),
            rows: usage.rows(),
            done: 0,
            findings: 0,
            next_body: u64::MAX,
            responses: Vec::new(),
            told,
        };
        check.meta()?;
        check.counters()?;
        check.records()?;
        check.bodies()?;
        check.expiry()?;
        check.progress()?;
        Ok(Checked {
            rows: check.done,
            findings: check.findings,
        })
    }
}

/// A check at work.
struct Check<'a, F> {
    reader: &'a Reader,
    txn: &'a RoTxn<'a, heed::WithoutTls>,
    deadline: Deadline,
    rows: u64,
    done: u64,
    findings: u64,
    next_body: u64,
    /// The id and the chunks of each response that a record refers to: 16 bytes a record.
    responses: Vec<(u64, u32)>,
    told: F,
}

impl<F: FnMut(CheckEvent) -> ControlFlow<()>> Check<'_, F> {
    fn meta(&mut self) -> Result<(), ReadError> {
        let rows = self.reader.tables.meta;
        let lmdb = self.reader.lmdb("read `meta`");
        let row = |name: &'static str| rows.get(self.txn, name.as_bytes()).map_err(&lmdb);
        let clock = row(CLOCK)?.map(|row| Saved::decode(row).map(drop));
        let format = row(FORMAT_ROW)?.map(|row| decode_number(FORMAT_ROW, row));
        let next_body = row(NEXT_BODY)?.map(|row| decode_number(NEXT_BODY, row));
        if let Some(Ok(next_body)) = next_body {
            self.next_body = next_body;
        }
        if let Some(Ok(format)) = format
            && format != u64::from(FORMAT)
        {
            let found = format!("expected format {FORMAT}, found {format}");
            self.wrong("meta", FORMAT_ROW.to_owned(), found)?;
        }
        for (name, row) in [
            (CLOCK, clock),
            (FORMAT_ROW, format.map(|row| row.map(drop))),
            (NEXT_BODY, next_body.map(|row| row.map(drop))),
        ] {
            if let Err(corrupt) = row.unwrap_or(Err(Corrupt::Missing)) {
                self.wrong("meta", name.to_owned(), corrupt.to_string())?;
            }
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<(), ReadError> {
        const TABLE: &str = "counters";
        let lmdb = self.reader.lmdb("read `counters`");
        for row in self.reader.tables.counters.iter(self.txn).map_err(&lmdb)? {
            let (key, row) = row.map_err(&lmdb)?;
            self.step()?;
            let Some(bucket) = self.key(TABLE, key)? else {
                continue;
            };
            match CounterRow::decode(&bucket, row) {
                Ok(row) => self.is_indexed(TABLE, Table::Counters, bucket, row.expires_ms())?,
                Err(corrupt) => self.wrong(TABLE, hex(key), corrupt.to_string())?,
            }
        }
        Ok(())
    }

    fn records(&mut self) -> Result<(), ReadError> {
        const TABLE: &str = "records";
        let lmdb = self.reader.lmdb("read `records`");
        for row in self.reader.tables.records.iter(self.txn).map_err(&lmdb)? {
            let (key, row) = row.map_err(&lmdb)?;
            self.step()?;
            let Some(record_key) = self.key(TABLE, key)? else {
                continue;
            };
            let row = match RecordRow::decode(&record_key, row) {
                Ok(row) => row,
                Err(corrupt) => {
                    self.wrong(TABLE, hex(key), corrupt.to_string())?;
                    continue;
                }
            };
            self.is_indexed(TABLE, Table::Records, record_key, row.record.expires_ms())?;
            let Some(body) = row.body else {
                continue;
            };
            self.responses.push((body.id, chunks(body)));
            if body.id >= self.next_body {
                let next = self.next_body;
                let found = format!("expected a response below {next}, found {}", body.id);
                self.wrong(TABLE, hex(key), found)?;
            }
            let response = bodies::read_response(&self.reader.tables, self.txn, &row);
            if let Err(found) = response.map_err(&lmdb)? {
                self.wrong(TABLE, hex(key), found)?;
            }
        }
        Ok(())
    }

    fn bodies(&mut self) -> Result<(), ReadError> {
        const TABLE: &str = "bodies";
        self.responses.sort_unstable();
        let lmdb = self.reader.lmdb("read `bodies`");
        let rows = self.reader.tables.bodies;
        // Their checksums were looked at with their records.
        for row in rows.iter(self.txn).map_err(&lmdb)? {
            let (key, _) = row.map_err(&lmdb)?;
            self.step()?;
            let named = key.split_first_chunk::<8>().and_then(|(id, chunk)| {
                let chunk: &[u8; 4] = chunk.try_into().ok()?;
                Some((u64::from_be_bytes(*id), u32::from_be_bytes(*chunk)))
            });
            let Some((id, chunk)) = named else {
                let found = format!("expected a key of 12 bytes, found {}", key.len());
                self.wrong(TABLE, hex(key), found)?;
                continue;
            };
            let at = self.responses.partition_point(|(other, _)| *other < id);
            let response = self.responses.get(at).filter(|(other, _)| *other == id);
            if response.is_none_or(|(_, chunks)| chunk >= *chunks) {
                self.wrong(TABLE, hex(key), "no record refers to it".to_owned())?;
            }
        }
        Ok(())
    }

    fn expiry(&mut self) -> Result<(), ReadError> {
        const TABLE: &str = "expiry";
        let lmdb = self.reader.lmdb("read `expiry`");
        let tables = &self.reader.tables;
        for row in tables.expiry.iter(self.txn).map_err(&lmdb)? {
            let (entry, _) = row.map_err(&lmdb)?;
            self.step()?;
            let Some(expiring) = Expiring::decode(entry) else {
                let found = "an entry that no release has written".to_owned();
                self.wrong(TABLE, hex(entry), found)?;
                continue;
            };
            let key = &expiring.key;
            // A row that cannot be read is a finding of its own.
            let (table, expires_ms) = match expiring.table {
                Table::Counters => {
                    let row = tables.counters.get(self.txn, key).map_err(&lmdb)?;
                    let row = row.map(|row| CounterRow::decode(key, row));
                    ("counters", row.map(|row| row.map(|row| row.expires_ms())))
                }
                Table::Records => {
                    let row = tables.records.get(self.txn, key).map_err(&lmdb)?;
                    let row = row.map(|row| RecordRow::decode(key, row));
                    (
                        "records",
                        row.map(|row| row.map(|row| row.record.expires_ms())),
                    )
                }
            };
            let found = match expires_ms {
                None => format!("`{table}` has no row {}", hex(key)),
                Some(Ok(expires_ms)) if expires_ms != expiring.expires_ms => format!(
                    "expected the expiry of row {} in `{table}`, {expires_ms}, found {}",
                    hex(key),
                    expiring.expires_ms
                ),
                Some(Ok(_) | Err(_)) => continue,
            };
            self.wrong(TABLE, hex(entry), found)?;
        }
        Ok(())
    }

    /// A table's key of 32 bytes.
    fn key(&mut self, table: &'static str, key: &[u8]) -> Result<Option<Hash>, ReadError> {
        if let Ok(hash) = key.try_into() {
            return Ok(Some(hash));
        }
        let found = format!("expected a key of 32 bytes, found {}", key.len());
        self.wrong(table, hex(key), found)?;
        Ok(None)
    }

    fn is_indexed(
        &mut self,
        name: &'static str,
        table: Table,
        key: Hash,
        expires_ms: u64,
    ) -> Result<(), ReadError> {
        let entry = Expiring {
            expires_ms,
            table,
            key,
        };
        let entry = entry.encode();
        let found = self.reader.tables.expiry.get(self.txn, &entry);
        if found.map_err(self.reader.lmdb("read `expiry`"))?.is_none() {
            let found =
                format!("it has no entry in `expiry` at {expires_ms}, so it is never pruned");
            self.wrong(name, hex(&key), found)?;
        }
        Ok(())
    }

    fn wrong(&mut self, table: &'static str, row: String, found: String) -> Result<(), ReadError> {
        self.findings += 1;
        if self.findings > FINDINGS_TOLD_MAX {
            return Ok(());
        }
        self.tell(CheckEvent::Finding(Finding { table, row, found }))
    }

    fn step(&mut self) -> Result<(), ReadError> {
        self.done += 1;
        if self.done.is_multiple_of(ROWS_A_STEP) {
            self.deadline.check()?;
            self.progress()?;
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<(), ReadError> {
        let (done, rows) = (self.done, self.rows);
        self.tell(CheckEvent::Progress { done, rows })
    }

    fn tell(&mut self, event: CheckEvent) -> Result<(), ReadError> {
        match (self.told)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ReadError::Gone),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let bytes = bytes.iter();
    bytes
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}
