//! Whose key it is, and what makes two requests the same.

use porch_host::client::Request;

use crate::script::{On, Scenario, Step, first, is, mismatch, problem, replay, scenario, send};
use crate::settings::{ANN, ANN_REFRESHED, BEN, REVOKED};

#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn scenarios() -> Vec<Scenario> {
    let by = |path: &str, name: &str, value: &str| {
        Request::post(path, "tea").key("k").header(name, value)
    };
    let jwt = |token: &str| by("/orders/jwt", "authorization", token);
    let token = |token: &str| by("/orders/token", "authorization", token);
    let session = |cookie: &str| by("/orders/session", "cookie", cookie);
    let user = |user: &str| by("/orders/user", "x-user", user);
    let tenant = |tenant: &str| by("/orders/tenant", "x-tenant", tenant);
    // A key belongs to a policy, not to a path: paths of one policy need keys of their own.
    let post = |path: &str, body: &[u8]| Request::post(path, body).key("scope");
    let form = |content_type: &str, body: &str| {
        Request::post("/orders/type", body)
            .key("type")
            .header("content-type", content_type)
    };
    let lacks_principal = || problem(400, "principal-missing");
    vec![
        scenario(
            &["I13"],
            "each user has keys of its own",
            vec![
                send(user("p1"), first(201).called("p1")),
                send(user("p2"), first(201).called("p2")),
                send(user("p1"), replay(201).like("p1")),
                send(user("p2"), replay(201).like("p2")),
                send(user(""), lacks_principal()),
                send(
                    Request::post("/orders/user", "tea").key("k"),
                    lacks_principal(),
                ),
                Step::Rows("/orders/user", 2),
            ],
        ),
        scenario(
            &["I13", "I14", "I16", "X05"],
            "a verified claim is who it is, whatever the token",
            vec![
                send(jwt(ANN), first(201).called("ann")),
                send(
                    jwt(ANN_REFRESHED),
                    is(201).has("idempotent-replayed", "true"),
                ),
                send(jwt(BEN), first(201)),
                send(jwt(REVOKED), is(401).lacks("idempotent-replayed")),
                send(Request::post("/orders/jwt", "tea").key("k"), is(401)),
                send(Request::post("/orders/jwt", "tea").key("fresh"), is(401)),
                send(
                    Request::post("/orders/jwt", "tea")
                        .key("fresh")
                        .header("authorization", BEN),
                    first(201),
                ),
                Step::Rows("/orders/jwt", 3),
            ],
        ),
        scenario(
            &["I13"],
            "a credential is no name: another one gets a refusal, not an answer",
            vec![
                send(token("Bearer one"), first(201).called("first")),
                send(token("Bearer one"), replay(201).like("first")),
                send(token("Bearer two"), mismatch()),
                send(
                    Request::post("/orders/token", "tea").key("k"),
                    lacks_principal(),
                ),
                Step::Rows("/orders/token", 1),
                send(session("theme=x; sid=one"), first(201).called("session")),
                send(session("sid=one; theme=y"), replay(201).like("session")),
                send(session("sid=two"), mismatch()),
                send(session("theme=x"), lacks_principal()),
                Step::Rows("/orders/session", 1),
            ],
        ),
        scenario(
            &["I19"],
            "a forged mark is stripped, the client's and the service's",
            vec![
                send(
                    Request::post("/orders/forged?forged=1", "tea")
                        .key("forged")
                        .header("idempotent-replayed", "true"),
                    first(201).called("first"),
                ),
                send(
                    Request::post("/orders/forged?forged=1", "tea").key("forged"),
                    replay(201).times("idempotent-replayed", 1).like("first"),
                ),
                send(Request::post("/orders/forged?forged=1", "tea"), first(201)),
                send(
                    Request::post("/orders/forward/forged?forged=1", "tea").key("forged"),
                    first(201),
                ),
                send(
                    Request::post("/orders/forward/forged?forged=1", "tea").key("forged"),
                    replay(201).times("idempotent-replayed", 1),
                ),
            ],
        ),
        scenario(
            &["I20", "I21", "I22", "I23", "I24"],
            "another request under the key is refused, and the first still replays",
            vec![
                send(post("/orders/a?a=1&b=2", b"bc"), first(201).called("first")),
                send(post("/orders/a?a=1&b=2", b"bd"), mismatch()),
                send(post("/orders/ab?a=1&b=2", b"c"), mismatch()),
                send(post("/orders/a?a=1&b=3", b"bc"), mismatch()),
                send(post("/orders/a?b=2&a=1", b"bc"), mismatch()),
                send(post("/orders/a?a=1%26b=2", b"bc"), mismatch()),
                send(
                    Request::new("PATCH", "/orders/a?a=1&b=2")
                        .body("bc")
                        .key("scope"),
                    mismatch(),
                ),
                send(post("/orders/a?a=1&b=2", b"bc"), replay(201).like("first")),
                Step::Rows("/orders/a", 1),
                Step::Rows("/orders/ab", 0),
            ],
        ),
        scenario(
            &["I25", "I26", "I27", "I29"],
            "bytes count, and what they are said to be",
            vec![
                send(form("application/json", "{\"a\":1,\"b\":2}"), first(201)),
                send(
                    form("application/x-www-form-urlencoded", "{\"a\":1,\"b\":2}"),
                    mismatch(),
                ),
                send(form("application/json", "{\"b\":2,\"a\":1}"), mismatch()),
                send(form("multipart/form-data; boundary=x", "--x"), mismatch()),
                send(form("application/json", "{\"a\":1,\"b\":2}"), replay(201)),
                Step::Rows("/orders/type", 1),
            ],
        ),
        scenario(
            &["I29"],
            "bytes that are no text",
            vec![
                send(
                    Request::post("/orders/bytes", vec![0xff]).key("bytes"),
                    first(201),
                ),
                send(
                    Request::post("/orders/bytes", vec![0xfe]).key("bytes"),
                    mismatch(),
                ),
                send(
                    Request::post("/orders/bytes", vec![0xff]).key("bytes"),
                    replay(201),
                ),
            ],
        ),
        scenario(
            &["I27"],
            "a multipart body with a new boundary is another",
            vec![
                send(
                    Request::post("/orders/parts", "--x\r\n\r\n1\r\n--x--")
                        .key("p")
                        .header("content-type", "multipart/form-data; boundary=x"),
                    first(201),
                ),
                send(
                    Request::post("/orders/parts", "--y\r\n\r\n1\r\n--y--")
                        .key("p")
                        .header("content-type", "multipart/form-data; boundary=y"),
                    mismatch(),
                ),
                Step::Rows("/orders/parts", 1),
            ],
        ),
        scenario(
            &["I30"],
            "no body and an empty one",
            vec![
                send(Request::new("DELETE", "/orders/empty").key("e"), first(201)),
                send(
                    Request::new("DELETE", "/orders/empty")
                        .key("e")
                        .header("content-length", "0"),
                    replay(201),
                ),
                Step::Rows("/orders/empty", 1),
            ],
        ),
        scenario(
            &["I33"],
            "other headers are not the request",
            vec![
                send(
                    Request::post("/orders/headers", "tea")
                        .key("h")
                        .header("user-agent", "a"),
                    first(201).called("first"),
                ),
                send(
                    Request::post("/orders/headers", "tea")
                        .key("h")
                        .header("user-agent", "b")
                        .header("accept", "x/y")
                        .header("cookie", "a=b")
                        .header("traceparent", "00-1-2-01"),
                    replay(201).like("first"),
                ),
                Step::Rows("/orders/headers", 1),
            ],
        ),
        scenario(
            &["I33"],
            "conditions are, and what a policy names",
            vec![
                send(
                    Request::post("/orders/conditions", "tea")
                        .key("c")
                        .header("if-match", "\"1\""),
                    first(201),
                ),
                send(
                    Request::post("/orders/conditions", "tea")
                        .key("c")
                        .header("if-match", "\"2\""),
                    mismatch(),
                ),
                send(
                    Request::post("/orders/conditions", "tea").key("c"),
                    mismatch(),
                ),
                send(tenant("a"), first(201)),
                send(tenant("b"), mismatch()),
                send(tenant("a"), replay(201)),
                Step::Rows("/orders/tenant", 1),
            ],
        ),
        scenario(
            &["I51", "I52"],
            "safe methods ignore keys, PUT and DELETE do not",
            vec![
                send(Request::get("/orders/safe").key("s"), first(200)),
                send(Request::get("/orders/safe").key("s"), first(200)),
                send(Request::new("HEAD", "/orders/safe").key("s"), first(200)),
                send(Request::new("OPTIONS", "/orders/safe").key("s"), first(405)),
                send(Request::post("/orders/safe", "tea").key("s"), first(201)),
                send(
                    Request::new("PUT", "/orders/put").body("tea").key("put"),
                    first(201),
                ),
                send(
                    Request::new("PUT", "/orders/put").body("tea").key("put"),
                    replay(201),
                ),
                send(
                    Request::new("DELETE", "/orders/gone").key("gone"),
                    first(201),
                ),
                send(
                    Request::new("DELETE", "/orders/gone").key("gone"),
                    replay(201),
                ),
                Step::Rows("/orders/safe", 1),
            ],
        ),
        scenario(
            &["I51"],
            "TRACE and QUERY pass",
            vec![
                send(Request::new("TRACE", "/orders/trace").key("s"), first(405)),
                send(Request::new("QUERY", "/orders/trace").key("s"), first(405)),
            ],
        )
        .only_on(
            On::Core,
            "the proxy's HTTP/1.1 refuses both by itself, with 400",
        ),
        scenario(
            &["I02"],
            "a policy that the route names",
            vec![
                send(
                    Request::post("/orders/named/on", "tea"),
                    problem(400, "key-missing"),
                ),
                send(
                    Request::new("PATCH", "/orders/named/on").body("tea"),
                    problem(400, "key-missing"),
                ),
                Step::Rows("/orders/named/on", 0),
                send(Request::post("/orders/named/off", "tea"), first(201)),
                send(
                    Request::new("PUT", "/orders/named/on").body("tea"),
                    first(201),
                ),
            ],
        ),
        scenario(
            &["I63"],
            "gRPC and upgrades pass, and are counted",
            vec![
                send(
                    Request::post("/orders/grpc", "tea")
                        .key("g")
                        .header("content-type", "application/grpc"),
                    first(201),
                ),
                send(
                    Request::post("/orders/grpc", "tea")
                        .key("g")
                        .header("content-type", "application/grpc"),
                    first(201),
                ),
                Step::Rows("/orders/grpc", 2),
                Step::Counted("idempotency.policy.orders.outcome.bypassed", 2),
            ],
        ),
        scenario(
            &["I63"],
            "CONNECT, and upgrades of any method",
            vec![
                send(
                    Request::new("CONNECT", "/orders/connect").key("connect"),
                    first(405),
                ),
                send(
                    Request::post("/orders/upgraded", "tea")
                        .key("up")
                        .header("upgrade", "x"),
                    first(201),
                ),
                send(
                    Request::post("/orders/upgraded", "tea")
                        .key("up")
                        .header("upgrade", "x"),
                    first(201),
                ),
                Step::Rows("/orders/upgraded", 2),
            ],
        )
        .only_on(On::Core, "no route of the shipped set-up lets them through"),
    ]
}
