//! The pure core as a driver: the limiter's exchange, then the idempotency instance's, a store and a service in memory.
//! Time stands still unless a step lets it pass.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use porch_core::config::{Attribute, Settings};
use porch_core::exchange::{Action, Answer as Ours, Count, Event, Exchange, Execution, Worker};
use porch_core::http::{Field, RequestHead, Response, ResponseHead};
use porch_core::idempotency::outcome::Executed;
use porch_core::store::{Claim, ClaimId, Claimed, Operation, Reply};
use porch_core::time::Timestamp;
use porch_host::client::{Answer, Request};
use porch_host::upstream::{self, Framing, Outcome, Table};
use serde_json::json;

use crate::play::Driver;
use crate::script::{Begun, Route, Setting};
use crate::settings::subject_of;
use crate::store::Store;

pub(crate) struct Core {
    routes: Vec<Route>,
    workers: Vec<Worker>,
    store: Option<Store>,
    away: Option<Store>,
    /// What the channel sends again until it is answered.
    owed: Vec<Operation>,
    rows: Rows,
    now_ms: u64,
    claims: u8,
    flights: BTreeMap<&'static str, Flight>,
    counts: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Rows(Vec<String>);

impl Table for Rows {
    fn insert(&mut self, request: upstream::Request<'_>) -> Result<i64, String> {
        self.0.push(request.path.to_owned());
        i64::try_from(self.0.len()).map_err(|error| error.to_string())
    }

