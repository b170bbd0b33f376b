//! What a request's query asks of the answer.

use std::time::Duration;

/// The answer that is wished for. Options combine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// `delay_ms=N`: sleep after the row is in, before answering.
    pub(super) delay: Duration,
    /// `body=binary` with `bytes=N`: a body of all 256 byte values in turn.
    pub(super) binary_bytes: Option<usize>,
    /// `status=N`.
    pub(super) status: u16,
    /// `retry_after=N`.
    pub(super) retry_after: Option<String>,
    /// `reset=1`: cut the connection instead of answering.
    pub(super) reset: bool,
}

/// The most bytes of a binary body.
const BINARY_BYTES_MAX: usize = 64 << 20;
const BINARY_BYTES_DEFAULT: usize = 4096;
const DELAY_MS_MAX: u64 = 60_000;

impl Wish {
    /// Reads a query; the error is a sentence for the caller.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut wish = Self {
            delay: Duration::ZERO,
            binary_bytes: None,
            status: 201,
            retry_after: None,
            reset: false,
        };
        let mut bytes = BINARY_BYTES_DEFAULT;
        let mut binary = false;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "delay_ms" => {
                    wish.delay = Duration::from_millis(number(name, value, &0, &DELAY_MS_MAX)?);
                }
                "body" if value == "binary" => binary = true,
                "body" => return Err(format!("body: expected binary, came {value}")),
                "bytes" => bytes = number(name, value, &0, &BINARY_BYTES_MAX)?,
                "status" => wish.status = number(name, value, &200, &599)?,
                "retry_after" => {
                    wish.retry_after = Some(number::<u64>(name, value, &0, &86_400)?.to_string());
                }
                "reset" => wish.reset = value == "1",
                _ => {} // Any other query is the caller's own: a test may want two requests to differ by it.
            }
        }
        wish.binary_bytes = binary.then_some(bytes);
        Ok(wish)
    }
}

fn number<N: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    least: &N,
    most: &N,
) -> Result<N, String> {
    match value.parse() {
        Ok(number) if number >= *least && number <= *most => Ok(number),
        _ => Err(format!(
            "{name}: expected a number from {least} to {most}, came {value:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_combine() {
        let wish =
            Wish::read("delay_ms=5&body=binary&bytes=7&status=503&retry_after=3&reset=1&x=y")
                .expect("good");
        let expected = Wish {
            delay: Duration::from_millis(5),
            binary_bytes: Some(7),
            status: 503,
            retry_after: Some("3".to_owned()),
            reset: true,
        };
        assert_eq!(wish, expected);
    }

    #[test]
    fn a_wrong_option_is_named() {
        let error = Wish::read("status=42").expect_err("too small");
        assert_eq!(
            error,
            "status: expected a number from 200 to 599, came \"42\""
        );
        Wish::read("delay_ms=soon").expect_err("no number");
        Wish::read("body=text").expect_err("no such body");
    }
}
