//! What an exchange is told, and what it wants done.

use crate::http::{Field, RequestHead, Response, ResponseHead};
use crate::idempotency::outcome::Executed;
use crate::problem::Problem;
use crate::store::{Abandon, ClaimId, Operation, Reply};

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The request's headers are there.
    RequestHead(RequestHead<'a>),
    /// So many bytes of its body are held by the host, in all.
    BodyHeld(usize),
    /// Its body is over.
    BodyEnd {
        /// All of it.
        body: Vec<u8>,
        /// Fresh randomness, for the claim.
        claim_id: ClaimId,
    },
    /// The store answered the open call.
    Store(Reply),
    /// The store did not answer the open call in time, or cannot be reached.
    StoreFailed {
        /// The call was put on a stream: the store may have seen it.
        sent: bool,
    },
    /// The detached execution ended.
    Executed(Executed),
    /// The headers of an answer are on their way to the client: upstream's, or our own.
    ResponseHead(ResponseHead<'a>),
    /// So many bytes of the response are held by the host, in all.
    ResponseHeld(usize),
    /// The response is over.
    ResponseEnd {
        /// All of its body.
        body: Vec<u8>,
        /// It had trailers.
        trailers: bool,
    },
    /// The client's stream has ended, for whatever cause.
    ClientGone,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Let the request go on to upstream as it is; without it or an answer, the request is held.
    Pass,
    /// Answer the client.
    Answer(Answer),
    /// Ask the store. Its reply, or its failure, is the next store event; a refund gets none.
    Call(Operation),
    /// Give the open call up. If the store may have seen it, tell it so with this.
    GiveUp(Abandon),
    /// Run the request through this policy's execute cluster, also when its client leaves; then tell with
    /// [`Event::Executed`].
    Execute(Execution),
    /// Set a line of the request, before it goes on.
    SetRequestField(&'static str, &'static str),
    /// Let the response that is held go on to the client.
    ResumeResponse,
    /// Remove a line of the request, before it goes on.
    RemoveRequestField(&'static str),
    /// Add a line to the answer that is on its way.
    AddResponseField(Field),
    /// Remove all lines of this name from the answer that is on its way.
    RemoveResponseField(&'static str),
    /// Count what became of a request.
    Count(Count),
    /// Note what became of a request, for the proxy's access log.
    Verdict(&'static str),
}

/// A response of ours.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the client gets.
    pub response: Response,
    /// One word for the access log, for example `porch_replayed`.
    pub details: &'static str,
    /// What a gRPC caller is told; others do not see it.
    pub grpc_status: Option<u32>,
}

impl Answer {
    pub(super) fn problem(problem: Problem<'_>) -> Self {
        Self {
            response: problem.response(),
            details: problem.details(),
            grpc_status: problem.grpc_status(),
        }
    }
}

/// A request to be run through the execute cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct Execution {
    /// The cluster.
    pub cluster: String,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// Header lines with pseudo-headers.
    pub fields: Vec<Field>,
    /// The body.
    pub body: Vec<u8>,
}

/// Something that happened to a request, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// By a rule, by its place in the configuration.
    Rule(usize, RuleOutcome),
    /// By a policy, by its place in the configuration.
    Policy(usize, PolicyOutcome),
}

macro_rules! outcomes {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every outcome, in the order of [`Self::index`].
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in a metric's name.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Its place in [`Self::ALL`].
            pub fn index(self) -> usize {
                Self::ALL.iter().position(|other| *other == self).unwrap_or_default()
            }
        }
    };
}

outcomes! {
    /// What a rule did with a request.
    RuleOutcome {
        /// Let it pass.
        Allowed = "allowed",
        /// Refused it, by the store's word.
        Refused = "refused",
        /// Refused it, from the worker's memory of a spent bucket.
        Remembered = "remembered",
        /// Let it pass by the worker's own count, while the store was away.
        LocalAllowed = "local_allowed",
        /// Refused it by the worker's own count, while the store was away.
        LocalRefused = "local_refused",
        /// Answered 503, since the store was away.
        Denied = "denied",
        /// Passed uncounted, since the store was away.
        Unlimited = "unlimited",
        /// Would have been refused, were the rule no shadow.
        Shadow = "shadow",
        /// Allowed, with a fifth of the quota left or less.
        NearLimit = "near_limit",
        /// Not counted: a preflight, a listed address or header.
        Exempt = "exempt",
        /// A part of its key was missing; counted by the client's address.
        KeyMissing = "key_missing",
        /// Its cost header said no number; counted at the rule's default.
        BadCost = "bad_cost",
        /// Its hit was given back.
        Refunded = "refunded",
    }
}

outcomes! {
    /// What a policy did with a request.
    PolicyOutcome {
        /// Had no key, and passed.
        Unkeyed = "unkeyed",
        /// gRPC, upgrade or CONNECT: passed by.
        Bypassed = "bypassed",
        /// The key or the principal is missing, or the key is invalid: 400.
        Invalid = "invalid",
        /// The body is too large to hold: 413.
        TooLarge = "too_large",
        /// Too much is held: 503.
        Overloaded = "overloaded",
        /// Executed.
        Executed = "executed",
        /// Answered from the record.
        Replayed = "replayed",
        /// The first is in flight: 409.
        InFlight = "in_flight",
        /// Another request under the key: 422.
        Mismatch = "mismatch",
        /// Ran before; its answer is not kept: 409.
        NotRetained = "not_retained",
        /// Cannot be known.
        Unknown = "unknown",
        /// The store was away: 503.
        Unavailable = "unavailable",
        /// The execution was not processed by upstream, and its key released.
        Released = "released",
        /// The answer was too large to keep, or had trailers.
        NotKept = "not_kept",
    }
}
