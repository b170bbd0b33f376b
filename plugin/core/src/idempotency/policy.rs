//! One policy: which requests it is for, where their record is kept, and what makes two of them the same.

use crate::config::Principal;
use crate::hash::{Framed, Part};
use crate::http::{self, RequestHead};
use crate::matching::Match;
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
    /// How long a claim holds, in milliseconds.
    pub lease_ms: u64,
    /// Whose keys are told apart.
    pub principal: Principal,
    /// Answers that say that the request was not processed.
    pub release_statuses: Vec<u16>,
}

impl Policy {
    /// Whether a request without a key is refused. Safe methods never need one, and PUT and DELETE are idempotent.
    pub fn requires_key(&self, method: &[u8]) -> bool {
        self.required && matches!(method, b"POST" | b"PATCH")
    }

    /// Who sent the request; `None` when the policy names a principal that the request lacks.
    pub fn principal(&self, head: &RequestHead<'_>) -> Option<Vec<u8>> {
        match &self.principal {
            Principal::None => Some(Vec::new()),
            Principal::Header(name) => {
                let lines: Vec<&[u8]> = http::values(head.fields, name).collect();
                let joined = lines.join(&b", "[..]);
                (!joined.is_empty()).then_some(joined)
            }
        }
    }

    /// Where the record of a key is kept.
    pub fn record_key(&self, head: &RequestHead<'_>, principal: &[u8], key: &[u8]) -> RecordKey {
        let principal = match self.principal {
            Principal::None => None,
            Principal::Header(_) => Some(principal),
        };
        record_key(
            &self.namespace,
            &self.name,
            &authority(head),
            principal,
            key,
        )
    }
}

/// Where the record of a key is kept, by all that names it: for an operator who has no request at hand. `authority`
/// is host and port in lower case, without the scheme's default port; without a `principal` the policy names none.
pub fn record_key(
    namespace: &str,
    policy: &str,
    authority: &[u8],
    principal: Option<&[u8]>,
    key: &[u8],
) -> RecordKey {
    let (principal_part, principal) = match principal {
        Some(principal) => (Part::Principal, principal),
        None => (Part::Absent, &b""[..]),
    };
    RecordKey(
        Framed::new("porch/record/1")
            .part(Part::Namespace, namespace.as_bytes())
            .part(Part::Policy, policy.as_bytes())
            .part(Part::Authority, authority)
            .part(principal_part, principal)
            .part(Part::Key, key)
            .finish(),
    )
}

/// Host and port in lower case, without the scheme's default port.
fn authority(head: &RequestHead<'_>) -> Vec<u8> {
    let authority = http::values(head.fields, ":authority")
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let default: &[u8] = match http::values(head.fields, ":scheme").next() {
        Some(b"https") => b":443",
        Some(_) | None => b":80",
    };
    match authority.strip_suffix(default) {
        Some(host) => host.to_vec(),
        None => authority,
    }
}

/// A fingerprint whose body is still to come.
#[derive(Clone, Debug)]
pub struct FingerprintHead(Framed);

impl FingerprintHead {
    /// Over method, path with query, and the fields that change what a request means. No canonical form: a false
    /// mismatch is safe, a false match is not.
    pub fn new(head: &RequestHead<'_>) -> Self {
        let start = Framed::new("porch/fingerprint/1")
            .part(Part::Method, head.method)
            .part(Part::PathWithQuery, head.path);
        Self(FINGERPRINTED.iter().fold(start, |framed, name| {
            http::values(head.fields, name).fold(framed, |framed, value| {
                framed
                    .part(Part::HeaderName, name.as_bytes())
                    .part(Part::HeaderValue, value)
            })
        }))
    }

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

    fn fingerprint(method: &str, path: &str, fields: &[Field], body: &[u8]) -> Fingerprint {
        let head = RequestHead {
            method: method.as_bytes(),
            path: path.as_bytes(),
            client_address: None,
            fields,
            end: false,
        };
        FingerprintHead::new(&head).with_body(body)
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
            fingerprint("POST", "/a?x=1&y=2", &json, b"c"),
            fingerprint("POST", "/a?x=1&y=2", &json, b""),
            fingerprint("POST", "/a?x=1&y=2b", &json, b""),
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

    fn policy(principal: Principal) -> Policy {
        Policy {
            name: "p".into(),
            matching: Match::new("/", None),
            namespace: "n".into(),
            required: true,
            ttl_ms: 1,
            remember_ms: 1,
            lease_ms: 1,
            principal,
            release_statuses: vec![],
        }
    }

    fn record(fields: &[Field], principal: &[u8], key: &[u8]) -> RecordKey {
        let head = RequestHead {
            method: b"POST",
            path: b"/",
            client_address: None,
            fields,
            end: true,
        };
        policy(Principal::Header("x-user".into())).record_key(&head, principal, key)
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
        let of_request = |principal: Principal, who: &[u8]| {
            let head = RequestHead {
                method: b"POST",
                path: b"/",
                client_address: None,
                fields: &fields,
                end: true,
            };
            policy(principal).record_key(&head, who, b"k")
        };
        let named = |who| record_key("n", "p", b"shop.example", who, b"k");
        assert_eq!(
            of_request(Principal::Header("x-user".into()), b"u"),
            named(Some(b"u"))
        );
        assert_eq!(of_request(Principal::None, b""), named(None));
        assert_ne!(named(Some(b"")), named(None));
    }

    #[test]
    fn a_missing_or_empty_principal_is_none() {
        let policy = policy(Principal::Header("x-user".into()));
        let principal = |fields: &[Field]| {
            policy.principal(&RequestHead {
                method: b"POST",
                path: b"/",
                client_address: None,
                fields,
                end: true,
            })
        };
        assert_eq!(principal(&[]), None);
        assert_eq!(principal(&[line("x-user", "")]), None);
        assert_eq!(principal(&[line("x-user", "ann")]), Some(b"ann".to_vec()));
    }

    #[test]
    fn only_post_and_patch_require_a_key() {
        let policy = policy(Principal::None);
        assert!(policy.requires_key(b"POST") && policy.requires_key(b"PATCH"));
        assert!(!policy.requires_key(b"PUT") && !policy.requires_key(b"DELETE"));
    }
}
