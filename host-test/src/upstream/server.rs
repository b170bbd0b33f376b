//! Serving: one connection after another, each request to its row.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_linger;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::{StreamExt as _, once};

use super::answer::{Answer, Framing};
use super::handler::{self, Handled, Outcome, handle};
use super::rows::Rows;

/// Serves until the process ends. Prints `listening on http://ADDRESS` once the port is open.
///
/// # Errors
/// When the database cannot be opened or the port is taken.
pub fn serve(listen: SocketAddr, database: &Path) -> anyhow::Result<()> {
    let rows = Arc::new(Rows::open(database)?);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let listener = TcpListener::bind(listen)
                .await
                .with_context(|| format!("cannot listen on {listen}"))?;
            #[expect(clippy::print_stdout, reason = "the port is this command's output")]
            {
                println!("listening on http://{}", listener.local_addr()?);
            }
            loop {
                // An accept fails for reasons of one connection or for want of descriptors; both pass.
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(connection(stream, Arc::clone(&rows)));
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
}

/// How a connection ends before its time.
#[derive(Clone, Debug)]
enum Cut {
    /// With a reset.
    Reset,
    /// In order, after these bytes.
    After(Vec<u8>),
}

/// Serves one connection. A handler that wishes for a reset says so through a channel; the connection is then
/// dropped with nothing written, and a linger time of zero makes the peer see a reset.
async fn connection(stream: TcpStream, rows: Arc<Rows>) {
    let (cut, mut cut_wished) = watch::channel(None);
    // Without it an answer is late, not wrong.
    stream.set_nodelay(true).ok();
    let socket = stream.as_fd().try_clone_to_owned();
    let service = service_fn(move |request| {
        let (rows, cut) = (Arc::clone(&rows), cut.clone());
        async move {
            match answer(request, &rows, &cut).await {
                Ok(answer) => Ok::<_, Infallible>(answer),
                Err(wished) => {
                    cut.send_replace(Some(wished));
                    std::future::pending().await
                }
            }
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let wished = tokio::select! {
        // A peer that left, or sent junk: nobody to tell.
        _ = serving => return,
        wished = cut_wished.wait_for(Option::is_some) => wished.ok().and_then(|wished| wished.clone()),
    };
    if let Ok(socket) = socket {
        if let Some(Cut::After(bytes)) = wished {
            rustix::io::write(&socket, &bytes).ok();
        } else {
            // Without it the peer sees an end of stream, which is a cut too.
            set_socket_linger(&socket, Some(Duration::ZERO)).ok();
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    rows: &Rows,
    cut: &watch::Sender<Option<Cut>>,
) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    // A body that breaks off is no order.
    let body = body.collect().await.map_err(|_| Cut::Reset)?.to_bytes();
    let request = handler::Request {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        body: &body,
    };
    let Handled { delay, outcome } = handle(request, &mut &*rows);
    tokio::time::sleep(delay).await;
    match outcome {
        Outcome::Answer(answer) if answer.framing == Framing::Trailers => {
            Err(Cut::After(with_trailers(&answer)))
        }
        Outcome::Answer(answer) => Ok(response(answer, cut)),
        Outcome::Reset => Err(Cut::Reset),
        Outcome::Junk => Err(Cut::After(b"no HTTP at all\r\n\r\n".to_vec())),
    }
}

fn response(answer: Answer, cut: &watch::Sender<Option<Cut>>) -> Response<Body> {
    let mut response = Response::new(body(&answer, cut.clone()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::CREATED);
    for (name, value) in answer.lines {
        let value = HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static(""));
        response.headers_mut().append(name, value);
    }
    if answer.framing == Framing::CutOff {
        let length = HeaderValue::from(answer.body.len());
        response.headers_mut().insert("content-length", length);
    }
    response
}

/// An answer with trailers as it is on the wire: hyper sends none to a peer that does not ask for them, as this service
/// does.
fn with_trailers(answer: &Answer) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {} Made\r\n", answer.status).into_bytes();
    for (name, value) in &answer.lines {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(b"transfer-encoding: chunked\r\ntrailer: x-checksum\r\n\r\n");
    bytes.extend(format!("{:x}\r\n", answer.body.len()).bytes());
    bytes.extend(&answer.body);
    bytes.extend(b"\r\n0\r\nx-checksum: 4711\r\n\r\n");
    bytes
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn body(answer: &Answer, cut: watch::Sender<Option<Cut>>) -> Body {
    let whole = answer.body.clone();
    let half = whole.slice(..whole.len() / 2);
    let data = |bytes: Bytes| Ok::<_, Infallible>(Frame::data(bytes));
    match answer.framing {
        Framing::Length | Framing::Trailers => Full::new(whole).boxed_unsync(),
        Framing::Chunks => StreamBody::new(tokio_stream::iter([data(whole)])).boxed_unsync(),
        Framing::CutOff => {
            tokio::spawn(async move {
                // The half is on its way before the connection goes.
                tokio::time::sleep(Duration::from_millis(200)).await;
                cut.send_replace(Some(Cut::Reset));
            });
            StreamBody::new(once(data(half)).chain(tokio_stream::pending())).boxed_unsync()
        }
        Framing::Endless => {
            StreamBody::new(once(data(whole)).chain(tokio_stream::pending())).boxed_unsync()
        }
    }
}
