//! What a client is told of its limits: `RateLimit`, `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers, RFC
//! 9651 syntax), `x-ratelimit-*` and `Retry-After`.

use std::fmt::Write as _;

use super::rule::Rule;
use super::seen::Left;
use crate::http::Field;
use crate::time::seconds_up;

/// One rule's standing for a request.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What is left of its bucket; `None` when that is not known here.
    pub left: Option<Left>,
    /// How many hits the request is.
    pub cost: u32,
    /// It refused the request.
    pub refused: bool,
}

impl Standing<'_> {
    fn known(&self) -> Option<(&Rule, Left)> {
        self.left.map(|left| (self.rule, left))
    }
}

/// The header lines that tell where a client stands, for a response of either path.
pub fn fields(standings: &[Standing<'_>], x_ratelimit: bool) -> Vec<Field> {
    if standings.is_empty() {
        return vec![];
    }
    let mut fields = Vec::with_capacity(5);
    let policies: Vec<&str> = standings
        .iter()
        .map(|standing| standing.rule.policy_item.as_str())
        .collect();
    fields.push(Field::new(
        "ratelimit-policy",
        policies.join(", ").into_bytes(),
    ));
    let mut items = String::new();
    for (rule, left) in standings.iter().filter_map(Standing::known) {
        let separator = if items.is_empty() { "" } else { ", " };
        let written = write!(
            items,
            "{separator}\"{}\";r={};t={}",
            rule.name,
            left.remaining,
            seconds_up(left.reset_ms)
        );
        debug_assert!(written.is_ok(), "a string takes all that is written to it");
    }
    if !items.is_empty() {
        fields.push(Field::new("ratelimit", items.into_bytes()));
    }
    // The tightest: least remaining, then longest reset, then order.
    let tightest = standings
        .iter()
        .filter_map(Standing::known)
        .min_by_key(|(_, left)| (left.remaining, std::cmp::Reverse(left.reset_ms)));
    if let Some((rule, left)) = tightest
        && x_ratelimit
    {
        fields.push(Field::new(
            "x-ratelimit-limit",
            rule.quota.to_string().into_bytes(),
        ));
        fields.push(Field::new(
            "x-ratelimit-remaining",
            left.remaining.to_string().into_bytes(),
        ));
        fields.push(Field::new(
            "x-ratelimit-reset",
            seconds_up(left.reset_ms).to_string().into_bytes(),
        ));
    }
    fields
}

/// Seconds until every rule that refused has a new window, at least 1; `None` when one of them will never have room.
pub fn retry_after_s(standings: &[Standing<'_>]) -> Option<u64> {
    let refusing = || standings.iter().filter(|standing| standing.refused);
    if refusing().any(|standing| standing.cost > standing.rule.quota) {
        return None;
    }
    let longest = refusing()
        .filter_map(|standing| standing.left)
        .map(|left| seconds_up(left.reset_ms))
        .max();
    Some(longest.unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::rule::KeyPart;
    use crate::limiter::rule::tests::parts;

    fn rule(name: &str, quota: u32, window_s: u32) -> Rule {
        Rule::new(
            "n",
            parts(name, quota, window_s, vec![KeyPart::ClientAddress]),
        )
    }

    #[test]
    fn all_rules_are_told_and_the_tightest_is_the_legacy_one() {
        let (slow, fast) = (rule("slow", 100, 60), rule("fast", 5, 1));
        let left = |remaining, reset_ms| {
            Some(Left {
                remaining,
                reset_ms,
            })
        };
        let standings = [
            Standing {
                rule: &slow,
                left: left(3, 59_001),
                cost: 1,
                refused: false,
            },
            Standing {
                rule: &fast,
                left: left(3, 400),
                cost: 1,
                refused: false,
            },
        ];
        let told: Vec<(String, String)> = fields(&standings, true)
            .into_iter()
            .map(|field| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                (text(&field.name), text(&field.value))
            })
            .collect();
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("ratelimit-policy", r#""slow";q=100;w=60, "fast";q=5;w=1"#),
                ("ratelimit", r#""slow";r=3;t=60, "fast";r=3;t=1"#),
                ("x-ratelimit-limit", "100"),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-reset", "60"),
            ]
        );
    }

    #[test]
    fn without_a_rule_to_tell_of_nothing_is_told() {
        assert_eq!(fields(&[], true), []);
    }

    #[test]
    fn retry_after_covers_every_refusing_rule_and_no_other() {
        let rule = rule("r", 1, 60);
        let standing = |reset_ms, refused| Standing {
            rule: &rule,
            left: Some(Left {
                remaining: 0,
                reset_ms,
            }),
            cost: 1,
            refused,
        };
        assert_eq!(
            retry_after_s(&[
                standing(1_001, true),
                standing(500, true),
                standing(50_000, false)
            ]),
            Some(2)
        );
        assert_eq!(retry_after_s(&[standing(1, true)]), Some(1));
        assert_eq!(
            retry_after_s(&[Standing {
                cost: 2,
                ..standing(1, true)
            }]),
            None,
            "it will never have room"
        );
    }
}
