//! Which steps of the demo held, and the summary of them.

use anyhow::bail;

use super::tell;

/// The story so far.
#[derive(Default)]
pub(super) struct Report {
    outcomes: Vec<(&'static str, Result<String, String>)>,
    found: String,
}

impl Report {
    /// A fact that must hold for the step to hold; the last one stands in the summary.
    pub(super) fn holds(&mut self, holds: bool, fact: &str) -> anyhow::Result<()> {
        if !holds {
            bail!("expected: {fact}");
        }
        tell::line(&format!("holds: {fact}"));
        fact.clone_into(&mut self.found);
        Ok(())
    }

    /// Tells a step, and remembers whether it held.
    pub(super) fn step(
        &mut self,
        title: &'static str,
        step: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) {
        tell::title(&format!("{}. {title}", self.outcomes.len() + 1));
        let outcome = step(self);
        if let Err(error) = &outcome {
            tell::line(&format!("DOES NOT HOLD: {error:#}"));
        }
        let found = std::mem::take(&mut self.found);
        self.outcomes.push((
            title,
            outcome
                .map(|()| found)
                .map_err(|error| format!("{error:#}")),
        ));
    }

    /// Prints a table of all steps, and tells how many did not hold.
    pub(super) fn summary(&self) -> usize {
        tell::title("Summary");
        for (title, outcome) in &self.outcomes {
            let (mark, found) = match outcome {
                Ok(found) => ("ok  ", found),
                Err(error) => ("FAIL", error),
            };
            tell::line(&format!("{mark}  {title:<56}  {found}"));
        }
        self.outcomes
            .iter()
            .filter(|(_, outcome)| outcome.is_err())
            .count()
    }
}
