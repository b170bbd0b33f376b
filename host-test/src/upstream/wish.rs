//! What a request's query asks of the answer.

use std::time::Duration;

use super::answer::Framing;

/// The answer that is wished for. Options combine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// `delay_ms=N`: sleep after the row is in, before answering.
    pub(super) delay: Duration,
    /// `body=binary` with `bytes=N`, `body=gzip` or `body=events`.
    pub(super) shape: Shape,
    /// `send=chunks`, `trailers`, `half` or `endless`.
    pub(super) framing: Framing,
    /// `status=N`.
    pub(super) status: u16,
    /// `retry_after=N`.
    pub(super) retry_after: Option<String>,
    /// `reset=1` or `junk=1`: no answer.
    pub(super) cut: Option<Cut>,
    /// `cookies=1`: two cookies, each with a comma in it.
    pub(super) cookies: bool,
    /// `forged=1`: the mark of a replay.
    pub(super) forges: bool,
    /// `own_lines=1`: lines that belong to one exchange, and that a cache would heed.
    pub(super) own_lines: bool,
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The row in JSON.
    Order,
    /// So many bytes, all 256 values in turn.
    Binary(usize),
    /// Text, compressed.
    Gzip,
    /// Two server-sent events.
    Events,
}

/// What comes instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A reset.
    Reset,
    /// Bytes that are no HTTP.
    Junk,
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
            shape: Shape::Order,
            framing: Framing::Length,
            status: 201,
            retry_after: None,
            cut: None,
            cookies: false,
            forges: false,
            own_lines: false,
        };
        let mut bytes = BINARY_BYTES_DEFAULT;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "delay_ms" => {
                    wish.delay = Duration::from_millis(number(name, value, &0, &DELAY_MS_MAX)?);
                }
                "body" => {
                    wish.shape = match value {
                        "binary" => Shape::Binary(0),
                        "gzip" => Shape::Gzip,
                        "events" => Shape::Events,
                        _ => {
                            return Err(format!(
                                "body: expected binary, gzip or events, came {value}"
                            ));
                        }
                    }
                }
                "bytes" => bytes = number(name, value, &0, &BINARY_BYTES_MAX)?,
                "send" => {
                    wish.framing = match value {
                        "chunks" => Framing::Chunks,
                        "trailers" => Framing::Trailers,
                        "half" => Framing::CutOff,
                        "endless" => Framing::Endless,
                        _ => {
                            return Err(format!(
                                "send: expected chunks, trailers, half or endless, came {value}"
                            ));
                        }
                    }
                }
                "status" => wish.status = number(name, value, &200, &599)?,
                "retry_after" => {
                    wish.retry_after = Some(number::<u64>(name, value, &0, &86_400)?.to_string());
                }
                "reset" if value == "1" => wish.cut = Some(Cut::Reset),
                "junk" if value == "1" => wish.cut = Some(Cut::Junk),
                "cookies" => wish.cookies = value == "1",
                "forged" => wish.forges = value == "1",
                "own_lines" => wish.own_lines = value == "1",
                _ => {} // Any other query is the caller's own: a test may want two requests to differ by it.
            }
        }
        if wish.shape == Shape::Binary(0) {
            wish.shape = Shape::Binary(bytes);
        }
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
        let wish = Wish::read(
            "delay_ms=5&body=binary&bytes=7&send=chunks&status=503&retry_after=3&reset=1&x=y",
        )
        .expect("good");
        let expected = Wish {
            delay: Duration::from_millis(5),
            shape: Shape::Binary(7),
            framing: Framing::Chunks,
            status: 503,
            retry_after: Some("3".to_owned()),
            cut: Some(Cut::Reset),
            cookies: false,
            forges: false,
            own_lines: false,
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
        Wish::read("send=slowly").expect_err("no such framing");
    }
}
