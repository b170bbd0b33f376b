//! The service's own table: one row for each time that a handler ran.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rusqlite::{Connection, params};

use super::handler::{Request, Table};

/// The table.
pub(super) struct Rows(Mutex<Connection>);

impl Rows {
    /// Opens the file, and makes it when it is missing.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let connection =
            Connection::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = NORMAL;
                 CREATE TABLE IF NOT EXISTS orders (
                     id INTEGER PRIMARY KEY, method TEXT NOT NULL, path TEXT NOT NULL, body BLOB NOT NULL
                 ) STRICT;",
            )
            .with_context(|| format!("cannot prepare {}", path.display()))?;
        Ok(Self(Mutex::new(connection)))
    }

    /// Commits one row and tells its id.
    pub(super) fn insert(&self, method: &str, path: &str, body: &[u8]) -> rusqlite::Result<i64> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .prepare_cached("INSERT INTO orders (method, path, body) VALUES (?1, ?2, ?3)")?
            .execute(params![method, path, body])?;
        Ok(connection.last_insert_rowid())
    }

    /// How many rows there are; with a path, how many came by it.
    pub(super) fn count(&self, path: Option<&str>) -> rusqlite::Result<i64> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .prepare_cached("SELECT count(*) FROM orders WHERE ?1 IS NULL OR path = ?1")?
            .query_row(params![path], |row| row.get(0))
    }
}

impl Table for &Rows {
    fn insert(&mut self, request: Request<'_>) -> Result<i64, String> {
        Rows::insert(self, request.method, request.path, request.body)
            .map_err(|error| error.to_string())
    }

    fn count(&self, path: Option<&str>) -> Result<i64, String> {
        Rows::count(self, path).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_outlive_the_process_and_are_counted_by_path() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("orders.sqlite");
        let rows = Rows::open(&file).expect("opens");
        assert_eq!(rows.insert("POST", "/orders", b"\xff").expect("inserts"), 1);
        assert_eq!(rows.insert("PUT", "/orders/7", b"").expect("inserts"), 2);
        drop(rows);
        let rows = Rows::open(&file).expect("opens again");
        assert_eq!(rows.count(None).expect("counts"), 2);
        assert_eq!(rows.count(Some("/orders/7")).expect("counts"), 1);
    }
}
