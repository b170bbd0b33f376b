//! The configuration as it is used: validated, immutable, with everything computed that does not depend on a request.

use super::document::{self, Document, OnStoreFailure};
use super::error::ConfigError;
use crate::http::RequestHead;
use crate::idempotency::kept::REPLAYED;
use crate::idempotency::policy::Policy;
use crate::limiter::rule::{KeyPart, Rule};
use crate::matching::Match;

/// Everything that one filter instance is told to do.
#[derive(Debug)]
pub struct Settings {
    /// How the store is reached.
    pub store: Store,
    /// IPv6 clients are told apart by this many leading bits. Default 64.
    pub ipv6_prefix: u8,
    /// Rate limits, when this instance enforces any.
    pub limiter: Option<Limiter>,
    /// Idempotency keys, when this instance handles them.
    pub idempotency: Option<Idempotency>,
}

/// How the store is reached.
#[derive(Debug)]
pub struct Store {
    /// The proxy's cluster.
    pub cluster: String,
    /// How long a call may take, 10 ms to 10 s. Default 250 ms.
    pub timeout_ms: u64,
    /// Which fleet this is; part of every bucket and record key.
    pub namespace: String,
}

/// The limiter's settings.
#[derive(Debug)]
pub struct Limiter {
    /// What happens while the store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// Whether `x-ratelimit-*` is sent beside `RateLimit`. Default true.
    pub x_ratelimit_headers: bool,
    /// In the order of the configuration.
    pub rules: Vec<Rule>,
}

/// The idempotency settings.
#[derive(Debug)]
pub struct Idempotency {
    /// The cluster through which a keyed request is executed.
    pub execute_cluster: String,
    /// How long an execution may take, 1 s to 10 min.
    pub execute_timeout_ms: u64,
    /// The largest body of a keyed request. Default 1 MiB.
    pub max_request_bytes: usize,
    /// The largest answer that is kept, at most 3 MiB. Default 1 MiB.
    pub max_response_bytes: usize,
    /// Requests and answers held by one worker, in all. Default 64 MiB.
    pub max_held_bytes: usize,
    /// The first that matches holds.
    pub policies: Vec<Policy>,
}

/// What an adapter must read of a request before it opens an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demands {
    /// No rule and no policy is for this request: it passes, and needs no exchange.
    pub nothing: bool,
    /// The client's address.
    pub client_address: bool,
    /// All header lines.
    pub fields: bool,
}

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
const RULES_MAX: usize = 64;
const POLICIES_MAX: usize = 256;
const KEY_PARTS_MAX: usize = 16;
const WINDOW_DAYS_MAX: u64 = 30;
const REMEMBER_DAYS_MAX: u64 = 366;
const RESPONSE_BYTES_MAX: u32 = 3 * 1024 * 1024;
const BYTES_DEFAULT: u32 = 1024 * 1024;
const HELD_BYTES_DEFAULT: u32 = 64 * 1024 * 1024;

