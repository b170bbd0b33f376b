//! One rule: which requests it counts, in which bucket, and at what cost.

use std::net::IpAddr;

use crate::address::ClientAddress;
use crate::hash::{Framed, Part};
use crate::http::{self, RequestHead};
use crate::matching::Match;
use crate::principal::{Caller, Source};
use crate::store::Bucket;

/// One limiter entry of the configuration.
#[derive(Debug)]
pub struct Rule {
    /// Unique in the configuration; the same name elsewhere shares its buckets.
    pub name: String,
    /// Hits per window; 0 refuses everything.
    pub quota: u32,
    /// The window's length in seconds.
    pub window_s: u32,
    /// How far the durable ceiling may run ahead of the count.
    pub reserve: u32,
    /// It counts and reports, and refuses nothing.
    pub shadow: bool,
    /// Final statuses for which a hit is given back.
    pub refund_on: Vec<u16>,
    /// Which requests it counts.
    pub matching: Match,
    /// `"name";q=N;w=S`: its item of RateLimit-Policy.
    pub policy_item: String,
    cost: Cost,
    key: Vec<KeyPart>,
    named: Framed,
}

/// What a rule is made of, checked.
#[derive(Debug)]
pub struct RuleParts {
    /// As in [`Rule`].
    pub name: String,
    /// As in [`Rule`].
    pub quota: u32,
    /// As in [`Rule`].
    pub window_s: u32,
    /// As in [`Rule`].
    pub reserve: u32,
    /// How many hits a request is.
    pub cost: Cost,
    /// As in [`Rule`].
    pub shadow: bool,
    /// As in [`Rule`].
    pub refund_on: Vec<u16>,
    /// As in [`Rule`].
    pub matching: Match,
    /// What tells its buckets apart, in order.
    pub key: Vec<KeyPart>,
}

/// How many hits a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Where the request does not say. 0 peeks.
    pub default: u32,
    /// A header that a trusted filter sets, in lower case.
    pub header: Option<String>,
}

/// What tells one bucket of a rule from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// Who the proxy trusts the client to be.
    ClientAddress,
    /// Who sent the request.
    Principal(Source),
    /// A header's value, its lines joined. Its name is in lower case.
    Header(String),
    /// The method.
    Method,
    /// The path, without its query.
    Path,
    /// Host and port, in lower case, without a default port.
    Authority,
    /// The name of the route, by its place in the settings' attributes.
    RouteName(usize),
    /// The same for all.
    Literal(String),
}

/// A cost that a request gave in a header, and that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCost;

impl Rule {
    /// A rule of a fleet (`namespace`).
    pub fn new(namespace: &str, parts: RuleParts) -> Self {
        let RuleParts {
            name,
            quota,
            window_s,
            reserve,
            cost,
            shadow,
            refund_on,
            matching,
            key,
        } = parts;
        Self {
            policy_item: format!("\"{name}\";q={quota};w={window_s}"),
            named: BucketName::new(namespace, &name, window_s).0,
            name,
            quota,
            window_s,
            reserve,
            shadow,
            refund_on,
            matching,
            cost,
            key,
        }
    }

    /// The window's length in milliseconds.
    pub fn window_ms(&self) -> u64 {
        u64::from(self.window_s).saturating_mul(1_000)
    }

    /// Whether header lines are needed to match, count or name.
    pub fn needs_fields(&self) -> bool {
        let key = self.key.iter().any(|part| match part {
            KeyPart::Header(_) | KeyPart::Authority => true,
            KeyPart::Principal(source) => source.needs_fields(),
            KeyPart::ClientAddress
            | KeyPart::Method
            | KeyPart::Path
            | KeyPart::RouteName(_)
            | KeyPart::Literal(_) => false,
        });
        key || self.cost.header.is_some() || self.matching.needs_fields()
    }

