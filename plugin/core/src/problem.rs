//! Our own refusals: problem details (RFC 9457) with a `type` of ours, so that a client can tell our 409 or 422 from
//! the application's. Never cached.

use serde::Serialize;

use crate::http::{Field, Response};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem<'a> {
    /// 429: these rules have no hit left.
    QuotaExceeded {
        /// Their names.
        violated: &'a [&'a str],
        /// When all of them have room again; `None` when one never has.
        retry_after_s: Option<u64>,
    },
    /// 400: the policy requires a key.
    KeyMissing,
    /// 400: the key is not an RFC 9651 String of 1 to 255 bytes.
    KeyInvalid {
        /// What is wrong with it. Never the key itself.
        detail: &'a str,
    },
    /// 400: the policy's principal is missing.
    PrincipalMissing,
    /// 409: the first request with this key is still under way.
    InFlight,
    /// 422: the key was used with another request.
    FingerprintMismatch,
    /// The status that the first caller saw: it cannot be known whether the request ran.
    OutcomeUnknown {
        /// 200 to 599.
        status: u16,
    },
    /// 409: the request ran, and its answer is not kept.
    ResponseNotRetained {
        /// What upstream answered then.
        original_status: u16,
    },
    /// 413: a keyed request's body is held, and this one is too large to hold.
    RequestTooLarge {
        /// The largest body, in bytes.
        limit: usize,
    },
    /// 503: the store does not answer. Nothing was executed.
    StoreUnavailable,
    /// 503: too much is held already. Nothing was executed.
    Overloaded,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated: Option<&'a [&'a str]>,
    #[serde(rename = "original-status", skip_serializing_if = "Option::is_none")]
    original_status: Option<u16>,
    #[serde(rename = "limit-bytes", skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
}

