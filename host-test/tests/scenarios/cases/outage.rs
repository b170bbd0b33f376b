//! The store away.

use porch_host::client::Request;

use crate::script::{Begun, Scenario, Step, first, is, limited, problem, replay, scenario, send};

/// Where the limiter lets all pass meanwhile.
pub(crate) fn allow() -> Vec<Scenario> {
    vec![scenario(
        &["L34", "I72"],
        "`allow`: all pass uncounted, and keyed requests do not run",
        vec![
            send(Request::get("/allowed"), is(200).left("allowed", 0)),
            Step::Store(false),
            Step::Until(Request::get("/allowed?2"), is(200).lacks("ratelimit")),
            send(
                Request::post("/orders/away", "tea").header("x-request-key", "\"a\""),
                problem(503, "store-unavailable"),
            ),
            send(Request::post("/orders/away", "tea"), first(201)),
            Step::Rows("/orders/away", 1),
            Step::Store(true),
            Step::Until(Request::get("/allowed"), limited()),
            Step::Until(
                Request::post("/orders/away", "tea").header("x-request-key", "\"a\""),
                first(201),
            ),
        ],
    )]
}

/// Where the worker goes on counting by itself.
pub(crate) fn local() -> Vec<Scenario> {
    let slow = || Request::post("/orders/lost?delay_ms=1500", "tea").key("lost");
    vec![
        scenario(
            &["L34"],
            "`local`: goes on from what it last saw, and tells the store afterwards",
            vec![
                send(Request::get("/charged"), is(200).left("charged", 2)),
                Step::Store(false),
                send(Request::get("/charged"), is(200).left("charged", 1)),
                send(Request::get("/charged"), is(200).left("charged", 0)),
                send(Request::get("/charged"), limited()),
                Step::Counted("limiter.rule.charged.outcome.local_allowed", 2),
                send(Request::get("/fresh"), is(200).left("fresh", 1)),
                Step::Store(true),
                // By the store's word: it was told.
                Step::UntilCounted(
                    Request::get("/charged"),
                    "limiter.rule.charged.outcome.refused",
                    1,
                ),
                Step::Until(Request::get("/fresh"), limited()),
                Step::Counted("limiter.rule.charged.outcome.allowed", 1),
            ],
        ),
        scenario(
            &["I71"],
            "the store goes before the answer is kept: the client has it, and nothing runs twice",
            vec![
                send(
                    Request::post("/orders/settles", "tea").key("settles"),
                    first(201),
                ),
                Step::Start("lost", slow(), Begun::Running),
                Step::Store(false),
                Step::Finish("lost", first(201).called("lost")),
                Step::Store(true),
                Step::Until(slow(), replay(201).like("lost")),
                Step::Rows("/orders/lost", 1),
            ],
        ),
    ]
}
