//! How do rows look in the file?
//!
//! | database | key | value |
//! |---|---|---|
//! | meta | `clock`, `format`, `next_body` | boot id, boottime, logical time; version; id |
//! | counters | bucket, 32 bytes | window start, length, ceiling, expiry |
//! | records | key, 32 bytes | state, status, claim, fingerprint, ttl, remember, time, expiry, body |
//! | bodies | body id, chunk | a chunk of an encoded response |
//! | expiry | expiry, table, key | empty |
//!
//! Values are little-endian and end in a crc32c over key and value; keys whose order matters are big-endian.

mod body;
mod counter;
mod expiry;
mod meta;
mod record;

pub(crate) use body::{CHUNK_BYTES, body_key};
pub use counter::CounterRow;
pub(crate) use expiry::{Expiring, Table};
pub(crate) use meta::{CLOCK, FORMAT_ROW, NEXT_BODY, decode_number, encode_number};
pub(crate) use record::{BodyRef, RecordRow};

/// The version of this layout. A file of another version is not opened.
pub const FORMAT: u32 = 1;

/// A row that cannot be read. It is refused, never guessed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Corrupt {
    /// The value has another length than its table's rows.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// Bytes of a whole row.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The checksum does not match.
    #[error("its crc32c does not match")]
    Checksum,
    /// A number that no release has written.
    #[error("field `{0}` has no such value")]
    Field(&'static str),
    /// A row that another row refers to is not there.
    #[error("it is missing")]
    Missing,
}

const CRC_BYTES: usize = 4;

fn crc(key: &[u8], value: &[u8]) -> [u8; CRC_BYTES] {
    crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes()
}

/// Writes the checksum over `key` and the rest of `row` into the end of `row`.
fn seal<const N: usize>(key: &[u8], mut row: [u8; N]) -> [u8; N] {
    if let Some((value, end)) = row.split_last_chunk_mut::<CRC_BYTES>() {
        *end = crc(key, value);
    }
    row
}

/// Checks length and checksum of a row of fixed size.
fn unseal<'a, const N: usize>(key: &[u8], row: &'a [u8]) -> Result<Fields<'a>, Corrupt> {
    if row.len() != N {
        return Err(Corrupt::Length {
            expected: N,
            found: row.len(),
        });
    }
    unseal_any(key, row).map(Fields)
}

/// Checks the checksum of a row of any size.
pub(crate) fn unseal_any<'a>(key: &[u8], row: &'a [u8]) -> Result<&'a [u8], Corrupt> {
    match row.split_last_chunk::<CRC_BYTES>() {
        Some((value, end)) if *end == crc(key, value) => Ok(value),
        Some(_) => Err(Corrupt::Checksum),
        None => Err(Corrupt::Length {
            expected: CRC_BYTES,
            found: row.len(),
        }),
    }
}

/// Appends the checksum to a row of any size.
pub(crate) fn seal_any(key: &[u8], row: &mut Vec<u8>) {
    let end = crc(key, row);
    row.extend_from_slice(&end);
}

/// Reads a row's fields in their order.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        // `unseal` has checked the length of the whole row, so each field is there.
        let Some((field, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *field
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// Writes a row's fields in their order; what is left at the end is for the checksum.
struct Writer<const N: usize> {
    row: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    const fn new() -> Self {
        Self { row: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Self {
        let end = self.at + field.len();
        self.row[self.at..end].copy_from_slice(field);
        self.at = end;
        self
    }

    fn seal(self, key: &[u8]) -> [u8; N] {
        debug_assert_eq!(self.at + CRC_BYTES, N, "each field has its place");
        seal(key, self.row)
    }
}
