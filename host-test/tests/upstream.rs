//! The demo service: a row before each answer, and the answers that a test may wish for.

use std::thread;
use std::time::Duration;

use porch_host::client::Request;
use porch_host::harness::{Artifacts, PATIENCE, Upstream, eventually};
use tempfile::TempDir;

fn upstream() -> anyhow::Result<(Upstream, TempDir)> {
    let directory = tempfile::tempdir()?;
    let host = Artifacts::find_host()?;
    let upstream = Upstream::start(&host, directory.path())?;
    Ok((upstream, directory))
}

#[test]
fn an_order_is_a_row_and_says_where_it_is() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    let answer = Request::post("/orders", "tea").send(upstream.address)?;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json(), serde_json::json!({"id": 1, "sent": "tea"}));
    assert_eq!(answer.header("location"), Some("/orders/1"));
    assert_eq!(answer.header("etag"), Some("\"order-1\""));
    let items: Vec<_> = answer
        .lines
        .iter()
        .filter(|(name, _)| name == "x-item")
        .map(|(_, value)| &value[..])
        .collect();
    assert_eq!(items, [b"first" as &[u8], b"second"]);
    for method in ["PUT", "PATCH", "DELETE"] {
        assert_eq!(
            Request::new(method, "/orders/7")
                .send(upstream.address)?
                .status,
            201
        );
    }
    assert_eq!(upstream.rows()?, 4);
    assert_eq!(upstream.rows_of("/orders/7")?, 3);
    Ok(())
}

#[test]
fn what_is_no_order_is_no_row() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    for (request, status) in [
        (Request::get("/"), 200),
        (Request::post("/other", ""), 404),
        (Request::post("/ordersX", ""), 404),
        (Request::post("/orders?status=1", ""), 400),
        (Request::new("TRACE", "/orders"), 405),
    ] {
        assert_eq!(
            request.send(upstream.address)?.status,
            status,
            "{request:?}"
        );
    }
    assert_eq!(upstream.rows()?, 0);
    Ok(())
}

#[test]
fn a_binary_body_has_every_byte_value() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    let request = Request::post(
        "/orders?body=binary&bytes=1000&status=202&retry_after=4",
        "",
    );
    let answer = request.send(upstream.address)?;
    assert_eq!(
        (
            answer.status,
            answer.body.len(),
            answer.header("retry-after")
        ),
        (202, 1000, Some("4"))
    );
    assert_eq!(answer.body[254..258], [254, 255, 0, 1]);
    assert_eq!(request.send(upstream.address)?.body, answer.body);
    Ok(())
}

#[test]
fn the_row_is_in_before_a_late_answer() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    let started = Request::post("/orders?delay_ms=3000", "").start(upstream.address)?;
    eventually("the row is in", PATIENCE, || {
        Ok((upstream.rows()? == 1).then_some(()))
    })?;
    drop(started);
    assert_eq!(upstream.rows()?, 1);
    Ok(())
}

#[test]
fn a_reset_leaves_a_row_and_no_answer() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    let error = Request::post("/orders?reset=1", "")
        .send(upstream.address)
        .expect_err("no answer");
    assert!(format!("{error:#}").contains("reset"), "{error:#}");
    assert_eq!(upstream.rows()?, 1);
    Ok(())
}

#[test]
fn a_body_that_breaks_off_is_no_row() -> anyhow::Result<()> {
    let (upstream, _directory) = upstream()?;
    let cut = Request::post("/orders", "").header("transfer-encoding", "chunked");
    drop(cut.start(upstream.address)?);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(upstream.rows()?, 0);
    Ok(())
}
