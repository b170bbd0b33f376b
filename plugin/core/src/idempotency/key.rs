//! The `Idempotency-Key` header (draft-ietf-httpapi-idempotency-key-header): an RFC 9651 String, or bare.

use sfv::{BareItem, Parser};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// What the header lines of a request say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// There is none.
    Absent,
    /// A key, without quotes and escapes.
    Key(Vec<u8>),
    /// Something that is no key, and why. Never "no key".
    Invalid(&'static str),
}

impl KeyHeader {
    /// Reads all lines of the header. A quoted key and the same one bare are equal, unless `strict` wants it quoted;
    /// parameters are ignored.
    pub fn read<'a>(mut lines: impl Iterator<Item = &'a [u8]>, strict: bool) -> Self {
        let Some(line) = lines.next() else {
            return Self::Absent;
        };
        if lines.next().is_some() {
            return Self::Invalid("expected one header line, got several");
        }
        let line = line.trim_ascii();
        let key = if line.starts_with(b"\"") {
            match Parser::new(line).parse::<sfv::Item>() {
                Ok(sfv::Item {
                    bare_item: BareItem::String(text),
                    ..
                }) => Vec::from(text.as_str()),
                Ok(_) | Err(_) => {
                    return Self::Invalid(
                        "expected an RFC 9651 String, got something else in quotes",
                    );
                }
            }
        } else if strict && !line.is_empty() {
            return Self::Invalid("expected a quoted String, got a bare value");
        } else if line
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"\"\\,;".contains(byte))
        {
            line.to_vec()
        } else {
            return Self::Invalid(
                "expected a quoted String, or visible ASCII without `\"`, `\\`, `,` and `;`",
            );
        };
        match key.len() {
            0 => Self::Invalid("expected 1 to 255 bytes, got none"),
            1..=KEY_BYTES_MAX => Self::Key(key),
            _ => Self::Invalid("expected 1 to 255 bytes, got more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&[u8]]) -> KeyHeader {
        KeyHeader::read(lines.iter().copied(), false)
    }

    fn key(text: &str) -> KeyHeader {
        KeyHeader::Key(text.into())
    }

    #[test]
    fn quoted_and_bare_are_equal() {
        assert_eq!(read(&[b"\"K\""]), key("K"));
        assert_eq!(read(&[b"K"]), key("K"));
        assert_eq!(read(&[b" K "]), key("K"));
        assert_eq!(read(&[b"\"K\";a=1"]), key("K"));
        assert_eq!(read(&[br#""a\"b\\c d""#]), key(r#"a"b\c d"#));
        assert_eq!(
            read(&[b"8e03978e-40d5-43e8-bc93-6894a57f9324"]),
            key("8e03978e-40d5-43e8-bc93-6894a57f9324")
        );
        assert_eq!(read(&[]), KeyHeader::Absent);
    }

    #[test]
    fn strict_wants_quotes() {
        let read = |line: &'static [u8]| KeyHeader::read(std::iter::once(line), true);
        assert_eq!(read(b"\"K\""), key("K"));
        assert!(matches!(read(b"K"), KeyHeader::Invalid(_)));
        assert!(matches!(read(b""), KeyHeader::Invalid(_)));
    }

    #[test]
    fn anything_else_is_invalid_and_never_absent() {
        let cases: &[&[&[u8]]] = &[
            &[b""],
            &[b"  "],
            &[b"\"\""],
            &[b"a", b"b"],
            &[b"a", b"a"],
            &[b"a b"],
            &[b"a,b"],
            &[b"a;b=1"],
            &[b"\"a\\b\""],
            &[b"\"a"],
            &[b"\"a\" b"],
            &[b"\"a\", \"b\""],
            &[b"\x01"],
            &[b"\x7f"],
            &[b"\xff"],
            &[b"\"\xc3\xa9\""],
            &[b"\"\x01\""],
        ];
        for case in cases {
            assert!(matches!(read(case), KeyHeader::Invalid(_)), "{case:?}");
        }
    }

    #[test]
    fn a_key_has_1_to_255_bytes() {
        assert_eq!(read(&["k".repeat(255).as_bytes()]), key(&"k".repeat(255)));
        assert!(matches!(
            read(&["k".repeat(256).as_bytes()]),
            KeyHeader::Invalid(_)
        ));
        assert!(matches!(
            read(&["k".repeat(65_536).as_bytes()]),
            KeyHeader::Invalid(_)
        ));
        assert_eq!(
            read(&[format!("\"{}\"", "k".repeat(255)).as_bytes()]),
            key(&"k".repeat(255))
        );
    }
}
