//! What do an operator's calls do, in memory and in the file?

use std::{fs, ops::ControlFlow, time::Duration};

use bytes::Bytes;
use heed::{CommitOrAbort, Database, EnvOpenOptions, RwTxn, types::Bytes as Raw};
use porch_engine::{
    Admission, Answer, Caller, CheckEvent, Checked, ClaimAnswer, Finding, Forgotten, Front, Hit,
    Look, Options, Outcome, ReadError, Reader, RecordState, RecordView, ResetAnswer, Resolution,
    SettleAnswer, Settlement, Store,
};
use proptest::prelude::*;

use crate::{
    damage::{ask, claim, complete, damage},
    driver::{Driver, hit, machine},
};

const LEASE_MS: u64 = 60_000;

fn operate(
    driver: &mut Driver,
    call: impl FnOnce(&mut Front, Caller) -> Option<Outcome>,
) -> Outcome {
    let caller = driver.caller();
    if let Some(outcome) = call(&mut driver.front, caller) {
        return outcome;
    }
    let mut answers = Vec::new();
    driver.drain(&mut answers);
    let answer = answers.into_iter().find(|answer| answer.caller == caller);
    answer.expect("a drained call is answered").outcome
}

fn forget(driver: &mut Driver, key: u8) -> Outcome {
    operate(driver, |front, caller| front.forget(caller, [key; 32]))
}

fn settle(driver: &mut Driver, key: u8, settlement: Settlement) -> Outcome {
    operate(driver, |front, caller| {
        front.settle(caller, [key; 32], settlement)
    })
}

fn reset(driver: &mut Driver, bucket: u8) -> Outcome {
    let now_ms = driver.now_ms;
    operate(driver, |front, caller| {
        front.reset(now_ms, caller, [bucket; 32])
    })
}

fn look(driver: &mut Driver, look: Look) -> Box<porch_engine::Inspected> {
    match operate(driver, |front, caller| front.inspect(caller, look)) {
        Outcome::Inspected(inspected) => inspected,
        other => panic!("expected an inspection, came {other:?}"),
    }
}

fn record(driver: &mut Driver, key: u8, body: bool) -> Option<RecordView> {
    let what = Look {
        record: Some([key; 32]),
        body,
        ..Look::default()
    };
    look(driver, what)
        .record
        .map(|view| view.expect("the record is whole"))
}

fn granted() -> Outcome {
    Outcome::Claimed(ClaimAnswer::Granted)
}

fn completed(driver: &mut Driver, key: u8, id: u8) -> Outcome {
    operate(driver, |front, caller| {
        let resolution = Resolution::Tombstone { status: 201 };
        front.complete(caller, [key; 32], [id; 16], resolution)
    })
}

#[test]
fn forgetting_fences_a_lease_that_is_out() {
    let mut driver = Driver::new(8);
    assert_eq!(
        forget(&mut driver, 1),
        Outcome::Forgotten(Forgotten::Missing)
    );
    assert_eq!(ask(&mut driver, &claim(1, 1)), granted());
    assert_eq!(
        forget(&mut driver, 1),
        Outcome::Forgotten(Forgotten::Removed(RecordState::Pending))
    );
    assert_eq!(
        completed(&mut driver, 1, 1),
        Outcome::Completed { fenced: true }
    );
    assert_eq!(ask(&mut driver, &claim(1, 2)), granted());
    assert_eq!(
        completed(&mut driver, 1, 1),
        Outcome::Completed { fenced: true }
    );
    assert_eq!(
        completed(&mut driver, 1, 2),
        Outcome::Completed { fenced: false }
    );
}

#[test]
fn a_forgotten_response_takes_its_chunks_along() {
    let mut driver = Driver::new(8);
    ask(&mut driver, &claim(1, 1));
    complete(&mut driver, 1, 1, Bytes::from(vec![7; 200_000]));
    assert_eq!(look(&mut driver, Look::default()).usage.bodies.rows, 4);
    assert_eq!(
        forget(&mut driver, 1),
        Outcome::Forgotten(Forgotten::Removed(RecordState::Done))
    );
    assert_eq!(look(&mut driver, Look::default()).usage.rows(), 0);
}

