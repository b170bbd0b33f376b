//! Can the store be watched: metrics, health, logs?

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use anyhow::Context as _;
use porch_wire::{Admit, Code, call::Operation, complete, reply};
use serde_json::Value;
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    client::{claim, completion, hit, response},
    process::Place,
};

/// A watched place, on any free port of the loopback.
fn watched() -> anyhow::Result<Place> {
    Place::with(&["--metrics", "0"])
}

/// The status and the body of what is answered for a path.
fn get(place: &Place, path: &str) -> anyhow::Result<(u16, String)> {
    let address = place.told("metrics")?;
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: store\r\nconnection: close\r\n\r\n"
    )?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    let (head, body) = told.split_once("\r\n\r\n").context("a head and a body")?;
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    if path == "/metrics" {
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
    }
    Ok((status, body.to_owned()))
}

/// The samples of the metrics, by name and labels.
fn samples(place: &Place) -> anyhow::Result<BTreeMap<String, f64>> {
    let (status, text) = get(place, "/metrics")?;
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').context("a sample")?;
        Ok((name.to_owned(), value.parse()?))
    };
    lines.map(sample).collect()
}

#[tokio::test]
async fn what_is_answered_is_counted_and_what_is_held_is_shown() -> anyhow::Result<()> {
    let place = watched()?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    for _ in 0..3 {
        client.admit(vec![hit(1, 2, 2)]).await?;
    }
    client.claim(claim(1, 1)).await?;
    client.claim(claim(1, 2)).await?;
    let kept = complete::Outcome::Response(response(vec![0; 50_000]));
    client.complete(completion(1, 1, kept.clone())).await?;
    client.complete(completion(1, 9, kept)).await?;
    client.claim(claim(1, 3)).await?;
    client.abandon(2, 2).await?;
    client
        .ask(Operation::Admit(Admit { hit: Vec::new() }))
        .await?;
    // By itself it is counted too.
    client
        .invoke(Operation::Claim(claim(1, 4)), Some("1"))
        .await?;

    let seen = samples(&place)?;
    for (name, expected) in [
        ("admits_total{outcome=\"admitted\"}", 2.0),
        ("admits_total{outcome=\"refused\"}", 1.0),
        ("claims_total{outcome=\"granted\"}", 1.0),
        ("claims_total{outcome=\"in_flight\"}", 1.0),
        ("claims_total{outcome=\"replay\"}", 2.0),
        ("claims_total{outcome=\"unknown\"}", 0.0),
        ("completions_total{outcome=\"written\"}", 1.0),
        ("completions_total{outcome=\"fenced\"}", 1.0),
        ("abandons_total{outcome=\"nothing\"}", 1.0),
        ("errors_total{code=\"invalid_argument\"}", 1.0),
        ("corrupt_rows_total", 0.0),
        ("rows{table=\"counters\"}", 1.0),
        ("rows{table=\"records\"}", 1.0),
        ("rows{table=\"bodies\"}", 1.0),
        ("rows{table=\"expiry\"}", 2.0),
        ("live_buckets", 1.0),
        ("channels_open", 1.0),
        ("full", 0.0),
        ("ceilings_raised_total", 1.0),
    ] {
        let name = format!("porch_store_{name}");
        assert_eq!(seen.get(&name), Some(&expected), "{name}: {seen:#?}");
    }
    for (name, least) in [
        ("commit_seconds_count", 3.0),
        ("batch_operations_count", 5.0),
        ("batch_operations_sum", 5.0),
        ("table_bytes{table=\"bodies\"}", 50_000.0),
        ("file_bytes", 50_000.0),
        ("file_limit_bytes", 50_000.0),
    ] {
        let name = format!("porch_store_{name}");
        assert!(
            seen.get(&name).is_some_and(|seen| *seen >= least),
            "{name}: {seen:#?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_metric_has_its_help_its_type_and_a_name_of_its_kind() -> anyhow::Result<()> {
    let place = watched()?;
    let _store = place.start()?;
    let (_, text) = get(&place, "/metrics")?;
    let lines = || text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut types = 0;
    for line in lines() {
        let ["#", "TYPE", name, kind] = line[..] else {
            continue;
        };
        types += 1;
        assert!(name.starts_with("porch_store_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        let helped = lines().any(|line| line.starts_with(&["#", "HELP", name]) && line.len() > 4);
        assert!(helped, "{name}");
    }
    assert!(types > 15, "{text}");
    Ok(())
}

#[tokio::test]
async fn health_and_readiness_are_told_over_http_and_over_the_channel() -> anyhow::Result<()> {
    let place = watched()?;
    let store = place.start()?;
    assert!(place.told("metrics")?.starts_with("127.0.0.1:"));
    assert_eq!(get(&place, "/healthz")?, (200, "ok\n".to_owned()));
    assert_eq!(get(&place, "/readyz")?, (200, "ready\n".to_owned()));
    assert_eq!(get(&place, "/other")?.0, 404);
    let channel = Endpoint::from_shared(format!("unix:{}", place.socket().display()))?;
    let mut health = HealthClient::new(channel.connect().await?);
    for service in ["", "porch.v1.SharedData"] {
        let service = service.to_owned();
        let told = health.check(HealthCheckRequest { service }).await?;
        assert_eq!(told.into_inner().status(), ServingStatus::Serving);
    }
    // Who watches is told of the stop.
    let service = "porch.v1.SharedData".to_owned();
    let watch = health.watch(HealthCheckRequest { service }).await?;
    let mut watch = watch.into_inner();
    let first = watch.message().await?.context("how it is now")?;
    assert_eq!(first.status(), ServingStatus::Serving);
    let stopped = tokio::task::spawn_blocking(move || store.terminate());
    let second = watch.message().await?.context("how it is then")?;
    assert_eq!(second.status(), ServingStatus::NotServing);
    drop((watch, health));
    stopped.await?
}

#[tokio::test]
async fn nothing_is_watched_unless_it_is_asked_for() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    assert_eq!(place.told("metrics")?, "off");
    Ok(())
}

#[tokio::test]
async fn a_json_log_is_json_to_its_end() -> anyhow::Result<()> {
    let place = Place::with(&["--log-format", "json"])?;
    place.start()?.terminate()?;
    let log = std::fs::read_to_string(place.log())?;
    let mut messages = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
        messages.push(line["message"].as_str().unwrap_or_default().to_owned());
    }
    assert!(messages.contains(&"ready".to_owned()), "{messages:?}");
    assert!(
        messages.iter().any(|told| told.starts_with("stopped")),
        "{messages:?}"
    );
    // A start that fails says so in JSON too.
    std::fs::write(place.data().join("data.mdb"), b"hello".repeat(10_000))?;
    let (status, told) = place.refused()?;
    assert_eq!(status.code(), Some(1), "{told}");
    let line: Value = serde_json::from_str(told.trim_end())?;
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|error| error.contains("data.mdb")),
        "{line}"
    );
    Ok(())
}

