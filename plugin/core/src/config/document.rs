//! The configuration as it is written: a mirror for serde, nothing checked yet but names and types.

use serde::Deserialize;

/// The whole configuration of one filter instance.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) store: Store,
    #[serde(default)]
    pub(crate) client_address: ClientAddress,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) idempotency: Option<Idempotency>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) cluster: String,
    pub(crate) timeout: Option<String>,
    pub(crate) namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientAddress {
    pub(crate) ipv6_prefix: Option<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limiter {
    #[serde(default)]
    pub(crate) on_store_failure: OnStoreFailure,
    #[serde(default = "yes")]
    pub(crate) x_ratelimit_headers: bool,
    pub(crate) rules: Vec<Rule>,
}

/// What a limiter does while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// The worker counts by itself, going on from what it last saw of the bucket.
    #[default]
    Local,
    /// 503 with Retry-After.
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) quota: u32,
    pub(crate) window: String,
    #[serde(default = "by_client_address")]
    pub(crate) key: Vec<KeyPart>,
    #[serde(rename = "match", default)]
    pub(crate) matching: Matching,
    pub(crate) reserve: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyPart {
    ClientAddress,
    Header(String),
    Literal(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matching {
    pub(crate) path_prefix: Option<String>,
    pub(crate) methods: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Idempotency {
    pub(crate) execute: Execute,
    pub(crate) max_request_bytes: Option<u32>,
    pub(crate) max_response_bytes: Option<u32>,
    pub(crate) max_held_bytes: Option<u32>,
    pub(crate) policies: Vec<Policy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Execute {
    Detached(Detached),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Detached {
    pub(crate) cluster: String,
    pub(crate) timeout: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    pub(crate) name: String,
    #[serde(rename = "match", default)]
    pub(crate) matching: Matching,
    #[serde(default)]
    pub(crate) required: bool,
    pub(crate) ttl: Option<String>,
    pub(crate) remember: Option<String>,
    pub(crate) principal: Principal,
    pub(crate) release_statuses: Option<Vec<u16>>,
}

/// Who the caller is, so that one caller's keys are not another's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Principal {
    /// All callers share their keys.
    None,
    /// The value of a header that an earlier filter sets, in lower case.
    Header(String),
}

const fn yes() -> bool {
    true
}

fn by_client_address() -> Vec<KeyPart> {
    vec![KeyPart::ClientAddress]
}
