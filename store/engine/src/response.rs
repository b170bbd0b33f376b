//! How is a kept response encoded?
//!
//! Field count, then each field's name and value with their lengths, then the body to the end; numbers are u32,
//! little-endian. The status is the record's.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A response as it is kept and replayed, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 to 599.
    pub status: u16,
    /// Header lines in order, repeats kept.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// The encoded length.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let fields = self.fields.iter();
        4 + fields
            .map(|(name, value)| 8 + name.len() + value.len())
            .sum::<usize>()
            + self.body.len()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_bytes());
        out.put_u32_le(length(self.fields.len()));
        for (name, value) in &self.fields {
            for part in [name, value] {
                out.put_u32_le(length(part.len()));
                out.put_slice(part);
            }
        }
        out.put_slice(&self.body);
        out.freeze()
    }

    /// `None` when the lengths do not fit: the rows were intact, so another program wrote them.
    pub(crate) fn decode(status: u16, mut bytes: Bytes) -> Option<Self> {
        let count = bytes.try_get_u32_le().ok()?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = part(&mut bytes)?;
            let value = part(&mut bytes)?;
            fields.push((name, value));
        }
        Some(Self {
            status,
            fields,
            body: bytes,
        })
    }
}

fn part(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// A response is at most a message long, far below `u32::MAX`.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_reads_back_and_a_cut_one_never_panics() {
        let response = Response {
            status: 201,
            fields: vec![
                (Bytes::from("x-item"), Bytes::from("a")),
                (Bytes::from("x-item"), Bytes::new()),
            ],
            body: Bytes::from_static(&[0, 255, 10, 13]),
        };
        let bytes = response.encode();
        assert_eq!(bytes.len(), response.encoded_bytes());
        assert_eq!(Response::decode(201, bytes.clone()), Some(response));
        for cut in 0..bytes.len() - 4 {
            assert_eq!(Response::decode(201, bytes.slice(..cut)), None);
        }
    }
}