impl Problem<'_> {
    /// The name in `urn:porch:problem:NAME`.
    pub const fn name(&self) -> &'static str {
        match self {
            Problem::QuotaExceeded { .. } => "quota-exceeded",
            Problem::KeyMissing => "key-missing",
            Problem::KeyInvalid { .. } => "key-invalid",
            Problem::PrincipalMissing => "principal-missing",
            Problem::InFlight => "in-flight",
            Problem::FingerprintMismatch => "fingerprint-mismatch",
            Problem::OutcomeUnknown { .. } => "outcome-unknown",
            Problem::ResponseNotRetained { .. } => "response-not-retained",
            Problem::RequestTooLarge { .. } => "request-too-large",
            Problem::StoreUnavailable => "store-unavailable",
            Problem::Overloaded => "overloaded",
        }
    }

    /// The proxy's access log's word for the answer.
    pub const fn details(&self) -> &'static str {
        match self {
            Problem::QuotaExceeded { .. } => "porch_quota_exceeded",
            Problem::KeyMissing => "porch_key_missing",
            Problem::KeyInvalid { .. } => "porch_key_invalid",
            Problem::PrincipalMissing => "porch_principal_missing",
            Problem::InFlight => "porch_in_flight",
            Problem::FingerprintMismatch => "porch_fingerprint_mismatch",
            Problem::OutcomeUnknown { .. } => "porch_outcome_unknown",
            Problem::ResponseNotRetained { .. } => "porch_response_not_retained",
            Problem::RequestTooLarge { .. } => "porch_request_too_large",
            Problem::StoreUnavailable => "porch_store_unavailable",
            Problem::Overloaded => "porch_overloaded",
        }
    }

    /// The status it is answered with.
    pub const fn status(&self) -> u16 {
        match self {
            Problem::QuotaExceeded { .. } => 429,
            Problem::KeyMissing | Problem::KeyInvalid { .. } | Problem::PrincipalMissing => 400,
            Problem::InFlight | Problem::ResponseNotRetained { .. } => 409,
            Problem::FingerprintMismatch => 422,
            Problem::OutcomeUnknown { status } => *status,
            Problem::RequestTooLarge { .. } => 413,
            Problem::StoreUnavailable | Problem::Overloaded => 503,
        }
    }

    const fn title(&self) -> &'static str {
        match self {
            Problem::QuotaExceeded { .. } => {
                "Request cannot be satisfied as assigned quota has been exceeded"
            }
            Problem::KeyMissing => "This request requires an Idempotency-Key header",
            Problem::KeyInvalid { .. } => "The Idempotency-Key header cannot be used",
            Problem::PrincipalMissing => {
                "It is not known who sent this request, so its Idempotency-Key has no scope"
            }
            Problem::InFlight => {
                "The first request with this Idempotency-Key is still being processed"
            }
            Problem::FingerprintMismatch => {
                "This Idempotency-Key was already used with another request"
            }
            Problem::OutcomeUnknown { .. } => {
                "It cannot be known whether the request with this Idempotency-Key ran"
            }
            Problem::ResponseNotRetained { .. } => {
                "The request with this Idempotency-Key ran, and its response is not retained"
            }
            Problem::RequestTooLarge { .. } => {
                "The body of a request with an Idempotency-Key is too large"
            }
            Problem::StoreUnavailable => {
                "The store of this proxy does not answer; nothing was executed"
            }
            Problem::Overloaded => "This proxy holds too many requests; nothing was executed",
        }
    }

    /// What a gRPC caller is told: `RESOURCE_EXHAUSTED` or `UNAVAILABLE`. Others do not see it.
    pub const fn grpc_status(&self) -> Option<u32> {
        match self {
            Problem::QuotaExceeded { .. } => Some(8),
            Problem::StoreUnavailable | Problem::Overloaded => Some(14),
            Problem::KeyMissing
            | Problem::KeyInvalid { .. }
            | Problem::PrincipalMissing
            | Problem::InFlight
            | Problem::FingerprintMismatch
            | Problem::OutcomeUnknown { .. }
            | Problem::ResponseNotRetained { .. }
            | Problem::RequestTooLarge { .. } => None,
        }
    }

    /// Seconds after which the same request may do better; `None` when waiting does not help.
    pub const fn retry_after_s(&self) -> Option<u64> {
        match self {
            Problem::QuotaExceeded { retry_after_s, .. } => *retry_after_s,
            Problem::InFlight | Problem::StoreUnavailable | Problem::Overloaded => Some(1),
            Problem::KeyMissing
            | Problem::KeyInvalid { .. }
            | Problem::PrincipalMissing
            | Problem::FingerprintMismatch
            | Problem::OutcomeUnknown { .. }
            | Problem::ResponseNotRetained { .. }
            | Problem::RequestTooLarge { .. } => None,
        }
    }

    /// The answer that the client gets.
    pub fn response(&self) -> Response {
        let urn = format!("urn:porch:problem:{}", self.name());
        let mut body = Body {
            r#type: &urn,
            title: self.title(),
            status: self.status(),
            detail: None,
            violated: None,
            original_status: None,
            limit: None,
        };
        match self {
            Problem::QuotaExceeded { violated, .. } => {
                body.r#type = "https://iana.org/assignments/http-problem-types#quota-exceeded";
                body.violated = Some(violated);
            }
            Problem::KeyInvalid { detail } => body.detail = Some(detail),
            Problem::ResponseNotRetained { original_status } => {
                body.original_status = Some(*original_status);
            }
            Problem::RequestTooLarge { limit } => body.limit = Some(*limit),
            Problem::KeyMissing
            | Problem::PrincipalMissing
            | Problem::InFlight
            | Problem::FingerprintMismatch
            | Problem::OutcomeUnknown { .. }
            | Problem::StoreUnavailable
            | Problem::Overloaded => {}
        }
        let mut fields = vec![
            Field::new("content-type", &b"application/problem+json"[..]),
            Field::new("cache-control", &b"no-store"[..]),
        ];
        if let Some(seconds) = self.retry_after_s() {
            fields.push(Field::new("retry-after", seconds.to_string().into_bytes()));
        }
        // Texts and numbers always serialize; an empty body would still be a valid answer.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        Response {
            status: self.status(),
            fields,
            body,
        }
    }
}
