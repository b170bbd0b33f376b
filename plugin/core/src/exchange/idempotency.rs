//! The keyed part of an exchange: collect, claim, execute, settle, answer.

use super::forward::Forwarding;
use super::worker::Held;
use super::{Action, Answer, Count, Execution, Marks, Next, PolicyOutcome, State, Turn};
use crate::config::{Attribute, Execute, Idempotency, OnUnknown, Trailers};
use crate::http::{self, Field, RequestHead, Response};
use crate::idempotency::kept;
use crate::idempotency::key::KeyHeader;
use crate::idempotency::outcome::{Certainty, Executed, certainty};
use crate::idempotency::policy::{FingerprintHead, Policy};
use crate::matching;
use crate::principal::Caller;
use crate::problem::Problem;
use crate::store::{
    Abandon, Claim, ClaimId, Claimed, Complete, Error, Operation, Outcome, RecordKey, Reply,
};

/// Lines of a kept answer, at most. The store's bound.
const KEPT_LINES_MAX: usize = 256;
/// Bytes of a kept answer's lines, at most. The store's bound.
const KEPT_LINES_BYTES_MAX: usize = 64 * 1024;

/// A request that is refused before it runs.
#[derive(Debug)]
pub(super) struct Refusal {
    policy: usize,
    outcome: PolicyOutcome,
    answer: Answer,
    marks: Marks,
}

impl Refusal {
    fn new(policy: usize, outcome: PolicyOutcome, problem: Problem<'_>) -> Self {
        Self {
            policy,
            outcome,
            answer: Answer::problem(problem),
            marks: Marks::default(),
        }
    }

    pub(super) fn marked(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }
}

/// A request with a key.
#[derive(Debug)]
pub(super) struct Keyed {
    policy: usize,
    key: RecordKey,
    fingerprint: FingerprintHead,
    fields: Vec<Field>,
    marks: Marks,
    body: Body,
    held: Held,
}

#[derive(Debug)]
enum Body {
    Coming,
    Whole { bytes: Vec<u8>, claim_id: ClaimId },
}

impl Keyed {
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.body, Body::Whole { .. })
    }

    pub(super) fn marked(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    /// So many bytes of the body are held.
    pub(super) fn held(mut self, bytes: usize, turn: &Turn<'_>) -> Result<Self, Box<Refusal>> {
        let limit = turn
            .worker
            .settings
            .idempotency
            .as_ref()
            .map_or(0, |settings| settings.max_request_bytes);
        if bytes > limit {
            let problem = Problem::RequestTooLarge { limit };
            let refusal = Refusal::new(self.policy, PolicyOutcome::TooLarge, problem);
            return Err(Box::new(refusal.marked(self.marks)));
        }
        if !turn.worker.hold_in_all(&mut self.held, bytes) {
            let refusal = Refusal::new(self.policy, PolicyOutcome::Overloaded, Problem::Overloaded);
            return Err(Box::new(refusal.marked(self.marks)));
        }
        Ok(self)
    }

    pub(super) fn body_end(
        self,
        bytes: Vec<u8>,
        claim_id: ClaimId,
        turn: &Turn<'_>,
    ) -> Result<Self, Box<Refusal>> {
        let keyed = self.held(bytes.len(), turn)?;
        Ok(Self {
            body: Body::Whole { bytes, claim_id },
            ..keyed
        })
    }
}

/// The store is asked who executes the key.
#[derive(Debug)]
pub(super) struct Claiming {
    policy: usize,
    claim: Claim,
    run: Run,
    marks: Marks,
    held: Held,
}

/// How it will run.
#[derive(Debug)]
enum Run {
    Detached(Execution),
    Forward,
}

/// The request runs.
#[derive(Debug)]
pub(super) struct Executing {
    policy: usize,
    claim: Claim,
    marks: Marks,
    held: Held,
    client: Client,
}

/// The outcome is on its way to the store.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) then: Then,
    pub(super) held: Held,
    pub(super) client: Client,
}

/// What the client gets once the outcome is durable.
#[derive(Debug)]
pub(super) enum Then {
    /// An answer of ours.
    Answer(Box<Answer>, Marks),
    /// The response that is held.
    Resume,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Waits,
    Gone,
}

impl Executing {
    pub(super) fn without_client(self) -> Self {
        Self {
            client: Client::Gone,
            ..self
        }
    }
}

