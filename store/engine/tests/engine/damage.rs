//! What becomes of rows that are damaged, and at the bounds of the front?

use std::{fs, os::unix::fs::FileExt as _};

use bytes::Bytes;
use porch_engine::{
    Claim, ClaimCall, Code, Front, Hit, Limits, Options, Outcome, Resolution, Response, Store,
};

use crate::driver::{Driver, hit, machine};

pub(crate) fn claim(key: u8, id: u8) -> ClaimCall {
    ClaimCall {
        key: [key; 32],
        claim: Claim {
            claim_id: [id; 16],
            fingerprint: [9; 33],
            lease_ms: 60_000,
            ttl_ms: 60_000,
            remember_ms: 60_000,
            execute_unknown: true,
        },
        replay_bytes_max: u32::MAX,
        wait_ms: 0,
    }
}

pub(crate) fn ask(driver: &mut Driver, call: &ClaimCall) -> Outcome {
    let caller = driver.caller();
    let now_ms = driver.now_ms;
    let mut answers = Vec::new();
    driver.front.claim(now_ms, caller, call).unwrap_or_else(|| {
        driver.drain(&mut answers);
        answers.pop().expect("a drained call is answered").outcome
    })
}

pub(crate) fn complete(driver: &mut Driver, key: u8, id: u8, body: Bytes) {
    let caller = driver.caller();
    let response = Response {
        status: 200,
        fields: Vec::new(),
        body,
    };
    let resolution = Resolution::Response(response);
    driver
        .front
        .complete(caller, [key; 32], [id; 16], resolution);
    driver.drain(&mut Vec::new());
}

/// Flips a bit after each place where `pattern` stands in the file, and opens it again.
pub(crate) fn damage(driver: Driver, pattern: &[u8]) -> Driver {
    let Driver { store, dir, .. } = driver;
    let path = store.path().to_owned();
    drop(store);
    let bytes = fs::read(&path).expect("the data file");
    let file = fs::File::options()
        .write(true)
        .open(&path)
        .expect("the data file");
    let mut found = 0;
    for (at, window) in bytes.windows(pattern.len()).enumerate() {
        if window == pattern {
            found += 1;
            let after = at + pattern.len();
            file.write_at(&[bytes[after] ^ 1], after as u64)
                .expect("the byte is written");
        }
    }
    assert!(found > 0, "the pattern is in the file");
    let mut driver = Driver::new(8);
    let (store, _) = Store::open_at(dir.path(), Options::default(), machine())
        .expect("its pages are whole, so it opens");
    driver.store = store;
    driver.dir = dir;
    driver
}

#[test]
fn a_damaged_record_is_refused_and_never_executes() {
    let mut driver = Driver::new(8);
    assert!(matches!(
        ask(&mut driver, &claim(0xA7, 1)),
        Outcome::Claimed(_)
    ));
    complete(&mut driver, 0xA7, 1, Bytes::from_static(b"once"));
    assert!(matches!(
        ask(&mut driver, &claim(0xB3, 1)),
        Outcome::Claimed(_)
    ));
    // The byte after a record's key is its state.
    let mut driver = damage(driver, &[0xA7; 32]);
    for _ in 0..2 {
        match ask(&mut driver, &claim(0xA7, 2)) {
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.code, Code::DataLoss, "{refusal:?}");
                assert!(refusal.message.contains("crc32c"), "{refusal:?}");
            }
            other => panic!("expected a refusal, came {other:?}"),
        }
    }
    // The others are as they were.
    let other = ask(&mut driver, &claim(0xB3, 2));
    assert!(
        matches!(other, Outcome::Claimed(porch_engine::ClaimAnswer::InFlight)),
        "{other:?}"
    );
}

#[test]
fn a_damaged_response_is_refused() {
    let mut driver = Driver::new(8);
    ask(&mut driver, &claim(1, 1));
    let body: Vec<u8> = (0..150_000_u32).flat_map(u32::to_be_bytes).collect();
    let inside = body[400_000..400_040].to_vec();
    complete(&mut driver, 1, 1, Bytes::from(body));
    let mut driver = damage(driver, &inside);
    match ask(&mut driver, &claim(1, 2)) {
        Outcome::Refused(refusal) => {
            assert_eq!(refusal.code, Code::DataLoss, "{refusal:?}");
            assert!(
                refusal.message.contains("chunk 6 of the response"),
                "{refusal:?}"
            );
        }
        other => panic!("expected a refusal, came {other:?}"),
    }
}

#[test]
fn a_damaged_counter_is_refused_in_all_buckets_of_its_request() {
    let mut driver = Driver::new(8);
    driver.admit(&[hit(0xA7, 10, 60)]);
    driver.admit(&[hit(1, 10, 60)]);
    let mut driver = damage(driver, &[0xA7; 32]);
    match driver.admit(&[hit(1, 10, 60), hit(0xA7, 10, 60)]) {
        Outcome::Refused(refusal) => assert_eq!(refusal.code, Code::DataLoss, "{refusal:?}"),
        other => panic!("expected a refusal, came {other:?}"),
    }
    assert_eq!(driver.peek(1).count, 1, "it was not charged");
}

#[test]
fn a_damaged_counter_blocks_its_bucket_until_its_window_is_over() {
    let mut driver = Driver::new(8);
    driver.admit(&[hit(0xA7, 10, 60)]);
    let mut driver = damage(driver, &[0xA7; 32]);
    driver.now_ms += 59_999;
    for _ in 0..2 {
        match driver.admit(&[hit(0xA7, 10, 60)]) {
            Outcome::Refused(refusal) => assert_eq!(refusal.code, Code::DataLoss, "{refusal:?}"),
            other => panic!("expected a refusal, came {other:?}"),
        }
    }
    driver.now_ms += 1;
    let admitted = driver.admit(&[hit(0xA7, 10, 60)]);
    assert!(
        matches!(admitted, Outcome::Admitted { admitted: true, .. }),
        "{admitted:?}"
    );
    assert_eq!(driver.peek(0xA7).count, 1);
}

#[test]
fn a_damaged_record_blocks_its_key_for_good() {
    let mut driver = Driver::new(8);
    ask(&mut driver, &claim(0xA7, 1));
    complete(&mut driver, 0xA7, 1, Bytes::from_static(b"once"));
    let mut driver = damage(driver, &[0xA7; 32]);
    driver.now_ms += 10 * 60_000;
    // Others that are written prune what has expired.
    for other in 1..4 {
        ask(&mut driver, &claim(other, 1));
    }
    let refused = ask(&mut driver, &claim(0xA7, 2));
    assert!(
        matches!(&refused, Outcome::Refused(refusal) if refusal.code == Code::DataLoss),
        "{refused:?}"
    );
}

#[test]
fn the_bounds_of_the_front_answer_unavailable() {
    let mut front = Front::new(Limits::default());
    let caller = porch_engine::Caller { stream: 1, call: 1 };
    let mut verdicts = Vec::new();
    let mut refused = 0;
    for n in 0..65_600_u32 {
        let mut bucket = [0; 32];
        bucket[..4].copy_from_slice(&n.to_le_bytes());
        let hit = Hit {
            bucket,
            ..hit(0, 10, 60)
        };
        match front.admit(1, caller, &[hit], &mut verdicts) {
            porch_engine::Admission::Waits => {}
            porch_engine::Admission::Refused(refusal) => {
                assert_eq!(refusal.code, Code::Unavailable);
                refused += 1;
            }
            now @ porch_engine::Admission::Now { .. } => panic!("nothing was loaded: {now:?}"),
        }
    }
    assert_eq!(refused, 65_600 - 65_536);
}