    /// Whether attributes are needed to match or name.
    pub fn needs_attributes(&self) -> bool {
        self.matching.named_by_route
            || self.key.iter().any(|part| match part {
                KeyPart::RouteName(_) | KeyPart::Principal(Source::Attribute(_)) => true,
                KeyPart::Principal(_)
                | KeyPart::ClientAddress
                | KeyPart::Header(_)
                | KeyPart::Method
                | KeyPart::Path
                | KeyPart::Authority
                | KeyPart::Literal(_) => false,
            })
    }

    /// How many hits a request is. A header that says no number is the default, and an error to be counted.
    pub fn cost(&self, head: &RequestHead<'_>) -> (u32, Result<(), BadCost>) {
        let Some(header) = &self.cost.header else {
            return (self.cost.default, Ok(()));
        };
        let mut lines = http::values(head.fields, header);
        match (lines.next(), lines.next()) {
            (None, _) => (self.cost.default, Ok(())),
            (Some(line), None) => {
                let digits = line.trim_ascii();
                let number = digits.iter().all(u8::is_ascii_digit).then_some(digits);
                match number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) {
                    Some(cost) => (cost, Ok(())),
                    None => (self.cost.default, Err(BadCost)),
                }
            }
            (Some(_), Some(_)) => (self.cost.default, Err(BadCost)),
        }
    }

    /// The bucket that a request hits, and whether a part of its key was missing.
    pub fn bucket(&self, head: &RequestHead<'_>, client: ClientAddress) -> (Bucket, bool) {
        let mut missing = false;
        let mut name = BucketName(self.named.clone());
        for part in &self.key {
            name = match part {
                KeyPart::ClientAddress => {
                    missing |= client == ClientAddress::None;
                    name.client_address(client)
                }
                KeyPart::Literal(text) => name.literal(text),
                KeyPart::Method => name.method(head.method),
                KeyPart::Path => name.path(head.path_only()),
                KeyPart::Authority => name.authority(&head.authority()),
                KeyPart::RouteName(index) => {
                    if let Some(Some(route)) = head.attributes.get(*index) {
                        name.route_name(route)
                    } else {
                        missing = true;
                        name.absent("route_name", client)
                    }
                }
                KeyPart::Principal(source) => match source.caller(head) {
                    Caller::Anyone => name.literal("anyone"),
                    Caller::Named(principal) => name.principal(&principal),
                    Caller::Credential(digest) => name.credential(&digest),
                    Caller::Missing => {
                        missing = true;
                        name.absent("principal", client)
                    }
                },
                KeyPart::Header(header) => {
                    let lines: Vec<&[u8]> = http::values(head.fields, header).collect();
                    if lines.is_empty() {
                        missing = true;
                        name.absent(header, client)
                    } else {
                        name.header(header, &lines.join(&b", "[..]))
                    }
                }
            };
        }
        (name.bucket(), missing)
    }
}

/// A bucket's name under construction: fleet, rule, window length, then the key's parts in order.
#[derive(Clone, Debug)]
pub struct BucketName(Framed);

impl BucketName {
    /// Of a rule. Another window length is another bucket; another quota is not.
    pub fn new(namespace: &str, rule: &str, window_s: u32) -> Self {
        Self(
            Framed::new("porch/bucket/1")
                .part(Part::Namespace, namespace.as_bytes())
                .part(Part::Rule, rule.as_bytes())
                .part(Part::WindowSeconds, &window_s.to_le_bytes()),
        )
    }

    /// The client's address; without one, the bucket of all clients that have none.
    #[must_use]
    pub fn client_address(self, client: ClientAddress) -> Self {
        Self(match client {
            ClientAddress::Ip(IpAddr::V4(ip)) => self.0.part(Part::ClientAddress, &ip.octets()),
            ClientAddress::Ip(IpAddr::V6(ip)) => self.0.part(Part::ClientAddress, &ip.octets()),
            ClientAddress::None => self.0.part(Part::Absent, b"client_address"),
        })
    }

