//! Waiting, always with an end.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

/// How long to wait for what normally takes much less than a second; generous, since a busy machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Tries again and again until there is a result.
///
/// # Errors
/// When `attempt` fails, or has not given a result within `patience`; the error says what was waited for.
pub fn eventually<T>(
    what: &str,
    patience: Duration,
    mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        if start.elapsed() > patience {
            bail!("waited {} s in vain: {what}", patience.as_secs());
        }
        thread::sleep(POLL);
    }
}