#[tokio::test]
async fn a_store_without_room_says_so_until_there_is() -> anyhow::Result<()> {
    let place = Place::with(&["--metrics", "0", "--max-record-bytes", "8MiB"])?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    let full = || Ok::<_, anyhow::Error>(samples(&place)?["porch_store_full"]);
    assert!((full()? - 0.0).abs() < 0.5);
    let mut key = 0;
    // Each response is 2 MiB.
    let refused = loop {
        key += 1;
        let claimed = client.ask(Operation::Claim(claim(key, 1))).await?;
        if let reply::Outcome::Error(error) = claimed {
            break error;
        }
        let kept = complete::Outcome::Response(response(vec![key; 2 << 20]));
        let complete = Operation::Complete(completion(key, 1, kept));
        client.invoke(complete, Some("1")).await?;
        anyhow::ensure!(key < 20, "8 MiB never fill up");
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    // Looking changes nothing.
    for _ in 0..2 {
        assert!((full()? - 1.0).abs() < 0.5);
        let (status, told) = get(&place, "/readyz")?;
        assert_eq!(status, 200);
        assert!(told.contains("without room"), "{told}");
    }
    // The other kind still finds room.
    client.admit(vec![hit(1, 10, 1)]).await?;
    assert!((full()? - 0.0).abs() < 0.5);
    Ok(())
}
