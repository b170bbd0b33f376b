//! How is a stream of calls read?

use std::sync::Arc;

use porch_engine::Caller;
use porch_wire::{CHANNEL_BODY_BYTES_MAX, Calls, PROTOCOL, Reply};
use tonic::{Status, Streaming};

use crate::{
    desk::Desk,
    operation::Operations,
    outlet::{Outlet, ReplyStream},
};

/// Opens a stream, and reads it in a task of its own.
pub(crate) fn open(desk: &Arc<Desk>, calls: Streaming<Calls>) -> ReplyStream {
    let (stream, outlet, replies) = desk.open_stream();
    let reader = tokio::spawn(read(Arc::clone(desk), stream, Arc::clone(&outlet), calls));
    outlet.read_by(reader.abort_handle());
    replies
}

async fn read(desk: Arc<Desk>, stream: u64, outlet: Arc<Outlet>, mut calls: Streaming<Calls>) {
    let replay_bytes_max = u32::try_from(CHANNEL_BODY_BYTES_MAX).unwrap_or(u32::MAX);
    let mut operations = Operations::new(replay_bytes_max);
    let mut first = true;
    let life = loop {
        let message = match calls.message().await {
            Ok(Some(message)) => message,
            Ok(None) => break outlet.read_to_end(),
            Err(status) => {
                // Who sent garbage is told; who has gone does not hear it.
                tracing::debug!(stream, %status, "a stream broke");
                outlet.fail(status);
                desk.close_stream(stream);
                return;
            }
        };
        if first && let Err(status) = check_protocol(message.protocol) {
            tracing::warn!(stream, "{}", status.message());
            outlet.fail(status);
            desk.close_stream(stream);
            return;
        }
        first = false;
        let replies = put_in(&desk, stream, &outlet, &mut operations, message);
        if outlet.acknowledge(replies).is_over() {
            desk.close_stream(stream);
            return;
        }
    };
    if life.is_over() {
        desk.close_stream(stream);
    }
}

/// Puts a message's calls in, and takes the answers that are there at once.
fn put_in(
    desk: &Desk,
    stream: u64,
    outlet: &Outlet,
    operations: &mut Operations,
    message: Calls,
) -> Vec<Reply> {
    outlet.expect(message.call.len());
    let mut replies = Vec::with_capacity(message.call.len());
    let now_ms = desk.now_ms();
    desk.with_front(|front| {
        for call in message.call {
            let id = call.id;
            let caller = Caller { stream, call: id };
            let outcome = operations.call(front, now_ms, caller, call);
            replies.extend(outcome.map(|outcome| Reply {
                id,
                outcome: Some(outcome),
            }));
        }
    });
    for reply in &replies {
        desk.metrics().answered_in(reply);
    }
    outlet.answered(replies.len());
    replies
}

/// Refuses a caller that speaks another protocol.
pub(crate) fn check_protocol(came: u32) -> Result<(), Status> {
    if came == PROTOCOL {
        Ok(())
    } else {
        Err(Status::failed_precondition(format!(
            "expected protocol {PROTOCOL}, which this store speaks, came protocol {came}"
        )))
    }
}
