//! A configuration is refused whole, and the refusal says where and why.

use super::Settings;

const GOOD: &str = r#"{
  "store": {"cluster": "porch_store", "timeout": "250ms", "namespace": "shop"},
  "limiter": {"on_store_failure": "deny", "rules": [
    {"name": "per-client", "quota": 100, "window": "60s", "key": ["client_address", {"header": "X-Api-Key"}, {"literal": "a"}],
     "match": {"path_prefix": "/orders", "methods": ["GET"]}}
  ]},
  "idempotency": {"execute": {"detached": {"cluster": "porch_execute", "timeout": "30s"}}, "policies": [
    {"name": "orders", "match": {"path_prefix": "/orders"}, "principal": {"header": "X-User"}},
    {"name": "rest", "principal": "none"}
  ]}
}"#;

fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from} is not in the good document");
    Settings::parse(GOOD.replacen(from, to, 1).as_bytes())
        .expect_err("refused")
        .to_string()
}

#[test]
fn a_good_one_is_taken_with_its_defaults() {
    let settings = Settings::parse(GOOD.as_bytes()).expect("accepted");
    let limiter = settings.limiter.expect("a limiter");
    assert_eq!(limiter.rules[0].reserve, 10);
    assert_eq!(limiter.rules[0].window_s, 60);
    let idempotency = settings.idempotency.expect("idempotency");
    assert_eq!(idempotency.policies[0].ttl_ms, 86_400_000);
    assert_eq!(idempotency.policies[0].remember_ms, 7 * 86_400_000);
    assert_eq!(idempotency.policies[0].lease_ms, 35_500);
    assert_eq!(idempotency.max_request_bytes, 1_048_576);
}

#[test]
fn a_refusal_names_the_field_what_came_and_what_was_expected() {
    for (from, to, expected) in [
        (
            r#""window": "60s""#,
            r#""window": "500ms""#,
            r#"limiter.rules[0].window: expected a duration such as 250ms, 60s, 24h or 7d, whole seconds from 1s to 30d, got "500ms""#,
        ),
        (
            r#""window": "60s""#,
            r#""window": "1500ms""#,
            r#"limiter.rules[0].window: expected whole seconds from 1s to 30d, got "1500ms""#,
        ),
        (
            r#""quota": 100"#,
            r#""quota": -1"#,
            "limiter.rules[0].quota: expected a whole number from 0 to 4294967295, got integer `-1`",
        ),
        (
            r#""quota""#,
            r#""qota""#,
            "limiter.rules[0].qota: unknown field `qota`, did you mean `quota`? Expected one of `name`, `quota`, ",
        ),
        (
            r#""name": "per-client""#,
            r#""name": "Per Client""#,
            r#"limiter.rules[0].name: expected 1 to 64 of a-z, 0-9 and `-`, got "Per Client""#,
        ),
        (
            r#""namespace": "shop""#,
            r#""namespace": """#,
            "store.namespace: expected 1 to 128 bytes",
        ),
        (
            r#""deny""#,
            r#""panic""#,
            "limiter.on_store_failure: unknown name `panic`, expected one of `local`, `allow`, `deny`",
        ),
        (
            r#""name": "rest""#,
            r#""name": "orders""#,
            "idempotency.policies[1].name: expected a name that no earlier policy has",
        ),
        (
            r#""/orders", "methods""#,
            r#""orders", "methods""#,
            "limiter.rules[0].match.path_prefix: expected a path",
        ),
        (
            r#""principal": "none""#,
            r#""principal": "nobody""#,
            "idempotency.policies[1].principal: unknown name `nobody`, expected one of `none`, `header`, ",
        ),
        (
            r#""X-User""#,
            r#""X User""#,
            "idempotency.policies[0].principal.header: expected a header's name",
        ),
        (
            r#""timeout": "30s""#,
            r#""timeout": "1h""#,
            "idempotency.execute.detached.timeout: expected a duration",
        ),
    ] {
        let message = refused(from, to);
        assert!(
            message.starts_with(expected),
            "{to}\n  expected {expected}\n  got      {message}"
        );
    }
}

