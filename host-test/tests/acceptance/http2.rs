//! Clients that speak HTTP/2: the same answers, and limits of their own in Envoy.

use std::convert::Infallible;
use std::future::{Future, ready};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::client::conn::http2;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Builder;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use porch_host::harness::Stack;
use tokio::net::TcpStream;

use crate::support::keyed;

const MIB: usize = 1 << 20;

#[test]
fn http2_clients_get_the_same() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    for (key, size) in [("small", 3), ("largest", MIB)] {
        let path = format!("/orders/{key}");
        let query = format!("{path}?body=binary&bytes=70000");
        let (first, again) = (
            post(&stack, &query, key, size)?,
            post(&stack, &query, key, size)?,
        );
        assert_eq!(
            (first.status().as_u16(), first.body().len()),
            (201, 70_000),
            "{key}"
        );
        assert_eq!(first.headers().get("idempotent-replayed"), None, "{key}");
        assert!(
            again
                .headers()
                .get("idempotent-replayed")
                .is_some_and(|value| value == "true"),
            "{key}: {again:?}"
        );
        assert_eq!(
            (again.status(), again.body()),
            (first.status(), first.body()),
            "{key}"
        );
        assert_eq!(stack.upstream.rows_of(&path)?, 1, "{key}");
    }
    for size in [MIB + 1, 4 * MIB] {
        let refused = post(&stack, "/orders/too-large", "too-large", size)?;
        let said = String::from_utf8_lossy(refused.body());
        assert_eq!(refused.status().as_u16(), 413, "{size} bytes: {said}");
        assert!(
            said.contains("urn:porch:problem:request-too-large"),
            "{size} bytes: {said}"
        );
    }
    assert_eq!(stack.upstream.rows()?, 2);
    Ok(())
}

#[test]
fn trailers_end_a_request_too() -> anyhow::Result<()> {
    let stack = keyed()?.start()?;
    let with_trailers = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("4711"));
        Full::new(Bytes::from_static(b"tea")).with_trailers(ready(Some(Ok(trailers))))
    };
    let (first, again) = (
        exchange(
            &stack,
            request(&stack, "/orders", "k").body(with_trailers())?,
        )?,
        exchange(
            &stack,
            request(&stack, "/orders", "k").body(with_trailers())?,
        )?,
    );
    assert_eq!(first.status().as_u16(), 201, "{first:?}");
    assert_eq!(again.body(), first.body());
    assert!(
        again.headers().contains_key("idempotent-replayed"),
        "{again:?}"
    );
    assert_eq!(stack.upstream.rows()?, 1);
    Ok(())
}

/// Posts so many bytes with a key.
fn post(stack: &Stack, path: &str, key: &str, bytes: usize) -> anyhow::Result<Response<Bytes>> {
    exchange(
        stack,
        request(stack, path, key).body(Full::new(Bytes::from(vec![b'x'; bytes])))?,
    )
}

fn request(stack: &Stack, path: &str, key: &str) -> Builder {
    let url = format!("http://{}{path}", stack.envoy.address);
    Request::post(url).header("idempotency-key", format!("\"{key}\""))
}

/// Sends a request on a connection of its own, and reads the whole answer.
fn exchange<B>(stack: &Stack, request: Request<B>) -> anyhow::Result<Response<Bytes>>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    wait_for(async {
        let stream = TokioIo::new(TcpStream::connect(stack.envoy.address).await?);
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        let connection = tokio::spawn(connection);
        let (head, body) = client.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.abort();
        Ok(Response::from_parts(head, body))
    })
}

fn wait_for<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}
