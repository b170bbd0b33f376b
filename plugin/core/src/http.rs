//! HTTP values as they cross the boundary: bytes, since HTTP does not promise UTF-8.

use std::borrow::Cow;

/// One header line. Names are in lower case; a name may occur on several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, in lower case.
    pub name: Cow<'static, [u8]>,
    /// The value, as it came.
    pub value: Cow<'static, [u8]>,
}

impl Field {
    /// A line made by us.
    pub fn new(name: &'static str, value: impl Into<Cow<'static, [u8]>>) -> Self {
        Self {
            name: Cow::Borrowed(name.as_bytes()),
            value: value.into(),
        }
    }

    /// A line that came from outside.
    pub fn received(name: Vec<u8>, value: Vec<u8>) -> Self {
        Self {
            name: Cow::Owned(name),
            value: Cow::Owned(value),
        }
    }

    /// Whether the line bears this name.
    pub fn is(&self, name: &str) -> bool {
        *self.name == *name.as_bytes()
    }
}

/// The values of all lines of this name, in order.
pub fn values<'a>(fields: &'a [Field], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.is(name))
        .map(|field| &*field.value)
}

/// A request as far as its headers go.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method, as received.
    pub method: &'a [u8],
    /// Path and query, as the proxy normalised them.
    pub path: &'a [u8],
    /// The downstream address that the proxy trusts as the client, as text with or without a port; `None` when
    /// there is none or no rule asks for it.
    pub client_address: Option<&'a [u8]>,
    /// All header lines with pseudo-headers, when [`crate::config::Demands::fields`] asked for them; else empty.
    pub fields: &'a [Field],
    /// The values of the settings' attributes, in their order, when they were asked for; else empty.
    pub attributes: &'a [Option<Vec<u8>>],
    /// The content type, when it was asked for by itself.
    pub content_type: Option<&'a [u8]>,
    /// No body follows.
    pub end: bool,
}

impl<'a> RequestHead<'a> {
    /// A request of which nothing more is known.
    pub const fn of(method: &'a [u8], path: &'a [u8]) -> Self {
        Self {
            method,
            path,
            client_address: None,
            fields: &[],
            attributes: &[],
            content_type: None,
            end: true,
        }
    }

    /// Host and port in lower case, without the scheme's default port.
    pub fn authority(&self) -> Vec<u8> {
        let authority = values(self.fields, ":authority").next().unwrap_or_default();
        let authority = authority.to_ascii_lowercase();
        let default: &[u8] = match values(self.fields, ":scheme").next() {
            Some(b"https") => b":443",
            Some(_) | None => b":80",
        };
        match authority.strip_suffix(default) {
            Some(host) => host.to_vec(),
            None => authority,
        }
    }

    /// Whether the request is a gRPC call.
    pub fn is_grpc(&self) -> bool {
        let lines = values(self.fields, "content-type");
        lines
            .chain(self.content_type)
            .any(|value| value.starts_with(b"application/grpc"))
    }

    /// The path without its query: what rules and policies match.
    pub fn path_only(&self) -> &'a [u8] {
        self.path
            .split(|byte| *byte == b'?' || *byte == b'#')
            .next()
            .unwrap_or_default()
    }
}

/// A response as far as its headers go, on its way to the client.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status; 0 where it was not asked for.
    pub status: u16,
    /// All header lines, where the exchange wants the response; else empty.
    pub fields: &'a [Field],
    /// The proxy's word for how the response came about, where the exchange wants the response.
    pub details: Option<&'a [u8]>,
    /// No body follows.
    pub end: bool,
}

impl ResponseHead<'_> {
    /// A response of which nothing but the status is known.
    pub const fn of(status: u16) -> Self {
        Self {
            status,
            fields: &[],
            details: None,
            end: true,
        }
    }
}

/// A whole response: upstream's, a kept one, or one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 200 to 599.
    pub status: u16,
    /// Header lines, without pseudo-headers and without content-length.
    pub fields: Vec<Field>,
    /// The body.
    pub body: Vec<u8>,
}
