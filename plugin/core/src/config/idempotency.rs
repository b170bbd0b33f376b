//! The idempotency settings.

use super::attribute::Attributes;
use super::check::{self, DAY_MS, MINUTE_MS};
use super::document;
use super::error::ConfigError;
use super::settings::Store;
use crate::http::RequestHead;
use crate::idempotency::policy::Policy;

const POLICIES_MAX: usize = 256;
const FINGERPRINT_HEADERS_MAX: usize = 32;
const REMEMBER_MS_MAX: u64 = 366 * DAY_MS;
const WAIT_MS_MAX: u64 = MINUTE_MS;
const RESPONSE_BYTES_MAX: u32 = 3 * 1024 * 1024;
const BYTES_DEFAULT: u32 = 1024 * 1024;
const HELD_BYTES_DEFAULT: u32 = 64 * 1024 * 1024;
/// How much longer a lease holds than everything that may happen in it.
const LEASE_MARGIN_MS: u64 = 5_000;

/// Answers that say by their meaning that a request was not processed.
const RELEASE_STATUSES: [u16; 6] = [401, 407, 408, 421, 425, 429];

/// Methods that a policy may be for.
const METHODS: [&str; 4] = ["POST", "PATCH", "PUT", "DELETE"];

/// How a keyed request is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execute {
    /// By a call of the proxy's own, which goes on when the client leaves.
    Detached {
        /// The cluster that leads to the inner listener.
        cluster: String,
        /// How long it may take, 1 s to 10 min.
        timeout_ms: u64,
    },
    /// By letting the client's own request go on: needed for responses that are streams. A client that leaves makes the
    /// outcome unknown.
    Forward {
        /// How long it may take, 1 s to 10 min: at least the route's timeout.
        timeout_ms: u64,
    },
}

/// The idempotency settings.
#[derive(Debug)]
pub struct Idempotency {
    /// The header that carries the key, in lower case. Default `idempotency-key`.
    pub key_header: String,
    /// Only a quoted key is one. Default false.
    pub strict: bool,
    /// The largest body of a keyed request. Default 1 MiB.
    pub max_request_bytes: usize,
    /// The largest answer that is kept, at most 3 MiB. Default 1 MiB.
    pub max_response_bytes: usize,
    /// Requests and answers held by one worker, in all. Default 64 MiB.
    pub max_held_bytes: usize,
    /// The first that matches holds.
    pub policies: Vec<Policy>,
}

impl Idempotency {
    /// The policy for a request, and its place in the configuration: the first that matches and, where it asks for
    /// that, is named by the route.
    pub fn policy(
        &self,
        head: &RequestHead<'_>,
        named_by_route: impl Fn(&str) -> bool,
    ) -> Option<(usize, &Policy)> {
        self.policies.iter().enumerate().find(|(_, policy)| {
            policy.matching.matches(head)
                && (!policy.matching.named_by_route || named_by_route(&policy.name))
        })
    }
}

