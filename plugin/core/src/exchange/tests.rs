//! Stories of one exchange: given these settings, when these events come, then these actions.

use super::*;
use crate::config::{Attribute, Settings};
use crate::http::{Response, ResponseHead};
use crate::idempotency::outcome::Executed;
use crate::store::{
    Bucket, Claim, ClaimId, Claimed, Complete, Error, Hit, Operation, Outcome, Reply, Verdict,
};

const LIMITER: &str = r#"{"store": {"cluster": "s", "namespace": "n"}, "limiter": {"on_store_failure": "ON", "rules": [
    {"name": "per-client", "quota": 3, "window": "10s"},
    {"name": "writes", "quota": 1, "window": "60s", "key": [{"literal": "all"}], "match": {"methods": ["POST"]}}
]}}"#;

const IDEMPOTENCY: &str = r#"{"store": {"cluster": "s", "namespace": "n"}, "idempotency": {
    "execute": {"detached": {"cluster": "e", "timeout": "30s"}}, "max_request_bytes": 8, "max_response_bytes": 16,
    "max_held_bytes": 64,
    "policies": [{"name": "orders", "match": {"path_prefix": "/orders"}, "required": true, "principal": "none"},
                 {"name": "users", "match": {"path_prefix": "/users"}, "principal": {"header": "x-user"}}]}}"#;

/// A worker, its clock, and one exchange at a time.
struct Story {
    worker: Worker,
    exchange: Exchange,
    now_ms: u64,
    client_address: &'static str,
    attributes: Vec<Option<Vec<u8>>>,
    counts: Vec<Count>,
    verdict: &'static str,
}

impl Story {
    fn of(settings: &str) -> Self {
        let settings = Settings::parse(settings.as_bytes()).expect("settings");
        Self {
            worker: Worker::new(settings),
            exchange: Exchange::default(),
            now_ms: 1_000,
            client_address: "127.0.0.1:1",
            attributes: vec![],
            counts: vec![],
            verdict: "",
        }
    }

    fn limiter(on_store_failure: &str) -> Self {
        Self::of(&LIMITER.replace("ON", on_store_failure))
    }

    fn both(on_store_failure: &str) -> Self {
        let limiter = LIMITER.replace("ON", on_store_failure);
        let (_, limiter) = limiter
            .split_once("\"limiter\"")
            .expect("the limiter's part");
        Self::of(&IDEMPOTENCY.replacen(
            "\"idempotency\"",
            &format!(
                "\"limiter\"{}, \"idempotency\"",
                &limiter[..limiter.len() - 1]
            ),
            1,
        ))
    }

    fn event(&mut self, event: Event<'_>) -> Vec<Action> {
        let mut actions = vec![];
        self.exchange.handle(
            event,
            Timestamp::from_ms(self.now_ms),
            &mut self.worker,
            &mut actions,
        );
        self.counts
            .extend(actions.iter().filter_map(|action| match action {
                Action::Count(count) => Some(*count),
                _ => None,
            }));
        for action in &actions {
            if let Action::Verdict(word) = action {
                self.verdict = word;
            }
        }
        actions.retain(|action| !matches!(action, Action::Count(_) | Action::Verdict(_)));
        actions
    }

    /// A new request. Its body, if any, is still to come.
    fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&'static str, &'static str)],
    ) -> Vec<Action> {
        self.exchange = Exchange::default();
        let (client_address, attributes) = (self.client_address, self.attributes.clone());
        let fields: Vec<Field> = fields
            .iter()
            .map(|(name, value)| Field::new(name, value.as_bytes()))
            .collect();
        self.event(Event::RequestHead(RequestHead {
            client_address: Some(client_address.as_bytes()),
            attributes: &attributes,
            fields: &fields,
            end: false,
            ..RequestHead::of(method.as_bytes(), path.as_bytes())
        }))
    }

    /// A request while the store is away: the first of an outage still asks it.
    fn request_alone(&mut self, method: &str) -> Vec<Action> {
        let actions = self.request(method, "/", &[]);
        match actions.as_slice() {
            [Action::Call(Operation::Admit(_))] => self.fails(false),
            _ => actions,
        }
    }

    fn body(&mut self, body: &str) -> Vec<Action> {
        self.event(Event::BodyEnd {
            body: body.into(),
            claim_id: ClaimId([7; 16]),
        })
    }

    fn reply(&mut self, reply: Reply) -> Vec<Action> {
        self.event(Event::Store(reply))
    }

    fn fails(&mut self, sent: bool) -> Vec<Action> {
        self.event(Event::StoreFailed { sent })
    }

    /// A keyed request, up to its claim.
    fn claimed(&mut self) -> Claim {
        assert_eq!(
            self.request(
                "POST",
                "/orders",
                &[("idempotency-key", "k"), (":method", "POST")]
            ),
            []
        );
        match one(self.body("body")) {
            Action::Call(Operation::Claim(claim)) => claim,
            other => panic!("expected a claim, got {other:?}"),
        }
    }

    /// A keyed request, up to its execution.
    fn executing(&mut self) -> Claim {
        let claim = self.claimed();
        match one(self.reply(Reply::Claimed(Claimed::Granted))) {
            Action::Execute(Execution { body, .. }) => assert_eq!(body, b"body"),
            other => panic!("expected an execution, got {other:?}"),
        }
        claim
    }

    fn executes(
        &mut self,
        status: u16,
        fields: &[(&'static str, &'static str)],
        body: &[u8],
    ) -> Operation {
        let answer = answered(status, fields, body);
        match one(self.event(Event::Executed(answer))) {
            Action::Call(operation) => operation,
            other => panic!("expected a call, got {other:?}"),
        }
    }
}

