//! What the exchanges of one worker share: the settings, what was seen of buckets, and how much is held.

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
    held_bytes: usize,
}

/// Bytes that an exchange holds; given back to the worker by [`Worker::release`].
#[derive(Debug)]
#[must_use = "held bytes are given back by Worker::release"]
pub(super) struct Held(usize);

impl Held {
    pub(super) const NONE: Self = Self(0);
}

impl Worker {
    /// A worker that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Rc::new(settings),
            retained_bytes: 0,
            seen: Seen::default(),
            held_bytes: 0,
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
        self.held_bytes.saturating_add(self.retained_bytes)
    }

    /// Holds so many bytes more, unless that is more than the worker may hold.
    pub(super) fn hold(&mut self, bytes: usize) -> Option<Held> {
        let most = self
            .settings
            .idempotency
            .as_ref()
            .map_or(0, |idempotency| idempotency.max_held_bytes);
        if self.held_bytes().saturating_add(bytes) > most {
            return None;
        }
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        Some(Held(bytes))
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is given back is no longer held"
    )]
    pub(super) fn release(&mut self, held: Held) {
        self.held_bytes = self.held_bytes.saturating_sub(held.0);
    }
}
