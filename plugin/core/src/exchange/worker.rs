//! What the exchanges of one worker share: the settings, what was seen of buckets, and how much is held.

use std::cell::Cell;
use std::rc::Rc;

use crate::config::Settings;
use crate::limiter::seen::Seen;
use crate::store::{Bucket, Charge};
use crate::time::Timestamp;

/// One worker's state beside its exchanges. Dropped with its configuration.
#[derive(Debug)]
pub struct Worker {
    /// What this instance is told to do.
    pub settings: Rc<Settings>,
    /// Bytes that the channel retains for completions that the store has not acknowledged. The adapter keeps it true.
    pub retained_bytes: usize,
    pub(super) seen: Seen,
    held: Rc<Cell<usize>>,
}

/// Bytes that an exchange holds. Dropping it gives them back to the worker.
#[derive(Debug, Default)]
pub(super) struct Held {
    total: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.set(self.total.get().saturating_sub(self.bytes));
    }
}

impl Worker {
    /// A worker that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Rc::new(settings),
            retained_bytes: 0,
            seen: Seen::default(),
            held: Rc::default(),
        }
    }

    /// What the store is to be told of an outage, now that it can be reached. Each is answered by [`Self::charged`].
    pub fn charges(&mut self, now: Timestamp) -> Vec<Charge> {
        self.seen.charges(now)
    }

    /// The store took a charge, or did not answer it.
    pub fn charged(&mut self, bucket: &Bucket, taken: bool) {
        self.seen.charged(bucket, taken);
    }

    /// Bytes of requests and answers that this worker's exchanges and its channel hold.
    pub fn held_bytes(&self) -> usize {
        self.held.get().saturating_add(self.retained_bytes)
    }

    /// Holds nothing yet.
    pub(super) fn hold_nothing(&self) -> Held {
        Held {
            total: Rc::clone(&self.held),
            bytes: 0,
        }
    }

    /// Holds so many bytes, unless that is more than the worker may hold.
    pub(super) fn hold(&self, bytes: usize) -> Option<Held> {
        let mut held = self.hold_nothing();
        self.hold_in_all(&mut held, bytes).then_some(held)
    }

    /// Holds so many bytes in all where some may be held already. False when that is more than the worker may hold.
    pub(super) fn hold_in_all(&self, held: &mut Held, bytes: usize) -> bool {
        let most = self
            .settings
            .idempotency
            .as_ref()
            .map_or(0, |idempotency| idempotency.max_held_bytes);
        let more = bytes.saturating_sub(held.bytes);
        if self.held_bytes().saturating_add(more) > most {
            return false;
        }
        held.bytes = held.bytes.saturating_add(more);
        self.held.set(self.held.get().saturating_add(more));
        true
    }
}