impl Settings {
    /// Reads a configuration in JSON.
    ///
    /// # Errors
    /// Names the first field that is unknown, missing or not accepted, what came and what was expected.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let document: Document =
            serde_path_to_error::deserialize(&mut deserializer).map_err(|error| ConfigError {
                path: error.path().to_string(),
                problem: error.inner().to_string(),
            })?;
        deserializer.end().map_err(|error| ConfigError {
            path: ".".into(),
            problem: error.to_string(),
        })?;
        Self::validate(document)
    }

    fn validate(document: Document) -> Result<Self, ConfigError> {
        let store = store(document.store)?;
        let ipv6_prefix = document.client_address.ipv6_prefix.unwrap_or(64);
        if ipv6_prefix > 128 {
            return Err(ConfigError::value(
                "client_address.ipv6_prefix",
                "0 to 128",
                ipv6_prefix,
            ));
        }
        if document.limiter.is_none() && document.idempotency.is_none() {
            return Err(ConfigError {
                path: ".".into(),
                problem: "expected `limiter`, `idempotency` or both, got neither".into(),
            });
        }
        let limiter = document
            .limiter
            .map(|limiter| self::limiter(limiter, &store.namespace))
            .transpose()?;
        let idempotency = document
            .idempotency
            .map(|idempotency| self::idempotency(idempotency, &store))
            .transpose()?;
        Ok(Self {
            store,
            ipv6_prefix,
            limiter,
            idempotency,
        })
    }

    /// Whether a rule or a policy may be for a request with this method, whatever its path: if not, even that need not
    /// be read.
    pub fn may_demand(&self, method: &[u8]) -> bool {
        let rules = self
            .limiter
            .iter()
            .flat_map(|limiter| &limiter.rules)
            .map(|rule| &rule.matching);
        let policies = self
            .idempotency
            .iter()
            .flat_map(|of| &of.policies)
            .map(|policy| &policy.matching);
        rules
            .chain(policies)
            .any(|matching| matching.may_match(method))
    }

    /// What must be read of a request with this method and path (the path with or without its query).
    pub fn demands(&self, method: &[u8], path: &[u8]) -> Demands {
        let head = RequestHead {
            method,
            path,
            client_address: None,
            fields: &[],
            end: true,
        };
        let path = head.path_only();
        let mut demands = Demands {
            nothing: true,
            client_address: false,
            fields: false,
        };
        for rule in self.limiter.iter().flat_map(|limiter| &limiter.rules) {
            if rule.matching.matches(method, path) {
                demands.nothing = false;
                demands.client_address = true;
                demands.fields |= rule.needs_fields();
            }
        }
        if self
            .idempotency
            .as_ref()
            .is_some_and(|idempotency| idempotency.policy(method, path).is_some())
        {
            demands.nothing = false;
            demands.fields = true;
        }
        demands
    }

    /// Header lines that no response from upstream may carry: only porch sets them.
    pub fn stripped_from_responses(&self) -> &'static [&'static str] {
        if self.idempotency.is_some() {
            &[REPLAYED]
        } else {
            &[]
        }
    }
}

impl Idempotency {
    /// The policy for a request, and its place in the configuration: the first that matches.
    pub fn policy(&self, method: &[u8], path: &[u8]) -> Option<(usize, &Policy)> {
        self.policies
            .iter()
            .enumerate()
            .find(|(_, policy)| policy.matching.matches(method, path))
    }
}

fn store(store: document::Store) -> Result<Store, ConfigError> {
    if store.cluster.is_empty() {
        return Err(ConfigError::value(
            "store.cluster",
            "the name of a cluster",
            store.cluster,
        ));
    }
    if store.namespace.is_empty() || store.namespace.len() > 128 {
        return Err(ConfigError::value(
            "store.namespace",
            "1 to 128 bytes",
            store.namespace,
        ));
    }
    let timeout = store.timeout.as_deref().unwrap_or("250ms");
    Ok(Store {
        timeout_ms: duration("store.timeout", timeout, 10, 10_000, "10ms to 10s")?,
        cluster: store.cluster,
        namespace: store.namespace,
    })
}

