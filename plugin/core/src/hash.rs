//! How names are hashed: a label, then parts that cannot be mistaken for one another.
//!
//! Every part is its kind (u8), its length (u32, little-endian) and its bytes, so that no value, however chosen,
//! can make one name look like another.

use sha2::{Digest, Sha256};

/// A SHA-256 digest.
pub type Sha256Digest = [u8; 32];

/// What a part of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// A part that has no value. Its bytes name what is absent.
    Absent = 0,
    /// Which fleet this is.
    Namespace = 1,
    /// A limiter rule's name.
    Rule = 2,
    /// A window's length in seconds, u32 little-endian.
    WindowSeconds = 3,
    /// A client address in canonical form.
    ClientAddress = 4,
    /// A header's name; its value follows as a part of its own.
    HeaderName = 5,
    /// A header's value.
    HeaderValue = 6,
    /// A fixed text of the configuration.
    Literal = 7,
    /// An idempotency policy's name.
    Policy = 8,
    /// Host and port, lower case, without the scheme's default port.
    Authority = 9,
    /// Who the caller is.
    Principal = 10,
    /// An idempotency key.
    Key = 11,
    /// A request method.
    Method = 12,
    /// A path with its query, as received.
    PathWithQuery = 13,
    /// A request body.
    Body = 14,
    /// A credential's digest: it tells callers apart and names none.
    Credential = 15,
    /// A path without its query.
    Path = 16,
    /// The name of the route that was chosen.
    RouteName = 17,
}

/// A hash under construction.
#[derive(Clone, Debug)]
pub struct Framed(Sha256);

impl Framed {
    /// Starts a hash with its label, for example `porch/bucket/1`.
    pub fn new(label: &str) -> Self {
        Self(Sha256::new_with_prefix(label.as_bytes()))
    }

    /// Adds a part. Parts longer than `u32::MAX` bytes do not occur: bodies are bounded far below.
    #[must_use]
    pub fn part(mut self, part: Part, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let [a, b, c, d] = length.to_le_bytes();
        #[expect(clippy::as_conversions, reason = "the discriminant of a repr(u8) enum")]
        self.0.update([part as u8, a, b, c, d]);
        self.0.update(bytes);
        self
    }

    /// The digest of all parts so far.
    pub fn finish(self) -> Sha256Digest {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_framed() {
        let digest = |a: &str, b: &str| {
            Framed::new("t")
                .part(Part::Literal, a.as_bytes())
                .part(Part::Literal, b.as_bytes())
                .finish()
        };
        assert_ne!(digest("ab", "c"), digest("a", "bc"));
        assert_ne!(digest("", "abc"), digest("abc", ""));
    }

    #[test]
    fn an_absent_part_is_not_an_empty_one() {
        let absent = Framed::new("t").part(Part::Absent, b"").finish();
        let empty = Framed::new("t").part(Part::Literal, b"").finish();
        assert_ne!(absent, empty);
    }
}
