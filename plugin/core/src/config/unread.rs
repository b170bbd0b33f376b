//! What is said of a configuration that does not fit the document: serde's refusals, in words for who wrote it.

use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::error::ConfigError;
use super::nearest::nearest;

/// The longest value that a refusal repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 200;

/// Why `json` is no document.
pub(super) fn refusal(
    json: &[u8],
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> ConfigError {
    let path = error.path().to_string();
    if json.trim_ascii().is_empty() {
        return ConfigError {
            path,
            problem:
                "expected a configuration with `store`, and `limiter` or `idempotency`, got none"
                    .into(),
        };
    }
    let inner = error.inner();
    let text = inner.to_string();
    if inner.is_data() {
        let place = format!(" at line {} column {}", inner.line(), inner.column());
        let problem = reworded(text.strip_suffix(&place).unwrap_or(&text));
        return ConfigError { path, problem };
    }
    // Where a name or a mapping with one is expected, serde_json takes any other value for broken JSON.
    let problem = match serde_json::from_slice::<Value>(json) {
        Ok(document) => format!(
            "expected one name, or a mapping of one name to its value, got {}",
            shown(&document, error.path())
        ),
        Err(_) => text,
    };
    ConfigError { path, problem }
}

fn reworded(text: &str) -> String {
    for kind in ["field", "variant"] {
        let start = format!("unknown {kind} `");
        if let Some(rest) = text.strip_prefix(&start)
            && let Some((wrong, expected)) = rest.rsplit_once("`, expected ")
        {
            // Every other piece between backticks is a name.
            let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            let what = if kind == "field" { "field" } else { "name" };
            return match nearest(wrong, &known) {
                Some(name) => {
                    format!("unknown {what} `{wrong}`, did you mean `{name}`? Expected {expected}")
                }
                None => format!("unknown {what} `{wrong}`, expected {expected}"),
            };
        }
    }
    for start in ["invalid type: ", "invalid value: "] {
        if let Some(rest) = text.strip_prefix(start)
            && let Some((came, expected)) = rest.rsplit_once(", expected ")
        {
            let came = if came == "unit variant" {
                "the name alone"
            } else {
                came
            };
            return format!("expected {}, got {came}", in_words(expected));
        }
    }
    text.to_owned()
}

/// What serde calls by a type of this program.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "newtype variant" => "a mapping of this name to its value",
        "unit" => "the name alone",
        other => other,
    }
}

/// The value at a path, as JSON.
fn shown(document: &Value, path: &Path) -> String {
    let mut value = Some(document);
    for segment in path {
        value = match segment {
            Segment::Seq { index } => value.and_then(|of| of.get(index)),
            Segment::Map { key } => value.and_then(|of| of.get(key)),
            Segment::Enum { variant } => value.and_then(|of| of.get(variant)),
            Segment::Unknown => value,
        };
    }
    match value.map(Value::to_string) {
        Some(text) if text.len() <= SHOWN_BYTES_MAX => text,
        Some(_) => "something long".into(),
        None => "something else".into(),
    }
}