fn limiter(limiter: document::Limiter, namespace: &str) -> Result<Limiter, ConfigError> {
    if limiter.rules.is_empty() || limiter.rules.len() > RULES_MAX {
        return Err(ConfigError::value(
            "limiter.rules",
            "1 to 64 rules",
            limiter.rules.len(),
        ));
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(limiter.rules.len());
    for (index, rule) in limiter.rules.into_iter().enumerate() {
        let at = |field: &str| format!("limiter.rules[{index}].{field}");
        name(&at("name"), &rule.name)?;
        if rules.iter().any(|earlier| earlier.name == rule.name) {
            return Err(ConfigError::value(
                at("name"),
                "a name that no earlier rule has",
                &rule.name,
            ));
        }
        let range = "whole seconds from 1s to 30d";
        let length_ms = duration(
            &at("window"),
            &rule.window,
            1_000,
            WINDOW_DAYS_MAX.saturating_mul(DAY_MS),
            range,
        )?;
        if !length_ms.is_multiple_of(1_000) {
            return Err(ConfigError::value(at("window"), range, &rule.window));
        }
        let window_s = u32::try_from(length_ms / 1_000).unwrap_or(u32::MAX);
        if rule.key.is_empty() || rule.key.len() > KEY_PARTS_MAX {
            return Err(ConfigError::value(
                at("key"),
                "1 to 16 parts",
                rule.key.len(),
            ));
        }
        let mut key = Vec::with_capacity(rule.key.len());
        for (part, written) in rule.key.into_iter().enumerate() {
            key.push(match written {
                document::KeyPart::ClientAddress => KeyPart::ClientAddress,
                document::KeyPart::Literal(text) => KeyPart::Literal(text),
                document::KeyPart::Header(text) => {
                    KeyPart::Header(header_name(&at(&format!("key[{part}].header")), &text)?)
                }
            });
        }
        let reserve = rule
            .reserve
            .unwrap_or_else(|| (rule.quota / 10).clamp(1, 64));
        if !(1..=64).contains(&reserve) {
            return Err(ConfigError::value(at("reserve"), "1 to 64", reserve));
        }
        let matching = matching(&at("match"), &rule.matching, None)?;
        rules.push(Rule::new(
            namespace, rule.name, rule.quota, window_s, reserve, key, matching,
        ));
    }
    Ok(Limiter {
        on_store_failure: limiter.on_store_failure,
        x_ratelimit_headers: limiter.x_ratelimit_headers,
        rules,
    })
}

fn idempotency(
    idempotency: document::Idempotency,
    store: &Store,
) -> Result<Idempotency, ConfigError> {
    let document::Execute::Detached(detached) = idempotency.execute;
    if detached.cluster.is_empty() {
        return Err(ConfigError::value(
            "idempotency.execute.detached.cluster",
            "the name of a cluster",
            "",
        ));
    }
    let timeout_path = "idempotency.execute.detached.timeout";
    let timeout_range = "1s to 10m";
    let execute_timeout_ms = duration(
        timeout_path,
        &detached.timeout,
        1_000,
        10 * MINUTE_MS,
        timeout_range,
    )?;
    let bytes = |field: &str, came: Option<u32>, default: u32, most: u32| {
        let came = came.unwrap_or(default);
        if (1..=most).contains(&came) {
            Ok(usize::try_from(came).unwrap_or(usize::MAX))
        } else {
            Err(ConfigError::value(
                format!("idempotency.{field}"),
                &format!("1 to {most} bytes"),
                came,
            ))
        }
    };
    let max_request_bytes = bytes(
        "max_request_bytes",
        idempotency.max_request_bytes,
        BYTES_DEFAULT,
        HELD_BYTES_DEFAULT,
    )?;
    let max_response_bytes = bytes(
        "max_response_bytes",
        idempotency.max_response_bytes,
        BYTES_DEFAULT,
        RESPONSE_BYTES_MAX,
    )?;
    let max_held_bytes = bytes(
        "max_held_bytes",
        idempotency.max_held_bytes,
        HELD_BYTES_DEFAULT,
        u32::MAX,
    )?;
    if max_held_bytes < max_request_bytes {
        let expected = "at least max_request_bytes";
        return Err(ConfigError::value(
            "idempotency.max_held_bytes",
            expected,
            max_held_bytes,
        ));
    }
    if idempotency.policies.is_empty() || idempotency.policies.len() > POLICIES_MAX {
        return Err(ConfigError::value(
            "idempotency.policies",
            "1 to 256 policies",
            idempotency.policies.len(),
        ));
    }
    let mut policies: Vec<Policy> = Vec::with_capacity(idempotency.policies.len());
    for (index, policy) in idempotency.policies.into_iter().enumerate() {
        let policy = self::policy(index, policy, store, execute_timeout_ms)?;
        if policies.iter().any(|earlier| earlier.name == policy.name) {
            let path = format!("idempotency.policies[{index}].name");
            return Err(ConfigError::value(
                path,
                "a name that no earlier policy has",
                policy.name,
            ));
        }
        policies.push(policy);
    }
    Ok(Idempotency {
        execute_cluster: detached.cluster,
        execute_timeout_ms,
        max_request_bytes,
        max_response_bytes,
        max_held_bytes,
        policies,
    })
}

fn policy(
    index: usize,
    policy: document::Policy,
    store: &Store,
    execute_timeout_ms: u64,
) -> Result<Policy, ConfigError> {
    let at = |field: &str| format!("idempotency.policies[{index}].{field}");
    name(&at("name"), &policy.name)?;
    let most = REMEMBER_DAYS_MAX.saturating_mul(DAY_MS);
    let ttl = policy.ttl.as_deref().unwrap_or("24h");
    let ttl_ms = duration(&at("ttl"), ttl, 1_000, most, "1s to 366d")?;
    let remember_ms = match policy.remember.as_deref() {
        Some(remember) => duration(&at("remember"), remember, ttl_ms, most, "ttl to 366d")?,
        None => (7 * DAY_MS).max(ttl_ms),
    };
    let principal = match policy.principal {
        document::Principal::None => document::Principal::None,
        document::Principal::Header(text) => {
            document::Principal::Header(header_name(&at("principal.header"), &text)?)
        }
    };
    let release_statuses = policy
        .release_statuses
        .unwrap_or_else(|| vec![401, 407, 408, 421, 425, 429]);
    if let Some(status) = release_statuses
        .iter()
        .find(|status| !(200..=599).contains(*status))
    {
        return Err(ConfigError::value(
            at("release_statuses"),
            "statuses from 200 to 599",
            status,
        ));
    }
    let unsafe_methods = ["POST", "PATCH", "PUT", "DELETE"];
    Ok(Policy {
        matching: matching(&at("match"), &policy.matching, Some(&unsafe_methods))?,
        namespace: store.namespace.clone(),
        name: policy.name,
        required: policy.required,
        ttl_ms,
        remember_ms,
        lease_ms: execute_timeout_ms
            .saturating_add(store.timeout_ms.saturating_mul(2))
            .saturating_add(5_000),
        principal,
        release_statuses,
    })
}

fn matching(
    path: &str,
    written: &document::Matching,
    only: Option<&[&str]>,
) -> Result<Match, ConfigError> {
    let prefix = written.path_prefix.as_deref().unwrap_or("/");
    if !prefix.starts_with('/') || prefix.contains(['?', '#']) {
        let expected = "a path that starts with `/`, without a query";
        return Err(ConfigError::value(
            format!("{path}.path_prefix"),
            expected,
            prefix,
        ));
    }
    let methods = match (&written.methods, only) {
        (None, None) => None,
        (None, Some(all)) => Some(all.iter().map(|name| (*name).to_owned()).collect()),
        (Some(methods), _) => {
            let known = |method: &String| match only {
                Some(all) => all.contains(&method.as_str()),
                None => !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_graphic()),
            };
            if let Some(index) = methods.iter().position(|method| !known(method)) {
                let expected = only.map_or_else(
                    || "a method in upper case".to_owned(),
                    |all| format!("one of {}", all.join(", ")),
                );
                return Err(ConfigError::value(
                    format!("{path}.methods[{index}]"),
                    &expected,
                    methods.get(index).map_or("", String::as_str),
                ));
            }
            if methods.is_empty() {
                return Err(ConfigError::value(
                    format!("{path}.methods"),
                    "at least one method",
                    methods,
                ));
            }
            Some(methods.clone())
        }
    };
    Ok(Match::new(prefix, methods.as_deref()))
}

fn name(path: &str, name: &str) -> Result<(), ConfigError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(ConfigError::value(
            path,
            "1 to 64 of a-z, 0-9 and `-`",
            name,
        ))
    }
}

/// A header's name in lower case. RFC 9110, section 5.1: a token.
fn header_name(path: &str, text: &str) -> Result<String, ConfigError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=128).contains(&text.len()) && text.bytes().all(fits) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ConfigError::value(
            path,
            "a header's name, 1 to 128 bytes",
            text,
        ))
    }
}

fn duration(
    path: &str,
    text: &str,
    least_ms: u64,
    most_ms: u64,
    range: &str,
) -> Result<u64, ConfigError> {
    let wrong = || {
        ConfigError::value(
            path,
            &format!("a duration such as 250ms, 60s, 24h or 7d, {range}"),
            text,
        )
    };
    let ms = humantime::parse_duration(text)
        .map_err(|_| wrong())?
        .as_millis();
    let ms = u64::try_from(ms).map_err(|_| wrong())?;
    if (least_ms..=most_ms).contains(&ms) {
        Ok(ms)
    } else {
        Err(wrong())
    }
}
