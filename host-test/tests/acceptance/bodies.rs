//! Bodies: large ones, odd ones, and none at all.

use std::time::Duration;

use porch_host::client::Request;

use crate::support::{is_outcome_unknown, keyed, settled};

const MIB: usize = 1 << 20;

#[test]
fn a_keyed_request_that_is_too_large_to_hold_is_413() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for size in [MIB + 1, 3 * MIB] {
        let refused = stack.send(&Request::post("/orders", vec![b'x'; size]).key("k"))?;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (413, "urn:porch:problem:request-too-large"),
            "{size} bytes: {refused:?}"
        );
    }
    assert_eq!(stack.upstream.rows()?, 0);
    let largest = stack.send(&Request::post("/orders", vec![b'x'; MIB]).key("k"))?;
    assert_eq!(largest.status, 201, "{largest:?}");
    assert_eq!(
        stack
            .send(&Request::post("/orders", vec![b'x'; 6 * MIB]))?
            .status,
        201,
        "nothing holds an unkeyed one"
    );
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}

#[test]
fn an_answer_that_is_too_large_to_keep_reaches_the_first_caller_only() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for (name, size, kept) in [
        ("largest", MIB, true),
        ("larger", MIB + 1, false),
        ("large", 5 * MIB, false),
    ] {
        let path = format!("/orders/{name}");
        let request = Request::post(&format!("{path}?body=binary&bytes={size}"), "tea").key(name);
        let first = stack.send(&request)?;
        assert_eq!((first.status, first.body.len()), (201, size), "{name}");
        let again = stack.send(&request)?;
        if kept {
            assert!(
                again.replayed() && again.kept() == first.kept(),
                "{name}: {again:?}"
            );
        } else {
            let problem = again.problem();
            assert_eq!(
                (again.status, problem.as_str()),
                (409, "urn:porch:problem:response-not-retained"),
                "{name}"
            );
            assert_eq!(again.json()["original-status"], 201, "{again:?}");
            assert_eq!(again.header("retry-after"), None);
        }
        assert_eq!(stack.upstream.rows_of(&path)?, 1, "{name}");
    }
    Ok(())
}

#[test]
fn an_answer_without_a_body_is_replayed_without_one() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for query in ["status=204", "status=304", "body=binary&bytes=0"] {
        let request = Request::post(&format!("/orders?{query}"), "tea").key(query);
        let (first, again) = (stack.send(&request)?, stack.send(&request)?);
        assert!(again.replayed(), "{query}: {again:?}");
        assert_eq!(again.kept(), first.kept(), "{query}");
        assert!(again.body.is_empty(), "{query}: {again:?}");
        let plain = stack.send(&Request::post(&format!("/orders?{query}"), "tea"))?;
        assert_eq!(
            plain.header("content-type"),
            first.header("content-type"),
            "{query}: as without a key"
        );
        assert_eq!(
            plain.header("content-length"),
            first.header("content-length"),
            "{query}: as without a key"
        );
    }
    Ok(())
}

#[test]
fn no_body_and_an_empty_one_are_the_same_request() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let none = Request::new("DELETE", "/orders/7").key("k");
    assert_eq!(stack.send(&none)?.status, 201);
    let empty = Request::new("DELETE", "/orders/7")
        .header("content-length", "0")
        .key("k");
    assert!(stack.send(&empty)?.replayed());
    let chunked = Request::new("DELETE", "/orders/7")
        .header("transfer-encoding", "chunked")
        .key("k");
    assert!(stack.send(&chunked.raw_body("0\r\n\r\n"))?.replayed());
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn framing_is_no_part_of_a_request() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let chunked = Request::post("/orders", "")
        .header("transfer-encoding", "chunked")
        .key("k");
    let first = stack.send(&chunked.raw_body("2\r\nte\r\n1\r\na\r\n0\r\n\r\n"))?;
    assert_eq!(
        (first.status, &first.json()["sent"]),
        (201, &serde_json::json!("tea")),
        "{first:?}"
    );
    assert!(
        stack
            .send(&Request::post("/orders", "tea").key("k"))?
            .replayed()
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn a_late_answer_is_unknown_for_ever() -> anyhow::Result<()> {
    let mut setup = keyed()?;
    setup.config.set_timeouts("1s", "5s")?;
    let stack = setup.start()?;
    let request = Request::post("/orders?delay_ms=3000", "tea").key("k");
    let first = stack.send(&request)?;
    assert_eq!(first.status, 504, "{first:?}");
    let again = settled(&stack, &request, Duration::from_secs(20))?;
    assert!(
        again.status == 504 && is_outcome_unknown(&again),
        "{again:?}"
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn expect_100_continue_is_answered_in_the_end() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let request = Request::post("/orders", "tea")
        .header("expect", "100-continue")
        .key("k");
    assert_eq!(stack.send(&request)?.status, 201);
    assert!(stack.send(&request)?.replayed());
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}
