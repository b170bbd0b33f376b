//! The forwarded part of an exchange: the client's own request goes on to upstream, and its response is held until the
//! outcome is durable, or streams past when it cannot be kept.

use super::idempotency::{Client, Settling, Then, abandon, complete};
use super::worker::Held;
use super::{Action, Count, Marks, PolicyOutcome, State, Turn};
use crate::http::{self, Field, Response, ResponseHead};
use crate::idempotency::kept;
use crate::idempotency::outcome::{Certainty, forwarded_certainty};
use crate::store::{Claim, Operation, Outcome};

/// The request is with upstream; no response has come.
#[derive(Debug)]
pub(super) struct Forwarding {
    pub(super) policy: usize,
    pub(super) claim: Claim,
    pub(super) marks: Marks,
}

/// The response is held while its body comes.
#[derive(Debug)]
pub(super) struct Holding {
    policy: usize,
    claim: Claim,
    status: u16,
    fields: Vec<Field>,
    held: Held,
}

impl Turn<'_> {
    /// Lets the request go on, to be sent once.
    pub(super) fn forward(&mut self, forwarding: Forwarding) -> State {
        self.actions
            .push(Action::SetRequestField("x-envoy-max-retries", "0"));
        self.verdict("forwarded");
        self.actions.push(Action::Pass);
        State::Forwarding(forwarding)
    }

    /// A response has come: upstream's, or one that the proxy made in its place.
    pub(super) fn forwarded(&mut self, forwarding: Forwarding, head: &ResponseHead<'_>) -> State {
        let Forwarding {
            policy: index,
            claim,
            marks,
        } = forwarding;
        self.mark(marks, head.status);
        let settings = self.worker.settings.clone();
        let idempotency = settings.idempotency.as_ref();
        let policy = idempotency.and_then(|idempotency| idempotency.policies.get(index));
        let releases = policy.map_or(&[][..], |policy| &policy.release_statuses);
        let most = idempotency.map_or(0, |idempotency| idempotency.max_response_bytes);
        let status = head.status;
        match forwarded_certainty(status, head.fields, head.details, releases) {
            Certainty::NotProcessed => {
                self.count(Count::Policy(index, PolicyOutcome::Released));
                self.settle_held(Operation::Abandon(abandon(&claim)), Held::default())
            }
            Certainty::Unknown => self.unknown(index, &claim, status),
            Certainty::Processed if is_stream(head, most) => self.stream(index, &claim, status),
            Certainty::Processed => {
                let fields = kept::first_answer(head.fields.to_vec());
                let holding = Holding {
                    policy: index,
                    claim,
                    status,
                    fields,
                    held: self.worker.hold_nothing(),
                };
                if head.end {
                    self.kept(holding, vec![], false)
                } else {
                    State::Holding(holding)
                }
            }
        }
    }

    /// So much of the body is held: too much is not kept, and goes on.
    pub(super) fn response_held(&mut self, mut holding: Holding, bytes: usize) -> State {
        let settings = self.worker.settings.clone();
        let most = settings
            .idempotency
            .as_ref()
            .map_or(0, |idempotency| idempotency.max_response_bytes);
        if bytes > most || !self.worker.hold_in_all(&mut holding.held, bytes) {
            return self.stream(holding.policy, &holding.claim, holding.status);
        }
        State::Holding(holding)
    }

    /// The response is whole.
    pub(super) fn kept(&mut self, holding: Holding, body: Vec<u8>, trailers: bool) -> State {
        let Holding {
            policy: index,
            claim,
            status,
            fields,
            held,
        } = holding;
        drop(held);
        let settings = self.worker.settings.clone();
        let kept = settings.idempotency.as_ref().and_then(|idempotency| {
            let policy = idempotency.policies.get(index)?;
            self.keep(
                idempotency,
                policy,
                &Response {
                    status,
                    fields,
                    body,
                },
                trailers,
            )
        });
        let (outcome, held) = if let Some((response, held)) = kept {
            (Outcome::Response(response), held)
        } else {
            self.count(Count::Policy(index, PolicyOutcome::NotKept));
            (Outcome::Tombstone { status }, Held::default())
        };
        self.settle_held(complete(&claim, outcome), held)
    }

    /// The response broke off while it was held, and the proxy answers in its place.
    pub(super) fn broke_off(&mut self, holding: &Holding, status: u16) -> State {
        self.unknown(holding.policy, &holding.claim, status)
    }

    /// The client left, and its request was reset with it.
    pub(super) fn leave_forwarded(&mut self, policy: usize, claim: &Claim) -> State {
        self.count(Count::Policy(policy, PolicyOutcome::Unknown));
        self.actions.push(Action::Call(complete(
            claim,
            Outcome::Unknown { status: 0 },
        )));
        State::Over
    }

    pub(super) fn leave_held(&mut self, holding: &Holding) -> State {
        self.leave_forwarded(holding.policy, &holding.claim)
    }

    fn unknown(&mut self, policy: usize, claim: &Claim, status: u16) -> State {
        self.count(Count::Policy(policy, PolicyOutcome::Unknown));
        self.settle_held(
            complete(claim, Outcome::Unknown { status }),
            Held::default(),
        )
    }

    /// The response is not kept, and that is said at once; it goes on unheld.
    fn stream(&mut self, policy: usize, claim: &Claim, status: u16) -> State {
        self.count(Count::Policy(policy, PolicyOutcome::NotKept));
        self.actions
            .push(Action::Call(complete(claim, Outcome::Tombstone { status })));
        State::Passing {
            marks: Marks::default(),
        }
    }

    fn settle_held(&mut self, operation: Operation, held: Held) -> State {
        self.actions.push(Action::Call(operation));
        State::Settling(Settling {
            then: Then::Resume,
            held,
            client: Client::Waits,
        })
    }
}

/// Whether a response is to stream past: server-sent events, or a length above the most that is kept. A response of
/// unknown length is held until it is seen to be too long.
fn is_stream(head: &ResponseHead<'_>, most: usize) -> bool {
    let length = http::values(head.fields, "content-length").next();
    let length: Option<usize> =
        length.and_then(|length| std::str::from_utf8(length).ok()?.trim().parse().ok());
    let events = http::values(head.fields, "content-type")
        .any(|value| value.starts_with(b"text/event-stream"));
    events || length.is_some_and(|length| length > most)
}
