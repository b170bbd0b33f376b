//! How are bytes sent that no client library would send? HTTP/2 streams with bodies of one's own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use hyper::{HeaderMap, Request};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// For an answer that normally takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const CHANNEL: &str = "/porch.v1.SharedData/Channel";
pub(super) const INVOKE: &str = "/porch.v1.SharedData/Invoke";

/// One connection.
pub(super) struct Connection {
    requests: SendRequest<Bytes>,
}

/// One stream: bytes go out, bytes and a status come back.
pub(super) struct Stream {
    out: SendStream<Bytes>,
    answer: Answer,
    buffer: BytesMut,
}

enum Answer {
    Awaited(h2::client::ResponseFuture),
    Body(RecvStream),
    /// All that comes is in the head.
    Over(Status),
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// As gRPC numbers them.
    pub(super) code: u32,
    pub(super) message: String,
}

/// What comes on a stream.
#[derive(Debug)]
pub(super) enum Came {
    /// One message's bytes.
    Message(Bytes),
    /// The end.
    End(Status),
}

impl Connection {
    pub(super) async fn open(socket: &Path) -> anyhow::Result<Self> {
        let socket = UnixStream::connect(socket).await?;
        let (requests, connection) = h2::client::handshake(socket).await?;
        // It ends with the store, or when its last stream is dropped.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { requests })
    }

    pub(super) async fn stream(&self, path: &str) -> anyhow::Result<Stream> {
        let mut requests = self.requests.clone().ready().await?;
        let request = Request::post(format!("http://porch{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("porch-protocol", porch_wire::PROTOCOL.to_string())
            .body(())?;
        let (answer, out) = requests.send_request(request, false)?;
        Ok(Stream {
            out,
            answer: Answer::Awaited(answer),
            buffer: BytesMut::new(),
        })
    }
}

impl Stream {
    /// Sends bytes as they are; false when the stream is closed.
    pub(super) fn send(&mut self, bytes: Bytes, end: bool) -> bool {
        self.out.send_data(bytes, end).is_ok()
    }

    /// Waits for a message, or the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Came> {
        timeout(PATIENCE, self.come())
            .await
            .map_err(|_| anyhow!("waited {PATIENCE:?} in vain for an answer, or the end"))?
    }

    /// Waits for the end.
    pub(super) async fn end(&mut self) -> anyhow::Result<Status> {
        loop {
            if let Came::End(status) = self.next().await? {
                return Ok(status);
            }
        }
    }

    async fn come(&mut self) -> anyhow::Result<Came> {
        loop {
            if let Some(message) = take_message(&mut self.buffer) {
                return Ok(Came::Message(message));
            }
            match &mut self.answer {
                Answer::Over(status) => return Ok(Came::End(status.clone())),
                Answer::Awaited(answer) => match answer.await {
                    Ok(response) => {
                        let status = status(response.headers());
                        let body = response.into_body();
                        self.answer = status.map_or(Answer::Body(body), Answer::Over);
                    }
                    Err(error) => self.answer = Answer::Over(reset(&error)),
                },
                Answer::Body(body) => match body.data().await {
                    Some(Ok(bytes)) => {
                        body.flow_control().release_capacity(bytes.len())?;
                        self.buffer.extend_from_slice(&bytes);
                    }
                    Some(Err(error)) => self.answer = Answer::Over(reset(&error)),
                    None => {
                        let trailers = body.trailers().await;
                        let trailers = trailers.ok().flatten().unwrap_or_default();
                        let status = status(&trailers);
                        self.answer =
                            Answer::Over(status.context("the stream ended without a status")?);
                    }
                },
            }
        }
    }
}

fn status(headers: &HeaderMap) -> Option<Status> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message");
    let message = message.map(|message| String::from_utf8_lossy(message.as_bytes()).into_owned());
    Some(Status {
        code,
        message: message.unwrap_or_default(),
    })
}

/// A stream or connection that was reset has ended all the same: gRPC's UNKNOWN.
fn reset(error: &h2::Error) -> Status {
    Status {
        code: 2,
        message: error.to_string(),
    }
}

/// A message with its length before it.
pub(super) fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed_as(0, length, message)
}

/// A message with a prefix of one's own.
pub(super) fn framed_as(compressed: u8, length: u32, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.put_u8(compressed);
    bytes.put_u32(length);
    bytes.put_slice(message);
    bytes.freeze()
}

fn take_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let prefix: [u8; 5] = buffer.first_chunk().copied()?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let end = 5 + usize::try_from(length).ok()?;
    (buffer.len() >= end).then(|| buffer.split_to(end).freeze().slice(5..))
}
