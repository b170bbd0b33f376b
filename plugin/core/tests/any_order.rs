//! Whatever happens, in whatever order: an exchange does not panic, answers once, runs once, and gives back what it
//! holds.

use porch_core::config::Settings;
use porch_core::exchange::{Action, Event, Exchange, Worker};
use porch_core::http::{Field, RequestHead, Response, ResponseHead};
use porch_core::idempotency::outcome::Executed;
use porch_core::store::{ClaimId, Claimed, Error, Operation, Reply, Verdict};
use porch_core::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

const BOTH: &str = r#"{"store": {"cluster": "s", "namespace": "n"},
  "limiter": {"on_store_failure": "local", "rules": [
    {"name": "a", "quota": 3, "window": "1s", "refund_on": [404], "cost_header": "x-cost"},
    {"name": "b", "quota": 2, "window": "2s", "key": [{"header": "x-k"}, {"principal": {"cookie": "c"}}], "mode": "shadow"}]},
  "idempotency": {"execute": {"detached": {"cluster": "e", "timeout": "1s"}},
    "max_request_bytes": 64, "max_response_bytes": 64, "max_held_bytes": 256,
    "policies": [
      {"name": "f", "match": {"path_prefix": "/f"}, "principal": "none", "execute": {"forward": {"timeout": "1s"}}},
      {"name": "d", "required": true, "principal": {"header": "x-user"}}]}}"#;

/// An event that owns its parts.
#[derive(Clone, Debug)]
enum Given {
    Request {
        method: Vec<u8>,
        path: Vec<u8>,
        fields: Vec<Field>,
        address: Option<Vec<u8>>,
    },
    BodyHeld(usize),
    BodyEnd(Vec<u8>),
    Store(Reply),
    StoreFailed(bool),
    Executed(Executed),
    ResponseHead {
        status: u16,
        fields: Vec<Field>,
        details: Option<Vec<u8>>,
        end: bool,
    },
    ResponseHeld(usize),
    ResponseEnd(Vec<u8>, bool),
    ClientGone,
    Charged(bool),
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![]),
        vec(any::<u8>(), 1..20),
        Just(vec![b'x'; 65_536]),
        Just(b"\xff\xfe\0".to_vec()),
    ]
}

fn fields() -> impl Strategy<Value = Vec<Field>> {
    let names = [
        "idempotency-key",
        "x-user",
        "x-cost",
        "x-k",
        "cookie",
        "content-type",
        "content-length",
        "connection",
        "upgrade",
        "retry-after",
        "x-porch-outcome",
        "x-porch-sent",
        "idempotent-replayed",
        ":authority",
        ":scheme",
        "date",
    ];
    let values = prop_oneof![
        bytes(),
        prop::sample::select(vec![
            "k",
            "\"k\"",
            "via_upstream",
            "0",
            "12",
            "text/event-stream",
            "application/grpc"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    vec((prop::sample::select(names.to_vec()), values), 0..8).prop_map(|lines| {
        lines
            .into_iter()
            .map(|(name, value)| Field::received(name.as_bytes().to_vec(), value))
            .collect()
    })
}

fn response() -> impl Strategy<Value = Response> {
    (
        200_u16..600,
        fields(),
        prop_oneof![bytes(), Just(vec![0; 100])],
    )
        .prop_map(|(status, fields, body)| Response {
            status,
            fields,
            body,
        })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    (
        any::<bool>(),
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(refused, remaining, reset_ms, window_start_ms, settled)| Verdict {
                refused,
                remaining,
                reset_ms,
                window_start_ms,
                settled,
            },
        )
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        4 => (any::<bool>(), vec(verdict(), 0..4))
            .prop_map(|(admitted, verdicts)| Reply::Admitted { admitted, verdicts }),
        3 => Just(Reply::Claimed(Claimed::Granted)),
        1 => response().prop_map(|response| Reply::Claimed(Claimed::Replay(response))),
        1 => prop::sample::select(vec![
            Reply::Claimed(Claimed::Large),
            Reply::Claimed(Claimed::InFlight),
            Reply::Claimed(Claimed::Mismatch),
            Reply::Claimed(Claimed::Tombstone { status: 0 }),
            Reply::Claimed(Claimed::Unknown { status: u16::MAX }),
            Reply::Error(Error::Unavailable),
            Reply::Error(Error::DataLoss),
            Reply::Error(Error::Refused),
        ]),
        2 => prop::sample::select(vec![Reply::Completed, Reply::Abandoned, Reply::Charged, Reply::Refunded]),
    ]
}

fn given() -> impl Strategy<Value = Given> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "OPTIONS", "CONNECT", "\u{fffd}"]);
    let path = prop::sample::select(vec!["/", "/f", "/f/x?y", "", "*", "/\u{fffd}?"]);
    let details = prop_oneof![
        Just(None),
        Just(Some(b"via_upstream".to_vec())),
        bytes().prop_map(Some)
    ];
    prop_oneof![
        3 => (method, path, fields(), prop::option::of(bytes())).prop_map(|(method, path, fields, address)| {
            Given::Request { method: method.into(), path: path.into(), fields, address }
        }),
        1 => (0_usize..200).prop_map(Given::BodyHeld),
        3 => bytes().prop_map(Given::BodyEnd),
        6 => reply().prop_map(Given::Store),
        1 => any::<bool>().prop_map(Given::StoreFailed),
        2 => response()
            .prop_map(|response| Given::Executed(Executed::Answered { response, trailers: false })),
        1 => prop::sample::select(vec![Executed::NotDispatched, Executed::Failed]).prop_map(Given::Executed),
        2 => (0_u16..600, fields(), details, any::<bool>())
            .prop_map(|(status, fields, details, end)| Given::ResponseHead { status, fields, details, end }),
        1 => (0_usize..200).prop_map(Given::ResponseHeld),
        1 => (bytes(), any::<bool>()).prop_map(|(body, trailers)| Given::ResponseEnd(body, trailers)),
        1 => Just(Given::ClientGone),
        1 => any::<bool>().prop_map(Given::Charged),
    ]
}

