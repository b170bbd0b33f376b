//! The configuration as it is written: a mirror for serde, nothing checked yet but names and types.
//!
//! With the feature `schema` the same types make the JSON Schema, and their comments its descriptions. A bound that
//! stands here is checked in this folder's other files; a test holds the two together.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// What one instance of the filter is told to do. `limiter`, `idempotency` or both must be there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(title = "porch", extend("anyOf" = [{"required": ["limiter"]}, {"required": ["idempotency"]}]))
)]
pub(crate) struct Document {
    /// How the store is reached, and which fleet this is. Required.
    pub(crate) store: Store,
    /// How clients are told apart by address.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(crate) client_address: ClientAddress,
    /// The name under which Envoy's `jwt_authn` filter puts a verified token's payload (its `payload_in_metadata`), 1
    /// to 128 bytes. Default `jwt_payload`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), extend("default" = "jwt_payload")))]
    pub(crate) jwt_payload: Option<String>,
    /// Rate limits. Without it this instance enforces none.
    pub(crate) limiter: Option<Limiter>,
    /// Idempotency keys. Without it this instance ignores them.
    pub(crate) idempotency: Option<Idempotency>,
}

/// How the store is reached, and which fleet this is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Store {
    /// The Envoy cluster that leads to the store: one endpoint, HTTP/2. 1 to 255 bytes. Required.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 255)))]
    pub(crate) cluster: String,
    /// How long a call to the store may take, a duration from 10ms to 10s. Default 250ms.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "250ms")))]
    pub(crate) timeout: Option<Duration>,
    /// The fleet's name, 1 to 128 bytes: part of the key of every bucket and record, so that two fleets may use one store.
    /// Required.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub(crate) namespace: String,
}

/// How clients are told apart by address.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct ClientAddress {
    /// IPv6 clients are told apart by this many leading bits of their address, 0 to 128. Default 64.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 128), extend("default" = 64)))]
    pub(crate) ipv6_prefix: Option<u8>,
}

/// Rate limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Limiter {
    /// What happens while the store does not answer. Default `local`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "local")))]
    pub(crate) on_store_failure: OnStoreFailure,
    /// Whether `x-ratelimit-limit`, `-remaining` and `-reset` are sent beside `RateLimit` and `RateLimit-Policy`. Default
    /// true.
    #[serde(default = "yes")]
    pub(crate) x_ratelimit_headers: bool,
    /// Requests that no rule counts.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(crate) exempt: Exempt,
    /// The rules, 1 to 64. All that match a request count it, or none does. Required.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub(crate) rules: Vec<Rule>,
}

/// What a limiter does while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnStoreFailure {
    /// The worker counts by itself, going on from what it last saw of the bucket, and tells the store afterwards.
    #[default]
    Local,
    /// The request passes, uncounted.
    Allow,
    /// The request is answered with 503 and Retry-After.
    Deny,
}

/// Requests that no rule counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Exempt {
    /// Whether CORS preflights (OPTIONS with Access-Control-Request-Method) are exempt. Default true.
    #[serde(default = "yes")]
    pub(crate) preflight: bool,
    /// Networks whose clients are exempt, for example `10.0.0.0/8`, at most 1024. Default none.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub(crate) cidrs: Vec<String>,
    /// Header values that make a request exempt: one that is met suffices. Default none.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [])))]
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

/// One rate limit: which requests it counts, in which buckets, and how many a bucket takes in a window.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Rule {
    /// Its name, 1 to 64 of a-z, 0-9 and `-`; no two rules have the same. Rules of one name, window and namespace share
    /// their buckets, wherever they stand. Required.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z0-9-]{1,64}$")))]
    pub(crate) name: String,
    /// Hits in one window, 0 to 4294967295. 0 refuses everything. Required.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295_u32)))]
    pub(crate) quota: u32,
    /// The window's length, a duration of whole seconds from 1s to 30d. Required.
    pub(crate) window: Duration,
    /// What tells one bucket from another, 1 to 16 parts. Default `[client_address]`.
    #[serde(default = "by_client_address")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 16), extend("default" = ["client_address"])))]
    pub(crate) key: Vec<KeyPart>,
    /// Which requests it counts. Default all.
    #[serde(rename = "match", default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(crate) matching: Matching,
    /// How many hits the durable ceiling runs ahead of the count, 1 to 64: a crash of the store costs a bucket at most one
    /// less. Default a tenth of `quota`, within 1 and 64.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub(crate) reserve: Option<u32>,
    /// How many hits a request is, 0 to 4294967295. 0 counts nothing: the client is told where it stands. Default 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295_u32), extend("default" = 1)))]
    pub(crate) cost: Option<u32>,
    /// A header in which a trusted filter says how many hits the request is, 1 to 128 bytes. Without a number in it the
    /// request is `cost` hits. Default none.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"))
    )]
    pub(crate) cost_header: Option<String>,
    /// Whether it refuses. Default `enforce`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "enforce")))]
    pub(crate) mode: Mode,
    /// Final statuses, 200 to 599 and at most 256, for which the hits are given back. Default none.
    #[serde(default)]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 256), inner(range(min = 200, max = 599)))
    )]
    pub(crate) refund_on: Vec<u16>,
}

