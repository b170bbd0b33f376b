//! How is a data directory opened?
//!
//! | file | what it is |
//! |---|---|
//! | `porch.lock` | locked while a store has the directory open |
//! | `data.mdb` | all rows |
//! | `lock.mdb` | LMDB's own table of readers |
//! | `data.mdb.unfinished` | what a first start that was cut short left; nothing was answered from it |
//! | `porch.marker` | says that `data.mdb` was here, since LMDB would open an empty one in its place without a word |

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use heed::{CommitOrAbort, Env, EnvOpenOptions, RwTxn, WithoutTls};

use crate::{
    clock::{Clock, Machine, Saved, Start},
    error::OpenError,
    layout::{CLOCK, Corrupt, FORMAT, FORMAT_ROW, NEXT_BODY, decode_number, encode_number},
    preflight,
    space::Space,
    store::{Rows, Store, Tables},
    walk::walk_apart,
};

const DATA: &str = "data.mdb";
const LOCK: &str = "porch.lock";
/// The file's databases.
pub(crate) const TABLES: [&str; 5] = ["meta", "counters", "records", "bodies", "expiry"];
const MARKER: &str = "porch.marker";
const LMDB_LOCK: &str = "lock.mdb";
const UNFINISHED: &str = "data.mdb.unfinished";
/// A data file of a first start that was cut short has at most so many bytes: LMDB's two meta pages and the tables.
const UNFINISHED_BYTES_MAX: u64 = 64 * 1024;
const MARKER_TEXT: &str = "data.mdb of this directory holds counters and records. Remove the whole directory or nothing.\n";

/// How a data directory is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// New buckets are refused when counters take so many bytes. Default 1 GiB, about 8 million buckets.
    pub counter_bytes_max: u64,
    /// New keys are refused when records and their responses take so many bytes. Default 4 GiB.
    pub record_bytes_max: u64,
    /// Starts a process that calls [`walk`](crate::walk) with the data directory, prints what is wrong to its stdout,
    /// and then ends with another exit code than 0. Default none: a damaged page may end this process, now or later.
    pub walker: Option<fn(&Path) -> Command>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            counter_bytes_max: 1 << 30,
            record_bytes_max: 4 << 30,
            walker: None,
        }
    }
}

impl Options {
    /// The most bytes that the file is meant to take: half again as many as both limits together. Only what is used
    /// takes space.
    pub fn map_bytes(&self) -> u64 {
        self.space().map_bytes()
    }

    const fn space(&self) -> Space {
        Space {
            counter_bytes_max: self.counter_bytes_max,
            record_bytes_max: self.record_bytes_max,
        }
    }
}

impl Store {
    /// Opens the data directory, and makes it when it is missing. It stays locked as long as the store lives.
    ///
    /// # Errors
    /// [`OpenError`] when the directory is in use, damaged, of another format, or cannot be written.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Start), OpenError> {
        Self::open_at(dir, options, Machine::read())
    }

    /// [`Store::open`] with the machine's clocks given: for tests.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_at(
        dir: &Path,
        options: Options,
        machine: Machine,
    ) -> Result<(Self, Start), OpenError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(io("make the directory", dir))?;
        let lock = lock(&dir.join(LOCK))?;
        let data = dir.join(DATA);
        let marker = dir.join(MARKER);
        let mut is_there = check_present(&data, &marker)?;
        let whole = if is_there {
            check_whole(dir, &data, options)
        } else {
            Ok(())
        };
        if let Err(damage) = whole {
            if !is_unfinished(&data, &marker) {
                return Err(damage);
            }
            set_aside(dir, &data)?;
            is_there = false;
        }

        if !is_there {
            // What LMDB keeps of its readers belongs to a data file that is not there.
            drop(fs::remove_file(dir.join(LMDB_LOCK)));
        }
        let env = open_env(dir, &data, options)?;
        let lmdb = |what| {
            let path = data.clone();
            move |source| OpenError::Lmdb { what, path, source }
        };
        env.clear_stale_readers()
            .map_err(lmdb("clear stale readers"))?;
        let txn = env.write_txn().map_err(lmdb("begin a transaction"))?;
        let tables = tables(&env, txn).map_err(lmdb("open its tables"))?;

        let mut txn = env.write_txn().map_err(lmdb("begin a transaction"))?;
        let head = Head::read(&tables, &txn, &data)?;
        let (clock, start) = Clock::start(head.clock, machine);
        head.write(&tables, &mut txn, &clock)
            .and_then(|()| txn.commit())
            .map_err(lmdb("write its meta rows"))?;

        leave_marker(dir, &marker)?;
        let store = Self::new(
            env,
            tables,
            clock,
            head.next_body,
            options.space(),
            data,
            lock,
        );
        Ok((store, start))
    }
}

/// The rows of `meta`.
struct Head {
    clock: Option<Saved>,
    next_body: u64,
}

