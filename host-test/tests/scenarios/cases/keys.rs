//! Keys: how they are written, and what happens without one.

use porch_host::client::Request;

use crate::script::{On, Scenario, Step, first, is, problem, replay, scenario, send};

#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn scenarios() -> Vec<Scenario> {
    let bare = |path: &str, key: &str| Request::post(path, "tea").header("idempotency-key", key);
    let bad = |key: &str| send(bare("/orders/bad-key", key), problem(400, "key-invalid"));
    let long = |length: usize| bare("/orders/long-key", &format!("\"{}\"", "k".repeat(length)));
    vec![
        scenario(
            &["I01"],
            "without a key each request runs",
            vec![
                send(Request::post("/orders/unkeyed", "tea"), first(201)),
                send(Request::post("/orders/unkeyed", "tea"), first(201)),
                Step::Rows("/orders/unkeyed", 2),
            ],
        ),
        scenario(
            &["I03", "I04", "I42"],
            "quoted or bare, it is one key, with all its lines",
            vec![
                send(
                    bare("/orders/bare", "\"K\""),
                    first(201).called("first").times("x-item", 2),
                ),
                send(
                    bare("/orders/bare", "K"),
                    replay(201)
                        .like("first")
                        .times("location", 1)
                        .times("etag", 1)
                        .times("link", 1),
                ),
                send(
                    bare("/orders/bare", "\"K\";v=1"),
                    replay(201).like("first").times("x-item", 2),
                ),
                Step::Rows("/orders/bare", 1),
            ],
        ),
        scenario(
            &["I05"],
            "two lines are no key, equal or not",
            vec![
                send(
                    Request::post("/orders/bad-key", "tea").key("a").key("b"),
                    problem(400, "key-invalid"),
                ),
                send(
                    Request::post("/orders/bad-key", "tea").key("a").key("a"),
                    problem(400, "key-invalid"),
                ),
                Step::Rows("/orders/bad-key", 0),
            ],
        ),
        scenario(
            &["I07", "I09"],
            "what is no key is not `no key`",
            vec![
                bad(""),
                bad("\"\""),
                bad("   "),
                bad("\"a\\b\""),
                bad("a b"),
                bad("\"open"),
                bad("a,b"),
                bad("a;b"),
                bad("\u{e9}"),
                bad("\"\u{e9}\""),
                bad("\"a\tb\""),
                Step::Rows("/orders/bad-key", 0),
            ],
        ),
        scenario(
            &["I08"],
            "255 bytes and no more",
            vec![
                send(long(255), first(201)),
                send(long(256), problem(400, "key-invalid")),
                send(long(20_000), problem(400, "key-invalid")),
                Step::Rows("/orders/long-key", 1),
            ],
        ),
        scenario(
            &["I08"],
            "64 KiB of key: too much for the proxy itself",
            vec![
                send(long(70_000), is(431)),
                Step::Rows("/orders/long-key", 1),
            ],
        )
        .only_on(On::Envoy, "a bound of the proxy's"),
        scenario(
            &["I10"],
            "keys have case, the header's name has none",
            vec![
                send(bare("/orders/case", "case"), first(201)),
                send(bare("/orders/case", "CASE"), first(201)),
                send(
                    Request::post("/orders/case", "tea").header("IDEMPOTENCY-Key", "case"),
                    replay(201),
                ),
                Step::Rows("/orders/case", 2),
            ],
        ),
    ]
}

/// Where only quoted keys are keys, in a header of another name.
pub(crate) fn strict() -> Vec<Scenario> {
    let post = |name: &str, key: &str| Request::post("/orders/strict", "tea").header(name, key);
    vec![
        scenario(
            &["I04"],
            "strict: a bare key is none, and the header is the configured one",
            vec![
                send(post("x-request-key", "K"), problem(400, "key-invalid")),
                Step::Rows("/orders/strict", 0),
                send(post("x-request-key", "\"K\""), first(201).called("first")),
                send(post("X-Request-Key", "\"K\""), replay(201).like("first")),
                send(post("idempotency-key", "\"K\""), first(201)),
                Step::Rows("/orders/strict", 2),
            ],
        ),
        scenario(
            &["I52"],
            "a method that the policy leaves out",
            vec![
                send(
                    Request::new("PUT", "/orders/put")
                        .body("tea")
                        .header("x-request-key", "\"P\""),
                    first(201),
                ),
                send(
                    Request::new("PUT", "/orders/put")
                        .body("tea")
                        .header("x-request-key", "bare"),
                    first(201),
                ),
                Step::Rows("/orders/put", 2),
            ],
        ),
    ]
}