#[test]
fn a_refusal_is_in_words_for_who_wrote_it() {
    for (from, to, expected) in [
        (
            r#""deny""#,
            r#""Deny""#,
            "limiter.on_store_failure: unknown name `Deny`, did you mean `deny`? Expected one of `local`, `allow`, `deny`",
        ),
        (
            r#""principal": "none""#,
            r#""principal": {"jwtClaim": "sub"}"#,
            "idempotency.policies[1].principal: unknown name `jwtClaim`, did you mean `jwt_claim`? Expected one of ",
        ),
        (
            r#""principal": "none""#,
            r#""pricipal": "none""#,
            "idempotency.policies[1].pricipal: unknown field `pricipal`, did you mean `principal`? Expected one of ",
        ),
        (
            r#""principal": "none""#,
            r#""zone": "none""#,
            "idempotency.policies[1].zone: unknown field `zone`, expected one of ",
        ),
        (
            r#""principal": "none""#,
            r#""principal": 7"#,
            "idempotency.policies[1].principal: expected one name, or a mapping of one name to its value, got `7`",
        ),
        (
            r#""principal": "none""#,
            r#""principal": ["none"]"#,
            "idempotency.policies[1].principal: expected one name, or a mapping of one name to its value, got a list",
        ),
        (
            r#""principal": "none""#,
            "\"principal\":\n  null",
            "idempotency.policies[1].principal: expected one name, or a mapping of one name to its value, got `null`",
        ),
        (
            r#""principal": "none""#,
            r#""principal": "header""#,
            "idempotency.policies[1].principal.header: expected a mapping of this name to its value, got the name alone",
        ),
        (
            r#", "principal": "none""#,
            "",
            "idempotency.policies[1]: missing field `principal`",
        ),
        (
            r#""window": "60s""#,
            r#""window": 60"#,
            "limiter.rules[0].window: expected a duration such as 250ms, 60s, 24h or 7d, got integer `60`",
        ),
        (
            r#""quota": 100"#,
            r#""quota": "100""#,
            r#"limiter.rules[0].quota: expected a whole number from 0 to 4294967295, got string "100""#,
        ),
        (
            r#""methods": ["GET"]"#,
            r#""methods": "GET""#,
            r#"limiter.rules[0].match.methods: expected a list, got string "GET""#,
        ),
        (
            r#"{"path_prefix": "/orders", "methods": ["GET"]}"#,
            r#""/orders""#,
            r#"limiter.rules[0].match: expected a mapping of fields, got string "/orders""#,
        ),
    ] {
        let message = refused(from, to);
        assert!(
            message.starts_with(expected),
            "{to}\n  expected {expected}\n  got      {message}"
        );
        assert!(
            !message.contains(" at line "),
            "its place is its path: {message}"
        );
    }
}

#[test]
fn neither_part_is_refused() {
    let message = Settings::parse(br#"{"store": {"cluster": "s", "namespace": "n"}}"#)
        .expect_err("refused")
        .to_string();
    assert_eq!(
        message,
        ".: expected `limiter`, `idempotency` or both, got neither"
    );
}

#[test]
fn a_field_without_a_name_has_a_place_too() {
    let message = Settings::parse(br#"{"": 1}"#)
        .expect_err("refused")
        .to_string();
    assert!(message.starts_with(".: "), "{message}");
}

#[test]
fn no_configuration_is_refused() {
    let refused = |text: &str| {
        let error = Settings::parse(text.as_bytes()).expect_err("refused");
        error.to_string()
    };
    assert_eq!(
        refused(""),
        ".: expected a configuration with `store`, and `limiter` or `idempotency`, got none"
    );
    assert_eq!(
        refused(&format!("{GOOD} x")),
        ".: trailing characters at line 11 column 3"
    );
    assert_eq!(
        refused("store: porch"),
        ".: expected value at line 1 column 1"
    );
    assert_eq!(
        refused("[1]"),
        "[0]: expected a mapping of fields, got integer `1`"
    );
}

#[test]
fn only_what_is_needed_is_demanded() {
    let settings = Settings::parse(
        br#"{"store": {"cluster": "s", "namespace": "n"}, "limiter": {"rules": [
            {"name": "a", "quota": 1, "window": "1s", "match": {"path_prefix": "/a"}}]}}"#,
    )
    .expect("accepted");
    assert!(!settings.demands(b"GET", b"/b?x=/a").exchange);
    let demands = settings.demands(b"GET", b"/a?b");
    assert!(demands.exchange && demands.client_address && !demands.fields);
}

#[test]
fn a_broken_one_is_refused_or_taken_and_never_a_panic() {
    let good = GOOD.as_bytes();
    let mut refused = 0;
    for place in 0..good.len() {
        let mut trial = good.to_vec();
        for byte in [b'"', b'[', b'}', b'7', b'\n', b'\xff'] {
            trial[place] = byte;
            refused += usize::from(Settings::parse(&trial).is_err());
        }
        trial.truncate(place);
        refused += usize::from(Settings::parse(&trial).is_err());
        let mut without = good.to_vec();
        without.remove(place);
        refused += usize::from(Settings::parse(&without).is_err());
    }
    assert!(refused > 4 * good.len(), "{refused} were refused");
}
