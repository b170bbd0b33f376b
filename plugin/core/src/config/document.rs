//! The configuration as it is written: a mirror for serde, nothing checked yet but names and types.

use serde::Deserialize;

/// The whole configuration of one filter instance.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) store: Store,
    #[serde(default)]
    pub(crate) client_address: ClientAddress,
    pub(crate) jwt_payload: Option<String>,
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
    #[serde(default)]
    pub(crate) exempt: Exempt,
    pub(crate) rules: Vec<Rule>,
}

/// What a limiter does while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// The worker counts by itself, going on from what it last saw of the bucket, and tells the store afterwards.
    #[default]
    Local,
    /// The request passes.
    Allow,
    /// 503 with Retry-After.
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exempt {
    #[serde(default = "yes")]
    pub(crate) preflight: bool,
    #[serde(default)]
    pub(crate) cidrs: Vec<String>,
    #[serde(default)]
    pub(crate) headers: Vec<HeaderMatch>,
}

impl Default for Exempt {
    fn default() -> Self {
        Self {
            preflight: true,
            cidrs: vec![],
            headers: vec![],
        }
    }
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
    pub(crate) cost: Option<u32>,
    pub(crate) cost_header: Option<String>,
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(default)]
    pub(crate) refund_on: Vec<u16>,
}

/// Whether a rule refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts and reports, and refuses nothing.
    Shadow,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyPart {
    ClientAddress,
    Principal(Principal),
    Header(String),
    Method,
    Path,
    Authority,
    RouteName,
    Literal(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matching {
    pub(crate) path_prefix: Option<String>,
    pub(crate) methods: Option<Vec<String>>,
    pub(crate) authorities: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) headers: Vec<HeaderMatch>,
    #[serde(default)]
    pub(crate) named_by_route: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderMatch {
    pub(crate) name: String,
    pub(crate) values: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Idempotency {
    pub(crate) execute: Execute,
    pub(crate) key_header: Option<String>,
    #[serde(default)]
    pub(crate) strict: bool,
    pub(crate) max_request_bytes: Option<u32>,
    pub(crate) max_response_bytes: Option<u32>,
    pub(crate) max_held_bytes: Option<u32>,
    pub(crate) policies: Vec<Policy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Execute {
    Detached(Detached),
    Forward(Forward),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forward {
    pub(crate) timeout: String,
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
    pub(crate) execute: Option<Execute>,
    pub(crate) release_statuses: Option<Vec<u16>>,
    #[serde(default)]
    pub(crate) fingerprint_headers: Vec<String>,
    #[serde(default)]
    pub(crate) in_flight: InFlight,
    #[serde(default)]
    pub(crate) on_unknown: OnUnknown,
    #[serde(default = "yes")]
    pub(crate) keep: bool,
    #[serde(default)]
    pub(crate) keep_set_cookie: bool,
    #[serde(default)]
    pub(crate) trailers: Trailers,
}

/// Who the caller is, so that one caller's keys or counts are not another's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Principal {
    /// All callers are one.
    None,
    /// The value of a header that an earlier filter sets, in lower case.
    Header(String),
    /// A claim of the token that Envoy's `jwt_authn` filter has verified.
    JwtClaim(String),
    /// The name in the client's certificate: its first URI, else its first DNS name.
    San,
    /// The value of a cookie: no scope of its own, but part of what makes two requests the same.
    Cookie(String),
    /// The Authorization header: no scope of its own, but part of what makes two requests the same.
    AuthorizationDigest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InFlight {
    #[default]
    Refuse,
    Wait(Wait),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    pub(crate) max_wait: String,
}

/// What a retry of a request gets whose outcome cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// A refusal that says so.
    #[default]
    Refuse,
    /// It runs: for an upstream that is itself idempotent.
    Execute,
}

/// What becomes of an answer with trailers, which cannot be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trailers {
    /// It is not kept: a retry is told so.
    #[default]
    Tombstone,
    /// It is kept without them.
    Drop,
}

const fn yes() -> bool {
    true
}

fn by_client_address() -> Vec<KeyPart> {
    vec![KeyPart::ClientAddress]
}
