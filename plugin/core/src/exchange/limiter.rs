//! The limiter's part of an exchange: hits, verdicts, refusals, and counting alone while the store is away.

use super::idempotency::Refusal;
use super::{Action, Answer, Count, Marks, Next, RuleOutcome, State, Turn};
use crate::address::ClientAddress;
use crate::config::{Attribute, Limiter, OnStoreFailure, Settings};
use crate::http::{Field, RequestHead};
use crate::limiter::headers::{self, Standing};
use crate::limiter::rule::Rule;
use crate::limiter::seen::Left;
use crate::matching;
use crate::problem::Problem;
use crate::store::{Bucket, ClaimId, Hit, Operation, Refund, Reply, Verdict};

/// A quota of which at most so many hundredths are left is near its limit.
const NEAR_HUNDREDTHS: u64 = 20;

/// The store is asked whether the limits allow the request.
#[derive(Debug)]
pub(super) struct Admitting {
    counted: Vec<Counted>,
    grpc: bool,
    next: Next,
}

/// One rule that counts the request.
#[derive(Clone, Copy, Debug)]
struct Counted {
    rule: usize,
    bucket: Bucket,
    cost: u32,
    shadow: bool,
}

impl Admitting {
    pub(super) fn wants_body(&self) -> bool {
        match &self.next {
            Next::Key(keyed) => !keyed.is_whole(),
            Next::Pass | Next::Refuse(_) => false,
        }
    }

    pub(super) fn held(self, bytes: usize, turn: &Turn<'_>) -> Result<Self, Box<Refusal>> {
        let next = match self.next {
            Next::Key(keyed) => Next::Key(Box::new(keyed.held(bytes, turn)?)),
            Next::Pass | Next::Refuse(_) => self.next,
        };
        Ok(Self { next, ..self })
    }

    pub(super) fn body_end(
        self,
        body: Vec<u8>,
        claim_id: ClaimId,
        turn: &Turn<'_>,
    ) -> Result<Self, Box<Refusal>> {
        let next = match self.next {
            Next::Key(keyed) => Next::Key(Box::new(keyed.body_end(body, claim_id, turn)?)),
            Next::Pass | Next::Refuse(_) => self.next,
        };
        Ok(Self { next, ..self })
    }
}

