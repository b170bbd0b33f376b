//! How is the store watched? By HTTP, on a listener of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | Prometheus' text format |
//! | `/healthz` | 200 while the process answers |
//! | `/readyz` | 200 while calls are taken and the writer answers, else 503 |

use std::{fs, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use porch_engine::{Inspected, Look, Outcome};
use tokio::time::timeout;

use crate::{
    admin::DataFile,
    desk::{Answered, Desk},
    metrics::Holding,
};

/// The writer has so long to say what it holds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) desk: Arc<Desk>,
    pub(crate) file: DataFile,
}

pub(crate) fn router(watched: Watched) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(watched)
}

async fn metrics(State(watched): State<Watched>) -> Response {
    let holding = watched.inspect().await.ok().map(|seen| Holding {
        usage: seen.usage,
        // A file that cannot be looked at is told by the next commit.
        file_bytes: fs::metadata(&watched.file.path).map_or(0, |file| file.len()),
        limit_bytes: watched.file.limit_bytes,
        live_buckets: seen.live_buckets,
    });
    let desk = &watched.desk;
    match desk.metrics().encode(holding.as_ref(), desk.channels()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(watched): State<Watched>) -> (StatusCode, String) {
    match watched.inspect().await {
        Ok(_) if watched.desk.metrics().is_full() => {
            let told = "ready, but without room for new rows\n";
            (StatusCode::OK, told.to_owned())
        }
        Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

impl Watched {
    /// Asks the writer, so an answer says that it is at work.
    async fn inspect(&self) -> Result<Box<Inspected>, String> {
        let look = Look::default();
        let asked = self.desk.ask(|front, caller| front.inspect(caller, look));
        let answered = timeout(PATIENCE, asked).await;
        let answered = answered.map_err(|_| "the writer does not answer".to_owned())?;
        match answered {
            Ok(Answered::AtOnce(outcome) | Answered::Later(outcome)) => match outcome {
                Outcome::Inspected(seen) => Ok(seen),
                Outcome::Refused(refusal) => Err(refusal.message),
                other => Err(format!("expected an inspection, came {other:?}")),
            },
            Err(status) => Err(status.message().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use porch_engine::{Limits, Options, Store};

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_store_is_not_ready_while_its_writer_is_silent_or_it_stops() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), Options::default()).unwrap();
        let counts = Metrics::new().unwrap();
        let watched = Watched {
            desk: Arc::new(Desk::new(Limits::default(), store.clock(), counts)),
            file: DataFile::of(&store, Options::default()),
        };
        // Nobody writes.
        let (status, told) = ready(State(watched.clone())).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(told.contains("writer does not answer"), "{told}");
        // The metrics are told all the same.
        let told = metrics(State(watched.clone())).await;
        assert_eq!(told.status(), StatusCode::OK);
        watched.desk.close();
        let (status, told) = ready(State(watched)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(told.contains("stopping"), "{told}");
    }
}
