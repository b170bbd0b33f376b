//! The limiter's part of an exchange: hits, verdicts, refusals, and counting alone while the store is away.

use super::idempotency::Refusal;
use super::{Answer, Count, Next, RuleOutcome, State, Turn};
use crate::address::ClientAddress;
use crate::config::{Limiter, OnStoreFailure, Settings};
use crate::http::{Field, RequestHead};
use crate::limiter::headers::{self, Standing};
use crate::limiter::seen::Left;
use crate::problem::Problem;
use crate::store::{Bucket, ClaimId, Hit, Operation, Reply, Verdict};

/// How many hits a request is.
const COST: u32 = 1;

/// The store is asked whether the limits allow the request.
#[derive(Debug)]
pub(super) struct Admitting {
    charges: Vec<Charge>,
    next: Next,
}

/// One rule that counts the request.
#[derive(Clone, Copy, Debug)]
struct Charge {
    rule: usize,
    bucket: Bucket,
}

impl Admitting {
    pub(super) fn wants_body(&self) -> bool {
        match &self.next {
            Next::Key(keyed) => !keyed.is_whole(),
            Next::Pass | Next::Refuse(_) => false,
        }
    }

    pub(super) fn held(self, bytes: usize, turn: &Turn<'_>) -> Result<Self, Refusal> {
        let Self { charges, next } = self;
        let next = match next {
            Next::Key(keyed) => Next::Key(Box::new(
                keyed.held(bytes, turn).map_err(|(refusal, _)| refusal)?,
            )),
            Next::Pass | Next::Refuse(_) => next,
        };
        Ok(Self { charges, next })
    }

    pub(super) fn body_end(
        self,
        body: Vec<u8>,
        claim_id: ClaimId,
        turn: &Turn<'_>,
    ) -> Result<Self, Refusal> {
        let Self { charges, next } = self;
        let next = match next {
            Next::Key(keyed) => Next::Key(Box::new(
                keyed
                    .body_end(body, claim_id, turn)
                    .map_err(|(refusal, _)| refusal)?,
            )),
            Next::Pass | Next::Refuse(_) => next,
        };
        Ok(Self { charges, next })
    }
}