    /// A header's value.
    #[must_use]
    pub fn header(self, name: &str, value: &[u8]) -> Self {
        Self(
            self.0
                .part(Part::HeaderName, name.as_bytes())
                .part(Part::HeaderValue, value),
        )
    }

    /// A part that the request lacks: counted by the client's address, in a kind of its own, so that no value can name
    /// that bucket.
    #[must_use]
    pub fn absent(self, what: &str, client: ClientAddress) -> Self {
        Self(self.0.part(Part::Absent, what.as_bytes())).client_address(client)
    }

    /// Who sent the request.
    #[must_use]
    pub fn principal(self, principal: &[u8]) -> Self {
        Self(self.0.part(Part::Principal, principal))
    }

    /// A credential's digest.
    #[must_use]
    pub fn credential(self, digest: &[u8]) -> Self {
        Self(self.0.part(Part::Credential, digest))
    }

    /// The method.
    #[must_use]
    pub fn method(self, method: &[u8]) -> Self {
        Self(self.0.part(Part::Method, method))
    }

    /// The path, without its query.
    #[must_use]
    pub fn path(self, path: &[u8]) -> Self {
        Self(self.0.part(Part::Path, path))
    }

    /// Host and port, in lower case, without a default port.
    #[must_use]
    pub fn authority(self, authority: &[u8]) -> Self {
        Self(self.0.part(Part::Authority, authority))
    }

    /// The name of the route.
    #[must_use]
    pub fn route_name(self, route: &[u8]) -> Self {
        Self(self.0.part(Part::RouteName, route))
    }

    /// A fixed text.
    #[must_use]
    pub fn literal(self, text: &str) -> Self {
        Self(self.0.part(Part::Literal, text.as_bytes()))
    }