pub(super) fn idempotency(
    written: document::Idempotency,
    store: &Store,
    attributes: &mut Attributes,
) -> Result<Idempotency, ConfigError> {
    let execute = execute("idempotency.execute", written.execute)?;
    let key_header = written.key_header.as_deref().unwrap_or("idempotency-key");
    let max_request_bytes = bytes(
        "max_request_bytes",
        written.max_request_bytes,
        BYTES_DEFAULT,
        HELD_BYTES_DEFAULT,
    )?;
    let max_held_bytes = bytes(
        "max_held_bytes",
        written.max_held_bytes,
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
    if written.policies.is_empty() || written.policies.len() > POLICIES_MAX {
        let expected = format!("1 to {POLICIES_MAX} policies");
        return Err(ConfigError::value(
            "idempotency.policies",
            &expected,
            written.policies.len(),
        ));
    }
    let mut policies: Vec<Policy> = Vec::with_capacity(written.policies.len());
    for (index, of) in written.policies.into_iter().enumerate() {
        let path = format!("idempotency.policies[{index}]");
        let policy = policy(&path, of, store, &execute, attributes)?;
        if policies.iter().any(|earlier| earlier.name == policy.name) {
            let expected = "a name that no earlier policy has";
            return Err(ConfigError::value(
                format!("{path}.name"),
                expected,
                policy.name,
            ));
        }
        policies.push(policy);
    }
    Ok(Idempotency {
        key_header: check::header_name("idempotency.key_header", key_header)?,
        strict: written.strict,
        max_request_bytes,
        max_response_bytes: bytes(
            "max_response_bytes",
            written.max_response_bytes,
            BYTES_DEFAULT,
            RESPONSE_BYTES_MAX,
        )?,
        max_held_bytes,
        policies,
    })
}

fn policy(
    path: &str,
    written: document::Policy,
    store: &Store,
    default: &Execute,
    attributes: &mut Attributes,
) -> Result<Policy, ConfigError> {
    let at = |field: &str| format!("{path}.{field}");
    check::name(&at("name"), &written.name)?;
    let ttl = written.ttl.as_ref();
    let ttl = ttl.map_or("24h", document::Duration::text);
    let ttl_ms = check::duration(&at("ttl"), ttl, 1_000, REMEMBER_MS_MAX, "1s to 366d")?;
    let remember_ms = match &written.remember {
        Some(remember) => check::duration(
            &at("remember"),
            remember.text(),
            ttl_ms,
            REMEMBER_MS_MAX,
            "ttl to 366d",
        )?,
        None => (7 * DAY_MS).max(ttl_ms),
    };
    let wait_ms = match written.in_flight {
        document::InFlight::Refuse => 0,
        document::InFlight::Wait(wait) => check::duration(
            &at("in_flight.wait.max_wait"),
            wait.max_wait.text(),
            100,
            WAIT_MS_MAX,
            "100ms to 60s",
        )?,
    };
    if written.fingerprint_headers.len() > FINGERPRINT_HEADERS_MAX {
        let expected = format!("at most {FINGERPRINT_HEADERS_MAX} headers");
        return Err(ConfigError::value(
            at("fingerprint_headers"),
            &expected,
            written.fingerprint_headers.len(),
        ));
    }
    let mut fingerprint_headers = Vec::with_capacity(written.fingerprint_headers.len());
    for (index, name) in written.fingerprint_headers.iter().enumerate() {
        fingerprint_headers.push(check::header_name(
            &at(&format!("fingerprint_headers[{index}]")),
            name,
        )?);
    }
    let matching = check::matching(&at("match"), &written.matching, Some(&METHODS))?;
    if matching.named_by_route {
        attributes.policies_of_the_route();
    }
    let execute = match written.execute {
        Some(written) => execute(&at("execute"), written)?,
        None => default.clone(),
    };
    let timeout_ms = match &execute {
        Execute::Detached { timeout_ms, .. } | Execute::Forward { timeout_ms } => *timeout_ms,
    };
    let release_statuses = written
        .release_statuses
        .unwrap_or_else(|| RELEASE_STATUSES.to_vec());
    Ok(Policy {
        matching,
        namespace: store.namespace.clone(),
        name: written.name,
        required: written.required,
        ttl_ms,
        remember_ms,
        execute,
        lease_ms: timeout_ms
            .saturating_add(store.timeout_ms.saturating_mul(2))
            .saturating_add(LEASE_MARGIN_MS),
        wait_ms,
        principal: attributes.principal(&at("principal"), written.principal)?,
        release_statuses: check::statuses(&at("release_statuses"), release_statuses)?,
        fingerprint_headers,
        on_unknown: written.on_unknown,
        keep: written.keep,
        keep_set_cookie: written.keep_set_cookie,
        trailers: written.trailers,
    })
}

fn execute(path: &str, written: document::Execute) -> Result<Execute, ConfigError> {
    let timeout = |way: &str, timeout: &document::Duration| {
        let path = format!("{path}.{way}.timeout");
        check::duration(&path, timeout.text(), 1_000, 10 * MINUTE_MS, "1s to 10m")
    };
    Ok(match written {
        document::Execute::Detached(detached) => Execute::Detached {
            timeout_ms: timeout("detached", &detached.timeout)?,
            cluster: check::text(&format!("{path}.detached.cluster"), &detached.cluster, 255)?,
        },
        document::Execute::Forward(forward) => Execute::Forward {
            timeout_ms: timeout("forward", &forward.timeout)?,
        },
    })
}

fn bytes(field: &str, came: Option<u32>, default: u32, most: u32) -> Result<usize, ConfigError> {
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
}
