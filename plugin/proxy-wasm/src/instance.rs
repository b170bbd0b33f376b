//! One filter instance in one worker: its exchanges, its channel, and the carrying out of what they want done.
//!
//! Nothing is borrowed while a host function runs, since some call back.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use porch_core::channel::{CallId, Channel, Command, NewCall, Owner};
use porch_core::config::Settings;
use porch_core::exchange::{Action, Answer, Event, Exchange, Execution, Worker};
use porch_core::http::{Field, Response};
use porch_core::idempotency::outcome::Executed;
use porch_core::store::{Error, Operation, Reply};
use porch_core::time::Timestamp;
use porch_wire as wire;
use proxy_wasm::hostcalls;

use crate::codec;
use crate::host::{self, Level, Map};
use crate::metrics::{ChannelEvent, Metrics};

/// Where the proxy's access log finds what became of a request.
const VERDICT: &str = "porch.verdict";

const SERVICE: &str = "porch.v1.SharedData";

/// Shared by the root and its requests. Owned by the root: another configuration has another.
#[derive(Clone)]
pub(crate) struct Instance(Rc<RefCell<State>>);

struct State {
    root: u32,
    /// As the clock was last read: see [`Instance::wake`].
    now: Timestamp,
    settings: Rc<Settings>,
    worker: Worker,
    channel: Channel,
    metrics: Metrics,
    requests: BTreeMap<u32, Request>,
    /// Detached calls by the host's token, with the context whose request they run.
    executions: BTreeMap<u32, u32>,
    /// Calls that were sent by themselves, by the host's token.
    invokes: BTreeMap<u32, CallId>,
    stream: Option<u32>,
    ending: bool,
}

struct Request {
    exchange: Exchange,
    /// The client's stream lives: the host's own word is not enough.
    here: bool,
    passed: bool,
}

