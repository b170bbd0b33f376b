//! How does an entry of the expiry index look?

use crate::batch::Hash;

const BYTES: usize = 8 + 1 + 32;

/// The table that an expiring row is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Counters,
    Records,
}

/// A row and when it has to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiring {
    pub(crate) expires_ms: u64,
    pub(crate) table: Table,
    pub(crate) key: Hash,
}

impl Expiring {
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut entry = [0; BYTES];
        entry[..8].copy_from_slice(&self.expires_ms.to_be_bytes());
        entry[8] = match self.table {
            Table::Counters => 1,
            Table::Records => 2,
        };
        entry[9..].copy_from_slice(&self.key);
        entry
    }

    /// `None` for a key that no release has written.
    pub(crate) fn decode(entry: &[u8]) -> Option<Self> {
        let (expires_ms, rest) = entry.split_first_chunk()?;
        let (table, key) = rest.split_first()?;
        Some(Self {
            expires_ms: u64::from_be_bytes(*expires_ms),
            table: match table {
                1 => Table::Counters,
                2 => Table::Records,
                _ => return None,
            },
            key: key.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_and_sort_by_expiry() {
        let entry = |expires_ms, table| Expiring {
            expires_ms,
            table,
            key: [7; 32],
        };
        let early = entry(255, Table::Records);
        let late = entry(256, Table::Counters);
        assert!(early.encode() < late.encode());
        assert_eq!(Expiring::decode(&early.encode()), Some(early));
        assert_eq!(Expiring::decode(&late.encode()), Some(late));
        assert_eq!(Expiring::decode(&early.encode()[..40]), None);
    }
}
