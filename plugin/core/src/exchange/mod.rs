//! One request and its answer: events in, actions out.
//!
//! The contract: give an [`Exchange`] one [`Event`], then carry out all [`Action`]s in order, before the next event.
//! An event that does not fit the state (a reply for a call that was given up, say) changes nothing.

mod action;
mod forward;
mod idempotency;
mod limiter;
#[cfg(test)]
mod tests;
mod worker;

pub use action::{Action, Answer, Count, Event, Execution, PolicyOutcome, RuleOutcome};
pub use worker::Worker;

use crate::http::{Field, RequestHead};
use crate::store::{Operation, Refund};
use crate::time::Timestamp;
use forward::{Forwarding, Holding};
use idempotency::{Claiming, Executing, Keyed, Refusal, Settling, Then};
use limiter::Admitting;

const CONTENT_TYPE: &str = "content-type";

/// One request and its answer.
///
/// ```text
///            .-- no rule --------------------------.
///  request --+-> Admitting --admitted--> key? --no-+--> Passing --> over
///                   |                     | yes
///                   | refused             v
///                   |                Collecting --body over--> Claiming --granted--> Executing --> Settling
///                   v                     | 413                   | replay, 409, 422      (goes on without     |
///                Answered <---------------+-----------------------+  the client)                              |
///                   ^------------------------------ durable, or the store's timeout --------------------------'
///
///  forwarded: Claiming --granted--> Forwarding --response--> Holding --whole--> Settling --durable--> Passing
///                                                     '--a stream, or too large: not kept-----------> Passing
/// ```
#[derive(Debug)]
pub struct Exchange {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing has happened yet.
    Fresh,
    /// The store is asked whether the limits allow the request.
    Admitting(Admitting),
    /// A keyed request's body is on its way.
    Collecting(Keyed),
    /// The store is asked who executes the key.
    Claiming(Claiming),
    /// The request runs, whether or not its client waits.
    Executing(Executing),
    /// The client's own request is with upstream.
    Forwarding(Forwarding),
    /// Its response is held while it comes.
    Holding(Holding),
    /// The outcome is on its way to the store.
    Settling(Settling),
    /// The request went on to upstream as it came.
    Passing {
        /// What is due when the answer comes.
        marks: Marks,
    },
    /// The client has its answer from us.
    Answered {
        content_type: ContentType,
        /// Hits that may be given back.
        refunds: Vec<(usize, Refund)>,
    },
    /// Nothing more will happen.
    Over,
}

/// What the limiter has to do with the answer of a request that it allowed.
#[derive(Debug, Default)]
struct Marks {
    /// Header lines that tell where the client stands.
    fields: Vec<Field>,
    /// Hits that are given back for certain statuses, each with its rule.
    refunds: Vec<(usize, Refund)>,
}

/// What the proxy does to the content type of an answer of ours, and so what is to be mended on its way out.
#[derive(Debug)]
enum ContentType {
    /// It is there.
    Sent,
    /// There is none, so the proxy adds one.
    Absent,
    /// There is one and no body, so the proxy drops it.
    Dropped(Vec<Field>),
}

/// What a request that the limits allow does next.
#[derive(Debug)]
enum Next {
    Pass,
    Refuse(Refusal),
    Key(Box<Keyed>),
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            state: State::Fresh,
        }
    }
}

impl Exchange {
    /// Whether the request's body must be collected: [`Event::BodyHeld`] while it comes, [`Event::BodyEnd`] at its end.
    pub fn wants_body(&self) -> bool {
        match &self.state {
            State::Collecting(_) => true,
            State::Admitting(admitting) => admitting.wants_body(),
            State::Fresh
            | State::Claiming(_)
            | State::Executing(_)
            | State::Forwarding(_)
            | State::Holding(_)
            | State::Settling(_)
            | State::Passing { .. }
            | State::Answered { .. }
            | State::Over => false,
        }
    }

    /// Whether a response is to be told whole: its head with all lines and details, [`Event::ResponseHeld`] while its
    /// body comes, [`Event::ResponseEnd`] at its end.
    pub fn wants_response(&self) -> bool {
        matches!(self.state, State::Forwarding(_) | State::Holding(_))
    }