fn answered(status: u16, fields: &[(&'static str, &'static str)], body: &[u8]) -> Executed {
    let fields = fields
        .iter()
        .map(|(name, value)| Field::new(name, value.as_bytes()))
        .collect();
    Executed::Answered {
        response: Response {
            status,
            fields,
            body: body.to_vec(),
        },
        trailers: false,
    }
}

const UPSTREAM: [(&str, &str); 2] = [("x-porch-outcome", "via_upstream"), ("x-porch-sent", "100")];

fn one(mut actions: Vec<Action>) -> Action {
    assert_eq!(actions.len(), 1, "{actions:?}");
    actions.remove(0)
}

fn answer(actions: Vec<Action>) -> Response {
    match one(actions) {
        Action::Answer(answer) => answer.response,
        other => panic!("expected an answer, got {other:?}"),
    }
}

fn problem(response: &Response) -> String {
    let body: serde_json::Value = serde_json::from_slice(&response.body).expect("problem details");
    assert_eq!(body["status"], response.status);
    assert_eq!(
        text(response, "content-type").as_deref(),
        Some("application/problem+json")
    );
    assert_eq!(text(response, "cache-control").as_deref(), Some("no-store"));
    body["type"]
        .as_str()
        .expect("a type")
        .rsplit([':', '#'])
        .next()
        .expect("a name")
        .to_owned()
}

fn text(response: &Response, name: &str) -> Option<String> {
    let mut values = crate::http::values(&response.fields, name);
    values
        .next()
        .map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

fn hits(actions: Vec<Action>) -> Vec<Hit> {
    match one(actions) {
        Action::Call(Operation::Admit(hits)) => hits,
        other => panic!("expected an admit, got {other:?}"),
    }
}

fn verdict(refused: bool, remaining: u32, settled: bool) -> Verdict {
    Verdict {
        refused,
        remaining,
        reset_ms: 4_000,
        window_start_ms: 5,
        settled,
    }
}

fn admitted(admitted: bool, verdicts: &[Verdict]) -> Reply {
    Reply::Admitted {
        admitted,
        verdicts: verdicts.to_vec(),
    }
}

// ---- limiter ----

#[test]
fn an_admitted_request_passes_and_its_answer_says_where_the_client_stands() {
    let mut story = Story::limiter("deny");
    let hits = hits(story.request("GET", "/", &[]));
    assert_eq!(
        (
            hits.len(),
            hits[0].quota,
            hits[0].window_s,
            hits[0].cost,
            hits[0].reserve
        ),
        (1, 3, 10, 1, 1)
    );
    assert_eq!(
        story.reply(admitted(true, &[verdict(false, 2, false)])),
        [Action::Pass]
    );
    let added: Vec<Action> = story.event(Event::ResponseHead(ResponseHead::of(200)));
    let names: Vec<&str> = added
        .iter()
        .map(|action| match action {
            Action::AddResponseField(field) => std::str::from_utf8(&field.name).expect("a name"),
            other => panic!("expected a field, got {other:?}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset"
        ]
    );
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [],
        "once"
    );
    assert_eq!(story.event(Event::ClientGone), []);
    assert!(story.exchange.is_over());
}

#[test]
fn a_refused_request_is_told_when_to_come_again() {
    let mut story = Story::limiter("deny");
    assert_eq!(hits(story.request("POST", "/", &[])).len(), 2);
    let refusal = answer(story.reply(admitted(
        false,
        &[verdict(false, 2, false), verdict(true, 0, true)],
    )));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (429, "quota-exceeded")
    );
    assert_eq!(text(&refusal, "retry-after").as_deref(), Some("4"));
    assert_eq!(
        text(&refusal, "ratelimit").as_deref(),
        Some(r#""per-client";r=2;t=4, "writes";r=0;t=4"#)
    );
    let body: serde_json::Value = serde_json::from_slice(&refusal.body).expect("json");
    assert_eq!(body["violated-policies"], serde_json::json!(["writes"]));
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [],
        "our own answer has its headers already"
    );
}

#[test]
fn a_settled_refusal_is_remembered_and_asks_nobody() {
    let mut story = Story::limiter("deny");
    story.request("GET", "/", &[]);
    story.reply(admitted(false, &[verdict(true, 0, true)]));
    story.now_ms += 3_000;
    let refusal = answer(story.request("GET", "/", &[]));
    assert_eq!(
        (refusal.status, text(&refusal, "retry-after").as_deref()),
        (429, Some("1"))
    );
    story.now_ms += 1_000;
    assert_eq!(
        hits(story.request("GET", "/", &[])).len(),
        1,
        "a new window: the store is asked"
    );
}

#[test]
fn a_refusal_that_is_not_settled_is_not_remembered() {
    let mut story = Story::limiter("deny");
    story.request("GET", "/", &[]);
    story.reply(admitted(false, &[verdict(true, 0, false)]));
    assert_eq!(hits(story.request("GET", "/", &[])).len(), 1);
}

#[test]
fn without_its_store_deny_refuses() {
    let mut story = Story::limiter("deny");
    story.request("GET", "/", &[]);
    let refusal = answer(story.fails(true));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (503, "store-unavailable")
    );
    assert_eq!(text(&refusal, "retry-after").as_deref(), Some("1"));
}