/// An event, and whose it is.
type Pending = VecDeque<(u32, Event<'static>)>;

impl Instance {
    pub(crate) fn new(root: u32, settings: Settings) -> Self {
        let metrics = Metrics::new(&settings);
        let channel = Channel::new(settings.store.timeout_ms, codec::hello());
        let worker = Worker::new(settings);
        Self(Rc::new(RefCell::new(State {
            root,
            now: clock(),
            settings: worker.settings.clone(),
            worker,
            channel,
            metrics,
            requests: BTreeMap::new(),
            executions: BTreeMap::new(),
            invokes: BTreeMap::new(),
            stream: None,
            ending: false,
        })))
    }

    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.0.borrow().settings.clone()
    }

    /// Reads the clock, which costs a host call: where time matters, once in each of the host's callbacks. Between
    /// two ticks it may stand still.
    fn wake(&self) {
        let now = clock();
        self.0.borrow_mut().now = now;
    }

    // ---- what requests tell ----

    /// A request that a rule or a policy is for.
    pub(crate) fn open(&self, context: u32) {
        let request = Request {
            exchange: Exchange::default(),
            here: true,
            passed: false,
        };
        self.0.borrow_mut().requests.insert(context, request);
    }

    /// An event of the context that the host runs now.
    pub(crate) fn request_event(&self, context: u32, event: Event<'_>) {
        if !matches!(event, Event::ResponseHead(_) | Event::ClientGone) {
            self.wake();
        }
        let mut pending = Pending::new();
        self.take(context, context, event, &mut pending);
        self.drain(context, pending);
    }

    pub(crate) fn wants_body(&self, context: u32) -> bool {
        self.0
            .borrow()
            .requests
            .get(&context)
            .is_some_and(|request| request.exchange.wants_body())
    }

    pub(crate) fn wants_response(&self, context: u32) -> bool {
        self.0
            .borrow()
            .requests
            .get(&context)
            .is_some_and(|request| request.exchange.wants_response())
    }

    pub(crate) fn holds_response(&self, context: u32) -> bool {
        self.0
            .borrow()
            .requests
            .get(&context)
            .is_some_and(|request| request.exchange.holds_response())
    }

    /// Whether the request may go on to upstream.
    pub(crate) fn passed(&self, context: u32) -> bool {
        self.0
            .borrow()
            .requests
            .get(&context)
            .is_none_or(|request| request.passed)
    }

    /// The client's stream has ended. What runs goes on without it.
    pub(crate) fn leave(&self, context: u32) {
        match self.0.borrow_mut().requests.get_mut(&context) {
            Some(request) if request.here => request.here = false,
            Some(_) | None => return,
        }
        self.request_event(context, Event::ClientGone);
    }

    // ---- what the root tells ----

    pub(crate) fn tick(&self) {
        self.wake();
        let mut pending = Pending::new();
        let commands = {
            let mut commands = vec![];
            let state = &mut *self.0.borrow_mut();
            state.channel.tick(state.now, &mut commands);
            commands
        };
        self.command(commands, &mut pending);
        {
            let state = self.0.borrow();
            state.metrics.held_bytes(state.worker.held_bytes());
        }
        self.pay_debts(&mut pending);
        self.drain_root(pending);
    }

    /// Tells the store, once it can be reached, what was counted without it.
    fn pay_debts(&self, pending: &mut Pending) {
        let charges = {
            let state = &mut *self.0.borrow_mut();
            if state.channel.is_trusted() {
                state.worker.charges(state.now)
            } else {
                vec![]
            }
        };
        for charge in charges {
            self.call(
                Owner::Debt(charge.bucket),
                Operation::Charge(charge),
                pending,
            );
        }
    }

    pub(crate) fn stream_message(&self, token: u32, message: Vec<u8>) {
        self.wake();
        let mut pending = Pending::new();
        let Some(replies) = codec::decode_replies(message) else {
            self.0.borrow().metrics.channel(ChannelEvent::Unreadable);
            return;
        };
        let commands = {
            let state = &mut *self.0.borrow_mut();
            if state.stream != Some(token) {
                return;
            }
            let mut commands = vec![];
            state
                .channel
                .received(replies.received, state.now, &mut commands);
            for reply in replies.reply {
                state.replied(reply, &mut pending);
            }
            commands
        };
        self.command(commands, &mut pending);
        self.drain_root(pending);
    }

    pub(crate) fn stream_closed(&self, token: u32, status: u32) {
        self.wake();
        // What the host keeps of it is ours to free.
        host::grpc_close(token);
        let mut pending = Pending::new();
        let commands = {
            let state = &mut *self.0.borrow_mut();
            if state.stream != Some(token) {
                return;
            }
            state.stream = None;
            state.metrics.channel(ChannelEvent::Closed);
            let mut commands = vec![];
            state.channel.closed(state.now, &mut commands);
            commands
        };
        host::log(
            Level::Warn,
            &format!("porch: the store's stream closed with gRPC status {status}"),
        );
        self.command(commands, &mut pending);
        self.drain_root(pending);
    }

    /// An Invoke ended: with a reply, or without.
    pub(crate) fn invoked(&self, token: u32, message: Option<Vec<u8>>) {
        self.wake();
        let mut pending = Pending::new();
        {
            let state = &mut *self.0.borrow_mut();
            let Some(id) = state.invokes.remove(&token) else {
                return;
            };
            match message.and_then(codec::decode_reply) {
                Some(reply) => state.replied(wire::Reply { id, ..reply }, &mut pending),
                None => state.channel.invoke_failed(id, state.now),
            }
        }
        self.drain_root(pending);
    }

    /// A detached call ended: with an answer, or without.
    pub(crate) fn executed(&self, token: u32, answer: Option<(Vec<Field>, Vec<u8>, bool)>) {
        self.wake();
        let Some(context) = self.0.borrow_mut().executions.remove(&token) else {
            return;
        };
        let executed = answer
            .and_then(|(fields, body, trailers)| {
                let status = fields.iter().find(|field| field.is(":status"))?;
                let status: u16 = std::str::from_utf8(&status.value).ok()?.parse().ok()?;
                let response = Response {
                    status,
                    fields,
                    body,
                };
                (200..=599)
                    .contains(&status)
                    .then_some(Executed::Answered { response, trailers })
            })
            .unwrap_or(Executed::Failed);
        self.drain_root(Pending::from([(context, Event::Executed(executed))]));
    }

    /// The root is to end. True when nothing keeps it.
    pub(crate) fn end(&self) -> bool {
        let state = &mut *self.0.borrow_mut();
        state.ending = true;
        state.is_idle()
    }

    // ---- carrying out ----

    fn drain_root(&self, pending: Pending) {
        let root = self.0.borrow().root;
        self.drain(root, pending);
        let ended = {
            let state = self.0.borrow();
            state.ending && state.is_idle()
        };
        if ended {
            self.0.borrow_mut().ending = false;
            host::done();
        }
    }

    /// Takes events until there are none. `current` is the context that the host runs.
    fn drain(&self, current: u32, mut pending: Pending) {
        while let Some((context, event)) = pending.pop_front() {
            self.take(current, context, event, &mut pending);
        }
    }

    fn take(&self, current: u32, context: u32, event: Event<'_>, pending: &mut Pending) {
        let (actions, here) = {
            let state = &mut *self.0.borrow_mut();
            let Some(request) = state.requests.get_mut(&context) else {
                return;
            };
            state.worker.retained_bytes = state.channel.retained_bytes();
            let mut actions = vec![];
            request
                .exchange
                .handle(event, state.now, &mut state.worker, &mut actions);
            let here = request.here;
            if !here && request.exchange.is_over() {
                state.requests.remove(&context);
            }
            (actions, here)
        };
        for action in actions {
            match action {
                Action::Pass => {
                    if let Some(request) = self.0.borrow_mut().requests.get_mut(&context) {
                        request.passed = true;
                    }
                    if current != context {
                        on_stream(current, context, here, host::resume_request);
                    }
                }
                Action::Answer(Answer {
                    response,
                    details,
                    grpc_status,
                }) => {
                    on_stream(current, context, here, || {
                        host::answer(
                            response.status,
                            grpc_status,
                            details,
                            &response.fields,
                            &response.body,
                        )
                    });
                }
                Action::RemoveRequestField(name) => {
                    on_stream(current, context, here, || {
                        host::remove_header(Map::Request, name)
                    });
                }
                Action::SetRequestField(name, value) => {
                    on_stream(current, context, here, || {
                        host::set_header(Map::Request, name, value)
                    });
                }
                Action::ResumeResponse => {
                    if current != context {
                        on_stream(current, context, here, host::resume_response);
                    }
                }
                Action::AddResponseField(field) => {
                    on_stream(current, context, here, || {
                        host::add_header(Map::Response, &field.name, &field.value)
                    });
                }
                Action::RemoveResponseField(name) => {
                    on_stream(current, context, here, || {
                        host::remove_header(Map::Response, name)
                    });
                }
                Action::Call(operation) => {
                    let owner = match operation {
                        Operation::Refund(_) => Owner::Nobody,
                        Operation::Admit(_)
                        | Operation::Charge(_)
                        | Operation::Claim(_)
                        | Operation::Complete(_)
                        | Operation::Abandon(_) => Owner::Exchange(context),
                    };
                    self.call(owner, operation, pending);
                }
                Action::GiveUp(abandon) => {
                    let sent = self
                        .0
                        .borrow_mut()
                        .channel
                        .give_up(Owner::Exchange(context));
                    if sent {
                        self.call(Owner::Nobody, Operation::Abandon(abandon), pending);
                    }
                }
                Action::Execute(execution) => self.execute(context, &execution, pending),
                Action::Verdict(word) => {
                    on_stream(current, context, here, || host::set_property(VERDICT, word));
                }
                Action::Count(count) => self.0.borrow().metrics.count(count),
            }
        }
    }

    fn call(&self, owner: Owner, operation: Operation, pending: &mut Pending) {
        let (kind, via) = codec::route(&operation);
        let (taken, commands) = {
            let state = &mut *self.0.borrow_mut();
            let id = state.channel.next_id();
            let bytes = codec::encode(id, operation, via);
            let mut commands = vec![];
            let new = NewCall {
                id,
                owner,
                kind,
                via,
            };
            (
                state.channel.call(new, &bytes, state.now, &mut commands),
                commands,
            )
        };
        self.command(commands, pending);
        if taken.is_err() {
            self.0.borrow_mut().failed(owner, false, pending);
        }
    }

    fn execute(&self, context: u32, execution: &Execution, pending: &mut Pending) {
        let headers: Vec<(&str, &str)> = execution
            .fields
            .iter()
            .map(|field| (text(&field.name), text(&field.value)))
            .collect();
        let body = (!execution.body.is_empty()).then_some(execution.body.as_slice());
        let timeout = Duration::from_millis(execution.timeout_ms);
        let dispatched =
            hostcalls::dispatch_http_call(&execution.cluster, headers, body, vec![], timeout);
        match dispatched {
            Ok(token) => {
                self.0.borrow_mut().executions.insert(token, context);
            }
            Err(status) => {
                let cluster = &execution.cluster;
                host::log(
                    Level::Error,
                    &format!("porch: the cluster {cluster} took no request: {status:?}"),
                );
                pending.push_back((context, Event::Executed(Executed::NotDispatched)));
            }
        }
    }

    fn command(&self, commands: Vec<Command>, pending: &mut Pending) {
        let mut commands = VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            let more = match command {
                Command::Open => self.open_stream(),
                Command::Send(message) => self.send(&message),
                Command::Close => {
                    let token = self.0.borrow_mut().stream.take();
                    if let Some(token) = token {
                        host::grpc_cancel(token);
                    }
                    self.0.borrow().metrics.channel(ChannelEvent::Hung);
                    host::log(
                        Level::Warn,
                        "porch: the store does not acknowledge; its stream is closed",
                    );
                    vec![]
                }
                Command::Invoke(id, message) => {
                    self.invoke(id, &message);
                    vec![]
                }
                Command::Failed { owner, sent } => {
                    self.0.borrow_mut().failed(owner, sent, pending);
                    vec![]
                }
                Command::Acknowledged(ms) => {
                    self.0.borrow().metrics.acknowledged(ms);
                    vec![]
                }
                Command::Lost => {
                    self.0.borrow().metrics.channel(ChannelEvent::Lost);
                    vec![]
                }
            };
            commands.extend(more);
        }
    }

    fn open_stream(&self) -> Vec<Command> {
        let settings = self.settings();
        let service = grpc_service(&settings.store.cluster);
        let opened = hostcalls::open_grpc_stream(text(&service), SERVICE, "Channel", vec![]);
        let state = &mut *self.0.borrow_mut();
        let mut commands = vec![];
        match opened {
            Ok(token) => {
                state.stream = Some(token);
                state.metrics.channel(ChannelEvent::Opened);
                state.channel.opened(state.now, &mut commands);
            }
            Err(_) => state.channel.closed(state.now, &mut commands),
        }
        commands
    }

    fn send(&self, message: &[u8]) -> Vec<Command> {
        let token = self.0.borrow().stream;
        if token.is_some_and(|token| host::grpc_send(token, message)) {
            return vec![];
        }
        let state = &mut *self.0.borrow_mut();
        if state.stream.take().is_none() {
            return vec![];
        }
        let mut commands = vec![];
        state.channel.closed(state.now, &mut commands);
        commands
    }

    fn invoke(&self, id: CallId, message: &[u8]) {
        let settings = self.settings();
        let service = grpc_service(&settings.store.cluster);
        let protocol = wire::PROTOCOL.to_string();
        let called = hostcalls::dispatch_grpc_call(
            text(&service),
            SERVICE,
            "Invoke",
            vec![("porch-protocol", protocol.as_bytes())],
            Some(message),
            Duration::from_millis(settings.store.timeout_ms),
        );
        let state = &mut *self.0.borrow_mut();
        match called {
            Ok(token) => {
                state.invokes.insert(token, id);
            }
            Err(_) => state.channel.invoke_failed(id, state.now),
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.executions.is_empty() && self.requests.is_empty() && !self.channel.is_settling()
    }

    fn failed(&mut self, owner: Owner, sent: bool, pending: &mut Pending) {
        match owner {
            Owner::Exchange(context) => pending.push_back((context, Event::StoreFailed { sent })),
            Owner::Debt(bucket) => self.worker.charged(&bucket, false),
            Owner::Nobody => {}
        }
    }

    fn replied(&mut self, reply: wire::Reply, pending: &mut Pending) {
        let id = reply.id;
        let Some(reply) = codec::reply(reply) else {
            self.metrics.channel(ChannelEvent::Unreadable);
            return;
        };
        if reply == Reply::Error(Error::Unavailable) && self.channel.refused_for_now(id, self.now) {
            return;
        }
        match self.channel.answered(id) {
            Some(Owner::Exchange(context)) => pending.push_back((context, Event::Store(reply))),
            Some(Owner::Debt(bucket)) => self
                .worker
                .charged(&bucket, reply != Reply::Error(Error::Unavailable)),
            Some(Owner::Nobody) | None => {}
        }
    }
}