impl Head {
    fn read(tables: &Tables, txn: &RwTxn<'_>, path: &Path) -> Result<Self, OpenError> {
        let row = |row: &'static str| {
            tables
                .meta
                .get(txn, row.as_bytes())
                .map_err(|source| OpenError::Lmdb {
                    what: "read its meta rows",
                    path: path.to_owned(),
                    source,
                })
        };
        let bad = |row: &'static str| {
            move |found: Corrupt| OpenError::Meta {
                path: path.to_owned(),
                row,
                found: format!("unreadable: {found}"),
            }
        };
        let Some(format) = row(FORMAT_ROW)? else {
            let rows = tables.count(txn).map_err(|source| OpenError::Lmdb {
                what: "count its rows",
                path: path.to_owned(),
                source,
            })?;
            if rows > 0 {
                return Err(OpenError::Meta {
                    path: path.to_owned(),
                    row: FORMAT_ROW,
                    found: "missing".to_owned(),
                });
            }
            return Ok(Self {
                clock: None,
                next_body: 1,
            });
        };
        let format = decode_number(FORMAT_ROW, format).map_err(bad(FORMAT_ROW))?;
        if format != u64::from(FORMAT) {
            return Err(OpenError::Format {
                path: path.to_owned(),
                expected: FORMAT,
                found: u32::try_from(format).unwrap_or(u32::MAX),
            });
        }
        let missing = |name: &'static str| bad(name)(Corrupt::Missing);
        let clock = row(CLOCK)?.ok_or_else(|| missing(CLOCK))?;
        let next_body = row(NEXT_BODY)?.ok_or_else(|| missing(NEXT_BODY))?;
        Ok(Self {
            clock: Some(Saved::decode(clock).map_err(bad(CLOCK))?),
            next_body: decode_number(NEXT_BODY, next_body).map_err(bad(NEXT_BODY))?,
        })
    }

    fn write(
        &self,
        tables: &Tables,
        txn: &mut RwTxn<'_>,
        clock: &Clock,
    ) -> Result<(), heed::Error> {
        let format = encode_number(FORMAT_ROW, u64::from(FORMAT));
        let next_body = encode_number(NEXT_BODY, self.next_body);
        let saved = clock.saved(clock.started_ms()).encode();
        tables.meta.put(txn, FORMAT_ROW.as_bytes(), &format)?;
        tables.meta.put(txn, NEXT_BODY.as_bytes(), &next_body)?;
        tables.meta.put(txn, CLOCK.as_bytes(), &saved)
    }
}

fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(io("make the lock file", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(io("lock", path)(source)),
    }
}

/// Looks whether the data file can be depended on: its header first, then, in a process of its own, every page.
fn check_whole(dir: &Path, data: &Path, options: Options) -> Result<(), OpenError> {
    preflight::check(data)?;
    options
        .walker
        .map_or(Ok(()), |walker| walk_apart(data, walker(dir)))
}

/// Whether a data file that is not whole is one of a first start that was cut short: the marker is the last thing that
/// such a start writes, and nothing was answered before.
fn is_unfinished(data: &Path, marker: &Path) -> bool {
    let is_small = fs::metadata(data).is_ok_and(|metadata| metadata.len() <= UNFINISHED_BYTES_MAX);
    let was_never_done =
        fs::metadata(marker).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    is_small && was_never_done
}

/// Lets a first start begin anew; what the one before left is kept beside it.
fn set_aside(dir: &Path, data: &Path) -> Result<(), OpenError> {
    fs::rename(data, dir.join(UNFINISHED)).map_err(io("set it aside", data))
}

/// Refuses a directory whose data is gone. True: there is a data file.
fn check_present(data: &Path, marker: &Path) -> Result<bool, OpenError> {
    let found = match fs::metadata(data) {
        Ok(metadata) if metadata.len() > 0 => return Ok(true),
        Ok(_) => "0 bytes",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
        Err(error) => return Err(io("look at it", data)(error)),
    };
    match fs::metadata(marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io("look at it", marker)(error)),
        Ok(_) => Err(OpenError::DataGone {
            path: data.to_owned(),
            marker: marker.to_owned(),
            found,
        }),
    }
}

fn open_env(dir: &Path, data: &Path, options: Options) -> Result<Env<WithoutTls>, OpenError> {
    let mut env = EnvOpenOptions::new().read_txn_without_tls();
    let map_bytes = usize::try_from(options.map_bytes()).unwrap_or(usize::MAX);
    env.map_size(map_bytes).max_dbs(8).max_readers(8);
    #[expect(unsafe_code, reason = "LMDB maps the file")]
    // SAFETY: the file is on a local disk, no other process of ours maps it (it is locked), and nobody truncates it
    // while it is mapped; its size was checked against its header.
    let opened = unsafe { env.open(dir) };
    opened.map_err(|source| OpenError::Lmdb {
        what: "open it",
        path: data.to_owned(),
        source,
    })
}

fn tables(env: &Env<WithoutTls>, txn: RwTxn<'_>) -> Result<Tables, heed::Error> {
    let committed = env.create_databases_and_commit(txn, |opener, txn| {
        let mut open = |name| opener.create_database(txn, Some(name));
        let [meta, counters, records, bodies, expiry] = TABLES;
        let tables = [
            open(meta)?,
            open(counters)?,
            open(records)?,
            open(bodies)?,
            open(expiry)?,
        ];
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
    })?;
    let [meta, counters, records, bodies, expiry]: [Rows; 5] = match committed {
        CommitOrAbort::Commit(tables) => tables,
        CommitOrAbort::Abort(()) => return Err(heed::Error::Mdb(heed::MdbError::BadTxn)),
    };
    Ok(Tables {
        meta,
        counters,
        records,
        bodies,
        expiry,
    })
}

/// Makes the files' names durable, and then says that they are there.
fn leave_marker(dir: &Path, marker: &Path) -> Result<(), OpenError> {
    sync_dir(dir)?;
    if marker.exists() {
        return Ok(());
    }
    let write = || {
        let mut file = File::create(marker)?;
        file.write_all(MARKER_TEXT.as_bytes())?;
        file.sync_all()
    };
    write().map_err(io("write the marker", marker))?;
    sync_dir(dir)?;
    let parent: PathBuf = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => return Ok(()),
    };
    sync_dir(&parent)
}

fn sync_dir(dir: &Path) -> Result<(), OpenError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(io("sync the directory", dir))
}
