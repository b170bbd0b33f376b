//! Why a configuration is refused.

/// A configuration that cannot be used: where, what came, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ConfigError {
    /// The field, for example `limiter.rules[2].window`; `.` for the whole document.
    pub path: String,
    /// What was expected and what came.
    pub problem: String,
}

impl ConfigError {
    /// A field whose value is not accepted.
    pub(crate) fn value(
        path: impl Into<String>,
        expected: &str,
        came: impl std::fmt::Debug,
    ) -> Self {
        Self {
            path: path.into(),
            problem: format!("expected {expected}, got {came:?}"),
        }
    }
}
