//! A route that retries: it may do so for other requests, never for a keyed one.

use porch_host::client::Request;
use serde_json::json;

use crate::support::{is_outcome_unknown, keyed};

#[test]
fn route_retries_never_repeat_a_keyed_request() -> anyhow::Result<()> {
    let mut setup = keyed()?;
    setup.config.add_route(&json!({
        "match": {"prefix": "/orders/retried"},
        "route": {"cluster": "upstream", "timeout": "15s", "retry_policy": {
            "retry_on": "5xx,reset,connect-failure", "num_retries": 3,
            "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.02s"},
        }},
    }))?;
    let stack = setup.start()?;
    let post =
        |name: &str, query: &str| Request::post(&format!("/orders/retried/{name}?{query}"), "tea");
    let rows = |name: &str| stack.upstream.rows_of(&format!("/orders/retried/{name}"));

    assert_eq!(stack.send(&post("plain", "status=500"))?.status, 500);
    assert_eq!(
        rows("plain")?,
        4,
        "without a key the route retries, as it was told"
    );
    assert_eq!(stack.send(&post("plain-reset", "reset=1"))?.status, 503);
    assert_eq!(
        rows("plain-reset")?,
        4,
        "without a key the route retries, as it was told"
    );

    let failed = post("failed", "status=500").key("failed");
    let first = stack.send(&failed)?;
    assert_eq!((first.status, rows("failed")?), (500, 1), "{first:?}");
    let again = stack.send(&failed)?;
    assert!(
        again.replayed(),
        "a 500 is an answer like others: {again:?}"
    );
    assert_eq!(again.kept(), first.kept());
    assert_eq!(rows("failed")?, 1);

    let reset = post("reset", "reset=1").key("reset");
    let first = stack.send(&reset)?;
    assert_eq!((first.status, rows("reset")?), (503, 1), "{first:?}");
    let again = stack.send(&reset)?;
    assert!(
        again.status == first.status && is_outcome_unknown(&again),
        "{again:?}"
    );
    assert_eq!(rows("reset")?, 1);
    Ok(())
}