/// What one exchange has wanted so far.
#[derive(Debug, Default)]
struct Done {
    runs: usize,
    answers: usize,
    claims: usize,
}

fn take(
    worker: &mut Worker,
    exchange: &mut Exchange,
    now: Timestamp,
    given: &Given,
) -> Vec<Action> {
    let event = match given {
        Given::Request {
            method,
            path,
            fields,
            address,
        } => Event::RequestHead(RequestHead {
            client_address: address.as_deref(),
            fields,
            end: false,
            ..RequestHead::of(method, path)
        }),
        Given::BodyHeld(bytes) => Event::BodyHeld(*bytes),
        Given::BodyEnd(body) => Event::BodyEnd {
            body: body.clone(),
            claim_id: ClaimId([1; 16]),
        },
        Given::Store(reply) => Event::Store(reply.clone()),
        Given::StoreFailed(sent) => Event::StoreFailed { sent: *sent },
        Given::Executed(executed) => Event::Executed(executed.clone()),
        Given::ResponseHead {
            status,
            fields,
            details,
            end,
        } => Event::ResponseHead(ResponseHead {
            status: *status,
            fields,
            details: details.as_deref(),
            end: *end,
        }),
        Given::ResponseHeld(bytes) => Event::ResponseHeld(*bytes),
        Given::ResponseEnd(body, trailers) => Event::ResponseEnd {
            body: body.clone(),
            trailers: *trailers,
        },
        Given::ClientGone => Event::ClientGone,
        Given::Charged(taken) => {
            for charge in worker.charges(now) {
                worker.charged(&charge.bucket, *taken);
            }
            return vec![];
        }
    };
    let mut actions = vec![];
    exchange.handle(event, now, worker, &mut actions);
    actions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, ..ProptestConfig::default() })]

    #[test]
    fn an_exchange_runs_once_and_answers_once(stories in vec(vec((given(), 0_u64..3_000), 1..16), 1..4)) {
        let mut worker = Worker::new(Settings::parse(BOTH.as_bytes()).expect("settings"));
        let mut now_ms = 0;
        for story in stories {
            let mut exchange = Exchange::default();
            let mut done = Done::default();
            for (given, later_ms) in story {
                now_ms += later_ms;
                let gone = matches!(given, Given::ClientGone);
                let actions = take(&mut worker, &mut exchange, Timestamp::from_ms(now_ms), &given);
                for action in &actions {
                    match action {
                        Action::Pass | Action::Execute(_) => done.runs += 1,
                        Action::Answer(answer) => {
                            done.answers += 1;
                            prop_assert!((200..=599).contains(&answer.response.status), "{answer:?}");
                        }
                        Action::Call(Operation::Claim(claim)) if !claim.large => done.claims += 1,
                        Action::ResumeResponse => prop_assert!(!exchange.holds_response()),
                        _ => {}
                    }
                }
                prop_assert!(!gone || !actions.iter().any(|action| matches!(action, Action::Answer(_) | Action::Pass)));
                prop_assert!(done.runs <= 1, "it ran twice: {given:?}");
                prop_assert!(done.answers <= 1, "it answered twice: {given:?}");
                prop_assert!(done.claims <= 1, "it claimed twice: {given:?}");
                prop_assert!(worker.held_bytes() <= 256);
            }
            // Whatever is open is ended as an adapter would end it.
            for last in [
                Given::ClientGone,
                Given::Executed(Executed::Failed),
                Given::StoreFailed(true),
                Given::StoreFailed(true),
            ] {
                take(&mut worker, &mut exchange, Timestamp::from_ms(now_ms), &last);
            }
            prop_assert!(exchange.is_over(), "{exchange:?}");
            prop_assert_eq!(worker.held_bytes(), 0);
        }
    }

    #[test]
    fn no_configuration_panics(text in "\\PC{0,200}", cut in 0_usize..BOTH.len(), put in any::<char>()) {
        drop(Settings::parse(text.as_bytes()));
        let mut broken = BOTH.to_owned();
        if broken.is_char_boundary(cut) {
            broken.insert(cut, put);
        }
        drop(Settings::parse(broken.as_bytes()));
        drop(Settings::parse(&BOTH.as_bytes()[..cut]));
    }
}
