//! The configurations that scenarios share. Each scenario has a path of its own, so that none meets another's counts.

use serde_json::{Value, json};

use crate::script::{Route, Setting};

/// Tokens of the issuer `scenarios`, signed with HS256, and whom each is about.
pub(crate) const ANN: &str = "Bearer eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicyJ9.eyJpc3MiOiAic2NlbmFyaW9zIiwgInN1YiI6ICJhbm4iLCAiaWF0IjogMX0.pcFONVMLJlZ6meHhs6VtnT0zi_dCc68fQT2G-fbeDzQ";
pub(crate) const ANN_REFRESHED: &str = "Bearer eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicyJ9.eyJpc3MiOiAic2NlbmFyaW9zIiwgInN1YiI6ICJhbm4iLCAiaWF0IjogMn0.ebL7xKpUsVIRvbK9gvhgLygDjRHHqNYk3vu0GrejWEU";
pub(crate) const BEN: &str = "Bearer eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicyJ9.eyJpc3MiOiAic2NlbmFyaW9zIiwgInN1YiI6ICJiZW4iLCAiaWF0IjogMX0.vqnFTqm1UZ7JvMpRTjTivUW2WCLd6FuohRbivWXoHbc";
pub(crate) const REVOKED: &str = "Bearer eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicyJ9.eyJpc3MiOiAic2NlbmFyaW9zIiwgInN1YiI6ICJhbm4iLCAiaWF0IjogMX0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Whom a token is about, when it is good.
pub(crate) fn subject_of(token: Option<&str>) -> Option<&'static str> {
    match token {
        Some(ANN | ANN_REFRESHED) => Some("ann"),
        Some(BEN) => Some("ben"),
        Some(_) | None => None,
    }
}

/// Envoy's own authentication: a token is asked for below /orders/jwt, and looked at wherever there is one.
pub(crate) fn jwt_filter() -> Value {
    let keys = json!({"keys": [{
        "kty": "oct", "alg": "HS256", "kid": "s", "k": "cG9yY2gtc2NlbmFyaW9zLWtleS1vZi0zMi1ieXRlcyEh",
    }]});
    json!({"name": "envoy.filters.http.jwt_authn", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "providers": {"scenarios": {
            "issuer": "scenarios", "payload_in_metadata": "jwt_payload", "forward": true,
            "local_jwks": {"inline_string": keys.to_string()},
        }},
        "rules": [
            {"match": {"prefix": "/orders/jwt"}, "requires": {"provider_name": "scenarios"}},
            {"match": {"prefix": "/by-principal"}, "requires": {"requires_any": {"requirements": [
                {"provider_name": "scenarios"}, {"allow_missing": {}},
            ]}}},
        ],
    }})
}

/// A rule for one path that lets one request of ten minutes through, and the fields that differ.
fn rule(name: &str, path: &str, fields: Value) -> Value {
    let mut rule = json!({
        "name": name, "quota": 1, "window": "600s", "reserve": 1, "key": [{"literal": "all"}],
        "match": {"path_prefix": path},
    });
    merge(&mut rule, fields);
    rule
}

fn policy(name: &str, fields: Value) -> Value {
    let path = format!("/orders/{name}");
    let mut policy = json!({"name": name, "match": {"path_prefix": path}, "principal": "none"});
    merge(&mut policy, fields);
    policy
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        for (name, value) in fields {
            if let (Some(Value::Object(known)), Value::Object(more)) = (into.get_mut(&name), &value)
            {
                known.extend(more.clone());
            } else {
                into.insert(name, value);
            }
        }
    }
}