#[test]
fn without_its_store_local_goes_on_from_what_it_saw() {
    let mut story = Story::limiter("local");
    story.request("GET", "/", &[]);
    story.reply(admitted(true, &[verdict(false, 2, false)]));
    for _ in 0..2 {
        assert_eq!(story.request_alone("GET"), [Action::Pass]);
    }
    let refusal = answer(story.request_alone("GET"));
    assert_eq!(
        (refusal.status, text(&refusal, "retry-after").as_deref()),
        (429, Some("4"))
    );
    story.now_ms += 4_000;
    assert_eq!(story.request_alone("GET"), [Action::Pass], "a new window");
}

#[test]
fn local_charges_all_rules_or_none() {
    let mut story = Story::limiter("local");
    assert_eq!(story.request_alone("POST"), [Action::Pass]);
    for _ in 0..5 {
        assert_eq!(
            answer(story.request_alone("POST")).status,
            429,
            "`writes` is spent"
        );
    }
    for _ in 0..2 {
        assert_eq!(
            story.request_alone("GET"),
            [Action::Pass],
            "`per-client` was not charged for them"
        );
    }
}

#[test]
fn an_outage_of_a_bucket_ends_when_the_store_has_taken_its_hits() {
    let mut story = Story::limiter("local");
    for _ in 0..2 {
        assert_eq!(story.request_alone("GET"), [Action::Pass]);
    }
    let charges = story
        .worker
        .charges(Timestamp::from_ms(story.now_ms + 1_000));
    assert_eq!(charges.len(), 1);
    assert_eq!((charges[0].hits, charges[0].age_ms), (2, 1_000));
    assert_eq!(
        story.request("GET", "/", &[]),
        [Action::Pass],
        "counted here until then"
    );
    story.worker.charged(&charges[0].bucket, true);
    let charges = story
        .worker
        .charges(Timestamp::from_ms(story.now_ms + 1_000));
    assert_eq!(charges[0].hits, 1);
    story.worker.charged(&charges[0].bucket, true);
    assert_eq!(
        hits(story.request("GET", "/", &[])).len(),
        1,
        "the store is asked again"
    );
}

#[test]
fn without_its_store_allow_lets_pass() {
    let mut story = Story::limiter("allow");
    for _ in 0..9 {
        assert_eq!(story.request_alone("GET"), [Action::Pass]);
    }
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [],
        "and says nothing of limits"
    );
}

#[test]
fn a_reply_that_does_not_fit_is_a_failure_of_the_store() {
    for reply in [
        admitted(true, &[]),
        Reply::Error(Error::Refused),
        Reply::Completed,
    ] {
        let mut story = Story::limiter("local");
        story.request("GET", "/", &[]);
        assert_eq!(story.reply(reply), [Action::Pass]);
    }
}

const ODD: &str = r#"{"store": {"cluster": "s", "namespace": "n"}, "limiter": {
    "exempt": {"cidrs": ["10.0.0.0/8", "2001:db8::/32"], "headers": [{"name": "x-probe", "values": ["yes"]}]},
    "rules": [
        {"name": "costly", "quota": 3, "window": "10s", "cost": 2, "cost_header": "x-cost", "refund_on": [404]},
        {"name": "trial", "quota": 1, "window": "10s", "mode": "shadow"},
        {"name": "routed", "quota": 5, "window": "10s", "match": {"named_by_route": true}}]}}"#;

#[test]
fn costs_and_shadows_go_to_the_store_as_they_are() {
    let mut story = Story::of(ODD);
    let of = |story: &mut Story, fields: &[(&'static str, &'static str)]| {
        let hits = hits(story.request("GET", "/", fields));
        (
            hits.len(),
            hits[0].cost,
            hits[0].shadow,
            hits[0].refundable,
            hits[1].shadow,
        )
    };
    assert_eq!(of(&mut story, &[]), (2, 2, false, true, true));
    assert_eq!(of(&mut story, &[("x-cost", "0")]).1, 0);
    assert_eq!(of(&mut story, &[("x-cost", "many")]).1, 2);
    assert_eq!(story.counts, [Count::Rule(0, RuleOutcome::BadCost)]);
}

#[test]
fn a_shadow_refuses_nothing_and_tells_nothing() {
    let mut story = Story::of(ODD);
    story.request("GET", "/", &[]);
    story.counts.clear();
    let verdicts = [verdict(false, 1, false), verdict(true, 0, true)];
    assert_eq!(story.reply(admitted(true, &verdicts)), [Action::Pass]);
    assert_eq!(
        story.counts,
        [
            Count::Rule(0, RuleOutcome::Allowed),
            Count::Rule(1, RuleOutcome::Shadow)
        ]
    );
    let added = format!(
        "{:?}",
        story.event(Event::ResponseHead(ResponseHead::of(200)))
    );
    assert!(!added.contains("trial"), "{added}");
    assert_eq!(
        hits(story.request("GET", "/", &[])).len(),
        2,
        "nor is it remembered as spent"
    );
}

#[test]
fn a_hit_is_given_back_once_for_its_status_and_window() {
    let mut story = Story::of(ODD);
    let refunds = |actions: Vec<Action>| -> Vec<(u32, u64)> {
        let refund = |action| match action {
            Action::Call(Operation::Refund(refund)) => Some((refund.cost, refund.window_start_ms)),
            _ => None,
        };
        actions.into_iter().filter_map(refund).collect()
    };
    for (status, expected) in [(404, vec![(2, 5)]), (200, vec![])] {
        story.request("GET", "/", &[]);
        story.reply(admitted(
            true,
            &[verdict(false, 1, false), verdict(false, 0, false)],
        ));
        assert_eq!(
            refunds(story.event(Event::ResponseHead(ResponseHead::of(status)))),
            expected
        );
        assert_eq!(
            refunds(story.event(Event::ResponseHead(ResponseHead::of(status)))),
            [],
            "once"
        );
    }
    story.request("GET", "/", &[]);
    story.reply(admitted(
        false,
        &[verdict(true, 1, false), verdict(false, 0, false)],
    ));
    assert_eq!(
        refunds(story.event(Event::ResponseHead(ResponseHead::of(404)))),
        [],
        "nothing was charged"
    );
}