/// Whether a rule refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts and reports, refuses nothing, and clients are not told of it.
    Shadow,
}

/// A part of a rule's key: a request whose part has another value hits another bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum KeyPart {
    /// The client's address, as Envoy's trusted-hop logic found it; IPv6 by `client_address.ipv6_prefix`.
    ClientAddress,
    /// Who sent the request.
    Principal(Principal),
    /// A header's value, its lines joined by `, `. The name has 1 to 128 bytes.
    Header(
        #[cfg_attr(
            feature = "schema",
            schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"))
        )]
        String,
    ),
    /// The method.
    Method,
    /// The path, without its query.
    Path,
    /// Host and port in lower case, without the scheme's default port.
    Authority,
    /// The name of the route that Envoy chose.
    RouteName,
    /// A fixed text of 1 to 1024 bytes: alone, one bucket for all.
    Literal(#[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))] String),
}

/// Which requests a rule or a policy is for: those that meet all of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Matching {
    /// The path, or whole segments of its beginning: it starts with `/` and has no query. Default `/`, every path.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/[^?#]*$"), extend("default" = "/")))]
    pub(crate) path_prefix: Option<String>,
    /// The methods, 1 to 256, in upper case as they are sent. Default all; for a policy POST, PATCH, PUT and DELETE, and
    /// no others.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 256),
            inner(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"))
        )
    )]
    pub(crate) methods: Option<Vec<String>>,
    /// The hosts, 1 to 256, each of 1 to 255 bytes, without the scheme's default port; case does not matter. Default all.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 256), inner(length(min = 1, max = 255)))
    )]
    pub(crate) authorities: Option<Vec<String>>,
    /// Conditions on headers: all must be met. Default none.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [])))]
    pub(crate) headers: Vec<HeaderMatch>,
    /// Whether the route must name this rule or policy too, in its metadata `porch`. Default false.
    #[serde(default)]
    pub(crate) named_by_route: bool,
}

/// A condition on a header.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct HeaderMatch {
    /// The header's name, 1 to 128 bytes; case does not matter. Required.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"))
    )]
    pub(crate) name: String,
    /// Values, 1 to 256: one line of the header must have one of them, byte for byte. Default any: the header must be
    /// there.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub(crate) values: Option<Vec<String>>,
}

/// Idempotency keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Idempotency {
    /// How keyed requests are executed. Required.
    pub(crate) execute: Execute,
    /// The header that carries the key, 1 to 128 bytes; case does not matter. Default `idempotency-key`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"), extend("default" = "idempotency-key"))
    )]
    pub(crate) key_header: Option<String>,
    /// Whether a key must be quoted, as RFC 9651 has it; else a bare one is taken too. Default false.
    #[serde(default)]
    pub(crate) strict: bool,
    /// The largest body of a keyed request, 1 to 67108864 bytes (64 MiB). Default 1048576 (1 MiB).
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 67_108_864), extend("default" = 1_048_576)))]
    pub(crate) max_request_bytes: Option<u32>,
    /// The largest body of an answer that is kept, 1 to 3145728 bytes (3 MiB). Default 1048576 (1 MiB).
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 3_145_728), extend("default" = 1_048_576)))]
    pub(crate) max_response_bytes: Option<u32>,
    /// What one worker holds of requests and answers in all, 1 to 4294967295 bytes and at least `max_request_bytes`.
    /// Default 67108864 (64 MiB).
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 4_294_967_295_u32), extend("default" = 67_108_864)))]
    pub(crate) max_held_bytes: Option<u32>,
    /// The policies, 1 to 256. The first that matches a request is its policy. Required.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub(crate) policies: Vec<Policy>,
}

/// How a keyed request is executed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum Execute {
    /// By a call of the proxy's own, which goes on when the client leaves.
    Detached(Detached),
    /// By letting the client's own request go on: for responses that are streams. A client that leaves makes the outcome
    /// unknown.
    Forward(Forward),
}

/// Execution by the client's own request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Forward {
    /// How long an execution may take, a duration from 1s to 10m, at least the route's timeout. Required.
    pub(crate) timeout: Duration,
}

/// Execution by a call of the proxy's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Detached {
    /// The Envoy cluster that leads to the internal listener, 1 to 255 bytes. Required.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 255)))]
    pub(crate) cluster: String,
    /// How long an execution may take, a duration from 1s to 10m, above the route's timeout. Required.
    pub(crate) timeout: Duration,
}

