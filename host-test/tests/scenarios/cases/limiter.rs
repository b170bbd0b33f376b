//! Limits: costs, refunds, shadows, exemptions, key parts, and which requests a rule is for.

use porch_host::client::Request;

use crate::script::{Begun, On, Scenario, Step, first, is, limited, problem, scenario, send};
use crate::settings::{ANN, ANN_REFRESHED, BEN};

fn get(path: &str) -> Request {
    Request::get(path)
}

fn from(path: &str, forwarded: &str) -> Request {
    get(path).header("x-forwarded-for", forwarded)
}

#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn scenarios() -> Vec<Scenario> {
    let costs = |cost: &str| get("/cost").header("x-cost", cost);
    let two = |client: &str| get("/two").header("x-client", client);
    let ab = |a: &str, b: &str| get("/by-header").header("x-a", a).header("x-b", b);
    let at = |host: &str, path: &str| get(path).header("host", host);
    let of = |token: &str| get("/by-principal").header("authorization", token);
    let grpc = || Request::post("/grpc/Method", "x").header("content-type", "application/grpc");
    let preflight =
        || Request::new("OPTIONS", "/preflight").header("access-control-request-method", "POST");
    vec![
        scenario(
            &["L01", "L05"],
            "N pass, each told what is left",
            vec![
                send(
                    get("/counts-all"),
                    is(200)
                        .left("counts-all", 2)
                        .has("ratelimit-policy", "\"counts-all\";q=3;w=10"),
                ),
                send(
                    get("/counts-all"),
                    is(200)
                        .left("counts-all", 1)
                        .has("x-ratelimit-remaining", "1"),
                ),
                send(
                    get("/counts-all"),
                    is(200)
                        .left("counts-all", 0)
                        .has("ratelimit-policy", "\"counts-all\";q=3;w=10"),
                ),
                send(
                    get("/counts-all"),
                    limited()
                        .left("counts-all", 0)
                        .has("x-ratelimit-limit", "3"),
                ),
            ],
        ),
        scenario(
            &["L02"],
            "a window ends to the millisecond",
            vec![
                send(get("/exact"), is(200)),
                Step::Wait(1_999),
                send(get("/exact"), limited()),
                Step::Wait(1),
                send(get("/exact"), is(200)),
            ],
        )
        .only_on(
            On::Core,
            "a real clock cannot be asked for one millisecond; windows.rs sees windows end",
        ),
        scenario(
            &["L14"],
            "a refusal by one rule charges no other",
            vec![
                send(two("a"), is(200).left("second-rule", 1)),
                send(two("a"), limited().left("second-rule", 1)),
                send(two("a"), limited()),
                send(two("b"), is(200).left("second-rule", 0)),
                send(two("c"), limited()),
            ],
        ),
        scenario(
            &["L16"],
            "hammering does not push the reset away",
            vec![
                send(get("/hammered"), is(200)),
                Step::Wait(700),
                send(get("/hammered"), limited()),
                Step::Wait(700),
                send(get("/hammered"), limited()),
                Step::Wait(700),
                send(get("/hammered"), is(200)),
            ],
        ),
        scenario(
            &["L17"],
            "a cost that does not fit charges nothing",
            vec![
                send(costs("1"), is(200).left("cost", 2)),
                send(costs("3"), limited().left("cost", 2)),
                send(costs("4"), is(429).never_again().left("cost", 2)),
                send(costs("0"), is(200).left("cost", 2)),
                send(costs("many"), is(200).left("cost", 1)),
                Step::Counted("limiter.rule.cost.outcome.bad_cost", 1),
                send(get("/cost"), is(200).left("cost", 0)),
                send(costs("0"), is(200).left("cost", 0)),
                send(costs("1"), limited()),
                send(get("/dear"), is(200).left("dear", 1)),
                send(get("/dear"), limited().left("dear", 1)),
            ],
        ),
        scenario(
            &["L19"],
            "a quota of nothing refuses all",
            vec![
                send(get("/none"), is(429).left("none", 0)),
                send(get("/none"), is(429)),
            ],
        ),
        scenario(
            &["L21"],
            "a refund follows the status that the client sees",
            vec![
                send(
                    Request::post("/orders/refund?status=404", "x"),
                    is(404).left("refund", 1),
                ),
                Step::Counted("limiter.rule.refund.outcome.refunded", 1),
                send(get("/orders/refund"), is(200).left("refund", 1)),
                send(
                    Request::post("/orders/refund", "x").header("idempotency-key", ""),
                    problem(400, "key-invalid").left("refund", 0),
                ),
                Step::Counted("limiter.rule.refund.outcome.refunded", 2),
                Step::Until(get("/orders/refund"), is(200).left("refund", 0)),
                send(get("/orders/refund"), limited()),
                send(get("/direct"), is(503).left("refund-direct", 0)),
                Step::Until(get("/direct"), is(503).left("refund-direct", 0)),
                Step::Until(get("/direct"), is(503).left("refund-direct", 0)),
            ],
        ),
        scenario(
            &["L20"],
            "a refund goes into the window that was charged",
            vec![
                Step::Start(
                    "late",
                    Request::post("/orders/late-refund?status=404&delay_ms=5000", "x"),
                    Begun::Running,
                ),
                Step::Wait(4_100),
                send(get("/orders/late-refund"), is(200).left("refund-late", 1)),
                Step::Finish("late", is(404)),
                Step::Counted("limiter.rule.refund-late.outcome.refunded", 1),
                send(get("/orders/late-refund"), is(200).left("refund-late", 0)),
                send(get("/orders/late-refund"), limited()),
            ],
        ),
        scenario(
            &["L24"],
            "one IPv4 address, however it is written",
            vec![
                send(from("/address", "1.2.3.4"), is(200)),
                send(from("/address", "::ffff:1.2.3.4"), limited()),
                send(from("/address", "::ffff:102:304"), limited()),
                send(from("/address", "1.2.3.5"), is(200)),
            ],
        ),
        scenario(
            &["L25"],
            "IPv6 by its first 64 bits",
            vec![
                send(from("/address", "2001:db8:0:1::1"), is(200)),
                send(from("/address", "2001:db8:0:1:ffff::2"), limited()),
                send(from("/address", "2001:db8:0:2::1"), is(200)),
                send(from("/address", "2001:db8::1.2.3.4"), is(200)),
                send(from("/address", "2001:db8::9"), limited()),
            ],
        ),
        scenario(
            &["L22"],
            "what a client puts before the trusted hop's word counts for nothing",
            vec![
                send(from("/address", "192.0.2.1, 192.0.2.99"), is(200)),
                send(from("/address", "192.0.2.2, 192.0.2.99"), limited()),
                send(
                    from("/address", "192.0.2.99")
                        .header("x-real-ip", "192.0.2.3")
                        .header("forwarded", "for=192.0.2.4"),
                    limited(),
                ),
            ],
        ),
        scenario(
            &["L27"],
            "without an address: one bucket",
            vec![
                send(get("/address").header("x-unix-socket", "yes"), is(200)),
                send(get("/address").header("x-unix-socket", "yes"), limited()),
                Step::Counted("limiter.rule.address.outcome.key_missing", 2),
            ],
        )
        .only_on(On::Core, "the harness's client comes by TCP"),
        scenario(
            &["L28"],
            "key parts are framed",
            vec![
                send(ab("ab", "c"), is(200)),
                send(ab("a", "bc"), is(200)),
                send(ab("a, b", "c"), is(200)),
                send(
                    get("/by-header")
                        .header("x-a", "a")
                        .header("x-a", "b")
                        .header("x-b", "c"),
                    limited(),
                ),
                send(ab("ab", "c"), limited()),
            ],
        ),
        scenario(
            &["L29"],
            "a missing part is no value, and is counted by address",
            vec![
                send(get("/by-header").header("x-b", "b"), is(200)),
                Step::Counted("limiter.rule.by-header.outcome.key_missing", 1),
                send(
                    get("/by-header")
                        .header("x-a", "127.0.0.1")
                        .header("x-b", "b"),
                    is(200),
                ),
                send(
                    get("/by-header").header("x-a", "").header("x-b", "b"),
                    is(200),
                ),
                send(get("/by-header").header("x-b", "b"), limited()),
                send(
                    from("/by-header", "198.51.100.7").header("x-b", "b"),
                    is(200),
                ),
            ],
        ),
        scenario(
            &["L28"],
            "by method, path, authority, route and principal",
            vec![
                send(get("/by-method"), is(200)),
                send(Request::post("/by-method", ""), is(404)),
                send(get("/by-method"), limited()),
                send(get("/by-path/a"), is(200)),
                send(get("/by-path/b"), is(200)),
                send(get("/by-path/a?x"), limited()),
                send(get("/by-path/./a"), limited()),
                send(at("a.test", "/by-authority"), is(200)),
                send(at("b.test", "/by-authority"), is(200)),
                send(at("A.Test:80", "/by-authority"), limited()),
                send(get("/by-route/one"), is(200)),
                send(get("/by-route/two"), is(200)),
                send(get("/by-route/one/more"), limited()),
                send(of(ANN), is(200)),
                send(of(BEN), is(200)),
                send(of(ANN_REFRESHED), limited()),
                send(get("/by-principal"), is(200)),
                Step::Counted("limiter.rule.by-principal.outcome.key_missing", 1),
            ],
        )
        .only_on(On::Envoy, "the proxy normalises paths"),
        scenario(
            &[],
            "rules by route, header, authority and method",
            vec![
                send(get("/named/on"), is(200).left("named", 0)),
                send(get("/named/on/more"), limited()),
                send(get("/named/off"), is(200).lacks("ratelimit")),
                send(
                    get("/plan").header("x-plan", "gold"),
                    is(200).left("gold", 0),
                ),
                send(
                    get("/plan").header("x-plan", "tin"),
                    is(200).lacks("ratelimit"),
                ),
                send(get("/plan").header("x-plan", "gold"), limited()),
                send(at("shop.test", "/hosts"), is(200).left("shop", 0)),
                send(at("other.test", "/hosts"), is(200).lacks("ratelimit")),
                send(at("SHOP.test:80", "/hosts"), limited()),
                send(get("/methods"), is(200).lacks("ratelimit")),
                send(Request::post("/methods", ""), is(404)),
                send(Request::post("/methods", ""), limited()),
            ],
        ),
        scenario(
            &["L30"],
            "preflights are exempt, other OPTIONS and HEAD are not",
            vec![
                send(preflight(), is(405).lacks("ratelimit")),
                send(preflight(), is(405).lacks("ratelimit")),
                Step::Counted("limiter.rule.preflight.outcome.exempt", 2),
                send(
                    Request::new("OPTIONS", "/preflight"),
                    is(405).left("preflight", 0),
                ),
                send(
                    Request::new("HEAD", "/preflight"),
                    is(429)
                        .bytes(0)
                        .has("content-type", "application/problem+json")
                        .has("cache-control", "no-store"),
                ),
            ],
        ),
        scenario(
            &["L30", "L37"],
            "HEAD is counted, and refused without a body",
            vec![
                send(
                    Request::new("HEAD", "/head"),
                    is(200).bytes(0).left("head", 0),
                ),
                send(
                    Request::new("HEAD", "/head"),
                    is(429).bytes(0).has("cache-control", "no-store"),
                ),
                send(get("/head"), limited().has("cache-control", "no-store")),
            ],
        ),
        scenario(
            &["L31"],
            "exempt by the derived address, or by a header",
            vec![
                send(from("/exempt", "203.0.113.7"), is(200).lacks("ratelimit")),
                send(from("/exempt", "203.0.113.7"), is(200).lacks("ratelimit")),
                send(
                    from("/exempt", "203.0.113.7, 198.51.100.1"),
                    is(200).left("trusted", 0),
                ),
                send(from("/exempt", "203.0.113.7, 198.51.100.1"), limited()),
                send(
                    from("/exempt", "198.51.100.1").header("x-internal", "yes"),
                    is(200).lacks("ratelimit"),
                ),
            ],
        ),
        scenario(
            &["L32"],
            "a shadow refuses nothing and says nothing",
            vec![
                send(
                    get("/shadow"),
                    is(200)
                        .lacks("ratelimit")
                        .lacks("ratelimit-policy")
                        .lacks("x-ratelimit-limit"),
                ),
                send(get("/shadow"), is(200).lacks("ratelimit")),
                Step::Counted("limiter.rule.watched.outcome.shadow", 1),
                send(
                    get("/shadow/beside"),
                    is(200)
                        .left("beside", 2)
                        .has("ratelimit-policy", "\"beside\";q=3;w=600"),
                ),
                Step::Counted("limiter.rule.watched.outcome.shadow", 2),
            ],
        ),
        scenario(
            &["L37"],
            "a gRPC caller is refused in its own way",
            vec![
                send(grpc(), is(404).left("grpc", 0)),
                send(
                    grpc(),
                    is(200)
                        .has("grpc-status", "8")
                        .has("grpc-retry-pushback-ms", "30000")
                        .bytes(0),
                ),
            ],
        ),
        scenario(
            &["L39"],
            "an upgrade is charged once",
            vec![
                send(
                    get("/socket")
                        .header("connection", "upgrade")
                        .header("upgrade", "websocket"),
                    is(200).left("socket", 1),
                ),
                send(get("/socket"), is(200).left("socket", 0)),
            ],
        ),
        scenario(
            &["X02"],
            "a replay costs quota and tells today's limits",
            vec![
                send(
                    Request::post("/orders/replays", "x").key("replays"),
                    first(201).left("replays", 2),
                ),
                send(
                    Request::post("/orders/replays", "x").key("replays"),
                    is(201)
                        .left("replays", 1)
                        .has("idempotent-replayed", "true"),
                ),
                send(
                    Request::post("/orders/replays", "x").key("replays"),
                    is(201).left("replays", 0).times("ratelimit", 1),
                ),
                send(
                    Request::post("/orders/replays", "x").key("replays"),
                    limited(),
                ),
                send(
                    Request::post("/orders/replays", "x").key("other"),
                    limited(),
                ),
                Step::Rows("/orders/replays", 1),
            ],
        ),
        scenario(
            &["X01", "X03"],
            "our own refusals cost quota, and a limited key is not used up",
            vec![
                send(
                    Request::post("/orders/oracle", "x"),
                    problem(400, "key-missing").left("oracle", 3),
                ),
                send(
                    Request::post("/orders/oracle", "x").key("k"),
                    first(201).left("oracle", 2),
                ),
                send(
                    Request::post("/orders/oracle", "y").key("k"),
                    problem(422, "fingerprint-mismatch").left("oracle", 1),
                ),
                send(
                    Request::post("/orders/oracle", "y").key("k"),
                    problem(422, "fingerprint-mismatch").left("oracle", 0),
                ),
                send(Request::post("/orders/oracle", "x").key("new"), limited()),
                Step::Rows("/orders/oracle", 1),
                Step::Counted("idempotency.policy.oracle.outcome.executed", 1),
            ],
        ),
    ]
}