#[test]
fn a_cost_that_never_fits_is_refused_without_a_time() {
    let mut story = Story::of(ODD);
    story.request("GET", "/", &[("x-cost", "4")]);
    let refusal = answer(story.reply(admitted(
        false,
        &[verdict(true, 3, false), verdict(false, 0, false)],
    )));
    assert_eq!((refusal.status, text(&refusal, "retry-after")), (429, None));
}

#[test]
fn the_exempt_are_not_counted() {
    let mut story = Story::of(ODD);
    let preflight = [("access-control-request-method", "POST")];
    assert_eq!(story.request("OPTIONS", "/", &preflight), [Action::Pass]);
    assert_eq!(
        hits(story.request("OPTIONS", "/", &[])).len(),
        2,
        "a bare OPTIONS is counted"
    );
    assert_eq!(
        story.request("GET", "/", &[("x-probe", "yes")]),
        [Action::Pass]
    );
    assert_eq!(
        hits(story.request("GET", "/", &[("x-probe", "no")])).len(),
        2
    );
    for address in ["10.1.2.3:80", "::ffff:10.1.2.3", "[2001:db8:1::7]:1"] {
        story.client_address = address;
        assert_eq!(story.request("GET", "/", &[]), [Action::Pass], "{address}");
    }
    story.client_address = "11.0.0.1:1";
    assert_eq!(
        hits(story.request("GET", "/", &[("x-forwarded-for", "10.0.0.1")])).len(),
        2
    );
}

#[test]
fn a_rule_may_be_named_by_the_route() {
    let mut story = Story::of(ODD);
    assert_eq!(story.worker.settings.attributes, [Attribute::RouteRules]);
    story.attributes = vec![Some(b"other, routed".to_vec())];
    assert_eq!(hits(story.request("GET", "/", &[])).len(), 3);
    story.attributes = vec![Some(b"other".to_vec())];
    assert_eq!(hits(story.request("GET", "/", &[])).len(), 2);
}

#[test]
fn a_grpc_caller_is_refused_in_its_own_words() {
    let mut story = Story::limiter("deny");
    story.request("POST", "/", &[("content-type", "application/grpc")]);
    let verdicts = [verdict(true, 0, true), verdict(false, 1, false)];
    let Action::Answer(refusal) = one(story.reply(admitted(false, &verdicts))) else {
        panic!("expected an answer")
    };
    assert_eq!(refusal.grpc_status, Some(8));
    assert_eq!(
        text(&refusal.response, "grpc-retry-pushback-ms").as_deref(),
        Some("4000")
    );
}

#[test]
fn near_the_limit_is_counted() {
    let mut story = Story::limiter("deny");
    for (remaining, expected) in [(1, 1), (0, 2)] {
        story.request("GET", "/", &[]);
        story.counts.clear();
        story.reply(admitted(true, &[verdict(false, remaining, false)]));
        assert_eq!(story.counts.len(), expected, "{:?}", story.counts);
    }
}

// ---- idempotency ----

#[test]
fn a_keyed_request_runs_and_its_answer_is_kept_before_the_client_has_it() {
    let mut story = Story::of(IDEMPOTENCY);
    let claim = story.executing();
    assert_eq!(
        (claim.lease_ms, claim.ttl_ms, claim.remember_ms),
        (35_500, 86_400_000, 604_800_000)
    );
    let fields = [
        &UPSTREAM[..],
        &[("x-item", "1"), ("date", "now"), ("x-item", "2")],
    ]
    .concat();
    let Operation::Complete(Complete {
        key,
        id,
        outcome: Outcome::Response(kept),
    }) = story.executes(201, &fields, b"made")
    else {
        panic!("expected a completion with a response")
    };
    assert_eq!((key, id), (claim.key, claim.id));
    assert_eq!(
        kept.fields,
        [
            Field::new("x-item", &b"1"[..]),
            Field::new("x-item", &b"2"[..])
        ]
    );
    let first = answer(story.reply(Reply::Completed));
    assert_eq!((first.status, first.body.as_slice()), (201, &b"made"[..]));
    assert_eq!(text(&first, "date").as_deref(), Some("now"));
    assert_eq!(text(&first, "idempotent-replayed"), None);
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [Action::RemoveResponseField("content-type")],
        "upstream sent none"
    );
    assert_eq!(story.worker.held_bytes(), 0);
}

#[test]
fn a_seen_key_is_replayed() {
    let mut story = Story::of(IDEMPOTENCY);
    story.claimed();
    let kept = Response {
        status: 201,
        fields: vec![Field::new("x-item", &b"1"[..])],
        body: vec![0xff, 0],
    };
    let replay = answer(story.reply(Reply::Claimed(Claimed::Replay(kept))));
    assert_eq!(
        (replay.status, replay.body.as_slice()),
        (201, &[0xff, 0][..])
    );
    assert_eq!(
        text(&replay, "idempotent-replayed").as_deref(),
        Some("true")
    );
    assert_eq!(story.worker.held_bytes(), 0);
}

