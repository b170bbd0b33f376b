//! Is the data file whole enough to be mapped?
//!
//! LMDB maps the file and trusts its header: on a file that was cut off, a read ends the process by SIGBUS. So the
//! header is read as a file first, and the end of the last page in use is compared with the file's size.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use crate::error::OpenError;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
/// Offsets in a meta page of LMDB 0.9, written little-endian on the machines that the store runs on.
const MAGIC_AT: usize = 16;
const VERSION_AT: usize = 20;
const PAGE_BYTES_AT: usize = 40;
const LAST_PAGE_AT: usize = 136;
const TXN_AT: usize = 144;
const META_BYTES: usize = 152;

/// What one meta page says.
struct Meta {
    page_bytes: u64,
    last_page: u64,
    txn: u64,
}

/// Checks the header of the data file against its size.
pub(crate) fn check(path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io {
        what: "read its header",
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    let found_bytes = file.metadata().map_err(io)?.len();
    let first = meta(&mut file, path, 0)?;
    let second = meta(&mut file, path, first.page_bytes)?;
    let newest = if second.txn > first.txn {
        second
    } else {
        first
    };
    let pages = newest.last_page.saturating_add(1);
    let expected_bytes = pages.saturating_mul(newest.page_bytes);
    if found_bytes < expected_bytes {
        return Err(OpenError::Truncated {
            path: path.to_owned(),
            expected_bytes,
            found_bytes,
        });
    }
    Ok(())
}

fn meta(file: &mut File, path: &Path, at: u64) -> Result<Meta, OpenError> {
    let not_data = |found: String| OpenError::NotData {
        path: path.to_owned(),
        found,
    };
    let mut page = [0; META_BYTES];
    let read = file
        .seek(SeekFrom::Start(at))
        .and_then(|_| file.read_exact(&mut page));
    match read {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(not_data(format!(
                "it ends before its meta page at byte {at}"
            )));
        }
        Err(source) => {
            return Err(OpenError::Io {
                what: "read its header",
                path: path.to_owned(),
                source,
            });
        }
    }
    let magic = u32_at(&page, MAGIC_AT);
    let version = u32_at(&page, VERSION_AT);
    if (magic, version) != (MAGIC, VERSION) {
        return Err(not_data(format!(
            "expected LMDB's magic {MAGIC:#x} and version {VERSION} in its meta page at byte {at}, \
             found {magic:#x} and {version}"
        )));
    }
    let page_bytes = u64::from(u32_at(&page, PAGE_BYTES_AT));
    if !page_bytes.is_power_of_two() || !(512..=65_536).contains(&page_bytes) {
        return Err(not_data(format!("a page size of {page_bytes} bytes")));
    }
    Ok(Meta {
        page_bytes,
        last_page: u64_at(&page, LAST_PAGE_AT),
        txn: u64_at(&page, TXN_AT),
    })
}

fn u32_at(page: &[u8; META_BYTES], at: usize) -> u32 {
    let bytes = page[at..].first_chunk();
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(page: &[u8; META_BYTES], at: usize) -> u64 {
    let bytes = page[at..].first_chunk();
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
