//! How does a read of the whole file reach its operator?
//!
//! It runs on a thread of its own, and goes as fast as its operator takes what it reads, up to its time limit. An
//! operator who leaves ends it.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use bytes::Bytes;
use porch_engine::{CheckEvent, ReadError, Reader};
use porch_wire::{
    BackupReply, CheckFinding, CheckProgress, CheckReply, CheckSummary, check_reply::Event,
};
use tokio::{
    runtime::Handle,
    sync::mpsc::{Sender, channel},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Messages that wait for their operator.
const WAITING_MAX: usize = 4;

type Replies<T> = ReceiverStream<Result<T, Status>>;

pub(super) fn backup(reader: Reader, limit: Option<Duration>) -> Replies<BackupReply> {
    stream(limit, move |told| {
        reader
            .backup(limit, |piece, expected_bytes| {
                told.tell(BackupReply {
                    chunk: Bytes::copy_from_slice(piece),
                    expected_bytes,
                })
            })
            .map(|bytes| {
                tracing::info!(bytes, "a backup is done");
                None
            })
    })
}

pub(super) fn check(reader: Reader, limit: Option<Duration>) -> Replies<CheckReply> {
    let event = |event| CheckReply { event: Some(event) };
    stream(limit, move |told| {
        let checked = reader.check(limit, |seen| {
            told.tell(event(match seen {
                CheckEvent::Progress { done, rows } => {
                    Event::Progress(CheckProgress { done, rows })
                }
                CheckEvent::Finding(finding) => {
                    tracing::error!(
                        table = finding.table,
                        row = finding.row,
                        found = finding.found,
                        "a check found something wrong"
                    );
                    Event::Finding(CheckFinding {
                        table: finding.table.to_owned(),
                        row: finding.row,
                        found: finding.found,
                    })
                }
            }))
        })?;
        tracing::info!(
            rows = checked.rows,
            findings = checked.findings,
            "a check is done"
        );
        Ok(Some(event(Event::Summary(CheckSummary {
            rows: checked.rows,
            findings: checked.findings,
        }))))
    })
}

/// Who is told, and until when.
struct Told<T> {
    sender: Sender<Result<T, Status>>,
    runtime: Handle,
    limit: Option<Duration>,
    since: Instant,
}

impl<T: Send> Told<T> {
    /// Waits until there is room; breaks off when nobody listens, or time is up.
    fn tell(&self, message: T) -> ControlFlow<()> {
        let message = Ok(message);
        let taken = match self.limit {
            None => self.runtime.block_on(self.sender.send(message)).is_ok(),
            Some(limit) => {
                let left = limit.saturating_sub(self.since.elapsed());
                let told = async { timeout(left, self.sender.send(message)).await };
                matches!(self.runtime.block_on(told), Ok(Ok(())))
            }
        };
        if taken {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    fn ended(&self, error: ReadError) -> Status {
        let error = match (error, self.limit) {
            // Nobody took it in time, or nobody takes it any more; who is still there is told the former.
            (ReadError::Gone, Some(limit)) if self.since.elapsed() >= limit => {
                ReadError::TimeLimit { limit }
            }
            (error, _) => error,
        };
        let told = error.to_string();
        match error {
            ReadError::Busy => Status::resource_exhausted(told),
            ReadError::TimeLimit { .. } => Status::deadline_exceeded(told),
            ReadError::Gone => Status::cancelled(told),
            ReadError::Io { .. } | ReadError::Lmdb { .. } => Status::internal(told),
        }
    }
}

fn stream<T: Send + 'static>(
    limit: Option<Duration>,
    read: impl FnOnce(&Told<T>) -> Result<Option<T>, ReadError> + Send + 'static,
) -> Replies<T> {
    let (sender, receiver) = channel(WAITING_MAX);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let told = Told {
            sender,
            runtime,
            limit,
            since: Instant::now(),
        };
        let last = match read(&told) {
            Ok(None) => return,
            Ok(Some(last)) => Ok(last),
            Err(error) => {
                let status = told.ended(error);
                tracing::warn!(%status, "a read of the whole file ended before it was done");
                Err(status)
            }
        };
        // A status is not held back by the limit that it tells of; nobody listens when the receiver is gone.
        drop(told.runtime.block_on(told.sender.send(last)));
    });
    ReceiverStream::new(receiver)
}