#[test]
fn a_large_replay_is_fetched_by_itself() {
    let mut story = Story::of(IDEMPOTENCY);
    let claim = story.claimed();
    let again = Claim {
        large: true,
        ..claim
    };
    assert_eq!(
        story.reply(Reply::Claimed(Claimed::Large)),
        [Action::Call(Operation::Claim(again))]
    );
}

#[test]
fn other_claims_are_refused_with_a_problem_of_their_own() {
    for (claimed, status, name, retry_after) in [
        (Claimed::InFlight, 409, "in-flight", Some("1")),
        (Claimed::Mismatch, 422, "fingerprint-mismatch", None),
        (
            Claimed::Tombstone { status: 201 },
            409,
            "response-not-retained",
            None,
        ),
        (
            Claimed::Unknown { status: 504 },
            504,
            "outcome-unknown",
            None,
        ),
        (Claimed::Unknown { status: 0 }, 500, "outcome-unknown", None),
    ] {
        let mut story = Story::of(IDEMPOTENCY);
        story.claimed();
        let refusal = answer(story.reply(Reply::Claimed(claimed)));
        assert_eq!((refusal.status, problem(&refusal).as_str()), (status, name));
        assert_eq!(
            text(&refusal, "retry-after").as_deref(),
            retry_after,
            "{name}"
        );
        assert_eq!(text(&refusal, "idempotent-replayed"), None);
        assert_eq!(story.worker.held_bytes(), 0);
    }
    let mut story = Story::of(IDEMPOTENCY);
    story.claimed();
    let refusal = answer(story.reply(Reply::Error(Error::DataLoss)));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (500, "outcome-unknown"),
        "a damaged record never runs"
    );
}

#[test]
fn without_its_store_nothing_runs_and_a_sent_claim_is_abandoned() {
    let mut story = Story::of(IDEMPOTENCY);
    let claim = story.claimed();
    let mut actions = story.fails(true);
    let Action::Call(Operation::Abandon(abandon)) = actions.remove(0) else {
        panic!("expected an abandon")
    };
    assert_eq!(
        (abandon.key, abandon.id, abandon.lease_ms),
        (claim.key, claim.id, claim.lease_ms)
    );
    assert_eq!(problem(&answer(actions)), "store-unavailable");
    assert_eq!(
        story.reply(Reply::Claimed(Claimed::Granted)),
        [],
        "a grant that comes late"
    );

    story.claimed();
    assert_eq!(
        problem(&answer(story.fails(false))),
        "store-unavailable",
        "never sent: nothing to abandon"
    );
}

#[test]
fn a_client_that_leaves_before_it_runs_gives_its_claim_up() {
    let mut story = Story::of(IDEMPOTENCY);
    let claim = story.claimed();
    let Action::GiveUp(abandon) = one(story.event(Event::ClientGone)) else {
        panic!("expected a claim given up")
    };
    assert_eq!(abandon.id, claim.id);
    assert!(story.exchange.is_over());
    assert_eq!(story.worker.held_bytes(), 0);
}

#[test]
fn a_request_outlives_its_client() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    assert_eq!(story.event(Event::ClientGone), []);
    assert!(!story.exchange.is_over());
    let operation = story.executes(201, &UPSTREAM, b"made");
    assert!(matches!(
        operation,
        Operation::Complete(Complete {
            outcome: Outcome::Response(_),
            ..
        })
    ));
    assert_eq!(story.reply(Reply::Completed), []);
    assert!(story.exchange.is_over());
}

#[test]
fn the_caller_gets_upstreams_answer_though_the_store_fails() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    story.executes(201, &UPSTREAM, b"made");
    let first = answer(story.fails(true));
    assert_eq!((first.status, first.body.as_slice()), (201, &b"made"[..]));
}

#[test]
fn outcomes_follow_certainty() {
    let reset = (
        "x-porch-outcome",
        "upstream_reset_before_response_started{connection_termination}",
    );
    for (status, fields, expected) in [
        (503, vec![reset, ("x-porch-sent", "0")], None),
        (429, UPSTREAM.to_vec(), None),
        (503, [&UPSTREAM[..], &[("retry-after", "1")]].concat(), None),
        (
            503,
            vec![reset, ("x-porch-sent", "90")],
            Some(Outcome::Unknown { status: 503 }),
        ),
        (504, vec![], Some(Outcome::Unknown { status: 504 })),
    ] {
        let mut story = Story::of(IDEMPOTENCY);
        story.executing();
        match (story.executes(status, &fields, b""), expected) {
            (Operation::Abandon(_), None) => {}
            (Operation::Complete(Complete { outcome, .. }), Some(expected)) => {
                assert_eq!(outcome, expected);
            }
            (other, expected) => {
                panic!("{status} {fields:?}: expected {expected:?}, got {other:?}")
            }
        }
        assert_eq!(
            answer(story.reply(Reply::Abandoned)).status,
            status,
            "the first caller sees what came"
        );
    }
}

#[test]
fn an_execution_that_was_not_dispatched_is_released() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    let Action::Call(Operation::Abandon(_)) =
        one(story.event(Event::Executed(Executed::NotDispatched)))
    else {
        panic!("expected an abandon")
    };
    let refusal = answer(story.reply(Reply::Abandoned));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (503, "overloaded")
    );
}

#[test]
fn an_answer_that_broke_off_is_unknown() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    let Action::Call(Operation::Complete(complete)) =
        one(story.event(Event::Executed(Executed::Failed)))
    else {
        panic!("expected a completion")
    };
    assert_eq!(complete.outcome, Outcome::Unknown { status: 502 });
    let refusal = answer(story.reply(Reply::Completed));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (502, "outcome-unknown")
    );
}

