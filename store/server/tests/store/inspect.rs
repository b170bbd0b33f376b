//! What does an operator see?

use std::time::Duration;

use porch_wire::{Hit, complete};
use serde_json::Value;

use crate::{
    client::{claim, completion, digest, hit, response},
    process::{Place, binary},
};

fn inspect(place: &Place, bucket: Option<u8>) -> anyhow::Result<Value> {
    let mut command = binary();
    command
        .arg("inspect")
        .arg("--json")
        .arg("--data")
        .arg(place.data());
    if let Some(bucket) = bucket {
        command
            .arg("--bucket")
            .arg(format!("{bucket:02x}").repeat(32));
    }
    let output = command.output()?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test]
async fn rows_are_counted_and_a_bucket_is_shown() -> anyhow::Result<()> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    for _ in 0..3 {
        client.admit(vec![hit(1, 100, 10), hit(2, 100, 10)]).await?;
    }
    client.claim(claim(1, 1)).await?;
    let body = complete::Outcome::Response(response(vec![0; 60_000]));
    client.complete(completion(1, 1, body)).await?;
    let seen = inspect(&place, Some(1))?;
    assert_eq!(seen["counter_rows"], 2);
    assert_eq!(seen["record_rows"], 1);
    assert_eq!(seen["body_rows"], 1);
    assert_eq!(seen["expiry_rows"], 3);
    assert_eq!(seen["live_buckets"], 2);
    assert_eq!(seen["bucket"]["count"], 3);
    assert_eq!(seen["bucket"]["ceiling"], 10);
    assert_eq!(seen["bucket"]["window_s"], 60);
    assert_eq!(seen["bucket"]["live"], true);
    assert_eq!(seen["bucket"]["expired"], false);
    store.terminate()?;

    let store = place.start()?;
    let seen = inspect(&place, Some(1))?;
    assert_eq!(seen["bucket"]["live"], false);
    assert_eq!(seen["bucket"]["count"], 3);
    assert_eq!(seen["bucket"]["ceiling"], 3);
    assert_eq!(inspect(&place, Some(9))?["bucket"]["found"], false);
    assert_eq!(inspect(&place, None)?["bucket"], Value::Null);
    store.terminate()?;
    // Nobody answers any more: the directory is opened.
    let seen = inspect(&place, Some(1))?;
    assert_eq!(seen["answered_by"], "data-directory");
    assert_eq!(seen["counter_rows"], 2);
    assert_eq!(seen["bucket"]["count"], 3);
    Ok(())
}

#[tokio::test]
async fn an_elapsed_window_serves_again_and_takes_at_most_four_others_along() -> anyhow::Result<()>
{
    let place = Place::new()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let brief = |bucket| Hit {
        window_s: 1,
        bucket: digest(bucket),
        ..hit(bucket, 1, 1)
    };
    for bucket in 0..11 {
        assert!(client.admit(vec![brief(bucket)]).await?.admitted);
    }
    let first = inspect(&place, Some(0))?;
    while inspect(&place, Some(10))?["bucket"]["expired"] == false {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A write prunes what it meets and up to four others; here the bucket's own old row is one that it replaces.
    let before = inspect(&place, None)?;
    assert_eq!(before["counter_rows"], 11);
    let long = Hit {
        window_s: 60,
        ..brief(0)
    };
    assert!(client.admit(vec![long]).await?.admitted);
    let after = inspect(&place, Some(0))?;
    assert_eq!(after["counter_rows"], 7);
    assert_eq!(after["expiry_rows"], 7, "its old entry is gone");
    let start = |seen: &Value| seen["bucket"]["window_start_ms"].as_u64();
    assert!(start(&after) > start(&first));
    Ok(())
}
