//! Can every page in use be read, before the store depends on it?
//!
//! LMDB trusts its pages: a damaged one ends the process that follows it by a signal. So a process of its own reads
//! all of them first, and its end is told as an error. The caller says how such a process is started; it calls
//! [`walk`].

use std::{
    hint::black_box,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
};

use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, types::Bytes as Raw};
use rustix::process::Signal;

use crate::{error::OpenError, open::TABLES};

/// No page of LMDB is smaller.
const PAGE_BYTES_MIN: usize = 512;
const TABLES_MAX: u32 = 8;

/// Reads every row of every table of a data directory that no store writes meanwhile, and by it every page that is
/// in use but those that list free ones.
///
/// # Errors
/// What is wrong, in words. A damaged page may also end this process by a signal.
pub fn walk(dir: &Path) -> Result<(), String> {
    let cannot = |what: &str, error: heed::Error| format!("LMDB cannot {what}: {error}");
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_dbs(TABLES_MAX);
    #[expect(unsafe_code, reason = "LMDB maps the file")]
    // SAFETY: whoever started this process has the directory locked and does not write to it meanwhile, so neither
    // locks nor a copy of what is read are needed. Nobody truncates the file.
    let env = unsafe {
        options
            .flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK)
            .open(dir)
    }
    .map_err(|error| cannot("open it", error))?;
    let begin = || {
        let txn = env.read_txn();
        txn.map_err(|error| cannot("begin a transaction", error))
    };
    let opened = env.open_databases_and_commit(begin()?, |opener, txn| {
        let mut tables = [None; TABLES.len()];
        for (table, name) in tables.iter_mut().zip(TABLES) {
            *table = opener.open_database::<Raw, Raw>(txn, Some(name))?;
        }
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
    });
    let tables = match opened.map_err(|error| cannot("open its tables", error))? {
        CommitOrAbort::Commit(tables) => tables,
        CommitOrAbort::Abort(()) => return Ok(()),
    };
    let txn = begin()?;
    for (name, table) in TABLES.into_iter().zip(tables) {
        let read = |error| cannot(&format!("read `{name}`"), error);
        // A file whose first start was cut short has none.
        let Some(table) = table else {
            continue;
        };
        let expected = table.len(&txn).map_err(read)?;
        let mut found = 0;
        for row in table.iter(&txn).map_err(read)? {
            let (key, value) = row.map_err(read)?;
            touch(key);
            touch(value);
            found += 1;
            if found > expected {
                break;
            }
        }
        if found != expected {
            return Err(format!(
                "`{name}`: expected {expected} rows, found {found} or more"
            ));
        }
    }
    Ok(())
}

fn touch(bytes: &[u8]) {
    let ends = bytes.last().into_iter();
    for byte in bytes.iter().step_by(PAGE_BYTES_MIN).chain(ends) {
        black_box(*byte);
    }
}

/// Lets a process of its own walk.
pub(crate) fn walk_apart(data: &Path, mut walker: Command) -> Result<(), OpenError> {
    let ended = walker.stdin(Stdio::null()).output();
    let ended = ended.map_err(|source| OpenError::Io {
        what: "start the process that reads it first",
        path: data.to_owned(),
        source,
    })?;
    if ended.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&ended.stdout);
    let found = match ended.status.signal() {
        Some(signal) => format!("reading it ended a process by {}", name(signal)),
        None => told
            .lines()
            .next()
            .unwrap_or("it cannot be read")
            .to_owned(),
    };
    Err(OpenError::Damaged {
        path: data.to_owned(),
        found,
    })
}

fn name(signal: i32) -> String {
    match signal {
        signal if signal == Signal::BUS.as_raw() => "SIGBUS".to_owned(),
        signal if signal == Signal::SEGV.as_raw() => "SIGSEGV".to_owned(),
        signal if signal == Signal::ABORT.as_raw() => "SIGABRT".to_owned(),
        signal => format!("signal {signal}"),
    }
}