#[test]
fn an_answer_at_the_cap_is_kept_and_one_above_is_a_tombstone() {
    for (size, kept) in [(16, true), (17, false)] {
        let mut story = Story::of(IDEMPOTENCY);
        story.executing();
        let Operation::Complete(complete) = story.executes(201, &UPSTREAM, &vec![0; size]) else {
            panic!()
        };
        assert_eq!(matches!(complete.outcome, Outcome::Response(_)), kept);
        assert_eq!(kept, complete.outcome != Outcome::Tombstone { status: 201 });
        assert_eq!(
            answer(story.reply(Reply::Completed)).body.len(),
            size,
            "the first caller gets all of it"
        );
    }
}

#[test]
fn an_answer_with_trailers_is_a_tombstone() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    let Executed::Answered { response, .. } = answered(200, &UPSTREAM, b"") else {
        panic!()
    };
    let executed = Executed::Answered {
        response,
        trailers: true,
    };
    let Action::Call(Operation::Complete(complete)) = one(story.event(Event::Executed(executed)))
    else {
        panic!()
    };
    assert_eq!(complete.outcome, Outcome::Tombstone { status: 200 });
}

#[test]
fn keys_that_are_missing_or_wrong_are_refused_and_never_run() {
    let mut story = Story::of(IDEMPOTENCY);
    assert_eq!(
        problem(&answer(story.request("POST", "/orders", &[]))),
        "key-missing"
    );
    assert_eq!(
        problem(&answer(story.request(
            "POST",
            "/orders",
            &[("idempotency-key", "")]
        ))),
        "key-invalid"
    );
    let two = [("idempotency-key", "a"), ("idempotency-key", "a")];
    assert_eq!(
        problem(&answer(story.request("POST", "/orders", &two))),
        "key-invalid"
    );
    let keyed = [("idempotency-key", "a")];
    assert_eq!(
        problem(&answer(story.request("POST", "/users", &keyed))),
        "principal-missing"
    );
    assert_eq!(
        story.request("PUT", "/orders", &[]),
        [Action::Pass],
        "PUT needs no key"
    );
    assert_eq!(
        story.request("POST", "/users", &[]),
        [Action::Pass],
        "this policy requires none"
    );
    assert_eq!(
        story.request("GET", "/orders", &keyed),
        [Action::Pass],
        "safe methods ignore keys"
    );
    let grpc = [
        ("idempotency-key", "a"),
        ("content-type", "application/grpc+proto"),
    ];
    assert_eq!(
        story.request("POST", "/orders", &grpc),
        [Action::Pass],
        "streams are passed by"
    );
}

#[test]
fn a_body_above_the_cap_is_refused_as_soon_as_it_shows() {
    let mut story = Story::of(IDEMPOTENCY);
    story.request("POST", "/orders", &[("idempotency-key", "k")]);
    assert_eq!(story.event(Event::BodyHeld(8)), []);
    assert_eq!(
        problem(&answer(story.event(Event::BodyHeld(9)))),
        "request-too-large"
    );
    assert!(!story.exchange.wants_body());
    assert_eq!(story.body("123456789"), [], "what still comes is nobody's");
}

#[test]
fn a_body_that_is_announced_above_the_cap_is_refused_at_the_headers() {
    let mut story = Story::of(IDEMPOTENCY);
    let announced = |bytes| [("idempotency-key", "k"), ("content-length", bytes)];
    assert_eq!(
        problem(&answer(story.request("POST", "/orders", &announced("9")))),
        "request-too-large"
    );
    assert_eq!(story.request("POST", "/orders", &announced("8")), []);
}

#[test]
fn an_empty_answer_keeps_its_content_type() {
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    story.executes(
        200,
        &[&UPSTREAM[..], &[("content-type", "image/png")]].concat(),
        b"",
    );
    answer(story.reply(Reply::Completed));
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [
            Action::RemoveResponseField("content-type"),
            Action::AddResponseField(Field::new("content-type", &b"image/png"[..]))
        ]
    );
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [],
        "once"
    );
}

#[test]
fn what_a_worker_holds_is_bounded() {
    let mut story = Story::of(IDEMPOTENCY);
    story.worker.retained_bytes = 61;
    story.request("POST", "/orders", &[("idempotency-key", "k")]);
    assert_eq!(problem(&answer(story.body("body"))), "overloaded");
    story.request("POST", "/orders", &[("idempotency-key", "k")]);
    assert_eq!(
        story.event(Event::BodyHeld(3)),
        [],
        "what is still coming is held too"
    );
    assert_eq!(story.worker.held_bytes(), 64);
    let first = std::mem::take(&mut story.exchange);
    story.request("POST", "/orders", &[("idempotency-key", "other")]);
    assert_eq!(
        problem(&answer(story.event(Event::BodyHeld(1)))),
        "overloaded"
    );
    drop(first);
    assert_eq!(story.worker.held_bytes(), 61);

    story.worker.retained_bytes = 0;
    story.executing();
    story.worker.retained_bytes = 64;
    let Operation::Complete(complete) = story.executes(201, &UPSTREAM, b"made") else {
        panic!()
    };
    assert_eq!(
        complete.outcome,
        Outcome::Tombstone { status: 201 },
        "no room to keep it until the store has it"
    );
}

