//! What is kept of an answer, how it is replayed, and for how long.

use porch_host::client::Request;

use crate::script::{Begun, Scenario, Step, first, is, problem, replay, scenario, send};

const MIB: usize = 1 << 20;

#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn scenarios() -> Vec<Scenario> {
    let post = |path: &str| Request::post(path, "tea").key(path);
    let tombstone = || problem(409, "response-not-retained");
    // Sent twice: executed, then replayed as it was.
    let twice = |path: &'static str, status: u16| {
        [
            send(post(path), first(status).called(path)),
            send(post(path), replay(status).like(path)),
        ]
    };
    let lost = |path: &'static str, status: u16| {
        [
            send(post(path), first(status)),
            send(post(path), tombstone().original(status)),
        ]
    };
    vec![
        scenario(
            &["I43", "I45"],
            "refusals and failures of the service are answers",
            [
                twice("/orders/answers?status=400", 400),
                twice("/orders/answers?status=404", 404),
                twice("/orders/answers?status=409", 409),
                twice("/orders/answers?status=422", 422),
                twice("/orders/answers?status=500", 500),
                twice("/orders/forward/answers?status=404", 404),
                twice("/orders/forward/answers?status=500", 500),
            ]
            .into_iter()
            .flatten()
            .chain([
                Step::Rows("/orders/answers", 5),
                Step::Rows("/orders/forward/answers", 2),
                send(post("/orders/released?status=500"), first(500)),
                send(post("/orders/released?status=500"), first(500)),
                Step::Rows("/orders/released", 2),
            ])
            .collect(),
        ),
        scenario(
            &["I50"],
            "without a body, and without saying so",
            [
                twice("/orders/bodiless?status=204", 204),
                twice("/orders/bodiless?status=304", 304),
                twice("/orders/forward/bodiless?status=204", 204),
                twice("/orders/forward/bodiless?status=304", 304),
            ]
            .into_iter()
            .flatten()
            .chain([
                send(
                    post("/orders/bodiless?status=204"),
                    replay(204)
                        .bytes(0)
                        .lacks("content-length")
                        .lacks("transfer-encoding"),
                ),
                send(
                    post("/orders/forward/bodiless?status=204"),
                    replay(204)
                        .bytes(0)
                        .lacks("content-length")
                        .lacks("transfer-encoding"),
                ),
                Step::Rows("/orders/bodiless", 2),
                Step::Rows("/orders/forward/bodiless", 2),
            ])
            .collect(),
        ),
        scenario(
            &["I54"],
            "as large as is kept, and a byte more",
            vec![
                send(
                    post("/orders/size?body=binary&bytes=1048576"),
                    first(201).bytes(MIB),
                ),
                send(
                    post("/orders/size?body=binary&bytes=1048576"),
                    replay(201).bytes(MIB),
                ),
                send(
                    post("/orders/size?body=binary&bytes=1048577"),
                    first(201).bytes(MIB + 1),
                ),
                send(
                    post("/orders/size?body=binary&bytes=1048577"),
                    tombstone().original(201),
                ),
                send(
                    post("/orders/forward/size?body=binary&bytes=1048576"),
                    first(201).bytes(MIB),
                ),
                send(
                    post("/orders/forward/size?body=binary&bytes=1048576"),
                    replay(201).bytes(MIB),
                ),
                send(
                    post("/orders/forward/size?body=binary&bytes=1048577"),
                    first(201).bytes(MIB + 1),
                ),
                send(
                    post("/orders/forward/size?body=binary&bytes=1048577"),
                    tombstone().original(201),
                ),
                Step::Rows("/orders/size", 2),
                Step::Rows("/orders/forward/size", 2),
            ],
        ),
        scenario(
            &["I53"],
            "forwarded: of unknown length and too long, the first caller gets all",
            vec![
                send(
                    post("/orders/forward/long?body=binary&bytes=1500000&send=chunks"),
                    first(201).bytes(1_500_000),
                ),
                send(
                    post("/orders/forward/long?body=binary&bytes=1500000&send=chunks"),
                    tombstone().original(201),
                ),
                Step::Rows("/orders/forward/long", 1),
            ],
        ),
        scenario(
            &["I53"],
            "forwarded: events reach the client before their end",
            vec![
                Step::Start(
                    "events",
                    post("/orders/forward/events?body=events&send=endless"),
                    Begun::Running,
                ),
                Step::Head("events", is(201).has("content-type", "text/event-stream")),
                Step::Until(
                    post("/orders/forward/events?body=events&send=endless"),
                    tombstone().original(201),
                ),
                Step::Leave("events"),
                send(
                    post("/orders/forward/events?body=events&send=endless"),
                    tombstone().original(201),
                ),
                Step::Rows("/orders/forward/events", 1),
            ],
        ),
        scenario(
            &["I56"],
            "compressed bytes are bytes",
            [
                twice("/orders/packed?body=gzip", 201),
                twice("/orders/forward/packed?body=gzip", 201),
            ]
            .into_iter()
            .flatten()
            .chain([
                send(
                    post("/orders/packed?body=gzip"),
                    replay(201)
                        .has("content-encoding", "gzip")
                        .times("content-encoding", 1),
                ),
                send(
                    post("/orders/packed?body=gzip").header("accept-encoding", "identity"),
                    replay(201).has("content-encoding", "gzip"),
                ),
                Step::Rows("/orders/packed", 1),
            ])
            .collect(),
        ),
        scenario(
            &["I57"],
            "what came in chunks is framed anew",
            [
                twice("/orders/chunks?send=chunks", 201),
                twice("/orders/forward/chunks?send=chunks", 201),
            ]
            .into_iter()
            .flatten()
            .chain([
                send(
                    post("/orders/chunks?send=chunks"),
                    replay(201).lacks("transfer-encoding"),
                ),
                send(
                    post("/orders/forward/chunks?send=chunks"),
                    replay(201).lacks("transfer-encoding"),
                ),
                send(
                    post("/orders/chunks?send=chunks").version_1_0(),
                    replay(201)
                        .lacks("transfer-encoding")
                        .like("/orders/chunks?send=chunks"),
                ),
                Step::Rows("/orders/chunks", 1),
            ])
            .collect(),
        ),
        scenario(
            &["I58"],
            "cookies are for one caller, unless a policy keeps them",
            vec![
                send(
                    post("/orders/sets?cookies=1"),
                    first(201).times("set-cookie", 2),
                ),
                send(
                    post("/orders/sets?cookies=1"),
                    replay(201).times("set-cookie", 0),
                ),
                send(
                    post("/orders/cookies?cookies=1"),
                    first(201).times("set-cookie", 2),
                ),
                send(
                    post("/orders/cookies?cookies=1"),
                    replay(201).times("set-cookie", 2).has(
                        "set-cookie",
                        "sid=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/",
                    ),
                ),
                send(
                    post("/orders/forward/sets?cookies=1"),
                    first(201).times("set-cookie", 2),
                ),
                send(
                    post("/orders/forward/sets?cookies=1"),
                    replay(201).times("set-cookie", 0),
                ),
            ],
        ),
        scenario(
            &["I61", "I66"],
            "lines of one exchange are not replayed",
            vec![
                send(post("/orders/lines?own_lines=1"), first(201)),
                send(
                    post("/orders/lines?own_lines=1"),
                    replay(201)
                        .lacks("x-request-id")
                        .lacks("traceparent")
                        .lacks("ratelimit")
                        .lacks("age")
                        .has("cache-control", "public, max-age=60"),
                ),
                send(post("/orders/forward/lines?own_lines=1"), first(201)),
                send(
                    post("/orders/forward/lines?own_lines=1"),
                    replay(201)
                        .lacks("x-request-id")
                        .lacks("traceparent")
                        .lacks("ratelimit")
                        .lacks("age")
                        .has("cache-control", "public, max-age=60"),
                ),
            ],
        ),
        scenario(
            &["I64"],
            "trailers cannot be replayed: said, or dropped as told",
            {
                let trailed = |path: &'static str| post(path).header("te", "trailers");
                vec![
                    send(trailed("/orders/trailed?send=trailers"), first(201)),
                    send(
                        trailed("/orders/trailed?send=trailers"),
                        tombstone().original(201),
                    ),
                    Step::Counted("idempotency.policy.orders.outcome.not_kept", 2),
                    send(
                        trailed("/orders/no-trailers?send=trailers"),
                        first(201).called("dropped"),
                    ),
                    send(
                        trailed("/orders/no-trailers?send=trailers"),
                        replay(201).like("dropped"),
                    ),
                    send(trailed("/orders/forward/trailed?send=trailers"), first(201)),
                    send(
                        trailed("/orders/forward/trailed?send=trailers"),
                        tombstone().original(201),
                    ),
                ]
            },
        ),
        scenario(
            &[],
            "a policy that keeps nothing remembers all the same",
            lost("/orders/unkept", 201)
                .into_iter()
                .chain([Step::Rows("/orders/unkept", 1)])
                .collect(),
        ),
        scenario(
            &["I73"],
            "kept, then remembered, then new",
            vec![
                send(post("/orders/short"), first(201)),
                Step::Wait(100),
                send(post("/orders/short"), replay(201)),
                Step::Wait(2_000),
                send(post("/orders/short"), tombstone().original(201)),
                Step::Wait(2_000),
                send(post("/orders/short"), first(201)),
                Step::Rows("/orders/short", 2),
            ],
        ),
        scenario(
            &["I62"],
            "after `Expect: 100-continue` the final answer is kept",
            vec![
                send(
                    post("/orders/expects").header("expect", "100-continue"),
                    first(201).called("expected"),
                ),
                send(
                    post("/orders/expects").header("expect", "100-continue"),
                    replay(201).like("expected"),
                ),
                send(
                    post("/orders/forward/expects").header("expect", "100-continue"),
                    first(201),
                ),
                send(post("/orders/forward/expects"), replay(201)),
            ],
        ),
    ]
}