/// Which requests may carry a key, whose key it is, and how long it is remembered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Policy {
    /// Its name, 1 to 64 of a-z, 0-9 and `-`; no two policies have the same. Part of every record's key. Required.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z0-9-]{1,64}$")))]
    pub(crate) name: String,
    /// Which requests it is for. Default every POST, PATCH, PUT and DELETE.
    #[serde(rename = "match", default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    pub(crate) matching: Matching,
    /// Whether a POST or PATCH without a key is refused. Default false: it passes, and may run twice.
    #[serde(default)]
    pub(crate) required: bool,
    /// How long an answer is kept and replayed, a duration from 1s to 366d. Default 24h.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "24h")))]
    pub(crate) ttl: Option<Duration>,
    /// How long it is remembered that a key was used, a duration from `ttl` to 366d; then the key is new. Default 7d, or
    /// `ttl` where that is longer.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "7d")))]
    pub(crate) remember: Option<Duration>,
    /// Whose keys are told apart. Required.
    pub(crate) principal: Principal,
    /// How this policy's requests are executed. Default `idempotency.execute`.
    pub(crate) execute: Option<Execute>,
    /// Upstream's statuses that mean that it did not process the request, 200 to 599 and at most 256: a retry runs.
    /// Default 401, 407, 408, 421, 425 and 429. (A 503 with Retry-After means it too.)
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 256),
            inner(range(min = 200, max = 599)),
            extend("default" = [401, 407, 408, 421, 425, 429])
        )
    )]
    pub(crate) release_statuses: Option<Vec<u16>>,
    /// Headers that are part of the fingerprint beside the usual ones, at most 32, each of 1 to 128 bytes. Default none.
    #[serde(default)]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 32),
            inner(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"))
        )
    )]
    pub(crate) fingerprint_headers: Vec<String>,
    /// What a request gets while the first with its key is under way. Default `refuse`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "refuse")))]
    pub(crate) in_flight: InFlight,
    /// What a retry gets of a request whose outcome cannot be known. Default `refuse`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "refuse")))]
    pub(crate) on_unknown: OnUnknown,
    /// Whether answers are kept; else only that there was one. Default true.
    #[serde(default = "yes")]
    pub(crate) keep: bool,
    /// Whether Set-Cookie is kept and replayed with the other header lines. Default false.
    #[serde(default)]
    pub(crate) keep_set_cookie: bool,
    /// What becomes of an answer with trailers, which cannot be replayed. Default `tombstone`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "tombstone")))]
    pub(crate) trailers: Trailers,
}

/// Who the caller is, so that one caller's keys or counts are not another's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum Principal {
    /// All callers are one.
    None,
    /// The value of a header that an earlier filter sets. Its name has 1 to 128 bytes.
    Header(
        #[cfg_attr(
            feature = "schema",
            schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"))
        )]
        String,
    ),
    /// A claim of the token that Envoy's `jwt_authn` filter has verified. Its name has 1 to 128 bytes.
    JwtClaim(#[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))] String),
    /// The name in the client's certificate: its first URI, else its first DNS name.
    San,
    /// The value of a cookie, whose name has 1 to 128 bytes: no scope of its own for a key, but part of its fingerprint.
    Cookie(#[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))] String),
    /// The Authorization header: no scope of its own for a key, but part of its fingerprint.
    AuthorizationDigest,
}

/// What a request gets while the first with its key is under way.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) enum InFlight {
    /// 409 at once.
    #[default]
    Refuse,
    /// It waits for the first one's answer, for some time.
    Wait(Wait),
}

/// Waiting for the first request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping of fields")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Wait {
    /// How long it waits at most, a duration from 100ms to 60s; then 409. Required.
    pub(crate) max_wait: Duration,
}

/// What a retry of a request gets whose outcome cannot be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnUnknown {
    /// A refusal that says so.
    #[default]
    Refuse,
    /// It runs: for an upstream that is itself idempotent.
    Execute,
}

/// What becomes of an answer with trailers, which cannot be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Trailers {
    /// It is not kept: a retry is told so.
    #[default]
    Tombstone,
    /// It is kept without them.
    Drop,
}

/// A duration: a number with its unit (`ms`, `s`, `m`, `h`, `d`), or several, for example `250ms`, `24h` or `1h 30m`.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Duration(
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)? ?[a-zA-Z]"))
    )]
    String,
);

impl Duration {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a duration such as 250ms, 60s, 24h or 7d")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                Ok(Duration(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

const fn yes() -> bool {
    true
}

fn by_client_address() -> Vec<KeyPart> {
    vec![KeyPart::ClientAddress]
}
