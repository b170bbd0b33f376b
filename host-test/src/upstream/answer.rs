//! The answers: what a row looks like over HTTP.

use bytes::Bytes;
use serde_json::{Value, json};

use super::wish::{Shape, Wish};

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header lines in order, without those that tell the body's length.
    pub lines: Vec<(&'static str, String)>,
    /// The body; of server-sent events that never end, what comes of it.
    pub body: Bytes,
    /// How the body is sent.
    pub framing: Framing,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// With its length ahead.
    Length,
    /// In chunks.
    Chunks,
    /// In chunks, with trailers behind.
    Trailers,
    /// With its length ahead, and half of it sent when the connection is reset.
    CutOff,
    /// In chunks that never end.
    Endless,
}

const TWO_COOKIES: [&str; 2] = [
    "sid=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/",
    "theme=dark; Expires=Thu, 22 Oct 2037 07:28:00 GMT",
];

/// `tea for two`, three times over, compressed.
const GZIP: [u8; 36] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 73, 77, 84, 72, 203, 47, 82, 40, 41, 207, 215, 81, 40,
    193, 193, 1, 0, 176, 135, 132, 38, 37, 0, 0, 0,
];

/// The answer to a request that inserted row `id`.
pub(super) fn inserted(id: i64, sent: &[u8], wish: &Wish) -> Answer {
    let mut answer = match wish.shape {
        Shape::Order => json_body(&json!({"id": id, "sent": String::from_utf8_lossy(sent)})),
        Shape::Binary(length) => typed("application/octet-stream", every_byte(length)),
        Shape::Gzip => {
            let mut answer = typed("text/plain", GZIP);
            answer.lines.push(("content-encoding", "gzip".to_owned()));
            answer
        }
        Shape::Events => typed("text/event-stream", "data: one\n\ndata: two\n\n"),
    };
    answer.status = wish.status;
    answer.framing = wish.framing;
    let lines = &mut answer.lines;
    lines.push(("location", format!("/orders/{id}")));
    lines.push(("x-item", "first".to_owned()));
    lines.push(("etag", format!("\"order-{id}\"")));
    lines.push(("x-item", "second".to_owned()));
    lines.push(("link", "</orders>; rel=\"collection\"".to_owned()));
    if let Some(seconds) = &wish.retry_after {
        lines.push(("retry-after", seconds.clone()));
    }
    if wish.cookies {
        lines.extend(TWO_COOKIES.map(|cookie| ("set-cookie", cookie.to_owned())));
    }
    if wish.forges {
        lines.push(("idempotent-replayed", "true".to_owned()));
    }
    if wish.own_lines {
        for (name, value) in [
            ("x-request-id", "of-then"),
            ("traceparent", "00-of-then"),
            ("ratelimit", "\"upstream\";r=1;t=1"),
            ("cache-control", "public, max-age=60"),
            ("connection", "x-hop"),
            ("x-hop", "of-then"),
        ] {
            lines.push((name, value.to_owned()));
        }
    }
    answer
}

/// How many rows there are.
pub(super) fn count(rows: i64) -> Answer {
    json_body(&json!({"rows": rows}))
}

/// The front page.
pub(super) fn hello() -> Answer {
    typed("text/plain", "the demo service of porch\n")
}

/// What went wrong, in a sentence.
pub(super) fn refused(status: u16, sentence: &str) -> Answer {
    let mut answer = json_body(&json!({"error": sentence}));
    answer.status = status;
    if status == 405 {
        answer
            .lines
            .push(("allow", "GET, HEAD, POST, PUT, PATCH, DELETE".to_owned()));
    }
    answer
}

/// All 256 byte values in turn, so that it is no text in any encoding.
fn every_byte(length: usize) -> Bytes {
    (0..=u8::MAX).cycle().take(length).collect()
}

fn json_body(value: &Value) -> Answer {
    typed("application/json", value.to_string())
}

fn typed(content_type: &str, body: impl AsRef<[u8]>) -> Answer {
    Answer {
        status: 200,
        lines: vec![("content-type", content_type.to_owned())],
        body: Bytes::copy_from_slice(body.as_ref()),
        framing: Framing::Length,
    }
}