#[test]
fn a_forged_marker_is_stripped() {
    let mut story = Story::of(IDEMPOTENCY);
    let strip = Action::RemoveRequestField("idempotent-replayed");
    assert_eq!(
        story.request("PUT", "/orders", &[("idempotent-replayed", "true")]),
        [strip, Action::Pass]
    );
    assert_eq!(
        story.event(Event::ResponseHead(ResponseHead::of(200))),
        [Action::RemoveResponseField("idempotent-replayed")]
    );
}

const OPTIONS: &str = r#"{"store": {"cluster": "s", "namespace": "n"}, "jwt_payload": "p", "idempotency": {
    "execute": {"detached": {"cluster": "e", "timeout": "30s"}}, "key_header": "X-Key", "strict": true,
    "policies": [
        {"name": "none", "match": {"path_prefix": "/none"}, "principal": {"jwt_claim": "sub"}, "keep": false},
        {"name": "all", "match": {"path_prefix": "/orders"}, "principal": "authorization_digest", "trailers": "drop",
         "keep_set_cookie": true, "on_unknown": "execute", "in_flight": {"wait": {"max_wait": "5s"}}}]}}"#;

#[test]
fn a_policy_says_how_keys_are_written_waited_for_and_run_again() {
    let mut story = Story::of(OPTIONS);
    assert_eq!(
        story.request("POST", "/orders", &[("idempotency-key", "\"k\"")]),
        [Action::Pass],
        "another header"
    );
    let bare = [("x-key", "k"), ("authorization", "Bearer a")];
    assert_eq!(
        problem(&answer(story.request("POST", "/orders", &bare))),
        "key-invalid"
    );
    let unknown = [("x-key", "\"k\"")];
    assert_eq!(
        problem(&answer(story.request("POST", "/orders", &unknown))),
        "principal-missing"
    );
    let mut claim = |authorization: &'static str| {
        story.request(
            "POST",
            "/orders",
            &[("x-key", "\"k\""), ("authorization", authorization)],
        );
        match one(story.body("body")) {
            Action::Call(Operation::Claim(claim)) => claim,
            other => panic!("expected a claim, got {other:?}"),
        }
    };
    let (first, second) = (claim("Bearer a"), claim("Bearer b"));
    assert_eq!((first.wait_ms, first.execute_unknown), (5_000, true));
    assert_eq!(first.key, second.key, "a credential is no scope");
    assert_ne!(first.fingerprint, second.fingerprint);
}

#[test]
fn a_policy_says_what_is_kept() {
    let mut story = Story::of(OPTIONS);
    let cookie = [&UPSTREAM[..], &[("set-cookie", "a=b")]].concat();
    let executed = |trailers| {
        let Executed::Answered { response, .. } = answered(200, &cookie, b"made") else {
            panic!()
        };
        Event::Executed(Executed::Answered { response, trailers })
    };
    let mut outcome = |path, attributes: Vec<Option<Vec<u8>>>| {
        story.attributes = attributes;
        story.request("POST", path, &[("x-key", "\"k\""), ("authorization", "a")]);
        story.body("body");
        story.reply(Reply::Claimed(Claimed::Granted));
        match one(story.event(executed(true))) {
            Action::Call(Operation::Complete(complete)) => complete.outcome,
            other => panic!("expected a completion, got {other:?}"),
        }
    };
    let Outcome::Response(kept) = outcome("/orders", vec![None]) else {
        panic!("trailers: drop")
    };
    assert_eq!(kept.fields, [Field::new("set-cookie", &b"a=b"[..])]);
    assert_eq!(
        outcome("/none", vec![Some(b"ann".to_vec())]),
        Outcome::Tombstone { status: 200 },
        "keep: false"
    );
}

// ---- forwarded ----

const FORWARD: &str = r#"{"store": {"cluster": "s", "namespace": "n"}, "idempotency": {
    "execute": {"forward": {"timeout": "20s"}}, "max_response_bytes": 16,
    "policies": [{"name": "orders", "match": {"path_prefix": "/orders"}, "principal": "none"}]}}"#;

impl Story {
    fn forwarding() -> Self {
        let mut story = Self::of(FORWARD);
        assert_eq!(story.claimed().lease_ms, 25_500);
        let once = Action::SetRequestField("x-envoy-max-retries", "0");
        assert_eq!(
            story.reply(Reply::Claimed(Claimed::Granted)),
            [once, Action::Pass]
        );
        story
    }

    /// A response's head; what is stripped from it is left out.
    fn responds(
        &mut self,
        status: u16,
        details: &str,
        fields: &[(&'static str, &'static str)],
    ) -> Vec<Action> {
        let fields: Vec<Field> = fields
            .iter()
            .map(|(name, value)| Field::new(name, value.as_bytes()))
            .collect();
        let details = Some(details.as_bytes());
        let mut actions = self.event(Event::ResponseHead(ResponseHead {
            status,
            fields: &fields,
            details,
            end: false,
        }));
        actions.retain(|action| *action != Action::RemoveResponseField("idempotent-replayed"));
        actions
    }
}

fn completed(actions: Vec<Action>) -> Outcome {
    match one(actions) {
        Action::Call(Operation::Complete(complete)) => complete.outcome,
        other => panic!("expected a completion, got {other:?}"),
    }
}

