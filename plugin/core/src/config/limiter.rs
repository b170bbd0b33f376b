//! The limiter's settings.

use ipnet::IpNet;

use super::attribute::Attributes;
use super::check::{self, DAY_MS};
use super::document::{self, Mode, OnStoreFailure};
use super::error::ConfigError;
use crate::address::ClientAddress;
use crate::http::{self, RequestHead};
use crate::limiter::rule::{Cost, KeyPart, Rule, RuleParts};
use crate::matching::HeaderMatch;

/// Rules of one instance, at most: the store's bound for the hits of one request.
const RULES_MAX: usize = 64;
const KEY_PARTS_MAX: usize = 16;
const CIDRS_MAX: usize = 1_024;

/// The limiter's settings.
#[derive(Debug)]
pub struct Limiter {
    /// What happens while the store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// Whether `x-ratelimit-*` is sent beside `RateLimit`. Default true.
    pub x_ratelimit_headers: bool,
    /// Who is not limited.
    pub exempt: Exempt,
    /// In the order of the configuration.
    pub rules: Vec<Rule>,
}

/// Requests that no rule counts.
#[derive(Debug)]
pub struct Exempt {
    preflight: bool,
    cidrs: Vec<IpNet>,
    headers: Vec<HeaderMatch>,
}

impl Exempt {
    /// Whether telling takes the header lines of a request with this method.
    pub fn needs_fields(&self, method: &[u8]) -> bool {
        !self.headers.is_empty() || (self.preflight && method == b"OPTIONS")
    }

    /// Whether a request is exempt: a CORS preflight, an address in a list, or a header's value.
    pub fn covers(&self, head: &RequestHead<'_>, client: ClientAddress) -> bool {
        let preflight = || {
            self.preflight
                && head.method == b"OPTIONS"
                && http::values(head.fields, "access-control-request-method")
                    .next()
                    .is_some()
        };
        let listed = || match client {
            ClientAddress::Ip(ip) => self.cidrs.iter().any(|cidr| cidr.contains(&ip)),
            ClientAddress::None => false,
        };
        preflight()
            || listed()
            || self
                .headers
                .iter()
                .any(|header| header.matches(head.fields))
    }
}

pub(super) fn limiter(
    written: document::Limiter,
    namespace: &str,
    attributes: &mut Attributes,
) -> Result<Limiter, ConfigError> {
    if written.rules.is_empty() || written.rules.len() > RULES_MAX {
        let expected = format!("1 to {RULES_MAX} rules");
        return Err(ConfigError::value(
            "limiter.rules",
            &expected,
            written.rules.len(),
        ));
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(written.rules.len());
    for (index, of) in written.rules.into_iter().enumerate() {
        let path = format!("limiter.rules[{index}]");
        let rule = rule(&path, of, namespace, attributes)?;
        if rules.iter().any(|earlier| earlier.name == rule.name) {
            let expected = "a name that no earlier rule has";
            return Err(ConfigError::value(
                format!("{path}.name"),
                expected,
                rule.name,
            ));
        }
        rules.push(rule);
    }
    Ok(Limiter {
        on_store_failure: written.on_store_failure,
        x_ratelimit_headers: written.x_ratelimit_headers,
        exempt: exempt(&written.exempt)?,
        rules,
    })
}

fn exempt(written: &document::Exempt) -> Result<Exempt, ConfigError> {
    let path = "limiter.exempt.cidrs";
    if written.cidrs.len() > CIDRS_MAX {
        return Err(ConfigError::value(
            path,
            &format!("at most {CIDRS_MAX} networks"),
            written.cidrs.len(),
        ));
    }
    let mut cidrs = Vec::with_capacity(written.cidrs.len());
    for (index, cidr) in written.cidrs.iter().enumerate() {
        let expected = "a network such as 10.0.0.0/8 or 2001:db8::/32";
        cidrs.push(
            cidr.parse()
                .map_err(|_| ConfigError::value(format!("{path}[{index}]"), expected, cidr))?,
        );
    }
    Ok(Exempt {
        preflight: written.preflight,
        cidrs,
        headers: check::header_matches("limiter.exempt.headers", &written.headers)?,
    })
}

fn rule(
    path: &str,
    written: document::Rule,
    namespace: &str,
    attributes: &mut Attributes,
) -> Result<Rule, ConfigError> {
    let at = |field: &str| format!("{path}.{field}");
    check::name(&at("name"), &written.name)?;
    let range = "whole seconds from 1s to 30d";
    let window = written.window.text();
    let length_ms = check::duration(&at("window"), window, 1_000, 30 * DAY_MS, range)?;
    if !length_ms.is_multiple_of(1_000) {
        return Err(ConfigError::value(at("window"), range, window));
    }
    if written.key.is_empty() || written.key.len() > KEY_PARTS_MAX {
        return Err(ConfigError::value(
            at("key"),
            &format!("1 to {KEY_PARTS_MAX} parts"),
            written.key.len(),
        ));
    }
    let mut key = Vec::with_capacity(written.key.len());
    for (index, part) in written.key.into_iter().enumerate() {
        key.push(key_part(&at(&format!("key[{index}]")), part, attributes)?);
    }
    let reserve = written
        .reserve
        .unwrap_or_else(|| (written.quota / 10).clamp(1, 64));
    if !(1..=64).contains(&reserve) {
        return Err(ConfigError::value(at("reserve"), "1 to 64", reserve));
    }
    let cost_header = written
        .cost_header
        .map(|name| check::header_name(&at("cost_header"), &name))
        .transpose()?;
    let matching = check::matching(&at("match"), &written.matching, None)?;
    if matching.named_by_route {
        attributes.rules_of_the_route();
    }
    Ok(Rule::new(
        namespace,
        RuleParts {
            name: written.name,
            quota: written.quota,
            window_s: u32::try_from(length_ms / 1_000).unwrap_or(u32::MAX),
            reserve,
            cost: Cost {
                default: written.cost.unwrap_or(1),
                header: cost_header,
            },
            shadow: written.mode == Mode::Shadow,
            refund_on: check::statuses(&at("refund_on"), written.refund_on)?,
            matching,
            key,
        },
    ))
}

fn key_part(
    path: &str,
    written: document::KeyPart,
    attributes: &mut Attributes,
) -> Result<KeyPart, ConfigError> {
    Ok(match written {
        document::KeyPart::ClientAddress => KeyPart::ClientAddress,
        document::KeyPart::Method => KeyPart::Method,
        document::KeyPart::Path => KeyPart::Path,
        document::KeyPart::Authority => KeyPart::Authority,
        document::KeyPart::RouteName => KeyPart::RouteName(attributes.route_name()),
        document::KeyPart::Literal(text) => {
            KeyPart::Literal(check::text(&format!("{path}.literal"), &text, 1_024)?)
        }
        document::KeyPart::Header(name) => {
            KeyPart::Header(check::header_name(&format!("{path}.header"), &name)?)
        }
        document::KeyPart::Principal(principal) => {
            KeyPart::Principal(attributes.principal(&format!("{path}.principal"), principal)?)
        }
    })
}