#[test]
fn who_waits_for_a_key_gets_it_when_it_is_forgotten() {
    let mut driver = Driver::new(8);
    ask(&mut driver, &claim(1, 1));
    let mut waiting = claim(1, 2);
    waiting.wait_ms = 5_000;
    let caller = driver.caller();
    let now_ms = driver.now_ms;
    let mut answers = Vec::new();
    assert_eq!(driver.front.claim(now_ms, caller, &waiting), None);
    driver.drain(&mut answers);
    assert_eq!(answers, [], "it waits");
    let operator = driver.caller();
    assert_eq!(driver.front.forget(operator, [1; 32]), None);
    driver.drain(&mut answers);
    let answer = answers.iter().find(|answer| answer.caller == caller);
    assert_eq!(answer.map(|answer| &answer.outcome), Some(&granted()));
}

#[test]
fn a_damaged_record_is_shown_as_such_and_forgetting_it_frees_the_key() {
    let mut driver = Driver::new(8);
    ask(&mut driver, &claim(0xA7, 1));
    let mut driver = damage(driver, &[0xA7; 32]);
    let what = Look {
        record: Some([0xA7; 32]),
        ..Look::default()
    };
    let told = look(&mut driver, what).record;
    let told = told.expect("there is a row").expect_err("it is damaged");
    assert!(told.to_string().contains("crc32c"), "{told}");
    let answer = settle(&mut driver, 0xA7, Settlement::Released);
    assert!(
        matches!(answer, Outcome::Settled(SettleAnswer::Damaged(_))),
        "{answer:?}"
    );
    let answer = forget(&mut driver, 0xA7);
    assert!(
        matches!(answer, Outcome::Forgotten(Forgotten::Damaged(_))),
        "{answer:?}"
    );
    assert_eq!(ask(&mut driver, &claim(0xA7, 2)), granted());
}

#[test]
fn only_what_is_unknown_is_settled() {
    let mut driver = Driver::new(8);
    assert_eq!(
        settle(&mut driver, 1, Settlement::Released),
        Outcome::Settled(SettleAnswer::Missing)
    );
    for key in [1, 2] {
        ask(&mut driver, &claim(key, 1));
        assert_eq!(
            settle(&mut driver, key, Settlement::Released),
            Outcome::Settled(SettleAnswer::Known(RecordState::Pending))
        );
    }
    driver.now_ms += LEASE_MS;
    let view = record(&mut driver, 1, false).expect("it is remembered");
    assert_eq!(view.state, RecordState::Unknown);
    let tombstone = Settlement::Tombstone { status: 202 };
    let settled = Outcome::Settled(SettleAnswer::Settled);
    assert_eq!(settle(&mut driver, 1, tombstone), settled);
    assert_eq!(settle(&mut driver, 2, Settlement::Released), settled);
    let mut bold = claim(1, 2);
    bold.claim.execute_unknown = true;
    assert_eq!(
        ask(&mut driver, &bold),
        Outcome::Claimed(ClaimAnswer::Tombstone { status: 202 })
    );
    assert_eq!(ask(&mut driver, &claim(2, 2)), granted());
    assert_eq!(
        settle(&mut driver, 1, Settlement::Released),
        Outcome::Settled(SettleAnswer::Known(RecordState::Tombstone))
    );
}

#[test]
fn a_record_is_shown_without_its_response_unless_that_is_asked_for() {
    let mut driver = Driver::new(8);
    assert_eq!(record(&mut driver, 1, true), None);
    ask(&mut driver, &claim(1, 3));
    driver.now_ms += 10;
    let view = record(&mut driver, 1, true).expect("it is there");
    assert_eq!(view.state, RecordState::Pending);
    assert_eq!((view.claim_id, view.fingerprint), ([3; 16], [9; 33]));
    assert_eq!(view.lease_left_ms, LEASE_MS - 10);
    assert_eq!(view.remembered_for_ms, LEASE_MS - 10 + 60_000);
    complete(&mut driver, 1, 3, Bytes::from_static(b"secret"));
    driver.now_ms += 5;
    let view = record(&mut driver, 1, false).expect("it is there");
    assert_eq!((view.state, view.status), (RecordState::Done, 200));
    assert_eq!((view.completed_ago_ms, view.kept_for_ms), (5, 59_995));
    assert_eq!((view.response_bytes, view.response), (10, None));
    let view = record(&mut driver, 1, true).expect("it is there");
    let response = view.response.expect("it was asked for");
    assert_eq!(&response.expect("it is whole").body[..], b"secret");
}

