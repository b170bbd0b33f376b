//! The configuration as it is used: validated, immutable, with everything computed that does not depend on a request.

use super::attribute::{Attribute, Attributes};
use super::check;
use super::document::{self, Document};
use super::error::ConfigError;
use super::idempotency::{Idempotency, idempotency};
use super::limiter::{Limiter, limiter};
use super::unread;
use crate::http::RequestHead;
use crate::idempotency::kept::REPLAYED;

/// Everything that one filter instance is told to do.
#[derive(Debug)]
pub struct Settings {
    /// How the store is reached.
    pub store: Store,
    /// IPv6 clients are told apart by this many leading bits. Default 64.
    pub ipv6_prefix: u8,
    /// What the rules and policies need of a request beside its head.
    pub attributes: Vec<Attribute>,
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

/// What an adapter must read of a request before it opens an exchange.
#[expect(clippy::struct_excessive_bools, reason = "each is read or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// A rule or a policy may be for this request; if not, it passes, and needs no exchange.
    pub exchange: bool,
    /// The client's address.
    pub client_address: bool,
    /// All header lines.
    pub fields: bool,
    /// The content type, where not all lines are read.
    pub content_type: bool,
    /// The values of [`Settings::attributes`].
    pub attributes: bool,
}

impl Settings {
    /// Reads a configuration in JSON.
    ///
    /// # Errors
    /// Names the first field that is unknown, missing or not accepted, what came and what was expected.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let document: Document = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| unread::refusal(json, &error))?;
        deserializer.end().map_err(|error| ConfigError {
            path: ".".into(),
            problem: error.to_string(),
        })?;
        Self::validate(document)
    }

    fn validate(document: Document) -> Result<Self, ConfigError> {
        let store = store(&document.store)?;
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
        let mut attributes = Attributes::new(document.jwt_payload.as_deref())?;
        let limiter = document
            .limiter
            .map(|of| limiter(of, &store.namespace, &mut attributes))
            .transpose()?;
        let idempotency = document
            .idempotency
            .map(|of| idempotency(of, &store, &mut attributes))
            .transpose()?;
        Ok(Self {
            store,
            ipv6_prefix,
            attributes: attributes.into_list(),
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

    /// What must be read of a request with this method and path.
    pub fn demands(&self, method: &[u8], path: &[u8]) -> Demands {
        let path = RequestHead::of(method, path).path_only();
        let mut demands = Demands::default();
        if let Some(limiter) = &self.limiter {
            for rule in limiter
                .rules
                .iter()
                .filter(|rule| rule.matching.matches_line(method, path))
            {
                demands.exchange = true;
                demands.client_address = true;
                demands.fields |= rule.needs_fields() || limiter.exempt.needs_fields(method);
                demands.attributes |= rule.needs_attributes();
                // A gRPC call is a POST, and is refused in its own way.
                demands.content_type = method == b"POST";
            }
        }
        let policies = self
            .idempotency
            .iter()
            .flat_map(|idempotency| &idempotency.policies);
        if policies
            .into_iter()
            .any(|policy| policy.matching.matches_line(method, path))
        {
            demands.exchange = true;
            demands.fields = true;
            demands.attributes = true;
        }
        demands.attributes &= !self.attributes.is_empty();
        demands.content_type &= !demands.fields;
        demands
    }

    /// Whether a response's status matters: a rule gives hits back for some.
    pub fn needs_response_status(&self) -> bool {
        let mut rules = self.limiter.iter().flat_map(|limiter| &limiter.rules);
        rules.any(|rule| !rule.refund_on.is_empty())
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

fn store(written: &document::Store) -> Result<Store, ConfigError> {
    let timeout = written.timeout.as_ref();
    let timeout = timeout.map_or("250ms", document::Duration::text);
    Ok(Store {
        cluster: check::text("store.cluster", &written.cluster, 255)?,
        timeout_ms: check::duration("store.timeout", timeout, 10, 10_000, "10ms to 10s")?,
        namespace: check::text("store.namespace", &written.namespace, 128)?,
    })
}
