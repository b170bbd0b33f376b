//! One rule: which requests it counts, and in which bucket.

use std::net::IpAddr;

use crate::address::ClientAddress;
use crate::hash::{Framed, Part};
use crate::http::{self, RequestHead};
use crate::matching::Match;
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
    /// Which requests it counts.
    pub matching: Match,
    /// `"name";q=N;w=S`: its item of RateLimit-Policy.
    pub policy_item: String,
    key: Vec<KeyPart>,
    named: Framed,
}

/// What tells one bucket of a rule from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// Who the proxy trusts the client to be.
    ClientAddress,
    /// A header's value, its lines joined. Its name is in lower case.
    Header(String),
    /// The same for all.
    Literal(String),
}

impl Rule {
    /// A rule of a fleet (`namespace`), from checked values.
    pub fn new(
        namespace: &str,
        name: String,
        quota: u32,
        window_s: u32,
        reserve: u32,
        key: Vec<KeyPart>,
        matching: Match,
    ) -> Self {
        Self {
            policy_item: format!("\"{name}\";q={quota};w={window_s}"),
            named: BucketName::new(namespace, &name, window_s).0,
            name,
            quota,
            window_s,
            reserve,
            matching,
            key,
        }
    }

    /// Whether a part of the key is a header.
    pub fn needs_fields(&self) -> bool {
        self.key
            .iter()
            .any(|part| matches!(part, KeyPart::Header(_)))
    }

    /// The bucket that a request hits.
    pub fn bucket(&self, head: &RequestHead<'_>, client: ClientAddress) -> Bucket {
        let named = BucketName(self.named.clone());
        self.key
            .iter()
            .fold(named, |name, part| match part {
                KeyPart::ClientAddress => name.client_address(client),
                KeyPart::Literal(text) => name.literal(text),
                KeyPart::Header(header) => {
                    let lines: Vec<&[u8]> = http::values(head.fields, header).collect();
                    if lines.is_empty() {
                        name.absent_header(header, client)
                    } else {
                        name.header(header, &lines.join(&b", "[..]))
                    }
                }
            })
            .bucket()
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

    /// A header that the request lacks: counted by the client's address, in a kind of its own, so that no value of
    /// the header can name that bucket.
    #[must_use]
    pub fn absent_header(self, name: &str, client: ClientAddress) -> Self {
        Self(self.0.part(Part::Absent, name.as_bytes())).client_address(client)
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
mod tests {
    use super::*;
    use crate::http::Field;

    const HERE: ClientAddress = ClientAddress::Ip(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn head(fields: &[Field]) -> RequestHead<'_> {
        RequestHead {
            method: b"GET",
            path: b"/",
            client_address: None,
            fields,
            end: true,
        }
    }

    fn rule(key: Vec<KeyPart>) -> Rule {
        Rule::new("n", "r".into(), 1, 60, 1, key, Match::new("/", None))
    }

    fn line(name: &'static str, value: &'static str) -> Field {
        Field::new(name, value.as_bytes())
    }

    #[test]
    fn no_header_value_names_another_bucket() {
        let rule = rule(vec![
            KeyPart::Header("a".into()),
            KeyPart::Header("b".into()),
        ]);
        let bucket = |fields: &[Field]| rule.bucket(&head(fields), HERE);
        assert_ne!(
            bucket(&[line("a", "xy"), line("b", "z")]),
            bucket(&[line("a", "x"), line("b", "yz")])
        );
        assert_ne!(
            bucket(&[line("a", "x")]),
            bucket(&[line("a", "x"), line("b", "")])
        );
        assert_ne!(
            bucket(&[line("a", "x")]),
            bucket(&[line("a", "x"), line("b", "\x7f\0\0\x01")])
        );
    }

    #[test]
    fn repeated_lines_are_joined_in_order() {
        let rule = rule(vec![KeyPart::Header("a".into())]);
        let two = rule.bucket(
            &head(&[line("a", "x"), line("c", "-"), line("a", "y")]),
            HERE,
        );
        assert_eq!(two, rule.bucket(&head(&[line("a", "x, y")]), HERE));
        assert_ne!(two, rule.bucket(&head(&[line("a", "y, x")]), HERE));
    }

    #[test]
    fn a_missing_header_is_counted_by_address() {
        let rule = rule(vec![KeyPart::Header("a".into())]);
        let elsewhere = ClientAddress::read(b"10.0.0.1:1", 64);
        assert_ne!(
            rule.bucket(&head(&[]), HERE),
            rule.bucket(&head(&[]), elsewhere)
        );
        assert_eq!(rule.bucket(&head(&[]), HERE), rule.bucket(&head(&[]), HERE));
    }

    #[test]
    fn window_length_tells_buckets_apart_and_quota_does_not() {
        let bucket = |quota, window_s| {
            Rule::new(
                "n",
                "r".into(),
                quota,
                window_s,
                1,
                vec![KeyPart::ClientAddress],
                Match::new("/", None),
            )
            .bucket(&head(&[]), HERE)
        };
        assert_eq!(bucket(1, 60), bucket(2, 60));
        assert_ne!(bucket(1, 60), bucket(1, 61));
    }

    #[test]
    fn an_operator_names_the_same_bucket() {
        let rule = rule(vec![KeyPart::ClientAddress, KeyPart::Literal("l".into())]);
        let named = BucketName::new("n", "r", 60)
            .client_address(HERE)
            .literal("l")
            .bucket();
        assert_eq!(rule.bucket(&head(&[]), HERE), named);
    }
}