/// Everything that needs no setting of its own.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn breadth() -> Setting {
    let by = |part: Value| json!({"key": [part]});
    let rules = json!([
        rule(
            "cost",
            "/cost",
            json!({"quota": 3, "cost_header": "x-cost"})
        ),
        rule("dear", "/dear", json!({"quota": 3, "cost": 2})),
        rule("none", "/none", json!({"quota": 0})),
        rule(
            "counts-all",
            "/counts-all",
            json!({"quota": 3, "window": "10s"})
        ),
        rule(
            "refund",
            "/orders/refund",
            json!({"quota": 2, "refund_on": [404, 400]})
        ),
        rule(
            "refund-late",
            "/orders/late-refund",
            json!({"quota": 2, "window": "4s", "refund_on": [404]})
        ),
        rule(
            "refund-direct",
            "/direct",
            json!({"quota": 1, "refund_on": [503]})
        ),
        rule("watched", "/shadow", json!({"mode": "shadow"})),
        rule("beside", "/shadow/beside", json!({"quota": 3})),
        rule("preflight", "/preflight", json!({"quota": 1})),
        rule("trusted", "/exempt", by(json!("client_address"))),
        rule("address", "/address", by(json!("client_address"))),
        rule(
            "by-header",
            "/by-header",
            json!({"key": [{"header": "x-a"}, {"header": "x-b"}]})
        ),
        rule("by-method", "/by-method", by(json!("method"))),
        rule("by-path", "/by-path", by(json!("path"))),
        rule("by-authority", "/by-authority", by(json!("authority"))),
        rule("by-route", "/by-route", by(json!("route_name"))),
        rule(
            "by-principal",
            "/by-principal",
            by(json!({"principal": {"jwt_claim": "sub"}}))
        ),
        rule(
            "named",
            "/named",
            json!({"match": {"named_by_route": true}})
        ),
        rule(
            "gold",
            "/plan",
            json!({"match": {"headers": [{"name": "x-plan", "values": ["gold"]}]}})
        ),
        rule(
            "shop",
            "/hosts",
            json!({"match": {"authorities": ["shop.test"]}})
        ),
        rule(
            "writes",
            "/methods",
            json!({"match": {"methods": ["POST"]}})
        ),
        rule("grpc", "/grpc", json!({"window": "30s"})),
        rule("socket", "/socket", json!({"quota": 2})),
        rule("hammered", "/hammered", json!({"window": "2s"})),
        rule("exact", "/exact", json!({"window": "2s"})),
        rule("oracle", "/orders/oracle", json!({"quota": 4})),
        rule("replays", "/orders/replays", json!({"quota": 3})),
        rule(
            "first-rule",
            "/two",
            json!({"key": [{"header": "x-client"}]})
        ),
        rule("second-rule", "/two", json!({"quota": 2})),
        rule("head", "/head", json!({})),
    ]);
    let policies = json!([
        policy("jwt", json!({"principal": {"jwt_claim": "sub"}})),
        policy("user", json!({"principal": {"header": "x-user"}})),
        policy("session", json!({"principal": {"cookie": "sid"}})),
        policy("token", json!({"principal": "authorization_digest"})),
        policy("tenant", json!({"fingerprint_headers": ["x-tenant"]})),
        policy("waits", json!({"in_flight": {"wait": {"max_wait": "10s"}}})),
        policy(
            "waits-a-little",
            json!({"in_flight": {"wait": {"max_wait": "200ms"}}})
        ),
        policy("again", json!({"on_unknown": "execute"})),
        policy("unkept", json!({"keep": false})),
        policy("cookies", json!({"keep_set_cookie": true})),
        policy("no-trailers", json!({"trailers": "drop"})),
        policy("oracle", json!({"required": true})),
        policy("released", json!({"release_statuses": [500]})),
        policy("short", json!({"ttl": "2s", "remember": "4s"})),
        policy(
            "forward",
            json!({"execute": {"forward": {"timeout": "20s"}}})
        ),
        policy(
            "named",
            json!({"match": {"named_by_route": true}, "required": true})
        ),
        json!({"name": "orders", "match": {"path_prefix": "/orders"}, "principal": "none"}),
    ]);
    let route = |prefix, name| Route {
        prefix,
        name,
        ..Route::default()
    };
    Setting {
        limiter: json!({
            "on_store_failure": "deny", "rules": rules,
            "exempt": {"cidrs": ["203.0.113.0/24"], "headers": [{"name": "x-internal", "values": ["yes"]}]},
        }),
        idempotency: json!({
            "execute": {"detached": {"cluster": "porch_execute", "timeout": "20s"}}, "policies": policies,
        }),
        routes: vec![
            Route {
                rules: Some("other, named"),
                ..route("/named/on", "named-on")
            },
            route("/by-route/one", "one"),
            route("/by-route/two", "two"),
            Route {
                direct: Some(503),
                ..route("/direct", "direct")
            },
            Route {
                policies: Some("named"),
                ..route("/orders/named/on", "policy-on")
            },
            Route {
                retries: true,
                ..route("/orders/forward/retried", "retried")
            },
        ],
        store_timeout: "5s",
        workers: 2,
    }
}

/// Only quoted keys, in a header of another name.
pub(crate) fn strict() -> Setting {
    Setting {
        limiter: json!({"on_store_failure": "allow", "rules": [rule("allowed", "/allowed", json!({}))]}),
        idempotency: json!({
            "execute": {"detached": {"cluster": "porch_execute", "timeout": "20s"}},
            "strict": true, "key_header": "X-Request-Key",
            "policies": [{"name": "orders", "match": {"path_prefix": "/orders", "methods": ["POST"]}, "principal": "none"}],
        }),
        routes: vec![],
        store_timeout: "4s",
        workers: 2,
    }
}

/// The worker counts by itself while the store is away, as shipped. One worker: each counts by itself.
pub(crate) fn local() -> Setting {
    let rules = json!([
        rule("charged", "/charged", json!({"quota": 3})),
        rule("fresh", "/fresh", json!({"quota": 2})),
    ]);
    Setting {
        limiter: json!({"on_store_failure": "local", "rules": rules}),
        idempotency: json!({
            "execute": {"detached": {"cluster": "porch_execute", "timeout": "20s"}},
            "policies": [{"name": "orders", "match": {"path_prefix": "/orders"}, "principal": "none"}],
        }),
        routes: vec![],
        store_timeout: "4s",
        workers: 1,
    }
}