#[test]
fn a_forwarded_response_is_held_until_it_is_durable() {
    let mut story = Story::forwarding();
    assert!(story.exchange.wants_response());
    assert_eq!(
        story.responds(201, "via_upstream", &[("x-item", "1"), ("date", "now")]),
        []
    );
    assert!(story.exchange.holds_response());
    assert_eq!(story.event(Event::ResponseHeld(4)), []);
    let end = Event::ResponseEnd {
        body: b"made".to_vec(),
        trailers: false,
    };
    let Outcome::Response(kept) = completed(story.event(end)) else {
        panic!()
    };
    assert_eq!((kept.status, kept.body.as_slice()), (201, &b"made"[..]));
    assert_eq!(kept.fields, [Field::new("x-item", &b"1"[..])]);
    assert!(story.exchange.holds_response(), "until the store has it");
    assert_eq!(story.reply(Reply::Completed), [Action::ResumeResponse]);
    assert!(!story.exchange.holds_response());
    assert_eq!(story.worker.held_bytes(), 0);
}

#[test]
fn streams_and_large_responses_go_past_and_are_not_kept() {
    for fields in [
        [("content-type", "text/event-stream")],
        [("content-length", "17")],
    ] {
        let mut story = Story::forwarding();
        let outcome = completed(story.responds(200, "via_upstream", &fields));
        assert_eq!(outcome, Outcome::Tombstone { status: 200 });
        assert!(!story.exchange.holds_response());
    }
    let mut story = Story::forwarding();
    assert_eq!(story.responds(200, "via_upstream", &[]), []);
    assert_eq!(story.event(Event::ResponseHeld(16)), []);
    assert_eq!(
        completed(story.event(Event::ResponseHeld(17))),
        Outcome::Tombstone { status: 200 }
    );
    assert!(!story.exchange.holds_response());
}

#[test]
fn what_became_of_a_forwarded_request_follows_certainty() {
    let mut story = Story::forwarding();
    let refused = "upstream_reset_before_response_started{remote_connection_failure}";
    let Action::Call(Operation::Abandon(_)) = one(story.responds(503, refused, &[])) else {
        panic!()
    };
    assert_eq!(story.reply(Reply::Abandoned), [Action::ResumeResponse]);

    let mut story = Story::forwarding();
    assert_eq!(
        completed(story.responds(504, "response_timeout", &[])),
        Outcome::Unknown { status: 504 }
    );

    let mut story = Story::forwarding();
    story.responds(200, "via_upstream", &[]);
    let broke_off = story.responds(
        502,
        "upstream_reset_after_response_started{connection_termination}",
        &[],
    );
    assert_eq!(completed(broke_off), Outcome::Unknown { status: 502 });

    let mut story = Story::forwarding();
    assert_eq!(
        completed(story.event(Event::ClientGone)),
        Outcome::Unknown { status: 0 }
    );
    assert!(story.exchange.is_over());

    let mut story = Story::forwarding();
    story.responds(200, "via_upstream", &[]);
    assert_eq!(
        completed(story.event(Event::ClientGone)),
        Outcome::Unknown { status: 0 }
    );
}

// ---- both in one instance ----

#[test]
fn the_limiter_decides_before_any_claim() {
    let mut story = Story::both("deny");
    story.request("POST", "/orders", &[("idempotency-key", "k")]);
    assert!(
        story.exchange.wants_body(),
        "the body is collected meanwhile"
    );
    assert_eq!(story.body("body"), [], "no claim before the verdict");
    let refusal = answer(story.reply(admitted(
        false,
        &[verdict(true, 0, true), verdict(false, 1, false)],
    )));
    assert_eq!(refusal.status, 429);

    story.now_ms += 10_000;
    story.request("POST", "/orders", &[("idempotency-key", "k")]);
    story.body("body");
    let verdicts = [verdict(false, 2, false), verdict(false, 0, false)];
    let Action::Call(Operation::Claim(_)) = one(story.reply(admitted(true, &verdicts))) else {
        panic!("expected the claim")
    };
    let refusal = answer(story.reply(Reply::Claimed(Claimed::InFlight)));
    assert_eq!(
        text(&refusal, "x-ratelimit-remaining").as_deref(),
        Some("0"),
        "our own answers cost quota, and say so"
    );
}

#[test]
fn a_bad_key_costs_quota() {
    let mut story = Story::both("deny");
    assert_eq!(hits(story.request("POST", "/orders", &[])).len(), 2);
    let verdicts = [verdict(false, 2, false), verdict(false, 0, false)];
    let refusal = answer(story.reply(admitted(true, &verdicts)));
    assert_eq!(
        (refusal.status, problem(&refusal).as_str()),
        (400, "key-missing")
    );
    assert!(text(&refusal, "ratelimit").is_some());
}

#[test]
fn the_access_log_is_told_the_verdict() {
    let mut story = Story::both("allow");
    story.request("GET", "/", &[]);
    story.reply(admitted(true, &[verdict(false, 2, false)]));
    assert_eq!(story.verdict, "", "the plain case says nothing");
    story.request_alone("GET");
    assert_eq!(story.verdict, "unlimited");
    story.request("GET", "/", &[]);
    story.reply(admitted(false, &[verdict(true, 0, true)]));
    assert_eq!(story.verdict, "quota_exceeded");
    let mut story = Story::of(IDEMPOTENCY);
    story.executing();
    story.executes(201, &UPSTREAM, b"");
    story.reply(Reply::Completed);
    assert_eq!(story.verdict, "executed");
    assert_eq!((Story::forwarding().verdict), "forwarded");
}

#[test]
fn buckets_do_not_depend_on_the_port() {
    let mut story = Story::limiter("deny");
    let Bucket(first) = hits(story.request("GET", "/", &[]))[0].bucket;
    let Bucket(second) = hits(story.request("GET", "/other", &[]))[0].bucket;
    assert_eq!(first, second);
}
