//! How does an operator name a bucket or a record?
//!
//! By the digest that a log or another command has told, or by the parts that the filter makes it of. No raw key is
//! kept anywhere, so the parts have to be said.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use porch_engine::{Bucket, BucketName, ClientAddress, Key, LENGTH_S_MAX, record_key};

/// Clients of one IPv6 network of this size are one, unless the configuration says otherwise.
const IPV6_PREFIX: u8 = 64;

/// The fleet.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// The fleet: `store.namespace` of the filter's configuration.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

/// The key, in the sense of a rule or of a policy.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// With --policy: the idempotency key as it was sent, without quotes.
    ///
    /// With --rule: one part of the rule's `key`, with the value that the request had; once for each part, in the
    /// configuration's order. A part is `client_address=ADDRESS` (or `=none`; an IPv6 network as ADDRESS/PREFIX, default
    /// /64), `header:NAME=VALUE`, `principal=NAME`, `method=METHOD`, `path=PATH`, `authority=HOST`, `route_name=NAME` or
    /// `literal=TEXT`. A part that the request lacked is `absent:NAME=ADDRESS`, with NAME the header's name, `principal`
    /// or `route_name`, and the client's address.
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
}

/// A bucket.
#[derive(Debug, Args)]
pub(crate) struct BucketArgs {
    /// The bucket's digest, 64 hexadecimal digits. Or name it by --namespace, --rule, --window and --key.
    #[arg(long, value_name = "HEX", value_parser = digest, conflicts_with = "rule", help_heading = "Bucket")]
    bucket: Option<Bucket>,

    /// The limiter rule's name.
    #[arg(long, value_name = "NAME", requires_all = ["namespace", "window", "key"], help_heading = "Bucket")]
    rule: Option<String>,

    /// The rule's window, such as 60s or 1h.
    #[arg(long, value_name = "TIME", value_parser = window_s, requires = "rule", help_heading = "Bucket")]
    window: Option<u32>,
}

/// A record.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The record's digest, 64 hexadecimal digits. Or name it by --namespace, --policy, --authority, --principal and
    /// --key.
    #[arg(long, value_name = "HEX", value_parser = digest, conflicts_with = "policy", help_heading = "Record")]
    record: Option<Key>,

    /// The idempotency policy's name.
    #[arg(long, value_name = "NAME", requires_all = ["namespace", "authority", "key"], help_heading = "Record")]
    policy: Option<String>,

    /// The request's host, and its port unless that is the scheme's default.
    #[arg(
        long,
        value_name = "HOST",
        requires = "policy",
        help_heading = "Record"
    )]
    authority: Option<String>,

    /// Who sent the request. Leave it out where the policy names no principal, a cookie or `authorization_digest`.
    #[arg(
        long,
        value_name = "NAME",
        requires = "policy",
        help_heading = "Record"
    )]
    principal: Option<String>,
}

/// The bucket that is named; none when none is.
pub(crate) fn bucket(
    fleet: &FleetArgs,
    bucket: &BucketArgs,
    key: &KeyArgs,
) -> anyhow::Result<Option<Bucket>> {
    let Some(rule) = &bucket.rule else {
        return Ok(bucket.bucket);
    };
    let namespace = namespace(fleet)?;
    let window_s = bucket.window.context("--rule: expected --window too")?;
    let mut name = BucketName::new(namespace, rule, window_s);
    for part in &key.key {
        name = part.parse::<Part>()?.add_to(name);
    }
    Ok(Some(name.bucket().0))
}

/// The record that is named; none when none is.
pub(crate) fn record(
    fleet: &FleetArgs,
    record: &RecordArgs,
    key: &KeyArgs,
) -> anyhow::Result<Option<Key>> {
    let Some(policy) = &record.policy else {
        return Ok(record.record);
    };
    let authority = record.authority.as_ref();
    let authority = authority.context("--policy: expected --authority too")?;
    let [key] = &key.key[..] else {
        bail!(
            "--key: expected one idempotency key with --policy, came {}",
            key.key.len()
        );
    };
    let record = record_key(
        namespace(fleet)?,
        policy,
        authority.to_ascii_lowercase().as_bytes(),
        record.principal.as_ref().map(String::as_bytes),
        key.as_bytes(),
    );
    Ok(Some(record.0))
}

fn namespace(fleet: &FleetArgs) -> anyhow::Result<&str> {
    let namespace = fleet.namespace.as_deref();
    namespace.context("--namespace: expected the fleet's name, came nothing")
}

/// One part of a rule's key, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    ClientAddress(ClientAddress),
    Header { name: String, value: String },
    Absent { name: String, client: ClientAddress },
    Principal(String),
    Method(String),
    Path(String),
    Authority(String),
    RouteName(String),
    Literal(String),
}