#[test]
fn a_reset_bucket_is_empty_in_memory_and_after_a_crash() {
    let mut driver = Driver::new(8);
    let nothing = Outcome::Reset(ResetAnswer::Missing);
    assert_eq!(reset(&mut driver, 1), nothing);
    let ahead = Hit {
        reserve: 8,
        ..hit(1, 10, 60)
    };
    for _ in 0..3 {
        driver.admit(&[ahead]);
    }
    let done = |count| Outcome::Reset(ResetAnswer::Reset { count });
    assert_eq!(reset(&mut driver, 1), done(3));
    assert_eq!(driver.peek(1).count, 0);
    driver.crash();
    assert_eq!(driver.peek(1).count, 0);
    driver.admit(&[ahead]);
    driver.crash();
    // Not in memory, its ceiling is all that is known.
    assert_eq!(reset(&mut driver, 1), done(8));
    assert_eq!(look(&mut driver, Look::default()).usage.rows(), 0);
    assert_eq!(reset(&mut driver, 1), nothing);
}

#[test]
fn what_a_failed_write_takes_back_does_not_reach_the_window_after_a_reset() {
    let mut driver = Driver::new(8);
    driver.peek(1);
    let now_ms = driver.now_ms;
    let mut verdicts = Vec::new();
    let caller = driver.caller();
    driver
        .front
        .admit(now_ms, caller, &[hit(1, 10, 60)], &mut verdicts);
    let batch = driver.front.next_batch().expect("its write waits");
    // It is out; now the bucket is reset, and hit again.
    driver.now_ms += 1;
    let now_ms = driver.now_ms;
    let operator = driver.caller();
    assert_eq!(driver.front.reset(now_ms, operator, [1; 32]), None);
    let second = driver.caller();
    driver
        .front
        .admit(now_ms, second, &[hit(1, 10, 60)], &mut verdicts);
    let mut answers = Vec::new();
    driver
        .front
        .failed(now_ms, batch, "the disk is full", &mut answers);
    assert_eq!(answers.len(), 1, "the first hit is refused: {answers:?}");
    driver.drain(&mut answers);
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(driver.peek(1).count, 1, "the second hit stands");
    driver.crash();
    assert_eq!(driver.peek(1).count, 1, "in the file too");
}

#[test]
fn a_damaged_bucket_is_refused_until_it_is_reset() {
    let mut driver = Driver::new(8);
    driver.admit(&[hit(0xA7, 10, 60)]);
    let mut driver = damage(driver, &[0xA7; 32]);
    let what = Look {
        bucket: Some([0xA7; 32]),
        ..Look::default()
    };
    let told = look(&mut driver, what).bucket;
    told.expect("there is a row").expect_err("it is damaged");
    let refused = driver.admit(&[hit(0xA7, 10, 60)]);
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    let answer = reset(&mut driver, 0xA7);
    assert!(
        matches!(answer, Outcome::Reset(ResetAnswer::Damaged(_))),
        "{answer:?}"
    );
    assert_eq!(driver.peek(0xA7).count, 0);
}

/// A store with rows of every kind.
fn filled() -> Driver {
    let mut driver = Driver::new(1_000);
    for n in 0..200 {
        driver.admit(&[hit(n, 10, 60)]);
        ask(&mut driver, &claim(n, 1));
        if n % 2 == 0 {
            complete(&mut driver, n, 1, Bytes::from(vec![n; 3_000]));
        }
    }
    driver
}

fn check(reader: &Reader) -> (Checked, Vec<Finding>) {
    let mut findings = Vec::new();
    let checked = reader.check(None, |event| {
        if let CheckEvent::Finding(finding) = event {
            findings.push(finding);
        }
        ControlFlow::Continue(())
    });
    (checked.expect("it is read to the end"), findings)
}

#[test]
fn a_backup_taken_beside_the_writer_opens_and_holds_all_of_that_moment() {
    let mut driver = filled();
    let mut copy = Vec::new();
    let reader = driver.store.reader();
    let bytes = reader.backup(None, |piece, expected_bytes| {
        if copy.is_empty() {
            // The writer goes on meanwhile.
            driver.admit(&[hit(250, 10, 60)]);
        }
        copy.extend_from_slice(piece);
        assert!(expected_bytes >= copy.len() as u64);
        ControlFlow::Continue(())
    });
    assert_eq!(bytes.expect("it is copied"), copy.len() as u64);
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::write(dir.path().join("data.mdb"), &copy).expect("the copy is written");
    let (store, _) =
        Store::open_at(dir.path(), Options::default(), machine()).expect("a backup opens");
    let (checked, findings) = check(&store.reader());
    assert_eq!(findings, []);
    assert_eq!(checked.rows, 200 + 200 + 100 + 400);
    driver.crash();
    driver.store = store;
    assert_eq!(driver.peek(7).count, 1);
    assert_eq!(driver.peek(250).count, 0, "it came later");
    match ask(&mut driver, &claim(6, 2)) {
        Outcome::Claimed(ClaimAnswer::Replay(response)) => {
            assert_eq!(response.body, vec![6; 3_000]);
        }
        other => panic!("expected a replay, came {other:?}"),
    }
}

