//! Does a data directory of an earlier release still open, and read as it was written?
//!
//! `tests/data/format-N/` is what the first release with format N wrote. It is never written again; a new format gets
//! a directory of its own, by `cargo test -p porch-engine --test engine -- --ignored write_the_directory`.

use std::{fs, ops::ControlFlow, path::PathBuf};

use bytes::Bytes;
use porch_engine::{ClaimAnswer, FORMAT, Options, Outcome, Store};

use crate::{
    damage::{ask, claim, complete},
    driver::{Driver, Peek, hit, machine},
};

fn kept(format: u32) -> PathBuf {
    PathBuf::from(format!(
        "{}/tests/data/format-{format}",
        env!("CARGO_MANIFEST_DIR")
    ))
}

fn body() -> Bytes {
    (0..6_000_u32).map(|n| n.to_le_bytes()[0]).collect()
}

/// A driver on a copy.
fn opened(format: u32) -> Driver {
    let mut driver = Driver::new(64);
    let dir = tempfile::tempdir().expect("a temporary folder");
    for file in ["data.mdb", "porch.marker"] {
        fs::copy(kept(format).join(file), dir.path().join(file)).expect("it is copied");
    }
    let (store, _) = Store::open_at(dir.path(), Options::default(), machine()).expect("it opens");
    (driver.store, driver.dir) = (store, dir);
    driver
}

#[test]
fn format_1_reads_as_it_was_written() {
    let mut driver = opened(1);
    let start_ms = driver.now_ms;
    // A ceiling, and an exact count.
    assert_eq!(driver.peek(1), Peek { count: 4, start_ms });
    assert_eq!(driver.peek(2), Peek { count: 1, start_ms });
    match ask(&mut driver, &claim(1, 9)) {
        Outcome::Claimed(ClaimAnswer::Replay(response)) => {
            assert_eq!((response.status, response.body), (200, body()));
        }
        other => panic!("expected a replay, came {other:?}"),
    }
    let pending = ask(&mut driver, &claim(2, 9));
    assert!(
        matches!(pending, Outcome::Claimed(ClaimAnswer::InFlight)),
        "{pending:?}"
    );
    let checked = driver
        .store
        .reader()
        .check(None, |_| ControlFlow::Continue(()));
    let checked = checked.expect("the check ends");
    assert_eq!(checked.findings, 0);
    assert!(checked.rows >= 8, "{checked:?}");
    // It is used like one of today.
    driver.now_ms += 60_000;
    let granted = ask(&mut driver, &claim(3, 9));
    assert!(
        matches!(granted, Outcome::Claimed(ClaimAnswer::Granted)),
        "{granted:?}"
    );
}

#[test]
#[ignore = "it writes the directory of the present format"]
fn write_the_directory_of_this_format() {
    let dir = kept(FORMAT);
    assert!(!dir.exists(), "{} is never written again", dir.display());
    let mut driver = Driver::new(64);
    for (bucket, reserve) in [(1, 4), (2, 1)] {
        driver.admit(&[porch_engine::Hit {
            reserve,
            ..hit(bucket, 10, 60)
        }]);
    }
    ask(&mut driver, &claim(1, 1));
    complete(&mut driver, 1, 1, body());
    ask(&mut driver, &claim(2, 1));
    let mut copy = Vec::new();
    let bytes = driver.store.reader().backup(None, |piece, _| {
        copy.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    assert_eq!(bytes.expect("the backup ends"), copy.len() as u64);
    fs::create_dir_all(&dir).expect("a folder");
    fs::write(dir.join("data.mdb"), copy).expect("the file is written");
    fs::copy(
        driver.dir.path().join("porch.marker"),
        dir.join("porch.marker"),
    )
    .expect("the marker");
}