impl Part {
    fn add_to(self, name: BucketName) -> BucketName {
        match self {
            Self::ClientAddress(client) => name.client_address(client),
            Self::Header {
                name: header,
                value,
            } => name.header(&header, value.as_bytes()),
            Self::Absent { name: what, client } => name.absent(&what, client),
            Self::Principal(principal) => name.principal(principal.as_bytes()),
            Self::Method(method) => name.method(method.as_bytes()),
            Self::Path(path) => name.path(path.as_bytes()),
            Self::Authority(authority) => name.authority(authority.as_bytes()),
            Self::RouteName(route) => name.route_name(route.as_bytes()),
            Self::Literal(text) => name.literal(&text),
        }
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "--key: expected a part of the rule's key, such as client_address=1.2.3.4, came `{text}`"
            )
        };
        let (what, value) = text.split_once('=').with_context(wrong)?;
        let value = || value.to_owned();
        match what.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Ok(Self::Header {
                name: name.to_ascii_lowercase(),
                value: value(),
            }),
            Some(("absent", name)) if !name.is_empty() => Ok(Self::Absent {
                name: name.to_ascii_lowercase(),
                client: address(&value())?,
            }),
            Some(_) => bail!(wrong()),
            None => match what {
                "client_address" => Ok(Self::ClientAddress(address(&value())?)),
                "principal" => Ok(Self::Principal(value())),
                "method" => Ok(Self::Method(value())),
                "path" => Ok(Self::Path(value())),
                "authority" => Ok(Self::Authority(value().to_ascii_lowercase())),
                "route_name" => Ok(Self::RouteName(value())),
                "literal" => Ok(Self::Literal(value())),
                _ => bail!(wrong()),
            },
        }
    }
}

fn address(text: &str) -> anyhow::Result<ClientAddress> {
    if text == "none" {
        return Ok(ClientAddress::None);
    }
    let expected = || format!("--key: expected a client's address or `none`, came `{text}`");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => {
            let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 128);
            (address, prefix.with_context(expected)?)
        }
        None => (text, IPV6_PREFIX),
    };
    match ClientAddress::read(address.as_bytes(), prefix) {
        ClientAddress::None => bail!(expected()),
        read @ ClientAddress::Ip(_) => Ok(read),
    }
}

fn window_s(text: &str) -> Result<u32, String> {
    let expected =
        || format!("expected whole seconds from 1s to 30d, such as 60s or 1h, came `{text}`");
    let window = humantime::parse_duration(text).map_err(|_| expected())?;
    let seconds = u32::try_from(window.as_secs()).map_err(|_| expected())?;
    if (1..=LENGTH_S_MAX).contains(&seconds) && window == Duration::from_secs(seconds.into()) {
        Ok(seconds)
    } else {
        Err(expected())
    }
}

fn digest(text: &str) -> Result<[u8; 32], String> {
    let came = || format!("expected 64 hexadecimal digits, came `{text}`");
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(came());
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| came())?;
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_from_hex() {
        let text = format!("{}ff", "00".repeat(31));
        let mut expected = [0; 32];
        expected[31] = 255;
        assert_eq!(digest(&text), Ok(expected));
        assert!(digest(&"+1".repeat(32)).is_err());
    }

    #[test]
    fn a_window_is_whole_seconds() {
        assert_eq!(window_s("60s"), Ok(60));
        assert_eq!(window_s("30d"), Ok(LENGTH_S_MAX));
        for wrong in ["60", "0s", "1500ms", "31d", ""] {
            let told = window_s(wrong).unwrap_err();
            assert!(told.contains(wrong), "{told}");
        }
    }

    #[test]
    fn parts_of_a_key_are_read_with_their_values() {
        let part = |text: &str| text.parse::<Part>();
        let here = ClientAddress::Ip("1.2.3.4".parse().unwrap());
        assert_eq!(
            part("client_address=1.2.3.4").unwrap(),
            Part::ClientAddress(here)
        );
        assert_eq!(
            part("client_address=2001:db8::1:2:3:4/48").unwrap(),
            Part::ClientAddress(ClientAddress::Ip("2001:db8::".parse().unwrap()))
        );
        assert_eq!(
            part("client_address=none").unwrap(),
            Part::ClientAddress(ClientAddress::None)
        );
        assert_eq!(
            part("header:X-Api-Key=a=b").unwrap(),
            Part::Header {
                name: "x-api-key".to_owned(),
                value: "a=b".to_owned()
            }
        );
        assert_eq!(
            part("absent:x-api-key=1.2.3.4").unwrap(),
            Part::Absent {
                name: "x-api-key".to_owned(),
                client: here
            }
        );
        for wrong in [
            "client_address",
            "client_address=example.org",
            "client_address=::1/129",
            "header:=x",
            "cookie=x",
            "body:x=y",
        ] {
            let told = part(wrong).unwrap_err().to_string();
            assert!(told.contains("expected") && told.contains("came"), "{told}");
        }
    }
}
