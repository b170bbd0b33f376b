//! The demo.

/// Runs the demo.
///
/// # Errors
/// When a step does not hold.
pub fn run(_keep: bool) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
