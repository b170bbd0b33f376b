//! How are the chunks of a response keyed?

/// The largest value in `bodies`, checksum included: with LMDB's page header it fills 16 pages.
pub(crate) const CHUNK_BYTES: usize = 65_520;

/// The key of one chunk.
pub(crate) fn body_key(id: u64, chunk: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&chunk.to_be_bytes());
    key
}