impl Settling {
    pub(super) fn without_client(self) -> Self {
        Self {
            client: Client::Gone,
            ..self
        }
    }
}

impl Turn<'_> {
    /// What a request does once the limits allow it.
    pub(super) fn next(&mut self, head: &RequestHead<'_>) -> Next {
        let settings = self.worker.settings.clone();
        let Some(idempotency) = &settings.idempotency else {
            return Next::Pass;
        };
        let named = |name: &str| {
            matching::named_by_route(&settings.attributes, &Attribute::RoutePolicies, head, name)
        };
        let Some((index, policy)) = idempotency.policy(head, named) else {
            return Next::Pass;
        };
        if head.fields.iter().any(|field| field.is(kept::REPLAYED)) {
            self.actions
                .push(Action::RemoveRequestField(kept::REPLAYED));
        }
        if cannot_be_held(head) {
            self.count(Count::Policy(index, PolicyOutcome::Bypassed));
            return Next::Pass;
        }
        let invalid = |problem| Next::Refuse(Refusal::new(index, PolicyOutcome::Invalid, problem));
        let key = match KeyHeader::read(
            http::values(head.fields, &idempotency.key_header),
            idempotency.strict,
        ) {
            KeyHeader::Key(key) => key,
            KeyHeader::Absent if policy.requires_key(head.method) => {
                return invalid(Problem::KeyMissing);
            }
            KeyHeader::Absent => {
                self.count(Count::Policy(index, PolicyOutcome::Unkeyed));
                return Next::Pass;
            }
            KeyHeader::Invalid(detail) => {
                return invalid(Problem::KeyInvalid { detail });
            }
        };
        if announced_bytes(head).is_some_and(|bytes| bytes > idempotency.max_request_bytes) {
            let problem = Problem::RequestTooLarge {
                limit: idempotency.max_request_bytes,
            };
            return Next::Refuse(Refusal::new(index, PolicyOutcome::TooLarge, problem));
        }
        let caller = policy.principal.caller(head);
        if caller == Caller::Missing {
            return invalid(Problem::PrincipalMissing);
        }
        Next::Key(Box::new(Keyed {
            policy: index,
            key: policy.record_key(head, &caller, &key),
            fingerprint: policy.fingerprint(head, &caller),
            fields: kept::executed(head.fields),
            marks: Marks::default(),
            body: Body::Coming,
            held: self.worker.hold_nothing(),
        }))
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) -> State {
        self.count(Count::Policy(refusal.policy, refusal.outcome));
        self.answer(refusal.answer, refusal.marks)
    }

    /// The body is whole: asks to be the one that executes.
    pub(super) fn claim(&mut self, keyed: Keyed) -> State {
        let Keyed {
            policy: index,
            key,
            fingerprint,
            fields,
            marks,
            body,
            held,
        } = keyed;
        let settings = self.worker.settings.clone();
        let policy = settings
            .idempotency
            .as_ref()
            .and_then(|idempotency| idempotency.policies.get(index));
        let (Some(policy), Body::Whole { bytes, claim_id }) = (policy, body) else {
            return State::Over;
        };
        let fingerprint = fingerprint.with_body(&bytes);
        let run = match &policy.execute {
            Execute::Forward { .. } => Run::Forward,
            Execute::Detached {
                cluster,
                timeout_ms,
            } => Run::Detached(Execution {
                cluster: cluster.clone(),
                timeout_ms: *timeout_ms,
                fields,
                body: bytes,
            }),
        };
        let claim = Claim {
            key,
            id: claim_id,
            fingerprint,
            lease_ms: policy.lease_ms,
            ttl_ms: policy.ttl_ms,
            remember_ms: policy.remember_ms,
            wait_ms: policy.wait_ms,
            execute_unknown: policy.on_unknown == OnUnknown::Execute,
            large: false,
        };
        self.actions.push(Action::Call(Operation::Claim(claim)));
        State::Claiming(Claiming {
            policy: index,
            claim,
            run,
            marks,
            held,
        })
    }

    /// What the claim got.
    pub(super) fn claimed(&mut self, claiming: Claiming, reply: Reply) -> State {
        let claimed = match reply {
            Reply::Claimed(claimed) => claimed,
            Reply::Error(Error::DataLoss) => Claimed::Unknown { status: 0 },
            Reply::Error(Error::Unavailable | Error::Refused)
            | Reply::Admitted { .. }
            | Reply::Charged
            | Reply::Refunded
            | Reply::Completed
            | Reply::Abandoned => return self.unclaimed(claiming, true),
        };
        let Claiming {
            policy,
            claim,
            run,
            marks,
            held,
        } = claiming;
        match claimed {
            Claimed::Granted => self.granted(Claiming {
                policy,
                claim,
                run,
                marks,
                held,
            }),
            Claimed::Large => {
                let claim = Claim {
                    large: true,
                    ..claim
                };
                self.actions.push(Action::Call(Operation::Claim(claim)));
                State::Claiming(Claiming {
                    policy,
                    claim,
                    run,
                    marks,
                    held,
                })
            }
            Claimed::Replay(mut response) => {
                drop(held);
                self.count(Count::Policy(policy, PolicyOutcome::Replayed));
                response
                    .fields
                    .push(Field::new(kept::REPLAYED, &b"true"[..]));
                self.answer(
                    Answer {
                        response,
                        details: "porch_replayed",
                        grpc_status: None,
                    },
                    marks,
                )
            }
            Claimed::InFlight => self.refuse_claim(
                Refusal::new(policy, PolicyOutcome::InFlight, Problem::InFlight),
                marks,
                held,
            ),
            Claimed::Mismatch => {
                let problem = Problem::FingerprintMismatch;
                self.refuse_claim(
                    Refusal::new(policy, PolicyOutcome::Mismatch, problem),
                    marks,
                    held,
                )
            }
            Claimed::Tombstone { status } => {
                let problem = Problem::ResponseNotRetained {
                    original_status: status,
                };
                self.refuse_claim(
                    Refusal::new(policy, PolicyOutcome::NotRetained, problem),
                    marks,
                    held,
                )
            }
            Claimed::Unknown { status } => {
                let status = if (200..=599).contains(&status) {
                    status
                } else {
                    500
                };
                let problem = Problem::OutcomeUnknown { status };
                self.refuse_claim(
                    Refusal::new(policy, PolicyOutcome::Unknown, problem),
                    marks,
                    held,
                )
            }
        }
    }

    /// The request may run.
    fn granted(&mut self, claiming: Claiming) -> State {
        let Claiming {
            policy,
            claim,
            run,
            marks,
            held,
        } = claiming;
        self.count(Count::Policy(policy, PolicyOutcome::Executed));
        match run {
            Run::Detached(execution) => {
                self.actions.push(Action::Execute(execution));
                State::Executing(Executing {
                    policy,
                    claim,
                    marks,
                    held,
                    client: Client::Waits,
                })
            }
            Run::Forward => {
                drop(held);
                self.forward(Forwarding {
                    policy,
                    claim,
                    marks,
                })
            }
        }
    }

    fn refuse_claim(&mut self, refusal: Refusal, marks: Marks, held: Held) -> State {
        drop(held);
        self.refuse(refusal.marked(marks))
    }

    /// The store did not take the claim in time: nothing runs.
    pub(super) fn unclaimed(&mut self, claiming: Claiming, sent: bool) -> State {
        if sent {
            self.actions
                .push(Action::Call(Operation::Abandon(abandon(&claiming.claim))));
        }
        let problem = Problem::StoreUnavailable;
        let refusal = Refusal::new(claiming.policy, PolicyOutcome::Unavailable, problem);
        self.refuse_claim(refusal, claiming.marks, claiming.held)
    }

    /// The client left before anything ran.
    pub(super) fn leave_claim(&mut self, claiming: Claiming) -> State {
        self.actions.push(Action::GiveUp(abandon(&claiming.claim)));
        drop(claiming.held);
        State::Over
    }

    /// The execution ended: its outcome goes to the store, then the answer to the client.
    pub(super) fn executed(&mut self, executing: Executing, executed: Executed) -> State {
        let Executing {
            policy: index,
            claim,
            marks,
            held,
            client,
        } = executing;
        drop(held);
        let settings = self.worker.settings.clone();
        let Some(idempotency) = &settings.idempotency else {
            return State::Over;
        };
        let policy = idempotency.policies.get(index);
        let outcome_unknown = Problem::OutcomeUnknown { status: 502 };
        let (certainty, answer, trailers) = match executed {
            Executed::NotDispatched => {
                let answer = Answer::problem(Problem::Overloaded);
                (Certainty::NotProcessed, answer, false)
            }
            Executed::Failed => {
                let answer = Answer::problem(outcome_unknown);
                (Certainty::Unknown, answer, false)
            }
            Executed::Answered { response, trailers } => {
                let releases = policy.map_or(&[][..], |policy| &policy.release_statuses);
                let certainty = certainty(response.status, &response.fields, releases);
                let response = Response {
                    fields: kept::first_answer(response.fields),
                    ..response
                };
                (
                    certainty,
                    Answer {
                        response,
                        details: "porch_executed",
                        grpc_status: None,
                    },
                    trailers,
                )
            }
        };
        let status = answer.response.status;
        let (operation, held) = match certainty {
            Certainty::NotProcessed => {
                self.count(Count::Policy(index, PolicyOutcome::Released));
                (Operation::Abandon(abandon(&claim)), Held::default())
            }
            Certainty::Unknown => {
                self.count(Count::Policy(index, PolicyOutcome::Unknown));
                (
                    complete(&claim, Outcome::Unknown { status }),
                    Held::default(),
                )
            }
            Certainty::Processed => {
                let kept = policy
                    .and_then(|policy| self.keep(idempotency, policy, &answer.response, trailers));
                if let Some((response, held)) = kept {
                    (complete(&claim, Outcome::Response(response)), held)
                } else {
                    self.count(Count::Policy(index, PolicyOutcome::NotKept));
                    (
                        complete(&claim, Outcome::Tombstone { status }),
                        Held::default(),
                    )
                }
            }
        };
        self.actions.push(Action::Call(operation));
        State::Settling(Settling {
            then: Then::Answer(Box::new(answer), marks),
            held,
            client,
        })
    }

    /// What of an answer is kept, if the policy keeps any and it can be: not too large, and nothing of it lost on the
    /// way.
    pub(super) fn keep(
        &mut self,
        settings: &Idempotency,
        policy: &Policy,
        answer: &Response,
        trailers: bool,
    ) -> Option<(Response, Held)> {
        let fields = kept::replayed(&answer.fields, policy.keep_set_cookie);
        let lines_bytes: usize = fields
            .iter()
            .map(|field| field.name.len().saturating_add(field.value.len()))
            .sum();
        let fits = answer.body.len() <= settings.max_response_bytes
            && fields.len() <= KEPT_LINES_MAX
            && lines_bytes <= KEPT_LINES_BYTES_MAX;
        let whole = !trailers || policy.trailers == Trailers::Drop;
        if !policy.keep || !whole || !fits {
            return None;
        }
        let held = self
            .worker
            .hold(answer.body.len().saturating_add(lines_bytes))?;
        Some((
            Response {
                status: answer.status,
                fields,
                body: answer.body.clone(),
            },
            held,
        ))
    }

    /// The outcome is durable, or the store had its time: the client gets the answer.
    pub(super) fn settled(&mut self, settling: Settling) -> State {
        drop(settling.held);
        match (settling.client, settling.then) {
            (Client::Gone, _) => State::Over,
            (Client::Waits, Then::Answer(answer, marks)) => self.answer(*answer, marks),
            (Client::Waits, Then::Resume) => {
                self.actions.push(Action::ResumeResponse);
                State::Passing {
                    marks: Marks::default(),
                }
            }
        }
    }
}

pub(super) fn abandon(claim: &Claim) -> Abandon {
    Abandon {
        key: claim.key,
        id: claim.id,
        lease_ms: claim.lease_ms,
    }
}

pub(super) fn complete(claim: &Claim, outcome: Outcome) -> Operation {
    Operation::Complete(Complete {
        key: claim.key,
        id: claim.id,
        outcome,
    })
}

/// gRPC, upgrades and CONNECT are streams: holding them would break them.
fn cannot_be_held(head: &RequestHead<'_>) -> bool {
    head.method == b"CONNECT"
        || head.fields.iter().any(|field| field.is("upgrade"))
        || http::values(head.fields, "content-type")
            .any(|value| value.starts_with(b"application/grpc"))
}

/// The length that the request announces for its body.
fn announced_bytes(head: &RequestHead<'_>) -> Option<usize> {
    let value = http::values(head.fields, "content-length").next()?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}
