//! The filter's counters, as the proxy's own stats.

use std::cell::Cell;

use porch_core::config::Settings;
use porch_core::exchange::{Count, PolicyOutcome, RuleOutcome};

use crate::host::{self, Metric};

/// The counters of one instance. What the host does not define is not counted.
#[derive(Default)]
pub(crate) struct Metrics {
    rules: Vec<Vec<Option<u32>>>,
    policies: Vec<Vec<Option<u32>>>,
    channel: Vec<Option<u32>>,
    acknowledged_ms: Option<u32>,
    held_bytes: Option<u32>,
    held_bytes_told: Cell<i64>,
}

/// What happened to the channel.
#[derive(Clone, Copy)]
pub(crate) enum ChannelEvent {
    Opened,
    Closed,
    Hung,
    Lost,
    Unreadable,
}

const CHANNEL_WORDS: [&str; 5] = ["opened", "closed", "hung", "lost", "unreadable"];

impl Metrics {
    pub(crate) fn new(settings: &Settings) -> Self {
        let define = |prefix: &str, name: &str, words: &[&str]| {
            words
                .iter()
                .map(|word| {
                    host::metric(Metric::Counter, &format!("{prefix}.{name}.outcome.{word}"))
                })
                .collect()
        };
        let rule_words: Vec<&str> = RuleOutcome::ALL
            .iter()
            .map(|outcome| outcome.word())
            .collect();
        let policy_words: Vec<&str> = PolicyOutcome::ALL
            .iter()
            .map(|outcome| outcome.word())
            .collect();
        let rules = settings.limiter.iter().flat_map(|limiter| &limiter.rules);
        let policies = settings
            .idempotency
            .iter()
            .flat_map(|idempotency| &idempotency.policies);
        Self {
            acknowledged_ms: host::metric(Metric::Histogram, "porch.channel.acknowledged_ms"),
            held_bytes: host::metric(Metric::Gauge, "porch.held_bytes"),
            held_bytes_told: Cell::new(0),
            rules: rules
                .map(|rule| define("porch.limiter.rule", &rule.name, &rule_words))
                .collect(),
            policies: policies
                .map(|policy| define("porch.idempotency.policy", &policy.name, &policy_words))
                .collect(),
            channel: CHANNEL_WORDS
                .iter()
                .map(|word| host::metric(Metric::Counter, &format!("porch.channel.{word}")))
                .collect(),
        }
    }

    pub(crate) fn count(&self, count: Count) {
        let ids = match count {
            Count::Rule(rule, outcome) => self
                .rules
                .get(rule)
                .and_then(|ids| ids.get(outcome.index())),
            Count::Policy(policy, outcome) => self
                .policies
                .get(policy)
                .and_then(|ids| ids.get(outcome.index())),
        };
        if let Some(Some(id)) = ids {
            host::add(*id, 1);
        }
    }

    pub(crate) fn channel(&self, event: ChannelEvent) {
        if let Some(Some(id)) = self.channel.get(event as usize) {
            host::add(*id, 1);
        }
    }

    /// How long the store took to acknowledge a message.
    pub(crate) fn acknowledged(&self, ms: u64) {
        if let Some(id) = self.acknowledged_ms {
            host::record(id, ms);
        }
    }

    /// How many bytes of requests and answers this worker holds. Workers add up in one gauge.
    pub(crate) fn held_bytes(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.held_bytes_told.replace(bytes);
        if let Some(id) = self.held_bytes
            && bytes != before
        {
            host::add(id, bytes - before);
        }
    }
}
