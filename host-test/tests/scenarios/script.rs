//! What a scenario says: under a setting, what clients do in which order, and what must come of it.

use porch_host::client::Request;
use serde_json::Value;

/// A configuration that scenarios share.
pub(crate) struct Setting {
    /// The limiter instance's `limiter`.
    pub(crate) limiter: Value,
    /// The idempotency instance's `idempotency`.
    pub(crate) idempotency: Value,
    /// Routes before the one that leads all else to the service.
    pub(crate) routes: Vec<Route>,
    /// How long the store may take: long, since a busy machine is no outage.
    pub(crate) store_timeout: &'static str,
    /// Envoy's workers.
    pub(crate) workers: u32,
}

/// A route by a path's prefix.
#[derive(Clone, Default)]
pub(crate) struct Route {
    pub(crate) prefix: &'static str,
    pub(crate) name: &'static str,
    /// The route's metadata `porch`: `rules` and `policies`.
    pub(crate) rules: Option<&'static str>,
    pub(crate) policies: Option<&'static str>,
    /// The proxy answers this status itself.
    pub(crate) direct: Option<u16>,
    /// The proxy sends a failed request again.
    pub(crate) retries: bool,
}

/// One story.
pub(crate) struct Scenario {
    /// Which cases of the list it shows.
    pub(crate) cases: &'static [&'static str],
    /// What it tells, in a sentence.
    pub(crate) story: &'static str,
    /// The one driver that it runs on, and why not on the other.
    pub(crate) only: Option<(On, &'static str)>,
    pub(crate) steps: Vec<Step>,
}

/// What plays a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The pure core, with a store and a service in memory.
    Core,
    /// A real Envoy, store and service.
    Envoy,
}

pub(crate) fn scenario(
    cases: &'static [&'static str],
    story: &'static str,
    steps: Vec<Step>,
) -> Scenario {
    Scenario {
        cases,
        story,
        only: None,
        steps,
    }
}

impl Scenario {
    pub(crate) fn only_on(self, on: On, why: &'static str) -> Self {
        Self {
            only: Some((on, why)),
            ..self
        }
    }
}

/// One thing that happens.
pub(crate) enum Step {
    /// A client sends a request and reads the answer.
    Send(Request, Expect),
    /// A client sends a request; the next step comes when the service has its row, or at once when it gets none.
    Start(&'static str, Request, Begun),
    /// Its answer's head comes, and is as expected.
    Head(&'static str, Expect),
    /// Its answer comes, and is as expected.
    Finish(&'static str, Expect),
    /// Its client leaves.
    Leave(&'static str),
    /// So many milliseconds pass, at least.
    Wait(u64),
    /// How often the service ran for a path.
    Rows(&'static str, u64),
    /// A metric's value.
    Counted(&'static str, u64),
    /// The store goes, or comes.
    Store(bool),
    /// A client sends a request over and over, until the answer is as expected.
    Until(Request, Expect),
    /// A client sends a request over and over, until a metric is at least this.
    UntilCounted(Request, &'static str, u64),
}

/// How far a started request gets before the next step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The service runs it.
    Running,
    /// It is under way.
    Sent,
}

pub(crate) fn send(request: Request, expect: Expect) -> Step {
    Step::Send(request, expect)
}

/// What an answer must be.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    pub(crate) status: u16,
    pub(crate) checks: Vec<Check>,
}

#[derive(Clone, Debug)]
pub(crate) enum Check {
    Problem(&'static str),
    Replayed(bool),
    Has(&'static str, &'static str),
    Lacks(&'static str),
    Times(&'static str, usize),
    Left(&'static str, u64),
    ComeAgain(bool),
    Called(&'static str),
    LikeThat(&'static str),
    Bytes(usize),
    Original(u16),
}

pub(crate) fn is(status: u16) -> Expect {
    Expect {
        status,
        checks: vec![],
    }
}

/// Executed now: no replay.
pub(crate) fn first(status: u16) -> Expect {
    is(status).with(Check::Replayed(false))
}

pub(crate) fn replay(status: u16) -> Expect {
    is(status).with(Check::Replayed(true))
}

/// Refused by the limiter.
pub(crate) fn limited() -> Expect {
    is(429)
        .with(Check::Problem("quota-exceeded"))
        .with(Check::ComeAgain(true))
}

/// A problem of ours; only some invite to come again.
pub(crate) fn problem(status: u16, name: &'static str) -> Expect {
    let again = matches!(name, "in-flight" | "store-unavailable" | "overloaded");
    is(status)
        .with(Check::Problem(name))
        .with(Check::ComeAgain(again))
        .with(Check::Lacks("idempotent-replayed"))
        .has("cache-control", "no-store")
}

pub(crate) fn mismatch() -> Expect {
    problem(422, "fingerprint-mismatch")
}

impl Expect {
    fn with(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    pub(crate) fn has(self, name: &'static str, value: &'static str) -> Self {
        self.with(Check::Has(name, value))
    }

    pub(crate) fn lacks(self, name: &'static str) -> Self {
        self.with(Check::Lacks(name))
    }

    /// So many lines of this name.
    pub(crate) fn times(self, name: &'static str, lines: usize) -> Self {
        self.with(Check::Times(name, lines))
    }

    /// What `RateLimit` says is left of a rule.
    pub(crate) fn left(self, rule: &'static str, hits: u64) -> Self {
        self.with(Check::Left(rule, hits))
    }

    /// Gives the answer a name, for [`Self::like`].
    pub(crate) fn called(self, name: &'static str) -> Self {
        self.with(Check::Called(name))
    }

    /// Equal to an earlier one in all that is kept.
    pub(crate) fn like(self, name: &'static str) -> Self {
        self.with(Check::LikeThat(name))
    }

    pub(crate) fn bytes(self, bytes: usize) -> Self {
        self.with(Check::Bytes(bytes))
    }

    /// What the problem says that upstream answered.
    pub(crate) fn original(self, status: u16) -> Self {
        self.with(Check::Original(status))
    }

    /// Without Retry-After.
    pub(crate) fn never_again(self) -> Self {
        self.with(Check::ComeAgain(false))
    }
}
