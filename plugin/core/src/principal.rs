//! Who sent a request, as far as keys and counts go.

use crate::hash::{Framed, Part, Sha256Digest};
use crate::http::{self, RequestHead};

/// Where it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: all callers are one.
    None,
    /// A header, its lines joined. Its name is in lower case.
    Header(String),
    /// A value that the proxy knows, by its place in the settings' attributes.
    Attribute(usize),
    /// A cookie.
    Cookie(String),
    /// The Authorization header.
    Authorization,
}

/// Who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// One of all: the configuration tells none apart.
    Anyone,
    /// A name that stays the same when credentials rotate.
    Named(Vec<u8>),
    /// Known only by a credential, which is no name: it may rotate, and is told apart by its digest.
    Credential(Sha256Digest),
    /// The request lacks what the configuration names.
    Missing,
}

impl Source {
    /// Whether header lines are needed to read it.
    pub fn needs_fields(&self) -> bool {
        match self {
            Self::None | Self::Attribute(_) => false,
            Self::Header(_) | Self::Cookie(_) | Self::Authorization => true,
        }
    }

    /// Who sent a request.
    pub fn caller(&self, head: &RequestHead<'_>) -> Caller {
        match self {
            Self::None => Caller::Anyone,
            Self::Header(name) => named(joined(head, name)),
            Self::Attribute(index) => named(head.attributes.get(*index).cloned().flatten()),
            Self::Cookie(name) => credential("cookie", cookie(head, name)),
            Self::Authorization => credential("authorization", joined(head, "authorization")),
        }
    }
}

fn named(value: Option<Vec<u8>>) -> Caller {
    value
        .filter(|value| !value.is_empty())
        .map_or(Caller::Missing, Caller::Named)
}

fn credential(kind: &str, value: Option<Vec<u8>>) -> Caller {
    value
        .filter(|value| !value.is_empty())
        .map_or(Caller::Missing, |value| {
            let framed = Framed::new("porch/credential/1").part(Part::HeaderName, kind.as_bytes());
            Caller::Credential(framed.part(Part::HeaderValue, &value).finish())
        })
}

fn joined(head: &RequestHead<'_>, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = http::values(head.fields, name).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

/// A cookie's value. RFC 6265, section 5.4: `name=value` pairs separated by `; `.
fn cookie(head: &RequestHead<'_>, name: &str) -> Option<Vec<u8>> {
    http::values(head.fields, "cookie")
        .flat_map(|line| line.split(|byte| *byte == b';'))
        .find_map(|pair| {
            let value = pair
                .trim_ascii()
                .strip_prefix(name.as_bytes())?
                .strip_prefix(b"=")?;
            Some(value.to_vec())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Field;

    fn caller(source: &Source, fields: &[(&'static str, &'static str)]) -> Caller {
        let fields: Vec<Field> = fields
            .iter()
            .map(|(name, value)| Field::new(name, value.as_bytes()))
            .collect();
        let attributes = [Some(b"sub".to_vec()), None];
        source.caller(&RequestHead {
            method: b"POST",
            path: b"/",
            client_address: None,
            fields: &fields,
            attributes: &attributes,
            content_type: None,
            end: true,
        })
    }

    #[test]
    fn names_come_from_where_they_are_configured() {
        let named = |text: &str| Caller::Named(text.into());
        assert_eq!(caller(&Source::None, &[]), Caller::Anyone);
        let header = Source::Header("x-user".into());
        assert_eq!(caller(&header, &[("x-user", "ann")]), named("ann"));
        assert_eq!(
            caller(&header, &[("x-user", "ann"), ("x-user", "bob")]),
            named("ann, bob")
        );
        assert_eq!(caller(&header, &[("x-user", "")]), Caller::Missing);
        assert_eq!(caller(&header, &[]), Caller::Missing);
        assert_eq!(caller(&Source::Attribute(0), &[]), named("sub"));
        assert_eq!(caller(&Source::Attribute(1), &[]), Caller::Missing);
        assert_eq!(caller(&Source::Attribute(2), &[]), Caller::Missing);
    }

    #[test]
    fn credentials_are_told_apart_and_not_shown() {
        let session = Source::Cookie("sid".into());
        let of = |line: &'static str| caller(&session, &[("cookie", line)]);
        assert_eq!(of("a=b; sid=x"), of("sid=x; c=d"));
        assert_ne!(of("sid=x"), of("sid=y"));
        assert_eq!(of("xsid=x"), Caller::Missing);
        assert_eq!(of("sid="), Caller::Missing);
        let bearer =
            |value: &'static str| caller(&Source::Authorization, &[("authorization", value)]);
        assert_ne!(bearer("Bearer a"), bearer("Bearer b"));
        assert_ne!(bearer("x"), of("sid=x"));
        assert!(matches!(bearer("x"), Caller::Credential(_)));
    }
}
