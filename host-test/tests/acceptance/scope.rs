//! Whose key it is, which requests a policy is for, and what stands before it.

use porch_host::client::Request;
use porch_host::harness::Setup;
use serde_json::{Value, json};

use crate::support::{CLIENT, by_client, keyed, limited};

fn policy(mut setup: Setup, fields: &Value) -> anyhow::Result<Setup> {
    let policy = setup
        .config
        .idempotency()?
        .pointer_mut("/idempotency/policies/0")
        .and_then(Value::as_object_mut);
    let fields = fields.as_object().into_iter().flatten();
    policy
        .expect("the shipped file has a policy")
        .extend(fields.map(|(name, value)| (name.clone(), value.clone())));
    Ok(setup)
}

#[test]
fn each_principal_has_keys_of_its_own() -> anyhow::Result<()> {
    let stack = policy(keyed()?, &json!({"principal": {"header": "x-user"}}))?.start()?;
    let of = |user: &str, body: &str| {
        Request::post("/orders", body)
            .key("k")
            .header("x-user", user)
    };
    let (anna, ben) = (
        stack.send(&of("anna", "tea"))?,
        stack.send(&of("ben", "coffee"))?,
    );
    assert_eq!((anna.status, ben.status), (201, 201), "{ben:?}");
    assert!(!ben.replayed());
    assert_eq!(stack.send(&of("anna", "tea"))?.kept(), anna.kept());
    assert_eq!(stack.send(&of("ben", "coffee"))?.kept(), ben.kept());
    let nobody = stack.send(&Request::post("/orders", "tea").key("k"))?;
    assert_eq!(
        (nobody.status, nobody.problem().as_str()),
        (400, "urn:porch:problem:principal-missing")
    );
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}

#[test]
fn a_required_key_is_asked_for() -> anyhow::Result<()> {
    let stack = policy(keyed()?, &json!({"required": true}))?.start()?;
    for method in ["POST", "PATCH"] {
        let refused = stack.send(&Request::new(method, "/orders").body("tea"))?;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "urn:porch:problem:key-missing")
        );
    }
    assert_eq!(stack.upstream.rows()?, 0);
    assert_eq!(
        stack
            .send(&Request::new("PUT", "/orders").body("tea"))?
            .status,
        201,
        "PUT is idempotent by itself"
    );
    assert_eq!(
        stack
            .send(&Request::post("/orders", "tea").key("k"))?
            .status,
        201
    );
    Ok(())
}

#[test]
fn a_key_means_nothing_on_safe_methods_and_elsewhere() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for request in [
        Request::get("/orders/count"),
        Request::get("/orders"),
        Request::post("/other", "tea"),
    ] {
        let (first, again) = (
            stack.send(&request.clone().key("k"))?,
            stack.send(&request.clone().key("k"))?,
        );
        assert_eq!(first.status, again.status);
        assert!(!again.replayed(), "{request:?}");
    }
    assert_eq!(stack.store.inspect(None)?.record_rows, 0);
    Ok(())
}

#[test]
fn a_refusal_by_the_limiter_uses_no_key() -> anyhow::Result<()> {
    let stack = limited(json!([by_client(1, "600s", 1)]))?.start()?;
    let by = |client: &str| {
        Request::post("/orders", "tea")
            .header(CLIENT, client)
            .key("k")
    };
    assert_eq!(
        stack.send(&Request::get("/").header(CLIENT, "a"))?.status,
        200
    );
    assert_eq!(stack.send(&by("a"))?.status, 429);
    assert_eq!(stack.store.inspect(None)?.record_rows, 0);
    let first = stack.send(&by("b"))?;
    assert_eq!((first.status, first.replayed()), (201, false));
    let replay = stack.send(&by("c"))?;
    assert!(replay.replayed());
    assert_eq!(stack.send(&by("c"))?.status, 429, "a replay costs quota");
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

#[test]
fn no_key_reaches_a_log_or_the_disk() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let secret = "very-secret-key-4711";
    for body in ["tea", "tea", "coffee"] {
        stack.send(&Request::post("/orders", body).key(secret))?;
    }
    for folder in [stack.directory().to_owned(), stack.directory().join("data")] {
        for file in std::fs::read_dir(folder)?
            .filter_map(Result::ok)
            .map(|file| file.path())
        {
            if file.is_file() {
                let bytes = std::fs::read(&file)?;
                let found = bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes());
                assert!(!found, "the key stands in {}", file.display());
            }
        }
    }
    Ok(())
}