    fn count(&self, path: Option<&str>) -> Result<i64, String> {
        let all = self.0.iter();
        let count = all
            .filter(|row| path.is_none_or(|path| path == *row))
            .count();
        i64::try_from(count).map_err(|error| error.to_string())
    }
}

/// A request on its way.
struct Flight {
    method: String,
    path: String,
    fields: Vec<Field>,
    body: Vec<u8>,
    exchanges: Vec<Exchange>,
    /// Lines of the response that is on its way.
    response: Vec<Field>,
    stage: Stage,
}

enum Stage {
    Coming,
    /// The store holds the claim back until the key is free.
    Parked(usize, Claim),
    /// The proxy's own call runs.
    Executing(usize, Outcome),
    /// The client's request is with the service.
    Forwarded(Outcome),
    Answered(Answer),
}

#[derive(Clone, Copy)]
enum Way {
    Detached,
    Forwarded,
}

enum Came {
    Nothing,
    Passed,
    Resumed,
    Ours(Ours),
    Executing(Execution),
    Parked(Claim),
}

impl Core {
    pub(crate) fn new(setting: &Setting) -> anyhow::Result<Self> {
        let store = json!({"cluster": "s", "namespace": "local", "timeout": setting.store_timeout});
        let configurations = [
            json!({"store": store, "limiter": setting.limiter}),
            json!({"store": store, "idempotency": setting.idempotency}),
        ];
        let worker = |configuration: &serde_json::Value| {
            let settings = Settings::parse(configuration.to_string().as_bytes())
                .map_err(|error| anyhow::anyhow!("{error}"))?;
            anyhow::Ok(Worker::new(settings))
        };
        Ok(Self {
            routes: setting.routes.clone(),
            workers: configurations
                .iter()
                .map(worker)
                .collect::<anyhow::Result<_>>()?,
            store: Some(Store::default()),
            away: None,
            owed: vec![],
            rows: Rows::default(),
            now_ms: 1_000_000,
            claims: 0,
            flights: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    fn begin(&mut self, request: &Request) -> Flight {
        self.settle_debts();
        let mut fields = vec![
            Field::received(b":method".to_vec(), request.method().into()),
            Field::received(b":path".to_vec(), request.path().into()),
            Field::new(":scheme", &b"http"[..]),
        ];
        let host = request.lines().iter().find(|(name, _)| name == "host");
        let host = host.map_or("demo.test", |(_, value)| value);
        fields.push(Field::received(b":authority".to_vec(), host.into()));
        for (name, value) in request.lines().iter().filter(|(name, _)| name != "host") {
            fields.push(Field::received(
                name.to_ascii_lowercase().into_bytes(),
                value.trim().into(),
            ));
        }
        let mut flight = Flight {
            method: request.method().to_owned(),
            path: request.path().to_owned(),
            fields,
            body: request.sent_body().to_vec(),
            exchanges: self.workers.iter().map(|_| Exchange::default()).collect(),
            response: vec![],
            stage: Stage::Coming,
        };
        let token = value(&flight.fields, "authorization");
        let protected = flight.path.starts_with("/orders/jwt");
        if (protected
            || token
                .as_ref()
                .is_some_and(|token| token.contains("Bearer ey")))
            && subject_of(token.as_deref()).is_none()
        {
            flight.stage = Stage::Answered(plain(401, vec![], vec![]));
            return flight;
        }
        self.go(&mut flight, 0);
        flight
    }

    /// Takes a request through the instances, from this one on.
    fn go(&mut self, flight: &mut Flight, from: usize) {
        for layer in from..self.workers.len() {
            let mut came = self.head(flight, layer);
            if matches!(came, Came::Nothing) && flight.exchanges[layer].wants_body() {
                self.claims += 1;
                let end = Event::BodyEnd {
                    body: flight.body.clone(),
                    claim_id: ClaimId([self.claims; 16]),
                };
                came = self.event(flight, layer, end);
            }
            if !self.came(flight, layer, came) {
                return;
            }
        }
        let outcome = self.at_the_service(Way::Forwarded, &flight.fields, &flight.body);
        flight.stage = Stage::Forwarded(outcome);
    }

    /// Whether the request goes on.
    fn came(&mut self, flight: &mut Flight, layer: usize, came: Came) -> bool {
        match came {
            Came::Passed => return true,
            Came::Ours(answer) => {
                let answer = self.ours(flight, layer, answer);
                flight.stage = Stage::Answered(answer);
            }
            Came::Executing(execution) => {
                let outcome =
                    self.at_the_service(Way::Detached, &execution.fields, &execution.body);
                flight.stage = Stage::Executing(layer, outcome);
            }
            Came::Parked(claim) => flight.stage = Stage::Parked(layer, claim),
            Came::Nothing | Came::Resumed => {
                let sentence = "the request hangs".as_bytes().to_vec();
                flight.stage = Stage::Answered(plain(598, vec![], sentence));
            }
        }
        false
    }

    fn head(&mut self, flight: &mut Flight, layer: usize) -> Came {
        let route = self.route(&flight.path);
        let token = value(&flight.fields, "authorization");
        let attributes: Vec<Option<Vec<u8>>> = self.workers[layer]
            .settings
            .attributes
            .iter()
            .map(|attribute| {
                let text = match attribute {
                    Attribute::RouteName => Some(route.name.to_owned()),
                    Attribute::RouteRules => route.rules.map(str::to_owned),
                    Attribute::RoutePolicies => route.policies.map(str::to_owned),
                    Attribute::JwtClaim { .. } => subject_of(token.as_deref()).map(str::to_owned),
                    Attribute::San => None,
                };
                text.filter(|text| !text.is_empty()).map(String::into_bytes)
            })
            .collect();
        let forwarded = value(&flight.fields, "x-forwarded-for");
        let address = forwarded
            .as_deref()
            .and_then(|list| list.rsplit(',').next());
        let address = match address.map(str::trim) {
            Some(address) if address.contains(':') => format!("[{address}]:0"),
            Some(address) => format!("{address}:0"),
            None => "127.0.0.1:4711".to_owned(),
        };
        let unix = value(&flight.fields, "x-unix-socket").is_some();
        let (fields, path, method) = (
            flight.fields.clone(),
            flight.path.clone(),
            flight.method.clone(),
        );
        let head = RequestHead {
            method: method.as_bytes(),
            path: path.as_bytes(),
            client_address: (!unix).then_some(address.as_bytes()),
            fields: &fields,
            attributes: &attributes,
            content_type: None,
            end: flight.body.is_empty(),
        };
        self.event(flight, layer, Event::RequestHead(head))
    }

    fn event(&mut self, flight: &mut Flight, layer: usize, event: Event<'_>) -> Came {
        let mut came = Came::Nothing;
        let mut next = Some(self.actions(flight, layer, event));
        while let Some(actions) = next.take() {
            for action in actions {
                match action {
                    Action::Pass => came = Came::Passed,
                    Action::ResumeResponse => came = Came::Resumed,
                    Action::Answer(answer) => came = Came::Ours(answer),
                    Action::Execute(execution) => came = Came::Executing(execution),
                    Action::GiveUp(abandon) => {
                        self.ask(Operation::Abandon(abandon));
                    }
                    Action::Call(Operation::Refund(refund)) => {
                        self.ask(Operation::Refund(refund));
                    }
                    Action::Call(operation) => {
                        let claim = match &operation {
                            Operation::Claim(claim) => Some(*claim),
                            _ => None,
                        };
                        let event = match (self.ask(operation), claim) {
                            (Some(Reply::Claimed(Claimed::InFlight)), Some(claim))
                                if claim.wait_ms > 0 =>
                            {
                                return Came::Parked(claim);
                            }
                            (Some(reply), _) => Event::Store(reply),
                            (None, _) => Event::StoreFailed { sent: false },
                        };
                        next = Some(self.actions(flight, layer, event));
                    }
                    Action::SetRequestField(name, value) => {
                        flight.fields.retain(|field| !field.is(name));
                        flight.fields.push(Field::new(name, value.as_bytes()));
                    }
                    Action::RemoveRequestField(name) => {
                        flight.fields.retain(|field| !field.is(name));
                    }
                    Action::AddResponseField(field) => flight.response.push(field),
                    Action::RemoveResponseField(name) => {
                        flight.response.retain(|field| !field.is(name));
                    }
                    Action::Count(_) | Action::Verdict(_) => {}
                }
            }
        }
        came
    }

    fn actions(&mut self, flight: &mut Flight, layer: usize, event: Event<'_>) -> Vec<Action> {
        let mut actions = vec![];
        let worker = &mut self.workers[layer];
        let now = Timestamp::from_ms(self.now_ms);
        flight.exchanges[layer].handle(event, now, worker, &mut actions);
        for action in &actions {
            if let Action::Count(count) = action {
                let metric = metric(&worker.settings, *count);
                *self.counts.entry(metric).or_default() += 1;
            }
        }
        actions
    }

    /// The store's reply; none while it is away. What must not be lost is sent again later.
    fn ask(&mut self, operation: Operation) -> Option<Reply> {
        if let Some(store) = &mut self.store {
            return Some(store.call(&operation, self.now_ms));
        }
        if matches!(operation, Operation::Complete(_) | Operation::Abandon(_)) {
            self.owed.push(operation);
        }
        None
    }

    fn settle_debts(&mut self) {
        let Some(store) = &mut self.store else {
            return;
        };
        for operation in self.owed.drain(..) {
            store.call(&operation, self.now_ms);
        }
        for worker in &mut self.workers {
            for charge in worker.charges(Timestamp::from_ms(self.now_ms)) {
                store.call(&Operation::Charge(charge), self.now_ms);
                worker.charged(&charge.bucket, true);
            }
        }
    }

    fn route(&self, path: &str) -> Route {
        let found = self
            .routes
            .iter()
            .find(|route| path.starts_with(route.prefix));
        found.cloned().unwrap_or_default()
    }

    fn at_the_service(&mut self, way: Way, fields: &[Field], body: &[u8]) -> Outcome {
        let text = |name| value(fields, name).unwrap_or_default();
        let (target, method) = (text(":path"), text(":method"));
        let route = self.route(&target);
        if let Some(status) = route.direct {
            return Outcome::Answer(upstream::Answer {
                status,
                lines: vec![],
                body: bytes::Bytes::new(),
                framing: Framing::Length,
            });
        }
        let (path, query) = target.split_once('?').unwrap_or((target.as_str(), ""));
        let request = upstream::Request {
            method: &method,
            path,
            query,
            body,
        };
        let mut outcome = upstream::handle(request, &mut self.rows).outcome;
        let failed = |outcome: &Outcome| match outcome {
            Outcome::Answer(answer) => answer.status >= 500,
            Outcome::Reset | Outcome::Junk => true,
        };
        // Detached, the inner hop says so for each request; forwarded, the core must have said it.
        let once = matches!(way, Way::Detached)
            || value(fields, "x-envoy-max-retries").as_deref() == Some("0");
        if route.retries && !once {
            for _ in 0..3 {
                if failed(&outcome) {
                    outcome = upstream::handle(request, &mut self.rows).outcome;
                }
            }
        }
        outcome
    }

    /// An answer of an instance goes out through it and those before it.
    fn ours(&mut self, flight: &mut Flight, layer: usize, answer: Ours) -> Answer {
        let Response {
            status,
            fields,
            body,
        } = answer.response;
        let grpc = value(&flight.fields, "content-type")
            .is_some_and(|text| text.starts_with("application/grpc"));
        flight.response = fields;
        let (status, body) = match answer.grpc_status.filter(|_| grpc) {
            Some(code) => {
                let code = code.to_string().into_bytes();
                flight.response.push(Field::new("grpc-status", code));
                (200, vec![])
            }
            None => (status, body),
        };
        self.out(flight, layer + 1, status);
        self.answer(flight, status, body)
    }

    /// A response goes out through the instances below this one.
    fn out(&mut self, flight: &mut Flight, below: usize, status: u16) {
        for layer in (0..below).rev() {
            self.event(flight, layer, Event::ResponseHead(ResponseHead::of(status)));
        }
    }

    fn answer(&mut self, flight: &mut Flight, status: u16, body: Vec<u8>) -> Answer {
        for layer in 0..self.workers.len() {
            self.event(flight, layer, Event::ClientGone);
        }
        let empty = flight.method == "HEAD" || matches!(status, 204 | 304);
        let lines = std::mem::take(&mut flight.response);
        plain(status, lines, if empty { vec![] } else { body })
    }

    fn complete(&mut self, flight: &mut Flight) {
        match std::mem::replace(&mut flight.stage, Stage::Coming) {
            Stage::Executing(layer, outcome) => {
                let came = self.event(flight, layer, Event::Executed(executed(outcome)));
                self.came(flight, layer, came);
            }
            Stage::Forwarded(outcome) => self.forwarded(flight, outcome),
            Stage::Parked(layer, claim) => {
                self.settle_debts();
                let mut reply = self.ask(Operation::Claim(claim));
                if reply == Some(Reply::Claimed(Claimed::InFlight)) {
                    self.now_ms += claim.wait_ms;
                    reply = self.ask(Operation::Claim(claim));
                }
                let event = reply.map_or(Event::StoreFailed { sent: true }, Event::Store);
                let came = self.event(flight, layer, event);
                if self.came(flight, layer, came) {
                    self.go(flight, layer + 1);
                }
                self.complete(flight);
            }
            stage @ (Stage::Answered(_) | Stage::Coming) => flight.stage = stage,
        }
    }

    /// A response of the service, or the proxy's in its place, goes out through all instances.
    fn forwarded(&mut self, flight: &mut Flight, outcome: Outcome) {
        let last = self.workers.len() - 1;
        let direct = self.route(&flight.path).direct.is_some();
        let (status, fields, body, details, framing) = seen(outcome, direct);
        flight.response.clone_from(&fields);
        let head = ResponseHead {
            status,
            fields: &fields,
            details: Some(details),
            end: body.is_empty() && framing != Framing::Endless,
        };
        self.event(flight, last, Event::ResponseHead(head));
        let (mut status, mut body) = (status, body);
        if flight.exchanges[last].holds_response() {
            let event = if framing == Framing::CutOff {
                // The proxy answers in the place of what it holds.
                (status, body) = (502, b"reset".to_vec());
                flight.response.clear();
                Event::ResponseHead(ResponseHead::of(502))
            } else {
                Event::ResponseEnd {
                    body: body.clone(),
                    trailers: framing == Framing::Trailers,
                }
            };
            self.event(flight, last, event);
        }
        self.out(flight, last, status);
        if framing == Framing::CutOff && status != 502 {
            body = b"broken off".to_vec();
        }
        flight.stage = Stage::Answered(self.answer(flight, status, body));
    }
}

/// What the proxy makes of the outcome of a detached call.
fn executed(outcome: Outcome) -> Executed {
    if let Outcome::Answer(answer) = &outcome
        && matches!(answer.framing, Framing::CutOff | Framing::Endless)
    {
        return Executed::Failed;
    }
    let (status, mut fields, body, details, framing) = seen(outcome, false);
    fields.push(Field::received(
        b":status".to_vec(),
        status.to_string().into(),
    ));
    fields.push(Field::new("x-porch-outcome", details));
    fields.push(Field::new("x-porch-sent", &b"100"[..]));
    Executed::Answered {
        response: Response {
            status,
            fields,
            body,
        },
        trailers: framing == Framing::Trailers,
    }
}

type Seen = (u16, Vec<Field>, Vec<u8>, &'static [u8], Framing);

fn seen(outcome: Outcome, direct: bool) -> Seen {
    match outcome {
        Outcome::Answer(answer) => {
            let hop = |name: &str| matches!(name, "connection");
            let lines = answer.lines.into_iter().filter(|(name, _)| !hop(name));
            let fields = lines
                .map(|(name, value)| Field::new(name, value.into_bytes()))
                .collect();
            let details: &[u8] = if direct {
                b"direct_response"
            } else {
                b"via_upstream"
            };
            (
                answer.status,
                fields,
                answer.body.to_vec(),
                details,
                answer.framing,
            )
        }
        Outcome::Reset => (
            503,
            vec![],
            b"reset".to_vec(),
            b"upstream_reset_before_response_started{connection_termination}",
            Framing::Length,
        ),
        Outcome::Junk => (
            502,
            vec![],
            b"junk".to_vec(),
            b"upstream_reset_before_response_started{protocol_error}",
            Framing::Length,
        ),
    }
}

fn value(fields: &[Field], name: &str) -> Option<String> {
    let values: Vec<&[u8]> = porch_core::http::values(fields, name).collect();
    (!values.is_empty()).then(|| String::from_utf8_lossy(&values.join(&b", "[..])).into_owned())
}

fn plain(status: u16, fields: Vec<Field>, body: Vec<u8>) -> Answer {
    let line = |field: Field| {
        let name = String::from_utf8_lossy(&field.name).into_owned();
        (name, field.value.into_owned())
    };
    Answer {
        status,
        lines: fields
            .into_iter()
            .filter(|field| !field.name.starts_with(b":"))
            .map(line)
            .collect(),
        body,
    }
}

fn metric(settings: &Settings, count: Count) -> String {
    match count {
        Count::Rule(index, outcome) => {
            let rules = settings.limiter.as_ref().map(|limiter| &limiter.rules);
            let name = rules.map_or("", |rules| &rules[index].name);
            format!("limiter.rule.{name}.outcome.{}", outcome.word())
        }
        Count::Policy(index, outcome) => {
            let policies = settings.idempotency.as_ref().map(|of| &of.policies);
            let name = policies.map_or("", |policies| &policies[index].name);
            format!("idempotency.policy.{name}.outcome.{}", outcome.word())
        }
    }
}

impl Driver for Core {
    fn send(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let mut flight = self.begin(request);
        self.complete(&mut flight);
        match flight.stage {
            Stage::Answered(answer) => Ok(answer),
            _ => bail!("{request:?} hangs"),
        }
    }

    fn start(&mut self, name: &'static str, request: &Request, _: Begun) -> anyhow::Result<()> {
        let flight = self.begin(request);
        self.flights.insert(name, flight);
        Ok(())
    }

    fn head(&mut self, name: &'static str) -> anyhow::Result<Answer> {
        let mut flight = self.flights.remove(name).context("no such request")?;
        self.complete(&mut flight);
        let Stage::Answered(answer) = &flight.stage else {
            bail!("{name} hangs");
        };
        let head = Answer {
            body: vec![],
            ..answer.clone()
        };
        self.flights.insert(name, flight);
        Ok(head)
    }

    fn finish(&mut self, name: &'static str) -> anyhow::Result<Answer> {
        let mut flight = self.flights.remove(name).context("no such request")?;
        self.complete(&mut flight);
        match flight.stage {
            Stage::Answered(answer) => Ok(answer),
            _ => bail!("{name} hangs"),
        }
    }

    fn leave(&mut self, name: &'static str) -> anyhow::Result<()> {
        let mut flight = self.flights.remove(name).context("no such request")?;
        for layer in 0..self.workers.len() {
            self.event(&mut flight, layer, Event::ClientGone);
        }
        // A call of the proxy's own goes on without it.
        if let Stage::Executing(layer, outcome) = flight.stage {
            flight.stage = Stage::Coming;
            self.event(&mut flight, layer, Event::Executed(executed(outcome)));
        }
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<()> {
        self.now_ms += u64::try_from(time.as_millis())?;
        Ok(())
    }

    fn rows(&mut self, path: &str) -> anyhow::Result<u64> {
        let rows = self.rows.count(Some(path)).map_err(anyhow::Error::msg)?;
        Ok(u64::try_from(rows)?)
    }

    fn counted(&mut self, metric: &str) -> anyhow::Result<u64> {
        Ok(self.counts.get(metric).copied().unwrap_or(0))
    }

    fn store(&mut self, up: bool) -> anyhow::Result<()> {
        if up {
            self.store = self.away.take();
        } else {
            self.away = self.store.take();
        }
        Ok(())
    }
}
