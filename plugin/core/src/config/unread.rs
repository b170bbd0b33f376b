//! What is said of a configuration that does not fit the document: serde's refusals, in words for who wrote it.

use serde::de::IgnoredAny;

use super::error::ConfigError;
use super::nearest::nearest;

/// The longest value that a refusal repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 64;

/// Why `json` is no document.
pub(super) fn refusal(
    json: &[u8],
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> ConfigError {
    let mut path = error.path().to_string();
    if path.is_empty() {
        // A field with an empty name.
        path.push('.');
    }
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
    let problem = if serde_json::from_slice::<IgnoredAny>(json).is_ok() {
        let came = value_at(json, inner.line(), inner.column());
        format!("expected one name, or a mapping of one name to its value, got {came}")
    } else {
        text
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

/// The value that begins at a place in the text, both counted from 1.
fn value_at(json: &[u8], line: usize, column: usize) -> String {
    let line = json
        .split(|byte| *byte == b'\n')
        .nth(line.saturating_sub(1));
    let rest = line.and_then(|line| line.get(column.saturating_sub(1)..));
    match rest.unwrap_or_default() {
        [b'[', ..] => "a list".into(),
        rest => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
            let value = rest.split(ends).next().unwrap_or_default();
            let value = value.get(..SHOWN_BYTES_MAX).unwrap_or(value);
            format!("`{}`", String::from_utf8_lossy(value))
        }
    }
}
