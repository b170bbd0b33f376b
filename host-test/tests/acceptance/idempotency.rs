//! Idempotency keys: sent twice, run once, answered twice.

use std::time::Duration;

use porch_host::client::{Answer, Request};
use porch_host::harness::{PATIENCE, eventually};

use crate::support::{is_in_flight, keyed, parallel, settled};

#[test]
fn replay_is_byte_identical_and_runs_once() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    // Text; binary; and more than the channel replays by itself.
    for (key, query) in [
        ("text", ""),
        ("binary", "?body=binary&bytes=1000"),
        ("large", "?body=binary&bytes=200000"),
    ] {
        let path = format!("/orders/{key}");
        let request = Request::post(&format!("{path}{query}"), "\u{0}tea").key(key);
        let first = stack.send(&request)?;
        assert_eq!(first.status, 201, "{first:?}");
        assert_eq!(
            first.header("idempotent-replayed"),
            None,
            "the first answer is no replay"
        );
        let items: Vec<_> = first
            .lines
            .iter()
            .filter(|(name, _)| name == "x-item")
            .map(|(_, value)| &value[..])
            .collect();
        assert_eq!(items, [b"first" as &[u8], b"second"]);
        if let Some((_, bytes)) = query.split_once("bytes=") {
            let expected: Vec<u8> = (0..=u8::MAX).cycle().take(bytes.parse()?).collect();
            assert_eq!(first.body, expected);
        }
        for _ in 0..3 {
            let again = stack.send(&request)?;
            assert!(again.replayed(), "{:?}", again.lines);
            assert_eq!(again.kept(), first.kept());
            assert!(
                again.header("ratelimit").is_some(),
                "a replay tells today's limits"
            );
        }
        assert_eq!(stack.upstream.rows_of(&path)?, 1);
    }
    assert_eq!(stack.upstream.rows()?, 3);
    Ok(())
}

#[test]
fn other_body_under_the_key_is_refused() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let request = Request::post("/orders", "tea").key("k");
    let first = stack.send(&request)?;
    assert_eq!(first.status, 201);
    let others = [
        Request::post("/orders", "coffee").key("k"),
        Request::post("/orders", "").key("k"),
        Request::post("/orders?x=1", "tea").key("k"),
        Request::post("/orders/other", "tea").key("k"),
        Request::new("PUT", "/orders").body("tea").key("k"),
        Request::post("/orders", "tea")
            .header("content-type", "text/plain")
            .key("k"),
    ];
    for other in others {
        let refused = stack.send(&other)?;
        assert_eq!(refused.status, 422, "{other:?}: {refused:?}");
        assert_eq!(refused.problem(), "urn:porch:problem:fingerprint-mismatch");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        assert!(!refused.replayed());
    }
    assert_eq!(stack.upstream.rows()?, 1);
    let again = stack.send(&request)?;
    assert!(again.replayed());
    assert_eq!(again.kept(), first.kept(), "the original still replays");
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn two_at_once_one_executes() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let request = Request::post("/orders?delay_ms=1000", "tea").key("k");
    let answers = parallel(100, |_| stack.send(&request));
    let answers: Vec<Answer> = answers.into_iter().collect::<anyhow::Result<_>>()?;
    assert_eq!(stack.upstream.rows()?, 1);
    let first: Vec<&Answer> = answers
        .iter()
        .filter(|answer| answer.status == 201 && !answer.replayed())
        .collect();
    assert_eq!(first.len(), 1, "one is answered as the first");
    for answer in &answers {
        let replay = answer.replayed() && answer.kept() == first[0].kept();
        assert!(
            answer == first[0] || replay || is_in_flight(answer),
            "{answer:?}"
        );
    }
    assert!(answers.iter().any(is_in_flight), "they were at once");
    let by_worker = stack.envoy.connections_by_worker()?;
    assert!(
        by_worker.len() == 2 && by_worker.iter().all(|count| *count > 0),
        "both workers took part: {by_worker:?}"
    );
    let again = stack.send(&request)?;
    assert!(again.replayed());
    assert_eq!(again.kept(), first[0].kept());
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn other_body_while_the_first_is_in_flight_is_refused_at_once() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let started = Request::post("/orders?delay_ms=1000", "tea")
        .key("k")
        .start(stack.envoy.address)?;
    eventually("upstream runs", PATIENCE, || {
        Ok((stack.upstream.rows()? == 1).then_some(()))
    })?;
    assert_eq!(
        stack
            .send(&Request::post("/orders?delay_ms=1000", "coffee").key("k"))?
            .status,
        422
    );
    assert_eq!(started.finish()?.status, 201);
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn client_that_gives_up_gets_the_replay() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let request = Request::post("/orders?delay_ms=1000", "tea").key("k");
    let given_up = request.start(stack.envoy.address)?;
    eventually("upstream runs", PATIENCE, || {
        Ok((stack.upstream.rows()? == 1).then_some(()))
    })?;
    drop(given_up);
    let meanwhile = stack.send(&request)?;
    assert!(
        is_in_flight(&meanwhile) || meanwhile.replayed(),
        "{meanwhile:?}"
    );
    let again = settled(&stack, &request, Duration::from_secs(20))?;
    assert_eq!(again.status, 201, "{again:?}");
    assert!(again.replayed());
    assert_eq!(
        again.json()["id"],
        1,
        "it is the answer to the row that the first one made"
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn without_a_key_each_request_runs() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for _ in 0..2 {
        let answer = stack.send(&Request::post("/orders", "tea"))?;
        assert_eq!(
            (answer.status, answer.header("idempotent-replayed")),
            (201, None)
        );
    }
    assert_eq!(stack.upstream.rows()?, 2);
    let forged = Request::post("/orders", "tea")
        .key("k")
        .header("idempotent-replayed", "true");
    assert_eq!(
        stack.send(&forged)?.header("idempotent-replayed"),
        None,
        "a forged marker is stripped"
    );
    Ok(())
}

#[test]
fn what_was_not_processed_is_released() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for (name, query, expected_rows) in [
        ("not-processed", "?status=429", 2),
        ("come-again", "?status=503&retry_after=1", 2),
        ("failed", "?status=500", 1),
        ("refused", "?status=404", 1),
        ("unsure", "?status=503", 1),
    ] {
        let path = format!("/orders/{name}");
        let request = Request::post(&format!("{path}{query}"), "tea").key(name);
        let (first, second) = (stack.send(&request)?, stack.send(&request)?);
        assert_eq!(first.status, second.status, "{name}: {first:?} {second:?}");
        assert_eq!(stack.upstream.rows_of(&path)?, expected_rows, "{name}");
        let unknown = second.problem() == "urn:porch:problem:outcome-unknown";
        assert_eq!(unknown, name == "unsure", "{name}: {second:?}");
        assert_eq!(
            second.replayed(),
            expected_rows == 1 && !unknown,
            "{name}: {second:?}"
        );
    }
    Ok(())
}