#[test]
fn a_read_ends_at_its_limit_or_when_nobody_listens_and_there_is_one_at_a_time() {
    let driver = filled();
    let reader = driver.store.reader();
    let at_once = Some(Duration::ZERO);
    let on = |_: &[u8], _| ControlFlow::Continue(());
    for _ in 0..3 {
        let late = reader.backup(at_once, on);
        assert!(matches!(late, Err(ReadError::TimeLimit { .. })), "{late:?}");
        let late = reader.check(at_once, |_| ControlFlow::Continue(()));
        assert!(matches!(late, Err(ReadError::TimeLimit { .. })), "{late:?}");
    }
    let gone = reader.backup(None, |_, _| ControlFlow::Break(()));
    assert!(matches!(gone, Err(ReadError::Gone)), "{gone:?}");
    let gone = reader.check(None, |_| ControlFlow::Break(()));
    assert!(matches!(gone, Err(ReadError::Gone)), "{gone:?}");
    // The last pieces wait in the pipe when LMDB is done.
    let mut busy = false;
    let whole = reader.backup(None, |_, _| {
        let second = reader.check(None, |_| ControlFlow::Continue(()));
        busy |= matches!(second, Err(ReadError::Busy));
        ControlFlow::Continue(())
    });
    assert!(whole.is_ok() && busy, "{whole:?}");
}

#[test]
fn a_check_names_what_is_damaged() {
    let driver = filled();
    assert_eq!(check(&driver.store.reader()).1, []);
    let driver = damage(driver, &[0xA7; 32]);
    let (_, findings) = check(&driver.store.reader());
    let row = "a7".repeat(32);
    let named: Vec<_> = findings
        .iter()
        .map(|finding| (finding.table, finding.row == row))
        .collect();
    assert_eq!(
        named,
        [("counters", true), ("records", true)],
        "{findings:?}"
    );
    assert!(
        findings
            .iter()
            .all(|finding| finding.found.contains("crc32c"))
    );

    let driver = damage(filled(), &[4; 1_000]);
    let (_, findings) = check(&driver.store.reader());
    assert!(
        findings.iter().any(|finding| finding.table == "records"
            && finding.row == "04".repeat(32)
            && finding.found.contains("chunk 0 of the response")),
        "{findings:?}"
    );
}

/// Changes the file behind the store's back.
fn tamper(
    driver: Driver,
    table: &str,
    change: impl FnOnce(&Database<'_, Raw, Raw>, &mut RwTxn<'_>),
) -> Driver {
    let Driver { store, dir, .. } = driver;
    drop(store);
    let mut options = EnvOpenOptions::new();
    options.max_dbs(8);
    #[expect(unsafe_code, reason = "LMDB maps the file")]
    // SAFETY: no other process and no other environment of this one has the file open.
    let env = unsafe { options.open(dir.path()) }.expect("it opens");
    let txn = env.write_txn().expect("a transaction");
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let rows: Database<'_, Raw, Raw> = opener.create_database(txn, Some(table))?;
        change(&rows, txn);
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    assert!(done.is_ok(), "it is written");
    env.prepare_for_closing().wait();
    let mut driver = Driver::new(8);
    let (store, _) = Store::open_at(dir.path(), Options::default(), machine()).expect("it opens");
    driver.store = store;
    driver.dir = dir;
    driver
}

