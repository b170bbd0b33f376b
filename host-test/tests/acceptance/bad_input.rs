//! Wrong input: refused by name, and nothing runs.

use porch_host::client::Request;
use serde_json::json;

use crate::support::{keyed, limited};

#[test]
fn a_wrong_configuration_is_refused_with_its_field() -> anyhow::Result<()> {
    for (rule, named) in [
        (
            json!({"name": "r", "quota": 1, "window": "60s", "quote": 1}),
            "quote",
        ),
        (
            json!({"name": "r", "quota": "many", "window": "60s"}),
            "limiter.rules[0].quota",
        ),
        (
            json!({"name": "r", "quota": 1, "window": "soon"}),
            "limiter.rules[0].window",
        ),
    ] {
        let error = limited(json!([rule]))?
            .start()
            .expect_err("Envoy refuses to start")
            .to_string();
        assert!(
            error.contains(named),
            "expected a line that names {named}: {error}"
        );
    }
    Ok(())
}

#[test]
fn a_bad_key_is_400() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let long = format!("\"{}\"", "k".repeat(256));
    for key in ["", "\"\"", "  ", "\"a\\b\"", "a b", "\"open", long.as_str()] {
        let refused =
            stack.send(&Request::post("/orders", "tea").header("idempotency-key", key))?;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "urn:porch:problem:key-invalid"),
            "{key:?}"
        );
    }
    let two = Request::post("/orders", "tea").key("k").key("k");
    assert_eq!(stack.send(&two)?.status, 400, "two lines are no key");
    assert_eq!(stack.upstream.rows()?, 0);
    let good = format!("\"{}\"", "k".repeat(255));
    assert_eq!(
        stack
            .send(&Request::post("/orders", "tea").header("idempotency-key", &good))?
            .status,
        201
    );
    Ok(())
}