/// Does something to a context's stream, if that still lives, and goes back to the context that the host runs.
fn on_stream(current: u32, context: u32, here: bool, action: impl FnOnce() -> bool) {
    if !here {
        return;
    }
    if current == context {
        action();
    } else if host::enter(context) {
        action();
        host::enter(current);
    }
}

fn clock() -> Timestamp {
    Timestamp::from_ms(host::monotonic_ms())
}

/// A serialized `envoy.config.core.v3.GrpcService{envoy_grpc{cluster_name}}`: some bare cluster names are parsed as
/// one too, with consequences.
fn grpc_service(cluster: &str) -> Vec<u8> {
    #[derive(prost::Message)]
    struct GrpcService {
        #[prost(message, optional, tag = "1")]
        envoy_grpc: Option<EnvoyGrpc>,
    }
    #[derive(prost::Message)]
    struct EnvoyGrpc {
        #[prost(string, tag = "1")]
        cluster_name: String,
    }
    prost::Message::encode_to_vec(&GrpcService {
        envoy_grpc: Some(EnvoyGrpc {
            cluster_name: cluster.to_owned(),
        }),
    })
}

/// Bytes for a parameter that the SDK types as text and only hands on.
fn text(bytes: &[u8]) -> &str {
    // SAFETY: the SDK copies the bytes into the call's buffer and looks at nothing but their length.
    #[expect(unsafe_code, reason = "header values need not be UTF-8")]
    unsafe {
        std::str::from_utf8_unchecked(bytes)
    }
}