impl Turn<'_> {
    /// Asks the store for all rules that count the request, or refuses at once what is known to be spent.
    pub(super) fn admit(&mut self, head: &RequestHead<'_>, next: Next) -> State {
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(next, Marks::default());
        };
        let client = ClientAddress::read(
            head.client_address.unwrap_or_default(),
            settings.ipv6_prefix,
        );
        let counted = self.counted(&settings, limiter, head, client);
        if counted.is_empty() {
            return self.proceed(next, Marks::default());
        }
        if limiter.exempt.covers(head, client) {
            for of in &counted {
                self.count(Count::Rule(of.rule, RuleOutcome::Exempt));
            }
            self.verdict(RuleOutcome::Exempt.word());
            return self.proceed(next, Marks::default());
        }
        let admitting = Admitting {
            counted,
            grpc: head.is_grpc(),
            next,
        };
        let spent: Vec<Option<Left>> = admitting
            .counted
            .iter()
            .map(|of| {
                let rule = limiter
                    .rules
                    .get(of.rule)
                    .filter(|_| of.cost > 0 && !of.shadow)?;
                let reset_ms = self.worker.seen.spent(&of.bucket, rule.quota, self.now)?;
                Some(Left {
                    remaining: 0,
                    reset_ms,
                })
            })
            .collect();
        if spent.iter().any(Option::is_some) {
            let standings = standings(limiter, &admitting.counted, |index| {
                let left = spent.get(index).copied().flatten();
                (left, left.is_some())
            });
            return self.refuse_quota(limiter, &standings, &admitting, RuleOutcome::Remembered);
        }
        if admitting
            .counted
            .iter()
            .any(|of| self.worker.seen.is_owed(&of.bucket))
        {
            return self.admit_alone(admitting);
        }
        let hits = admitting.counted.iter().filter_map(|of| {
            let rule = limiter.rules.get(of.rule)?;
            Some(Hit {
                bucket: of.bucket,
                quota: rule.quota,
                window_s: rule.window_s,
                cost: of.cost,
                reserve: rule.reserve,
                shadow: of.shadow,
                refundable: !rule.refund_on.is_empty(),
            })
        });
        self.actions
            .push(Action::Call(Operation::Admit(hits.collect())));
        State::Admitting(admitting)
    }

    /// The store's word.
    pub(super) fn admitted(&mut self, admitting: Admitting, reply: Reply) -> State {
        let (admitted, verdicts) = match reply {
            Reply::Admitted { admitted, verdicts } if verdicts.len() == admitting.counted.len() => {
                (admitted, verdicts)
            }
            Reply::Admitted { .. }
            | Reply::Charged
            | Reply::Refunded
            | Reply::Claimed(_)
            | Reply::Completed
            | Reply::Abandoned
            | Reply::Error(_) => return self.admit_alone(admitting),
        };
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(admitting.next, Marks::default());
        };
        let mut refunds = vec![];
        for (of, verdict) in admitting.counted.iter().zip(&verdicts) {
            let Some(rule) = limiter.rules.get(of.rule) else {
                continue;
            };
            if !of.shadow {
                self.worker
                    .seen
                    .learn(of.bucket, rule.quota, verdict, self.now);
            }
            if admitted && !verdict.refused && of.cost > 0 && !rule.refund_on.is_empty() {
                let refund = Refund {
                    bucket: of.bucket,
                    window_s: rule.window_s,
                    cost: of.cost,
                    window_start_ms: verdict.window_start_ms,
                };
                refunds.push((of.rule, refund));
            }
        }
        let standings = standings(limiter, &admitting.counted, |index| {
            let verdict = verdicts.get(index);
            (
                verdict.map(left),
                verdict.is_some_and(|verdict| verdict.refused),
            )
        });
        if admitted {
            self.allow(
                limiter,
                &standings,
                admitting,
                refunds,
                RuleOutcome::Allowed,
            )
        } else {
            self.refuse_quota(limiter, &standings, &admitting, RuleOutcome::Refused)
        }
    }

    /// The store is away, or is still owed hits of an outage: the failure policy decides.
    pub(super) fn admit_alone(&mut self, admitting: Admitting) -> State {
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(admitting.next, Marks::default());
        };
        let lefts: Option<Vec<Left>> = match limiter.on_store_failure {
            OnStoreFailure::Deny => None,
            OnStoreFailure::Allow => {
                for of in &admitting.counted {
                    self.count(Count::Rule(of.rule, RuleOutcome::Unlimited));
                }
                self.verdict(RuleOutcome::Unlimited.word());
                return self.proceed(admitting.next, Marks::default());
            }
            OnStoreFailure::Local => admitting
                .counted
                .iter()
                .map(|of| {
                    self.worker
                        .seen
                        .left(of.bucket, limiter.rules.get(of.rule)?, self.now)
                })
                .collect(),
        };
        let Some(mut lefts) = lefts else {
            for of in &admitting.counted {
                self.count(Count::Rule(of.rule, RuleOutcome::Denied));
            }
            return self.answer(Answer::problem(Problem::StoreUnavailable), Marks::default());
        };
        let refuses = |of: &Counted, left: &Left| left.remaining < of.cost;
        if admitting
            .counted
            .iter()
            .zip(&lefts)
            .any(|(of, left)| !of.shadow && refuses(of, left))
        {
            let standings = standings(limiter, &admitting.counted, |index| {
                let of = admitting.counted.get(index).zip(lefts.get(index));
                (
                    of.map(|(_, left)| *left),
                    of.is_some_and(|(of, left)| refuses(of, left)),
                )
            });
            return self.refuse_quota(limiter, &standings, &admitting, RuleOutcome::LocalRefused);
        }
        for (of, left) in admitting.counted.iter().zip(&mut lefts) {
            if let Some(rule) = limiter.rules.get(of.rule)
                && of.cost > 0
                && !refuses(of, left)
            {
                self.worker.seen.charge(of.bucket, rule, of.cost);
                left.remaining = left.remaining.saturating_sub(of.cost);
            }
        }
        let standings = standings(limiter, &admitting.counted, |index| {
            (lefts.get(index).copied(), false)
        });
        self.allow(
            limiter,
            &standings,
            admitting,
            vec![],
            RuleOutcome::LocalAllowed,
        )
    }

    fn allow(
        &mut self,
        limiter: &Limiter,
        standings: &[Standing<'_>],
        admitting: Admitting,
        refunds: Vec<(usize, Refund)>,
        outcome: RuleOutcome,
    ) -> State {
        for (of, standing) in admitting.counted.iter().zip(standings) {
            let shadow_refused = of.shadow && standing.refused;
            self.count(Count::Rule(
                of.rule,
                if shadow_refused {
                    RuleOutcome::Shadow
                } else {
                    outcome
                },
            ));
            if !shadow_refused
                && standing
                    .left
                    .is_some_and(|left| is_near(left, standing.rule))
            {
                self.count(Count::Rule(of.rule, RuleOutcome::NearLimit));
            }
        }
        // The plain case is told by saying nothing: it costs each request a call of the host.
        if outcome != RuleOutcome::Allowed {
            self.verdict(outcome.word());
        }
        let fields = headers::fields(
            &told(&admitting.counted, standings),
            limiter.x_ratelimit_headers,
        );
        self.proceed(admitting.next, Marks { fields, refunds })
    }

    fn refuse_quota(
        &mut self,
        limiter: &Limiter,
        standings: &[Standing<'_>],
        admitting: &Admitting,
        outcome: RuleOutcome,
    ) -> State {
        for (of, standing) in admitting.counted.iter().zip(standings) {
            if standing.refused {
                self.count(Count::Rule(
                    of.rule,
                    if of.shadow {
                        RuleOutcome::Shadow
                    } else {
                        outcome
                    },
                ));
            }
        }
        let told = told(&admitting.counted, standings);
        let violated: Vec<&str> = told
            .iter()
            .filter(|standing| standing.refused)
            .map(|standing| standing.rule.name.as_str())
            .collect();
        let retry_after_s = headers::retry_after_s(&told);
        let mut answer = Answer::problem(Problem::QuotaExceeded {
            violated: &violated,
            retry_after_s,
        });
        if let Some(seconds) = retry_after_s.filter(|_| admitting.grpc) {
            let pushback_ms = seconds.saturating_mul(1_000).to_string().into_bytes();
            answer
                .response
                .fields
                .push(Field::new("grpc-retry-pushback-ms", pushback_ms));
        }
        let fields = headers::fields(&told, limiter.x_ratelimit_headers);
        self.answer(
            answer,
            Marks {
                fields,
                refunds: vec![],
            },
        )
    }

    /// The rules that count a request, each with its bucket and cost.
    fn counted(
        &mut self,
        settings: &Settings,
        limiter: &Limiter,
        head: &RequestHead<'_>,
        client: ClientAddress,
    ) -> Vec<Counted> {
        let mut all = vec![];
        for (index, rule) in limiter.rules.iter().enumerate() {
            let named = |rule: &Rule| {
                matching::named_by_route(
                    &settings.attributes,
                    &Attribute::RouteRules,
                    head,
                    &rule.name,
                )
            };
            if !rule.matching.matches(head) || (rule.matching.named_by_route && !named(rule)) {
                continue;
            }
            let (bucket, missing) = rule.bucket(head, client);
            if missing {
                self.count(Count::Rule(index, RuleOutcome::KeyMissing));
            }
            let (cost, read) = rule.cost(head);
            if read.is_err() {
                self.count(Count::Rule(index, RuleOutcome::BadCost));
            }
            all.push(Counted {
                rule: index,
                bucket,
                cost,
                shadow: rule.shadow,
            });
        }
        all
    }
}

fn standings<'a>(
    limiter: &'a Limiter,
    counted: &[Counted],
    of: impl Fn(usize) -> (Option<Left>, bool),
) -> Vec<Standing<'a>> {
    counted
        .iter()
        .enumerate()
        .filter_map(|(index, counted)| {
            let rule = limiter.rules.get(counted.rule)?;
            let (left, refused) = of(index);
            let window_ms = rule.window_ms();
            let left = left.map(|left| Left {
                reset_ms: left.reset_ms.min(window_ms),
                ..left
            });
            Some(Standing {
                rule,
                left,
                cost: counted.cost,
                refused,
            })
        })
        .collect()
}

/// What the client is told: of shadow rules nothing.
fn told<'a>(counted: &[Counted], standings: &[Standing<'a>]) -> Vec<Standing<'a>> {
    counted
        .iter()
        .zip(standings)
        .filter(|(of, _)| !of.shadow)
        .map(|(_, standing)| *standing)
        .collect()
}

fn left(verdict: &Verdict) -> Left {
    Left {
        remaining: verdict.remaining,
        reset_ms: verdict.reset_ms,
    }
}

fn is_near(left: Left, rule: &Rule) -> bool {
    u64::from(left.remaining).saturating_mul(100)
        <= u64::from(rule.quota).saturating_mul(NEAR_HUNDREDTHS)
}
