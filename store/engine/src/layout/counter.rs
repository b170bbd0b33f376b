//! How does a row of `counters` look?

use core::num::NonZeroU32;

use porch_core::window::Window;

use super::{Corrupt, Writer, unseal};
use crate::batch::Bucket;

const BYTES: usize = 8 + 4 + 4 + 8 + 4;

/// The durable upper bound of a bucket's count in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterRow {
    /// When the window was opened, in milliseconds of the logical clock.
    pub start_ms: u64,
    /// How long the window lasts, in seconds.
    pub length_s: NonZeroU32,
    /// No answer that counts above this has left the store.
    pub ceiling: u32,
}

impl CounterRow {
    /// The window as a bucket loads it: after a crash its count is its ceiling.
    pub const fn window(&self) -> Window {
        Window::new(self.start_ms, self.length_s, self.ceiling)
    }

    pub(crate) fn expires_ms(&self) -> u64 {
        self.window().end_ms()
    }

    pub(crate) fn encode(&self, bucket: &Bucket) -> [u8; BYTES] {
        Writer::new()
            .put(&self.start_ms.to_le_bytes())
            .put(&self.length_s.get().to_le_bytes())
            .put(&self.ceiling.to_le_bytes())
            .put(&self.expires_ms().to_le_bytes())
            .seal(bucket)
    }

    pub(crate) fn decode(bucket: &Bucket, row: &[u8]) -> Result<Self, Corrupt> {
        let mut fields = unseal::<BYTES>(bucket, row)?;
        let row = Self {
            start_ms: fields.u64(),
            length_s: NonZeroU32::new(fields.u32()).ok_or(Corrupt::Field("length_s"))?,
            ceiling: fields.u32(),
        };
        if fields.u64() != row.expires_ms() {
            return Err(Corrupt::Field("expiry"));
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_and_any_flipped_bit_is_noticed() {
        let row = CounterRow {
            start_ms: 0x0102_0304_0506,
            length_s: NonZeroU32::new(60).unwrap(),
            ceiling: 77,
        };
        let bytes = row.encode(&[1; 32]);
        assert_eq!(CounterRow::decode(&[1; 32], &bytes), Ok(row));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(CounterRow::decode(&[1; 32], &bad), Err(Corrupt::Checksum));
        }
    }

    #[test]
    fn a_row_under_another_key_is_noticed() {
        let row = CounterRow {
            start_ms: 5,
            length_s: NonZeroU32::MIN,
            ceiling: 1,
        };
        let bytes = row.encode(&[1; 32]);
        assert_eq!(CounterRow::decode(&[2; 32], &bytes), Err(Corrupt::Checksum));
        assert!(matches!(
            CounterRow::decode(&[1; 32], &bytes[1..]),
            Err(Corrupt::Length {
                expected: 28,
                found: 27
            })
        ));
    }

    #[test]
    fn the_layout_is_the_one_that_format_1_wrote() {
        let row = CounterRow {
            start_ms: 1,
            length_s: NonZeroU32::new(2).unwrap(),
            ceiling: 3,
        };
        assert_eq!(
            row.encode(&[0; 32])[..24],
            [
                1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0xd1, 7, 0, 0, 0, 0, 0, 0
            ]
        );
    }
}
