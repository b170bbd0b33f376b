//! The answers: what a row looks like over HTTP.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, ETAG, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::wish::Wish;

/// A whole answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// The answer to a request that inserted row `id`.
pub(super) fn inserted(id: i64, sent: &[u8], wish: &Wish) -> Answer {
    let mut answer = match wish.binary_bytes {
        Some(length) => typed("application/octet-stream", every_byte(length)),
        None => json_body(&json!({"id": id, "sent": String::from_utf8_lossy(sent)})),
    };
    *answer.status_mut() = StatusCode::from_u16(wish.status).unwrap_or(StatusCode::CREATED);
    let headers = answer.headers_mut();
    headers.insert(LOCATION, text(&format!("/orders/{id}")));
    headers.append("x-item", HeaderValue::from_static("first"));
    headers.insert(ETAG, text(&format!("\"order-{id}\"")));
    headers.append("x-item", HeaderValue::from_static("second"));
    if let Some(seconds) = &wish.retry_after {
        headers.insert(RETRY_AFTER, text(seconds));
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
pub(super) fn refused(status: StatusCode, sentence: &str) -> Answer {
    let mut answer = json_body(&json!({"error": sentence}));
    *answer.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(
            ALLOW,
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE"),
        );
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

fn typed(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}