#[test]
fn a_check_holds_the_index_against_the_tables_and_the_chunks_against_the_records() {
    let driver = tamper(filled(), "expiry", |rows, txn| {
        let (first, _) = rows.first(txn).expect("it reads").expect("it has a row");
        let first = first.to_vec();
        rows.delete(txn, &first).expect("it is removed");
        let mut stale = first;
        stale[..8].copy_from_slice(&u64::MAX.to_be_bytes());
        rows.put(txn, &stale, &[]).expect("it is written");
    });
    let (_, findings) = check(&driver.store.reader());
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].found.contains("no entry in `expiry`"));
    assert_eq!(findings[1].table, "expiry");

    let driver = tamper(filled(), "records", |rows, txn| {
        assert!(rows.delete(txn, &[6; 32]).expect("it is removed"));
    });
    let (_, findings) = check(&driver.store.reader());
    let tables: Vec<_> = findings.iter().map(|finding| finding.table).collect();
    assert_eq!(tables, ["bodies", "expiry"], "{findings:?}");
}

#[derive(Debug, Clone)]
enum Step {
    /// A hit is put in.
    Hit(u8),
    /// A reset is put in.
    Reset(u8),
    /// One batch commits.
    Commit,
    /// One batch fails.
    Fail,
    /// What was in memory is gone.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bucket = 0..3_u8;
    let step = prop_oneof![
        8 => bucket.clone().prop_map(Step::Hit),
        3 => bucket.prop_map(Step::Reset),
        4 => Just(Step::Commit),
        1 => Just(Step::Fail),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 0..80)
}

/// What is known of a bucket's count: between what was acknowledged since the last reset that was put in, and what was
/// put in since the last reset that was acknowledged.
#[derive(Debug, Default)]
struct Known {
    /// Hits and resets in the order they were put in; a hit with whether it was admitted.
    history: Vec<(Caller, Event)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Hit { admitted: bool },
    Reset { done: bool },
}

impl Known {
    fn answered(&mut self, answer: &Answer) {
        let event = self
            .history
            .iter_mut()
            .find(|(caller, _)| *caller == answer.caller);
        if let Some((_, event)) = event {
            match (event, &answer.outcome) {
                (Event::Hit { admitted }, Outcome::Admitted { admitted: true, .. }) => {
                    *admitted = true;
                }
                (Event::Reset { done }, Outcome::Reset(_)) => *done = true,
                _ => {}
            }
        }
    }

    fn bounds(&self) -> (u32, u32) {
        let (mut least, mut most) = (0, 0);
        for (_, event) in &self.history {
            match event {
                Event::Hit { admitted } => {
                    least += u32::from(*admitted);
                    most += 1;
                }
                Event::Reset { done: false } => least = 0,
                Event::Reset { done: true } => (least, most) = (0, 0),
            }
        }
        (least, most)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Whatever is under way when a bucket is reset, no acknowledged hit after it is lost, and none before it comes
    /// back.
    #[test]
    fn a_reset_takes_back_what_was_before_it_and_nothing_else(steps in steps()) {
        // One bucket has to leave whenever the third comes.
        let mut driver = Driver::new(2);
        let mut known: [Known; 3] = Default::default();
        let mut answers = Vec::new();
        let mut verdicts = Vec::new();
        for step in steps {
            driver.now_ms += 1;
            let now_ms = driver.now_ms;
            match step {
                Step::Hit(bucket) => {
                    let caller = driver.caller();
                    let hit = hit(bucket, 1_000, 3_600);
                    let admission = driver.front.admit(now_ms, caller, &[hit], &mut verdicts);
                    let admitted = matches!(admission, Admission::Now { admitted: true });
                    known[usize::from(bucket)].history.push((caller, Event::Hit { admitted }));
                }
                Step::Reset(bucket) => {
                    let caller = driver.caller();
                    let outcome = driver.front.reset(now_ms, caller, [bucket; 32]);
                    let done = matches!(outcome, Some(Outcome::Reset(_)));
                    known[usize::from(bucket)].history.push((caller, Event::Reset { done }));
                }
                Step::Commit => {
                    driver.batch(&mut answers);
                }
                Step::Fail => {
                    driver.fail(&mut answers);
                }
                Step::Crash => driver.crash(),
            }
            for answer in answers.drain(..) {
                for known in &mut known {
                    known.answered(&answer);
                }
            }
        }
        driver.drain(&mut answers);
        for answer in answers.drain(..) {
            for known in &mut known {
                known.answered(&answer);
            }
        }
        for crash in [false, true] {
            if crash {
                driver.crash();
            }
            for (bucket, known) in (0..).zip(&known) {
                let (least, most) = known.bounds();
                let count = driver.peek(bucket).count;
                prop_assert!((least..=most).contains(&count), "{bucket}: {least} to {most}, came {count}: {known:?}");
            }
        }
    }
}
