//! How much is in the file, table by table?

use heed::RoTxn;

use crate::store::{Rows, Tables};

/// One table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableUsage {
    /// Its rows.
    pub rows: u64,
    /// The pages that it takes, in bytes.
    pub bytes: u64,
}

/// The tables of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Ceilings of buckets.
    pub counters: TableUsage,
    /// Records of keys.
    pub records: TableUsage,
    /// Chunks of kept responses.
    pub bodies: TableUsage,
    /// Entries of the index by expiry.
    pub expiry: TableUsage,
}

impl Usage {
    pub(crate) fn read(tables: &Tables, txn: &RoTxn<'_>) -> Result<Self, heed::Error> {
        Ok(Self {
            counters: table(tables.counters, txn)?,
            records: table(tables.records, txn)?,
            bodies: table(tables.bodies, txn)?,
            expiry: table(tables.expiry, txn)?,
        })
    }

    /// The tables with their names.
    pub const fn tables(&self) -> [(&'static str, TableUsage); 4] {
        [
            ("counters", self.counters),
            ("records", self.records),
            ("bodies", self.bodies),
            ("expiry", self.expiry),
        ]
    }

    /// Pages in use by rows, in bytes; the file is larger by what is free in it.
    pub fn bytes(&self) -> u64 {
        self.tables().iter().map(|(_, table)| table.bytes).sum()
    }

    /// What buckets take, with their share of the index.
    pub fn counter_bytes(&self) -> u64 {
        self.counters.bytes + self.indexed(self.counters.rows)
    }

    /// What keys take, with their responses and their share of the index.
    pub fn record_bytes(&self) -> u64 {
        self.records.bytes + self.bodies.bytes + self.indexed(self.records.rows)
    }

    /// The share of so many rows in the index, where each has one entry of the same length.
    fn indexed(&self, rows: u64) -> u64 {
        let all = u128::from((self.counters.rows + self.records.rows).max(1));
        let share = u128::from(self.expiry.bytes) * u128::from(rows) / all;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.tables().iter().map(|(_, table)| table.rows).sum()
    }
}

fn table(rows: Rows, txn: &RoTxn<'_>) -> Result<TableUsage, heed::Error> {
    let stat = rows.stat(txn)?;
    let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
    Ok(TableUsage {
        rows: u64::try_from(stat.entries).unwrap_or(u64::MAX),
        bytes: u64::try_from(pages).unwrap_or(u64::MAX) * u64::from(stat.page_size),
    })
}