    /// Whether the response is to be held.
    pub fn holds_response(&self) -> bool {
        match &self.state {
            State::Holding(_) => true,
            State::Settling(settling) => matches!(settling.then, Then::Resume),
            State::Fresh
            | State::Admitting(_)
            | State::Collecting(_)
            | State::Claiming(_)
            | State::Executing(_)
            | State::Forwarding(_)
            | State::Passing { .. }
            | State::Answered { .. }
            | State::Over => false,
        }
    }

    /// Nothing more will come of it: it can be dropped.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes an event at `now`, and adds what is to be done to `actions`.
    pub fn handle(
        &mut self,
        event: Event<'_>,
        now: Timestamp,
        worker: &mut Worker,
        actions: &mut Vec<Action>,
    ) {
        let state = std::mem::replace(&mut self.state, State::Over);
        let mut turn = Turn {
            now,
            worker,
            actions,
        };
        self.state = turn.take(state, event);
    }
}

/// One event's worth of work.
struct Turn<'a> {
    now: Timestamp,
    worker: &'a mut Worker,
    actions: &'a mut Vec<Action>,
}

impl Turn<'_> {
    #[expect(
        clippy::too_many_lines,
        reason = "the table of transitions, a row each"
    )]
    fn take(&mut self, state: State, event: Event<'_>) -> State {
        match (state, event) {
            (State::Fresh, Event::RequestHead(head)) => self.start(&head),

            (State::Admitting(admitting), Event::Store(reply)) => self.admitted(admitting, reply),
            (State::Admitting(admitting), Event::StoreFailed { .. }) => self.admit_alone(admitting),
            (State::Admitting(admitting), Event::BodyHeld(bytes)) => {
                match admitting.held(bytes, self) {
                    Ok(admitting) => State::Admitting(admitting),
                    Err(refusal) => self.refuse(*refusal),
                }
            }
            (State::Admitting(admitting), Event::BodyEnd { body, claim_id }) => {
                match admitting.body_end(body, claim_id, self) {
                    Ok(admitting) => State::Admitting(admitting),
                    Err(refusal) => self.refuse(*refusal),
                }
            }

            (State::Collecting(keyed), Event::BodyHeld(bytes)) => match keyed.held(bytes, self) {
                Ok(keyed) => State::Collecting(keyed),
                Err(refusal) => self.refuse(*refusal),
            },
            (State::Collecting(keyed), Event::BodyEnd { body, claim_id }) => {
                match keyed.body_end(body, claim_id, self) {
                    Ok(keyed) => self.claim(keyed),
                    Err(refusal) => self.refuse(*refusal),
                }
            }

            (State::Claiming(claiming), Event::Store(reply)) => self.claimed(claiming, reply),
            (State::Claiming(claiming), Event::StoreFailed { sent }) => {
                self.unclaimed(claiming, sent)
            }
            (State::Claiming(claiming), Event::ClientGone) => self.leave_claim(claiming),

            (State::Executing(executing), Event::Executed(executed)) => {
                self.executed(executing, executed)
            }
            (State::Executing(executing), Event::ClientGone) => {
                State::Executing(executing.without_client())
            }

            (State::Settling(settling), Event::Store(_) | Event::StoreFailed { .. }) => {
                self.settled(settling)
            }
            (State::Settling(settling), Event::ClientGone) => {
                State::Settling(settling.without_client())
            }

            (State::Forwarding(forwarding), Event::ResponseHead(head)) => {
                self.forwarded(forwarding, &head)
            }
            (State::Forwarding(Forwarding { policy, claim, .. }), Event::ClientGone) => {
                self.leave_forwarded(policy, &claim)
            }
            (State::Holding(holding), Event::ResponseHeld(bytes)) => {
                self.response_held(holding, bytes)
            }
            (State::Holding(holding), Event::ResponseEnd { body, trailers }) => {
                self.kept(holding, body, trailers)
            }
            (State::Holding(holding), Event::ResponseHead(head)) => {
                self.broke_off(&holding, head.status)
            }
            (State::Holding(holding), Event::ClientGone) => self.leave_held(&holding),

            (State::Passing { marks }, Event::ResponseHead(head)) => {
                self.mark(marks, head.status);
                State::Passing {
                    marks: Marks::default(),
                }
            }
            (
                State::Answered {
                    content_type,
                    refunds,
                },
                Event::ResponseHead(head),
            ) => {
                self.give_back(refunds, head.status);
                self.mend(content_type);
                State::Answered {
                    content_type: ContentType::Sent,
                    refunds: vec![],
                }
            }

            (
                State::Fresh
                | State::Admitting(_)
                | State::Collecting(_)
                | State::Passing { .. }
                | State::Answered { .. }
                | State::Over,
                Event::ClientGone,
            ) => State::Over,

            (
                state,
                Event::RequestHead(_)
                | Event::BodyHeld(_)
                | Event::BodyEnd { .. }
                | Event::Store(_)
                | Event::StoreFailed { .. }
                | Event::Executed(_)
                | Event::ResponseHead(_)
                | Event::ResponseHeld(_)
                | Event::ResponseEnd { .. },
            ) => state,
        }
    }

    fn start(&mut self, head: &RequestHead<'_>) -> State {
        let next = self.next(head);
        self.admit(head, next)
    }

    /// Goes on with a request that the limits allow; `marks` tell its client where it stands.
    fn proceed(&mut self, next: Next, marks: Marks) -> State {
        match next {
            Next::Pass => {
                self.actions.push(Action::Pass);
                State::Passing { marks }
            }
            Next::Refuse(refusal) => self.refuse(refusal.marked(marks)),
            Next::Key(keyed) => {
                let keyed = keyed.marked(marks);
                if keyed.is_whole() {
                    self.claim(keyed)
                } else {
                    State::Collecting(keyed)
                }
            }
        }
    }

    fn answer(&mut self, mut answer: Answer, marks: Marks) -> State {
        let lines = || {
            answer
                .response
                .fields
                .iter()
                .filter(|field| field.is(CONTENT_TYPE))
        };
        let content_type = if lines().next().is_none() {
            ContentType::Absent
        } else if answer.response.body.is_empty() {
            ContentType::Dropped(lines().cloned().collect())
        } else {
            ContentType::Sent
        };
        answer.response.fields.extend(marks.fields);
        self.verdict(
            answer
                .details
                .strip_prefix("porch_")
                .unwrap_or(answer.details),
        );
        self.actions.push(Action::Answer(answer));
        State::Answered {
            content_type,
            refunds: marks.refunds,
        }
    }

    /// Marks a response that is on its way.
    fn mark(&mut self, marks: Marks, status: u16) {
        let stripped = self.worker.settings.stripped_from_responses();
        self.actions.extend(
            stripped
                .iter()
                .map(|name| Action::RemoveResponseField(name)),
        );
        self.actions
            .extend(marks.fields.into_iter().map(Action::AddResponseField));
        self.give_back(marks.refunds, status);
    }

    /// Undoes what the proxy does to the content type of an answer of ours.
    fn mend(&mut self, content_type: ContentType) {
        let lines = match content_type {
            ContentType::Sent => return,
            ContentType::Absent => vec![],
            ContentType::Dropped(lines) => lines,
        };
        self.actions.push(Action::RemoveResponseField(CONTENT_TYPE));
        self.actions
            .extend(lines.into_iter().map(Action::AddResponseField));
    }

    /// Gives back the hits whose rules do so for this final status. No answer is waited for.
    fn give_back(&mut self, refunds: Vec<(usize, Refund)>, status: u16) {
        let settings = self.worker.settings.clone();
        let rules = settings
            .limiter
            .as_ref()
            .map_or(&[][..], |limiter| &limiter.rules);
        for (index, refund) in refunds {
            if rules
                .get(index)
                .is_some_and(|rule| rule.refund_on.contains(&status))
            {
                self.count(Count::Rule(index, RuleOutcome::Refunded));
                self.actions.push(Action::Call(Operation::Refund(refund)));
            }
        }
    }

    fn verdict(&mut self, word: &'static str) {
        self.actions.push(Action::Verdict(word));
    }

    fn count(&mut self, count: Count) {
        self.actions.push(Action::Count(count));
    }
}