impl Turn<'_> {
    /// Asks the store for all rules that count the request, or refuses at once what is known to be spent.
    pub(super) fn admit(&mut self, head: &RequestHead<'_>, next: Next) -> State {
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(next, vec![]);
        };
        let charges = charges(&settings, limiter, head);
        if charges.is_empty() {
            return self.proceed(next, vec![]);
        }
        let spent = |turn: &Self, charge: &Charge| {
            let rule = limiter.rules.get(charge.rule)?;
            turn.worker.seen.spent(&charge.bucket, rule.quota, turn.now)
        };
        if charges.iter().any(|charge| spent(self, charge).is_some()) {
            let known: Vec<Option<Left>> = charges
                .iter()
                .map(|charge| {
                    spent(self, charge).map(|reset_ms| Left {
                        remaining: 0,
                        reset_ms,
                    })
                })
                .collect();
            let standings = standings(limiter, &charges, |index| {
                let left = known.get(index).copied().flatten();
                (left, left.is_some())
            });
            return self.refuse_quota(limiter, &standings, &charges, RuleOutcome::Remembered);
        }
        let hits = charges
            .iter()
            .filter_map(|charge| {
                let rule = limiter.rules.get(charge.rule)?;
                Some(Hit {
                    bucket: charge.bucket,
                    quota: rule.quota,
                    window_s: rule.window_s,
                    cost: COST,
                    reserve: rule.reserve,
                })
            })
            .collect();
        self.actions
            .push(super::Action::Call(Operation::Admit(hits)));
        State::Admitting(Admitting { charges, next })
    }

    /// The store's word.
    pub(super) fn admitted(&mut self, admitting: Admitting, reply: Reply) -> State {
        let (admitted, verdicts) = match reply {
            Reply::Admitted { admitted, verdicts } if verdicts.len() == admitting.charges.len() => {
                (admitted, verdicts)
            }
            Reply::Admitted { .. }
            | Reply::Claimed(_)
            | Reply::Completed
            | Reply::Abandoned
            | Reply::Error(_) => return self.admit_alone(admitting),
        };
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(admitting.next, vec![]);
        };
        for (charge, verdict) in admitting.charges.iter().zip(&verdicts) {
            if let Some(rule) = limiter.rules.get(charge.rule) {
                self.worker
                    .seen
                    .learn(charge.bucket, rule.quota, verdict, self.now);
            }
        }
        let standings = standings(limiter, &admitting.charges, |index| {
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
                admitting.next,
                &admitting.charges,
                RuleOutcome::Allowed,
            )
        } else {
            self.refuse_quota(
                limiter,
                &standings,
                &admitting.charges,
                RuleOutcome::Refused,
            )
        }
    }

    /// The store is away: the failure policy decides.
    pub(super) fn admit_alone(&mut self, admitting: Admitting) -> State {
        let settings = self.worker.settings.clone();
        let Some(limiter) = &settings.limiter else {
            return self.proceed(admitting.next, vec![]);
        };
        let lefts: Option<Vec<Left>> = match limiter.on_store_failure {
            OnStoreFailure::Deny => None,
            OnStoreFailure::Local => admitting
                .charges
                .iter()
                .map(|charge| {
                    let rule = limiter.rules.get(charge.rule)?;
                    self.worker
                        .seen
                        .left(charge.bucket, rule.quota, rule.window_s, self.now)
                })
                .collect(),
        };
        let Some(mut lefts) = lefts else {
            for charge in &admitting.charges {
                self.count(Count::Rule(charge.rule, RuleOutcome::Denied));
            }
            return self.answer(Answer::problem(Problem::StoreUnavailable), vec![]);
        };
        let refuses = |left: &Left| left.remaining < COST;
        if lefts.iter().any(refuses) {
            let standings = standings(limiter, &admitting.charges, |index| {
                let left = lefts.get(index).copied();
                (left, left.as_ref().is_some_and(refuses))
            });
            return self.refuse_quota(
                limiter,
                &standings,
                &admitting.charges,
                RuleOutcome::LocalRefused,
            );
        }
        for (charge, left) in admitting.charges.iter().zip(&mut lefts) {
            if let Some(rule) = limiter.rules.get(charge.rule) {
                self.worker.seen.charge(&charge.bucket, rule.quota, COST);
                left.remaining = left.remaining.saturating_sub(COST);
            }
        }
        let standings = standings(limiter, &admitting.charges, |index| {
            (lefts.get(index).copied(), false)
        });
        self.allow(
            limiter,
            &standings,
            admitting.next,
            &admitting.charges,
            RuleOutcome::LocalAllowed,
        )
    }

    fn allow(
        &mut self,
        limiter: &Limiter,
        standings: &[Standing<'_>],
        next: Next,
        charges: &[Charge],
        outcome: RuleOutcome,
    ) -> State {
        for charge in charges {
            self.count(Count::Rule(charge.rule, outcome));
        }
        let marks = headers::fields(standings, limiter.x_ratelimit_headers);
        self.proceed(next, marks)
    }

    fn refuse_quota(
        &mut self,
        limiter: &Limiter,
        standings: &[Standing<'_>],
        charges: &[Charge],
        outcome: RuleOutcome,
    ) -> State {
        for (charge, standing) in charges.iter().zip(standings) {
            if standing.refused {
                self.count(Count::Rule(charge.rule, outcome));
            }
        }
        let violated: Vec<&str> = standings
            .iter()
            .filter(|standing| standing.refused)
            .map(|standing| standing.rule.name.as_str())
            .collect();
        let retry_after_s = headers::retry_after_s(standings);
        let answer = Answer::problem(Problem::QuotaExceeded {
            violated: &violated,
            retry_after_s,
        });
        let marks: Vec<Field> = headers::fields(standings, limiter.x_ratelimit_headers);
        self.answer(answer, marks)
    }
}

fn charges(settings: &Settings, limiter: &Limiter, head: &RequestHead<'_>) -> Vec<Charge> {
    let path = head.path_only();
    let client = ClientAddress::read(
        head.client_address.unwrap_or_default(),
        settings.ipv6_prefix,
    );
    limiter
        .rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.matching.matches(head.method, path))
        .map(|(index, rule)| Charge {
            rule: index,
            bucket: rule.bucket(head, client),
        })
        .collect()
}

fn standings<'a>(
    limiter: &'a Limiter,
    charges: &[Charge],
    of: impl Fn(usize) -> (Option<Left>, bool),
) -> Vec<Standing<'a>> {
    charges
        .iter()
        .enumerate()
        .filter_map(|(index, charge)| {
            let rule = limiter.rules.get(charge.rule)?;
            let (left, refused) = of(index);
            let window_ms = u64::from(rule.window_s).saturating_mul(1_000);
            let left = left.map(|left| Left {
                reset_ms: left.reset_ms.min(window_ms),
                ..left
            });
            Some(Standing {
                rule,
                left,
                refused,
            })
        })
        .collect()
}

fn left(verdict: &Verdict) -> Left {
    Left {
        remaining: verdict.remaining,
        reset_ms: verdict.reset_ms,
    }
}
