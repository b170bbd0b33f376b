//! How do the rows of `meta` look?

use super::{Corrupt, Writer, unseal};
use crate::clock::Saved;

/// The saved clock.
pub(crate) const CLOCK: &str = "clock";
/// The layout's version.
pub(crate) const FORMAT_ROW: &str = "format";
/// The id of the next response.
pub(crate) const NEXT_BODY: &str = "next_body";

const CLOCK_BYTES: usize = 16 + 8 + 8 + 4;

impl Saved {
    pub(crate) fn encode(&self) -> [u8; CLOCK_BYTES] {
        Writer::new()
            .put(&self.boot_id)
            .put(&self.boottime_ms.to_le_bytes())
            .put(&self.logical_ms.to_le_bytes())
            .seal(CLOCK.as_bytes())
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self, Corrupt> {
        let mut fields = unseal::<CLOCK_BYTES>(CLOCK.as_bytes(), row)?;
        Ok(Self {
            boot_id: fields.array(),
            boottime_ms: fields.u64(),
            logical_ms: fields.u64(),
        })
    }
}

/// A single number.
pub(crate) fn encode_number(row: &str, number: u64) -> [u8; 12] {
    Writer::new()
        .put(&number.to_le_bytes())
        .seal(row.as_bytes())
}

/// A single number.
pub(crate) fn decode_number(row: &str, value: &[u8]) -> Result<u64, Corrupt> {
    Ok(unseal::<12>(row.as_bytes(), value)?.u64())
}
