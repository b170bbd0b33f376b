//! How do expired rows leave the file?
//!
//! On access, without a sweeper: a write replaces the expired row that it meets, and takes up to four others along,
//! the longest expired first. So the file stays flat also when every key is new.

use porch_core::record::State;

use crate::{
    batch::{Hash, chunks},
    layout::{CounterRow, Expiring, RecordRow, Table, body_key},
    store::Work,
};

/// Other rows that a write takes along.
const OTHERS_MAX: usize = 4;

impl Work<'_, '_> {
    /// Removes up to four expired rows.
    pub(crate) fn prune(&mut self) -> Result<(), heed::Error> {
        for _ in 0..OTHERS_MAX {
            if self.pruned || !self.prune_one()? {
                // What this transaction adds to the index expires later than now.
                self.pruned = true;
                break;
            }
        }
        Ok(())
    }

    fn prune_one(&mut self) -> Result<bool, heed::Error> {
        let Some((entry, _)) = self.tables.expiry.first(self.txn)? else {
            return Ok(false);
        };
        let Some(expiring) = Expiring::decode(entry) else {
            let entry = entry.to_vec();
            self.dirty = true;
            return self.tables.expiry.delete(self.txn, &entry);
        };
        if expiring.expires_ms > self.now_ms {
            return Ok(false);
        }
        self.dirty = true;
        match expiring.table {
            Table::Counters => self.prune_counter(&expiring)?,
            Table::Records => self.prune_record(&expiring)?,
        }
        // A row that no longer expires then keeps its place; its old entry goes in any case.
        self.tables.expiry.delete(self.txn, &expiring.encode())?;
        Ok(true)
    }

    fn prune_counter(&mut self, expiring: &Expiring) -> Result<(), heed::Error> {
        let key = &expiring.key;
        let row = self.tables.counters.get(self.txn, key)?;
        let is_over = match row.map(|row| CounterRow::decode(key, row)) {
            Some(Ok(row)) => row.expires_ms() == expiring.expires_ms,
            // Its entry moves with it, so it says when the window ends; then it does not matter what was counted.
            Some(Err(_)) => true,
            None => false,
        };
        if is_over {
            self.tables.counters.delete(self.txn, key)?;
        }
        Ok(())
    }

    /// An unreadable record keeps its place until an operator forgets the key: nobody knows what it stood for, so the
    /// key must not execute again.
    fn prune_record(&mut self, expiring: &Expiring) -> Result<(), heed::Error> {
        let key = &expiring.key;
        let row = self.tables.records.get(self.txn, key)?;
        let row = row.and_then(|row| RecordRow::decode(key, row).ok());
        if let Some(row) = row
            && row.record.expires_ms() == expiring.expires_ms
        {
            self.expire_record(key, &row)?;
        }
        Ok(())
    }

    /// Brings a record to what it is by now, and answers that: a response past its ttl goes and leaves a TOMBSTONE;
    /// what is no longer remembered is removed.
    pub(crate) fn expire_record(
        &mut self,
        key: &Hash,
        row: &RecordRow,
    ) -> Result<Option<RecordRow>, heed::Error> {
        if self.now_ms < row.record.expires_ms() {
            return Ok(Some(*row));
        }
        match row.record.at(self.now_ms) {
            None => {
                self.remove_record(key, row)?;
                Ok(None)
            }
            Some(record) => {
                debug_assert!(
                    matches!(record.state, State::Tombstone { .. }),
                    "only a response expires before its record does"
                );
                let tombstone = RecordRow { record, body: None };
                self.write_record(key, Some(row), &tombstone)?;
                Ok(Some(tombstone))
            }
        }
    }

    /// Writes a record over what was there; a response that is no longer referred to goes.
    pub(crate) fn write_record(
        &mut self,
        key: &Hash,
        before: Option<&RecordRow>,
        after: &RecordRow,
    ) -> Result<(), heed::Error> {
        self.dirty = true;
        if let Some(before) = before
            && before.body != after.body
        {
            self.remove_body(before)?;
        }
        self.tables.records.put(self.txn, key, &after.encode(key))?;
        let entry = |row: &RecordRow| entry(key, row);
        self.reindex(before.map(entry), entry(after))
    }

    /// Removes a record, its index entry and its response.
    pub(crate) fn remove_record(&mut self, key: &Hash, row: &RecordRow) -> Result<(), heed::Error> {
        self.dirty = true;
        self.remove_body(row)?;
        self.tables.records.delete(self.txn, key)?;
        self.tables
            .expiry
            .delete(self.txn, &entry(key, row).encode())?;
        Ok(())
    }

    fn remove_body(&mut self, row: &RecordRow) -> Result<(), heed::Error> {
        if let Some(body) = row.body {
            for chunk in 0..chunks(body) {
                self.tables
                    .bodies
                    .delete(self.txn, &body_key(body.id, chunk))?;
            }
        }
        Ok(())
    }
}

fn entry(key: &Hash, row: &RecordRow) -> Expiring {
    Expiring {
        expires_ms: row.record.expires_ms(),
        table: Table::Records,
        key: *key,
    }
}
