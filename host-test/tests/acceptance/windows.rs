//! Windows end: the next one serves again, and old rows go.

use porch_core::limiter::rule::BucketName;
use porch_host::harness::{PATIENCE, eventually};
use serde_json::json;

use crate::support::{CLIENT, by_client, get_by, limited};

/// Other rows that may go with one write.
const PRUNED_MAX: u64 = 4;
const OTHERS: u64 = 10;

#[test]
fn elapsed_window_serves_and_prunes() -> anyhow::Result<()> {
    // A reserve of 1: each hit is one row written, and nothing is written ahead.
    let stack = limited(json!([by_client(1, "3s", 1)]))?.start()?;
    let bucket = BucketName::new("local", "by-client", 3)
        .header(CLIENT, b"watched")
        .bucket()
        .0;
    for other in 0..OTHERS {
        assert_eq!(stack.send(&get_by(&format!("other-{other}")))?.status, 200);
    }
    assert_eq!(stack.send(&get_by("watched"))?.status, 200);
    assert_eq!(stack.send(&get_by("watched"))?.status, 429);
    let before = stack.store.inspect(Some(&bucket))?;
    let opened = before
        .bucket
        .clone()
        .expect("the bucket has a window")
        .window_start_ms;
    assert_eq!(before.counter_rows, OTHERS + 1, "{before:?}");
    assert_eq!(
        before.expiry_rows, before.counter_rows,
        "each row has one entry: {before:?}"
    );

    // The others' windows opened earlier, so they have ended when this one has.
    let served = || Ok((stack.send(&get_by("watched"))?.status == 200).then_some(()));
    eventually("the next window serves", PATIENCE, served)?;
    let after = stack.store.inspect(Some(&bucket))?;
    let window = after.bucket.clone().expect("the bucket has a window");
    assert!(
        window.window_start_ms >= opened + 3000,
        "a new window: {before:?} {after:?}"
    );
    assert_eq!((window.count, window.ceiling), (1, 1), "{after:?}");
    assert_eq!(
        after.expiry_rows, after.counter_rows,
        "the old row's entry is gone: {after:?}"
    );
    let gone = before.counter_rows - after.counter_rows;
    assert!(
        (1..=PRUNED_MAX).contains(&gone),
        "of {OTHERS} expired rows {gone} went with one write: {after:?}"
    );
    assert_eq!(
        stack.send(&get_by("watched"))?.status,
        429,
        "the new window is a window like the first"
    );
    Ok(())
}
