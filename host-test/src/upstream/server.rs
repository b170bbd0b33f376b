//! Serving: one connection after another, each request to its row.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_linger;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::answer::{self, Answer};
use super::rows::Rows;
use super::wish::Wish;

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

/// Serves one connection. A handler that wishes for a reset says so through a channel; the connection is then
/// dropped with nothing written, and a linger time of zero makes the peer see a reset.
async fn connection(stream: TcpStream, rows: Arc<Rows>) {
    let (cut, mut cut_wished) = watch::channel(false);
    // Without it an answer is late, not wrong.
    stream.set_nodelay(true).ok();
    let socket = stream.as_fd().try_clone_to_owned();
    let service = service_fn(move |request| {
        let (rows, cut) = (Arc::clone(&rows), cut.clone());
        async move {
            if let Ok(answer) = handle(request, &rows).await {
                return Ok::<_, Infallible>(answer);
            }
            cut.send_replace(true);
            std::future::pending().await
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A peer that left, or sent junk: nobody to tell.
        _ = serving => {}
        _ = cut_wished.wait_for(|wished| *wished) => {
            if let Ok(socket) = socket {
                // Without it the peer sees an end of stream, which is a cut too.
                set_socket_linger(&socket, Some(Duration::ZERO)).ok();
            }
        }
    }
}

/// The connection is to be cut.
struct Cut;

async fn handle(request: Request<Incoming>, rows: &Rows) -> Result<Answer, Cut> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    match (&head.method, path) {
        (&Method::GET, "/orders/count") => {
            let by_path = head
                .uri
                .query()
                .and_then(|query| query.strip_prefix("path="));
            return Ok(rows
                .count(by_path)
                .map_or_else(database_failed, answer::count));
        }
        (&Method::GET, _) => return Ok(answer::hello()),
        (&(Method::POST | Method::PUT | Method::PATCH | Method::DELETE), _) if is_order(path) => {}
        (&(Method::POST | Method::PUT | Method::PATCH | Method::DELETE), _) => {
            return Ok(answer::refused(
                StatusCode::NOT_FOUND,
                "expected /orders or a path below it",
            ));
        }
        _ => {
            return Ok(answer::refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "no such method here",
            ));
        }
    }
    let wish = match Wish::read(head.uri.query().unwrap_or_default()) {
        Ok(wish) => wish,
        Err(sentence) => return Ok(answer::refused(StatusCode::BAD_REQUEST, &sentence)),
    };
    // A body that breaks off is no order.
    let Ok(sent) = body.collect().await else {
        return Err(Cut);
    };
    let sent = sent.to_bytes();
    let id = match rows.insert(head.method.as_str(), path, &sent) {
        Ok(id) => id,
        Err(error) => return Ok(database_failed(error)),
    };
    tokio::time::sleep(wish.delay).await;
    if wish.reset {
        Err(Cut)
    } else {
        Ok(answer::inserted(id, &sent, &wish))
    }
}

fn is_order(path: &str) -> bool {
    path.strip_prefix("/orders")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn database_failed(error: rusqlite::Error) -> Answer {
    let error = io::Error::other(error);
    answer::refused(
        StatusCode::INTERNAL_SERVER_ERROR,
        &format!("the database failed: {error}"),
    )
}