    /// The bucket of this name.
    pub fn bucket(self) -> Bucket {
        Bucket(self.0.finish())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::http::Field;

    const HERE: ClientAddress = ClientAddress::Ip(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    pub(crate) fn parts(name: &str, quota: u32, window_s: u32, key: Vec<KeyPart>) -> RuleParts {
        RuleParts {
            name: name.into(),
            quota,
            window_s,
            reserve: 1,
            cost: Cost {
                default: 1,
                header: None,
            },
            shadow: false,
            refund_on: vec![],
            matching: Match {
                path_prefix: b"/".to_vec(),
                methods: None,
                authorities: None,
                headers: vec![],
                named_by_route: false,
            },
            key,
        }
    }

    fn rule(key: Vec<KeyPart>) -> Rule {
        Rule::new("n", parts("r", 1, 60, key))
    }

    fn bucket(
        rule: &Rule,
        fields: &[(&'static str, &'static str)],
        client: ClientAddress,
    ) -> (Bucket, bool) {
        let fields: Vec<Field> = fields
            .iter()
            .map(|(name, value)| Field::new(name, value.as_bytes()))
            .collect();
        rule.bucket(
            &RequestHead {
                fields: &fields,
                ..RequestHead::of(b"GET", b"/a?b")
            },
            client,
        )
    }

    #[test]
    fn no_header_value_names_another_bucket() {
        let rule = rule(vec![
            KeyPart::Header("a".into()),
            KeyPart::Header("b".into()),
        ]);
        let bucket = |fields: &[(&'static str, &'static str)]| bucket(&rule, fields, HERE).0;
        assert_ne!(
            bucket(&[("a", "xy"), ("b", "z")]),
            bucket(&[("a", "x"), ("b", "yz")])
        );
        assert_ne!(bucket(&[("a", "x")]), bucket(&[("a", "x"), ("b", "")]));
        assert_ne!(
            bucket(&[("a", "x")]),
            bucket(&[("a", "x"), ("b", "\x7f\0\0\x01")])
        );
    }

    #[test]
    fn repeated_lines_are_joined_in_order() {
        let rule = rule(vec![KeyPart::Header("a".into())]);
        let two = bucket(&rule, &[("a", "x"), ("c", "-"), ("a", "y")], HERE);
        assert_eq!(two, bucket(&rule, &[("a", "x, y")], HERE));
        assert_ne!(two, bucket(&rule, &[("a", "y, x")], HERE));
    }

    #[test]
    fn a_missing_part_is_counted_by_address_and_told() {
        let elsewhere = ClientAddress::read(b"10.0.0.1:1", 64);
        let keys = [
            KeyPart::Header("a".into()),
            KeyPart::Principal(Source::Header("a".into())),
            KeyPart::RouteName(0),
        ];
        for key in keys {
            let rule = rule(vec![key]);
            let here = bucket(&rule, &[], HERE);
            assert!(here.1);
            assert_ne!(here, bucket(&rule, &[], elsewhere));
            assert_eq!(here, bucket(&rule, &[], HERE));
        }
        assert!(
            bucket(
                &rule(vec![KeyPart::ClientAddress]),
                &[],
                ClientAddress::None
            )
            .1
        );
        assert!(!bucket(&rule(vec![KeyPart::ClientAddress]), &[], HERE).1);
    }

    #[test]
    fn every_kind_of_part_is_its_own() {
        let fields = [("a", "GET"), (":authority", "GET")];
        let keys = [
            KeyPart::Method,
            KeyPart::Path,
            KeyPart::Authority,
            KeyPart::Header("a".into()),
            KeyPart::Principal(Source::Header("a".into())),
            KeyPart::Literal("GET".into()),
            KeyPart::ClientAddress,
        ];
        let buckets: Vec<Bucket> = keys
            .into_iter()
            .map(|key| bucket(&rule(vec![key]), &fields, HERE).0)
            .collect();
        for (index, one) in buckets.iter().enumerate() {
            assert!(
                buckets.iter().skip(index + 1).all(|other| other != one),
                "{index}"
            );
        }
    }

    #[test]
    fn window_length_tells_buckets_apart_and_quota_does_not() {
        let of = |quota, window_s| {
            bucket(
                &Rule::new(
                    "n",
                    parts("r", quota, window_s, vec![KeyPart::ClientAddress]),
                ),
                &[],
                HERE,
            )
        };
        assert_eq!(of(1, 60), of(2, 60));
        assert_ne!(of(1, 60), of(1, 61));
    }

    #[test]
    fn an_operator_names_the_same_bucket() {
        let rule = rule(vec![
            KeyPart::ClientAddress,
            KeyPart::Literal("l".into()),
            KeyPart::Path,
        ]);
        let named = BucketName::new("n", "r", 60)
            .client_address(HERE)
            .literal("l")
            .path(b"/a")
            .bucket();
        assert_eq!(bucket(&rule, &[], HERE).0, named);
    }

    #[test]
    fn a_cost_is_a_number_or_the_default() {
        let rule = Rule::new(
            "n",
            RuleParts {
                cost: Cost {
                    default: 2,
                    header: Some("x-cost".into()),
                },
                ..parts("r", 9, 60, vec![KeyPart::ClientAddress])
            },
        );
        let cost = |lines: &[&'static str]| {
            let fields: Vec<Field> = lines
                .iter()
                .map(|value| Field::new("x-cost", value.as_bytes()))
                .collect();
            rule.cost(&RequestHead {
                fields: &fields,
                ..RequestHead::of(b"GET", b"/")
            })
        };
        assert_eq!(cost(&[]), (2, Ok(())));
        assert_eq!(cost(&["0"]), (0, Ok(())));
        assert_eq!(cost(&["7"]), (7, Ok(())));
        for bad in [
            &["-1"][..],
            &["+1"],
            &["x"],
            &[""],
            &["4294967296"],
            &["1", "1"],
        ] {
            assert_eq!(cost(bad), (2, Err(BadCost)), "{bad:?}");
        }
    }
}
