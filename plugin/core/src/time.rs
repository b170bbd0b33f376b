//! Time as the filter sees it: a worker's monotonic clock, in milliseconds.

/// An instant of a worker's monotonic clock, in milliseconds since an arbitrary start. Never compared across workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant `ms` milliseconds after the clock's start.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// This instant, `ms` milliseconds later.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; 0 when it is not earlier.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Whole seconds that cover `ms` milliseconds: what a client is told to wait.
pub const fn seconds_up(ms: u64) -> u64 {
    ms.div_ceil(1000)
}
