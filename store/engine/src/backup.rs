//! How is the file copied while the store runs?
//!
//! LMDB writes a compact copy, as of one moment, into a pipe; whoever reads the pipe decides how fast and for how
//! long. When the reading end is closed, LMDB's write fails and its transaction ends.

use std::{
    fs::File,
    io::{self, Read as _},
    ops::ControlFlow,
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use heed::CompactionOption;

use crate::{
    reader::{Deadline, ReadError, Reader},
    usage::Usage,
};

/// The most bytes that are handed on at once.
const PIECE_BYTES_MAX: usize = 256 * 1024;

impl Reader {
    /// Copies the file, compacted, as it is at one moment. `piece` takes the copy in order, with about how many bytes
    /// it will have; it may break off. Answers how many bytes the copy has.
    ///
    /// # Errors
    /// [`ReadError`]; then what `piece` has taken is of no use.
    pub fn backup(
        &self,
        limit: Option<Duration>,
        mut piece: impl FnMut(&[u8], u64) -> ControlFlow<()>,
    ) -> Result<u64, ReadError> {
        let reading = self.begin()?;
        let deadline = Deadline::new(limit);
        let expected_bytes = self.expected_bytes()?;
        let (mut from, to) = io::pipe().map_err(io("make a pipe"))?;
        let env = self.env.clone();
        let copy = thread::Builder::new()
            .name("backup".to_owned())
            .spawn(move || {
                // Over only when LMDB's transaction is.
                let _reading = reading;
                let mut to = File::from(OwnedFd::from(to));
                env.copy_to_file(&mut to, CompactionOption::Enabled)
            })
            .map_err(io("start the thread that copies"))?;

        let mut bytes = 0;
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        let ended = loop {
            if let Err(late) = deadline.check() {
                break Err(late);
            }
            match from.read(&mut buffer) {
                Ok(0) => break Ok(bytes),
                Ok(read) => {
                    bytes += read as u64;
                    if piece(&buffer[..read], expected_bytes.max(bytes)).is_break() {
                        break Err(ReadError::Gone);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(io("read the copy")(error)),
            }
        };
        drop(from);
        let copied = copy.join();
        let bytes = ended?;
        match copied {
            Ok(Ok(())) => Ok(bytes),
            Ok(Err(source)) => Err(self.lmdb("copy it")(source)),
            Err(_) => Err(io("copy the file")(io::Error::other(
                "the thread ended badly",
            ))),
        }
    }

    fn expected_bytes(&self) -> Result<u64, ReadError> {
        /// Two meta pages, and the pages that name the tables.
        const OVERHEAD_BYTES: u64 = 4 * 4_096;
        let lmdb = self.lmdb("count its pages");
        let txn = self.env.read_txn().map_err(&lmdb)?;
        let usage = Usage::read(&self.tables, &txn).map_err(&lmdb)?;
        Ok(usage.bytes() + OVERHEAD_BYTES)
    }
}

fn io(what: &'static str) -> impl Fn(io::Error) -> ReadError {
    move |source| ReadError::Io { what, source }
}
