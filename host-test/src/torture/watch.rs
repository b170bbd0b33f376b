//! When was what sent and answered? For tortures that compare it with what the disk was told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use porch_wire::reply::Outcome;

use super::ledger::Deed;

/// One thing that a client saw.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Since 1970, by the machine's wall clock, as `strace` tells it too.
    pub(super) at: Duration,
    pub(super) deed: Deed,
    /// None: it was sent.
    pub(super) answer: Option<Outcome>,
}

/// Keeps what the clients saw, if it was told to.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: Option<Vec<Seen>>,
}

impl Watch {
    /// One that keeps what it is told.
    pub(super) const fn keeping() -> Self {
        Self {
            seen: Some(Vec::new()),
        }
    }

    pub(super) fn sent(&mut self, deed: &Deed) {
        self.keep(deed, None);
    }

    pub(super) fn answered(&mut self, deed: &Deed, outcome: &Outcome) {
        self.keep(deed, Some(outcome.clone()));
    }

    /// What it has kept.
    pub(super) fn take(&mut self) -> Vec<Seen> {
        self.seen.take().unwrap_or_default()
    }

    fn keep(&mut self, deed: &Deed, answer: Option<Outcome>) {
        if let Some(seen) = &mut self.seen {
            seen.push(Seen {
                at: now(),
                deed: deed.clone(),
                answer,
            });
        }
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
