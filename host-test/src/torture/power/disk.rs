//! Which states may a disk be in after a power loss?
//!
//! What was flushed is there. Of what was not, a disk may have any part: each sector of 512 bytes, or each page of 4 KiB, is
//! there or not, in whatever order. The file may have grown without what was to be in it.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::recording::{Event, What};

const SECTOR: usize = 512;
const PAGE: usize = 4_096;

/// What the disk makes of the writes that it may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// None of them arrived.
    All,
    /// All arrived: then the newest is there, and nobody was told.
    Nothing,
    /// The last ones did not.
    Suffix,
    /// The first ones did not: reordered.
    Prefix,
    /// Each whole, or not.
    Some,
    /// Each page of 4 KiB, or not.
    TornAtPages,
    /// Each sector of 512 bytes, or not.
    TornAtSectors,
}

impl Loss {
    const EACH: [Self; 7] = [
        Self::All,
        Self::Nothing,
        Self::Suffix,
        Self::Prefix,
        Self::Some,
        Self::TornAtPages,
        Self::TornAtSectors,
    ];

    /// The `n`-th kind, round and round.
    pub(super) fn nth(n: usize) -> Self {
        Self::EACH[n % Self::EACH.len()]
    }
}

/// The disk after a power loss.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The data file.
    pub(super) file: Vec<u8>,
    /// The marker file is there.
    pub(super) marker: bool,
}

/// The state after the power went away while call `cut` was under way: those before it had returned. `forget` are calls that
/// a lying disk has lost though it had said that they are flushed: none, but to see that a check notices.
pub(super) fn after(
    events: &[Event],
    cut: usize,
    loss: Loss,
    forget: &[usize],
    source: &mut StdRng,
) -> State {
    let mut state = State::default();
    let mut pending: Vec<(usize, &[u8])> = Vec::new();
    for (at, event) in events[..cut].iter().enumerate() {
        if forget.contains(&at) {
            continue;
        }
        match &event.what {
            What::Write { at, bytes } => pending.push((*at, bytes)),
            What::Durable { at, bytes } => state.write(*at, bytes),
            What::Flush => pending
                .drain(..)
                .for_each(|(at, bytes)| state.write(at, bytes)),
            What::Marker => state.marker = true,
        }
    }
    if let Some(Event {
        what: What::Write { at, bytes } | What::Durable { at, bytes },
        ..
    }) = events.get(cut)
    {
        pending.push((*at, bytes));
    }
    if source.random() {
        // The file's length is there before its content.
        let end = pending.iter().map(|(at, bytes)| at + bytes.len()).max();
        state.grow(end.unwrap_or(0));
    }
    lose(&mut state, &pending, loss, source);
    state
}

fn lose(state: &mut State, pending: &[(usize, &[u8])], loss: Loss, source: &mut StdRng) {
    let split = source.random_range(0..=pending.len());
    for (n, (at, bytes)) in pending.iter().enumerate() {
        match loss {
            Loss::Nothing => state.write(*at, bytes),
            Loss::Suffix if n < split => state.write(*at, bytes),
            Loss::Prefix if n >= split => state.write(*at, bytes),
            Loss::All | Loss::Suffix | Loss::Prefix => {}
            Loss::Some => {
                if source.random() {
                    state.write(*at, bytes);
                }
            }
            Loss::TornAtPages => tear(state, *at, bytes, PAGE, source),
            Loss::TornAtSectors => tear(state, *at, bytes, SECTOR, source),
        }
    }
}

/// Writes each piece that lies between two multiples of `unit`, or not.
fn tear(state: &mut State, at: usize, bytes: &[u8], unit: usize, source: &mut StdRng) {
    let mut from = 0;
    while from < bytes.len() {
        let to = ((at + from) / unit + 1) * unit - at;
        let to = to.min(bytes.len());
        if source.random() {
            state.write(at + from, &bytes[from..to]);
        }
        from = to;
    }
}

impl State {
    fn grow(&mut self, end: usize) {
        if self.file.len() < end {
            self.file.resize(end, 0);
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.grow(end);
        self.file[at..end].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::torture::draw;

    fn event(what: What) -> Event {
        Event {
            returned: Duration::ZERO,
            what,
        }
    }

    fn write(at: usize, byte: u8, length: usize) -> Event {
        event(What::Write {
            at,
            bytes: vec![byte; length],
        })
    }

    #[test]
    fn what_was_flushed_is_there_and_the_rest_is_torn_only_between_sectors() {
        let events = [
            write(0, 1, 4_096),
            event(What::Flush),
            write(0, 2, 4_096),
            write(4_096, 3, 8_192),
        ];
        let mut source = draw::source(1, 1);
        let mut kinds = [0, 0];
        for n in 0..200 {
            let state = after(&events, 3, Loss::nth(n), &[], &mut source);
            for sector in state.file.chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "{sector:?}");
            }
            assert!(state.file[..4_096].iter().all(|byte| [1, 2].contains(byte)));
            kinds[0] += usize::from(state.file.len() == 4_096);
            kinds[1] += usize::from(state.file.len() == 12_288);
        }
        assert!(kinds.iter().all(|seen| *seen > 10), "{kinds:?}");
    }

    #[test]
    fn a_durable_write_that_has_returned_is_always_there() {
        let durable = event(What::Durable {
            at: 0,
            bytes: vec![7; 100],
        });
        let events = [durable, write(0, 9, 0)];
        let mut source = draw::source(1, 2);
        let lost = |cut, source: &mut StdRng| {
            let state = after(&events, cut, Loss::All, &[], source);
            !state.file.starts_with(&[7])
        };
        assert!(!lost(1, &mut source));
        assert!(lost(0, &mut source));
        assert!(
            after(&events, 2, Loss::All, &[0], &mut source)
                .file
                .is_empty()
        );
    }
}
