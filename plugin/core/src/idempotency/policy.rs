//! One policy: which requests it is for, where their record is kept, and what makes two of them the same.

use crate::config::{Execute, OnUnknown, Trailers};
use crate::hash::{Framed, Part};
use crate::http::{self, RequestHead};
use crate::matching::Match;
use crate::principal::{Caller, Source};
use crate::store::{Fingerprint, RecordKey};

/// How fingerprints are made today. Another version never equals.
const FINGERPRINT_VERSION: u8 = 1;

/// Header fields that are part of every fingerprint.
const FINGERPRINTED: [&str; 6] = [
    "content-type",
    "content-encoding",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// One idempotency entry of the configuration.
#[derive(Debug)]
pub struct Policy {
    /// Unique in the configuration.
    pub name: String,
    /// Which requests it is for.
    pub matching: Match,
    /// The fleet.
    pub namespace: String,
    /// A POST or PATCH without a key is refused.
    pub required: bool,
    /// How long an answer is kept, in milliseconds.
    pub ttl_ms: u64,
    /// How long it is remembered that a key was used, in milliseconds.
    pub remember_ms: u64,
    /// How a request is executed.
    pub execute: Execute,
    /// How long a claim holds, in milliseconds.
    pub lease_ms: u64,
    /// How long a request waits for the one in flight, in milliseconds; 0 does not wait.
    pub wait_ms: u64,
    /// Whose keys are told apart.
    pub principal: Source,
    /// Answers that say that the request was not processed.
    pub release_statuses: Vec<u16>,
    /// Header fields that are part of the fingerprint beside the usual ones.
    pub fingerprint_headers: Vec<String>,
    /// What a retry of a request gets whose outcome cannot be known.
    pub on_unknown: OnUnknown,
    /// Answers are kept; else only that there was one.
    pub keep: bool,
    /// Set-Cookie is kept and replayed with the rest.
    pub keep_set_cookie: bool,
    /// What becomes of an answer with trailers.
    pub trailers: Trailers,
}

impl Policy {
    /// Whether a request without a key is refused. Safe methods never need one, and PUT and DELETE are idempotent.
    pub fn requires_key(&self, method: &[u8]) -> bool {
        self.required && matches!(method, b"POST" | b"PATCH")
    }

    /// Where the record of a key is kept. A credential is no scope, since it rotates between retries.
    pub fn record_key(&self, head: &RequestHead<'_>, caller: &Caller, key: &[u8]) -> RecordKey {
        let principal = match caller {
            Caller::Named(principal) => Some(principal.as_slice()),
            Caller::Anyone | Caller::Credential(_) | Caller::Missing => None,
        };
        record_key(
            &self.namespace,
            &self.name,
            &head.authority(),
            principal,
            key,
        )
    }

    /// The fingerprint of a request whose body is still to come: over method, path with query, and the fields that
    /// change what a request means. No canonical form: a false mismatch is safe, a false match is not.
    pub fn fingerprint(&self, head: &RequestHead<'_>, caller: &Caller) -> FingerprintHead {
        let mut framed = Framed::new("porch/fingerprint/1")
            .part(Part::Method, head.method)
            .part(Part::PathWithQuery, head.path);
        if let Caller::Credential(digest) = caller {
            framed = framed.part(Part::Credential, digest);
        }
        let names = FINGERPRINTED
            .iter()
            .copied()
            .chain(self.fingerprint_headers.iter().map(String::as_str));
        for name in names {
            for value in http::values(head.fields, name) {
                framed = framed
                    .part(Part::HeaderName, name.as_bytes())
                    .part(Part::HeaderValue, value);
            }
        }
        FingerprintHead(framed)
    }
}

/// Where the record of a key is kept. `authority` is in lower case and without a default port; there is no
/// `principal` where the policy names none, or a credential.
pub fn record_key(
    namespace: &str,
    policy: &str,
    authority: &[u8],
    principal: Option<&[u8]>,
    key: &[u8],
) -> RecordKey {
    let framed = Framed::new("porch/record/1")
        .part(Part::Namespace, namespace.as_bytes())
        .part(Part::Policy, policy.as_bytes())
        .part(Part::Authority, authority);
    let framed = match principal {
        Some(principal) => framed.part(Part::Principal, principal),
        None => framed.part(Part::Absent, b"principal"),
    };
    RecordKey(framed.part(Part::Key, key).finish())
}

/// A fingerprint whose body is still to come.
#[derive(Clone, Debug)]
pub struct FingerprintHead(Framed);

impl FingerprintHead {
    /// The fingerprint of the whole request. No body and an empty one are the same.
    pub fn with_body(self, body: &[u8]) -> Fingerprint {
        Fingerprint {
            version: FINGERPRINT_VERSION,
            digest: self.0.part(Part::Body, body).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Field;

    fn line(name: &'static str, value: &'static str) -> Field {
        Field::new(name, value.as_bytes())
    }

    fn policy() -> Policy {
        Policy {
            name: "p".into(),
            matching: crate::limiter::rule::tests::parts("r", 1, 1, vec![]).matching,
            namespace: "n".into(),
            required: true,
            ttl_ms: 1,
            remember_ms: 1,
            execute: Execute::Forward { timeout_ms: 1 },
            lease_ms: 1,
            wait_ms: 0,
            principal: Source::Header("x-user".into()),
            release_statuses: vec![],
            fingerprint_headers: vec!["x-tenant".into()],
            on_unknown: OnUnknown::Refuse,
            keep: true,
            keep_set_cookie: false,
            trailers: Trailers::Tombstone,
        }
    }

    fn fingerprint_by(
        caller: &Caller,
        method: &str,
        path: &str,
        fields: &[Field],
        body: &[u8],
    ) -> Fingerprint {
        let head = RequestHead {
            fields,
            ..RequestHead::of(method.as_bytes(), path.as_bytes())
        };
        policy().fingerprint(&head, caller).with_body(body)
    }

    fn fingerprint(method: &str, path: &str, fields: &[Field], body: &[u8]) -> Fingerprint {
        fingerprint_by(&Caller::Anyone, method, path, fields, body)
    }

    #[test]
    fn what_changes_a_request_changes_its_fingerprint() {
        let json = [line("content-type", "application/json")];
        let first = fingerprint("POST", "/a?x=1&y=2", &json, b"b");
        for other in [
            fingerprint("PATCH", "/a?x=1&y=2", &json, b"b"),
            fingerprint("POST", "/a?y=2&x=1", &json, b"b"),
            fingerprint("POST", "/a?x=1%26y=2", &json, b"b"),
            fingerprint("POST", "/a", &json, b"b"),
            fingerprint(
                "POST",
                "/a?x=1&y=2",
                &[line("content-type", "text/plain")],
                b"b",
            ),
            fingerprint("POST", "/a?x=1&y=2", &[], b"b"),
            fingerprint(
                "POST",
                "/a?x=1&y=2",
                &[json[0].clone(), line("if-match", "\"1\"")],
                b"b",
            ),
            fingerprint(
                "POST",
                "/a?x=1&y=2",
                &[json[0].clone(), line("content-encoding", "gzip")],
                b"b",
            ),
            fingerprint(
                "POST",
                "/a?x=1&y=2",
                &[json[0].clone(), line("x-tenant", "t")],
                b"b",
            ),
            fingerprint("POST", "/a?x=1&y=2", &json, b"c"),
            fingerprint("POST", "/a?x=1&y=2", &json, b""),
            fingerprint("POST", "/a?x=1&y=2b", &json, b""),
            fingerprint_by(
                &Caller::Credential([1; 32]),
                "POST",
                "/a?x=1&y=2",
                &json,
                b"b",
            ),
        ] {
            assert_ne!(first, other);
        }
        assert_ne!(
            fingerprint("POST", "/", &[], b"\xff"),
            fingerprint("POST", "/", &[], b"\xfe")
        );
    }

    #[test]
    fn what_does_not_change_a_request_is_left_out() {
        let first = fingerprint(
            "POST",
            "/a",
            &[line("user-agent", "a"), line("traceparent", "1")],
            b"b",
        );
        assert_eq!(
            first,
            fingerprint(
                "POST",
                "/a",
                &[line("cookie", "c"), line("accept", "x")],
                b"b"
            )
        );
    }

    #[test]
    fn a_caller_named_by_a_credential_shares_the_record_and_not_the_fingerprint() {
        let of = |digest| {
            let caller = Caller::Credential([digest; 32]);
            let record = policy().record_key(&RequestHead::of(b"POST", b"/"), &caller, b"k");
            (record, fingerprint_by(&caller, "POST", "/", &[], b""))
        };
        assert_eq!(of(1).0, of(2).0);
        assert_ne!(of(1).1, of(2).1);
    }

    fn record(fields: &[Field], principal: &[u8], key: &[u8]) -> RecordKey {
        let head = RequestHead {
            fields,
            ..RequestHead::of(b"POST", b"/")
        };
        policy().record_key(&head, &Caller::Named(principal.to_vec()), key)
    }

    #[test]
    fn one_authority_has_one_form() {
        let first = record(
            &[
                line(":authority", "Shop.Example:80"),
                line(":scheme", "http"),
            ],
            b"u",
            b"k",
        );
        assert_eq!(
            first,
            record(
                &[line(":authority", "shop.example"), line(":scheme", "http")],
                b"u",
                b"k"
            )
        );
        assert_ne!(
            first,
            record(
                &[
                    line(":authority", "shop.example:8080"),
                    line(":scheme", "http")
                ],
                b"u",
                b"k"
            )
        );
        assert_ne!(
            first,
            record(
                &[
                    line(":authority", "shop.example:80"),
                    line(":scheme", "https")
                ],
                b"u",
                b"k"
            )
        );
    }

    #[test]
    fn principals_and_keys_are_told_apart() {
        let all = [
            record(&[], b"u", b"k"),
            record(&[], b"U", b"k"),
            record(&[], b"uk", b""),
            record(&[], b"", b"uk"),
            record(&[], b"u", b"K"),
            policy().record_key(&RequestHead::of(b"POST", b"/"), &Caller::Anyone, b"k"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|other| other != one));
        }
    }

    #[test]
    fn an_operator_names_the_same_record() {
        let fields = [
            line(":authority", "Shop.Example:443"),
            line(":scheme", "https"),
        ];
        let head = RequestHead {
            fields: &fields,
            ..RequestHead::of(b"POST", b"/")
        };
        let of = |caller: &Caller| policy().record_key(&head, caller, b"k");
        let named = |who| record_key("n", "p", b"shop.example", who, b"k");
        assert_eq!(of(&Caller::Named(b"u".to_vec())), named(Some(b"u")));
        assert_eq!(of(&Caller::Anyone), named(None));
        assert_ne!(named(Some(b"")), named(None));
    }

    #[test]
    fn only_post_and_patch_require_a_key() {
        let policy = policy();
        assert!(policy.requires_key(b"POST") && policy.requires_key(b"PATCH"));
        assert!(!policy.requires_key(b"PUT") && !policy.requires_key(b"DELETE"));
    }
}
