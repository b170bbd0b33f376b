//! The filter's counters, as the proxy's own stats.

use porch_core::config::Settings;
use porch_core::exchange::{Count, PolicyOutcome, RuleOutcome};

use crate::host;

/// The counters of one instance. What the host does not define is not counted.
#[derive(Default)]
pub(crate) struct Metrics {
    rules: Vec<Vec<Option<u32>>>,
    policies: Vec<Vec<Option<u32>>>,
    channel: Vec<Option<u32>>,
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
                .map(|word| host::counter(&format!("{prefix}.{name}.outcome.{word}")))
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
            rules: rules
                .map(|rule| define("porch.limiter.rule", &rule.name, &rule_words))
                .collect(),
            policies: policies
                .map(|policy| define("porch.idempotency.policy", &policy.name, &policy_words))
                .collect(),
            channel: CHANNEL_WORDS
                .iter()
                .map(|word| host::counter(&format!("porch.channel.{word}")))
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
            host::count(*id);
        }
    }

    pub(crate) fn channel(&self, event: ChannelEvent) {
        if let Some(Some(id)) = self.channel.get(event as usize) {
            host::count(*id);
        }
    }
}
