//! Who writes the file? One thread, batch after batch.

use std::{sync::Arc, time::Instant};

use porch_engine::{ApplyError, AtLimit, Store};

use crate::desk::Desk;

/// How the writer's work ended.
#[derive(Debug)]
pub(crate) struct Written {
    /// Rows that the last transaction wrote, since their ceilings were above their counts.
    pub(crate) exact_rows: usize,
}

/// Writes until the front is closed and all that was taken in is answered; then writes the exact counts.
///
/// # Errors
/// [`ApplyError::Fatal`], and the process has to end; or [`ApplyError::Full`] when the exact counts found no room.
pub(crate) fn run(desk: &Arc<Desk>, mut store: Store) -> Result<Written, ApplyError> {
    let mut answers = Vec::new();
    let mut full = false;
    let mut at_limit = AtLimit::default();
    loop {
        let mut front = desk.front();
        let batch = loop {
            if let Some(batch) = front.next_batch() {
                break batch;
            }
            if front.is_closed() {
                let exact_rows = front.write_exact(desk.now_ms(), &mut store)?;
                return Ok(Written { exact_rows });
            }
            front = desk.wait(front);
        };
        drop(front);
        let since = Instant::now();
        match store.apply(&batch) {
            Ok(outcomes) => {
                desk.metrics()
                    .done(&batch, outcomes.wrote(), since.elapsed());
                // Reads go on in a full store.
                if outcomes.wrote() && std::mem::take(&mut full) {
                    tracing::info!("there is room again");
                }
                if outcomes.at_limit.any() {
                    desk.metrics().at_limit();
                }
                tell_limits(&mut at_limit, outcomes.at_limit);
                let now_ms = desk.now_ms();
                let mut front = desk.front();
                front.committed(now_ms, batch, outcomes, &mut answers);
                if front.next_due_ms().is_some() {
                    desk.look_at_parked();
                }
            }
            Err(ApplyError::Full(error)) => {
                desk.metrics().no_room();
                if !std::mem::replace(&mut full, true) {
                    tracing::error!(%error, "no room: what needs a new row is answered UNAVAILABLE until there is");
                }
                desk.front()
                    .failed(desk.now_ms(), batch, "the store has no room", &mut answers);
            }
            Err(fatal) => return Err(fatal),
        }
        desk.deliver(&mut answers);
    }
}

/// Says once that a kind of rows came to its limit.
fn tell_limits(told: &mut AtLimit, came: AtLimit) {
    if came.counters && !std::mem::replace(&mut told.counters, true) {
        tracing::error!(
            "counters take all that --max-counter-bytes allows: new buckets are answered UNAVAILABLE until others expire"
        );
    }
    if came.records && !std::mem::replace(&mut told.records, true) {
        tracing::error!(
            "records take all that --max-record-bytes allows: new keys are answered UNAVAILABLE until others expire"
        );
    }
}
