//! Who executes, and what is certain about it.

use porch_host::client::Request;

use crate::script::{Begun, Scenario, Step, first, is, mismatch, problem, replay, scenario, send};

#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn scenarios() -> Vec<Scenario> {
    let post = |path: &str| Request::post(path, "tea").key(path);
    let unknown = |status: u16| problem(status, "outcome-unknown");
    let in_flight = || problem(409, "in-flight");
    let not_known = |path: &'static str, status: u16| {
        [
            send(post(path), is(status).lacks("idempotent-replayed")),
            send(post(path), unknown(status)),
            send(post(path), unknown(status)),
        ]
    };
    let released = |path: &'static str, status: u16| {
        [
            send(post(path), first(status)),
            send(post(path), first(status)),
        ]
    };
    let slow = "/orders/slow?delay_ms=1500";
    let waits = "/orders/waits?delay_ms=1000";
    let waits_little = "/orders/waits-a-little?delay_ms=3000";
    let left = "/orders/left?delay_ms=800";
    let forward = "/orders/forward/slow?delay_ms=1500";
    let forward_left = "/orders/forward/left?delay_ms=3000";
    vec![
        scenario(
            &["I34", "I35"],
            "while the first runs, a second is refused",
            vec![
                Step::Start("first", post(slow), Begun::Running),
                send(post(slow), in_flight()),
                send(Request::post(slow, "coffee").key(slow), mismatch()),
                Step::Finish("first", first(201).called("first")),
                send(post(slow), replay(201).like("first")),
                Step::Rows("/orders/slow", 1),
                Step::Start("forwarded", post(forward), Begun::Running),
                send(post(forward), in_flight()),
                send(Request::post(forward, "coffee").key(forward), mismatch()),
                Step::Finish("forwarded", first(201).called("forwarded")),
                send(post(forward), replay(201).like("forwarded")),
                Step::Rows("/orders/forward/slow", 1),
            ],
        ),
        scenario(
            &["I37"],
            "a second that waits gets the replay",
            vec![
                Step::Start("first", post(waits), Begun::Running),
                Step::Start("second", post(waits), Begun::Sent),
                Step::Finish("first", first(201).called("first")),
                Step::Finish("second", replay(201).like("first")),
                Step::Rows("/orders/waits", 1),
            ],
        ),
        scenario(
            &["I37"],
            "a second waits so long and no longer, and never for another request",
            vec![
                Step::Start("first", post(waits_little), Begun::Running),
                send(post(waits_little), in_flight()),
                send(
                    Request::post(waits_little, "coffee").key(waits_little),
                    mismatch(),
                ),
                Step::Finish("first", first(201)),
                send(post(waits_little), replay(201)),
                Step::Rows("/orders/waits-a-little", 1),
            ],
        ),
        scenario(
            &["I37", "I44"],
            "the first is released: one that waits runs",
            vec![
                Step::Start(
                    "first",
                    post("/orders/waits/released?delay_ms=1000&status=429"),
                    Begun::Running,
                ),
                Step::Start(
                    "second",
                    post("/orders/waits/released?delay_ms=1000&status=429"),
                    Begun::Sent,
                ),
                Step::Finish("first", first(429)),
                Step::Finish("second", first(429)),
                Step::Rows("/orders/waits/released", 2),
            ],
        ),
        scenario(
            &["I70"],
            "a client that leaves: its request goes on",
            vec![
                Step::Start("left", post(left), Begun::Running),
                Step::Leave("left"),
                Step::Until(post(left), replay(201)),
                Step::Rows("/orders/left", 1),
            ],
        ),
        scenario(
            &["I70"],
            "forwarded, a client that leaves makes the outcome unknown",
            vec![
                Step::Start("left", post(forward_left), Begun::Running),
                Step::Leave("left"),
                Step::Until(post(forward_left), unknown(500)),
                Step::Rows("/orders/forward/left", 1),
            ],
        ),
        scenario(
            &["I44"],
            "what says that it was not processed is released",
            [
                released("/orders/unprocessed?status=401", 401),
                released("/orders/unprocessed?status=407", 407),
                released("/orders/unprocessed?status=408", 408),
                released("/orders/unprocessed?status=421", 421),
                released("/orders/unprocessed?status=425", 425),
                released("/orders/unprocessed?status=429", 429),
                released("/orders/unprocessed?status=503&retry_after=1", 503),
                released("/orders/forward/unprocessed?status=429", 429),
                released("/orders/forward/unprocessed?status=503&retry_after=1", 503),
            ]
            .into_iter()
            .flatten()
            .chain([
                Step::Rows("/orders/unprocessed", 14),
                Step::Rows("/orders/forward/unprocessed", 4),
            ])
            .collect(),
        ),
        scenario(
            &["I44", "I47"],
            "what cannot be known is told with the status of then",
            [
                not_known("/orders/unknown?status=503", 503),
                not_known("/orders/unknown?status=502", 502),
                not_known("/orders/unknown?status=504", 504),
                not_known("/orders/unknown?reset=1", 503),
                not_known("/orders/unknown?junk=1", 502),
                not_known("/orders/unknown?body=binary&bytes=200000&send=half", 502),
                not_known("/orders/forward/unknown?status=503", 503),
                not_known("/orders/forward/unknown?reset=1", 503),
                not_known("/orders/forward/unknown?junk=1", 502),
                not_known(
                    "/orders/forward/unknown?body=binary&bytes=200000&send=half",
                    502,
                ),
            ]
            .into_iter()
            .flatten()
            .chain([
                Step::Rows("/orders/unknown", 6),
                Step::Rows("/orders/forward/unknown", 4),
            ])
            .collect(),
        ),
        scenario(
            &["I47"],
            "where the service is idempotent, an unknown one runs again",
            vec![
                send(post("/orders/again?reset=1"), is(503)),
                send(post("/orders/again?reset=1"), is(503)),
                Step::Rows("/orders/again", 2),
            ],
        ),
        scenario(
            &["I48"],
            "forwarded on a route that retries: sent once, when keyed",
            vec![
                send(
                    Request::post("/orders/forward/retried/plain?status=500", "tea"),
                    is(500),
                ),
                Step::Rows("/orders/forward/retried/plain", 4),
                send(post("/orders/forward/retried/keyed?status=500"), first(500)),
                send(
                    post("/orders/forward/retried/keyed?status=500"),
                    replay(500),
                ),
                send(post("/orders/forward/retried/keyed?reset=1"), is(503)),
                send(post("/orders/forward/retried/keyed?reset=1"), unknown(503)),
                Step::Rows("/orders/forward/retried/keyed", 2),
            ],
        ),
        scenario(
            &["I31"],
            "a body that is too large to hold is never passed",
            vec![
                send(
                    Request::post("/orders/too-large", vec![b'x'; (1 << 20) + 1]).key("too-large"),
                    problem(413, "request-too-large"),
                ),
                send(
                    Request::post("/orders/forward/too-large", vec![b'x'; (1 << 20) + 1])
                        .key("too-large"),
                    problem(413, "request-too-large"),
                ),
                Step::Rows("/orders/too-large", 0),
                Step::Rows("/orders/forward/too-large", 0),
            ],
        ),
    ]
}
