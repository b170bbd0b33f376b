//! How do replies leave on a stream?
//!
//! Two threads send: the runtime's acknowledges, the writer's answers. One lock a stream keeps `received` in order
//! between them. What a caller does not read is bounded in bytes; beyond, its stream ends.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use porch_wire::{Replies, Reply};
use prost::Message as _;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
};
use tokio_stream::Stream;
use tonic::Status;

use crate::desk::{GROUP_BYTES_MAX, received};

/// Bytes of replies that wait to be read on one stream.
const UNREAD_BYTES_MAX: usize = 64 << 20;

type Item = (usize, Result<Replies, Status>);

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    sender: UnboundedSender<Item>,
    unread_bytes: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls messages that have come.
    received: u64,
    /// Calls that have no answer yet.
    unanswered: usize,
    /// No more calls will come.
    read_to_end: bool,
    reader: Option<AbortHandle>,
}

/// What is left to do for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It goes on.
    On,
    /// All is said, or nobody listens.
    Over,
}

impl Life {
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }
}

/// The receiving half: what tonic sends.
#[derive(Debug)]
pub(crate) struct ReplyStream {
    receiver: UnboundedReceiver<Item>,
    unread_bytes: Arc<AtomicUsize>,
}

/// A new stream.
pub(crate) fn open() -> (Outlet, ReplyStream) {
    let (sender, receiver) = unbounded_channel();
    let unread_bytes = Arc::new(AtomicUsize::new(0));
    let outlet = Outlet {
        sender,
        unread_bytes: Arc::clone(&unread_bytes),
        state: Mutex::default(),
    };
    let replies = ReplyStream {
        receiver,
        unread_bytes,
    };
    (outlet, replies)
}

impl Outlet {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acknowledges a Calls message, with the answers that are there; `waiting` more are to come.
    ///
    /// The message counts before its calls are put in ([`Outlet::expect`]), so an answer that overtakes this finds
    /// them expected.
    pub(crate) fn acknowledge(&self, replies: Vec<Reply>) -> Life {
        let state = self.state();
        self.send(state.received, replies)
    }

    /// A Calls message has come, with so many calls.
    pub(crate) fn expect(&self, calls: usize) {
        let mut state = self.state();
        state.received += 1;
        state.unanswered += calls;
    }

    /// So many of the calls were answered in the acknowledgement.
    pub(crate) fn answered(&self, calls: usize) {
        self.state().unanswered -= calls;
    }

    /// Sends answers that came with a batch.
    pub(crate) fn answer(&self, replies: Vec<Reply>) -> Life {
        let mut state = self.state();
        state.unanswered = state.unanswered.saturating_sub(replies.len());
        let over = state.read_to_end && state.unanswered == 0;
        match self.send(state.received, replies) {
            Life::On if !over => Life::On,
            Life::On | Life::Over => Life::Over,
        }
    }

    /// The caller has said its last call.
    pub(crate) fn read_to_end(&self) -> Life {
        let mut state = self.state();
        state.read_to_end = true;
        if state.unanswered == 0 {
            Life::Over
        } else {
            Life::On
        }
    }

    /// Ends the stream with an error.
    pub(crate) fn fail(&self, status: Status) {
        // A closed stream needs no reason.
        drop(self.sender.send((0, Err(status))));
    }

    /// Who reads the calls: it only ever waits between two messages, so it may be stopped at any time.
    pub(crate) fn read_by(&self, reader: AbortHandle) {
        self.state().reader = Some(reader);
    }

    pub(crate) fn stop_reading(&self) {
        if let Some(reader) = self.state().reader.take() {
            reader.abort();
        }
    }

    fn send(&self, received_messages: u64, replies: Vec<Reply>) -> Life {
        let mut group = received(received_messages);
        let mut bytes = 0;
        for reply in replies {
            let more = reply.encoded_len();
            if bytes + more > GROUP_BYTES_MAX && !group.reply.is_empty() {
                let full = std::mem::replace(&mut group, received(received_messages));
                if self.push(bytes, full).is_over() {
                    return Life::Over;
                }
                bytes = 0;
            }
            bytes += more;
            group.reply.push(reply);
        }
        self.push(bytes, group)
    }

    fn push(&self, bytes: usize, replies: Replies) -> Life {
        let unread = self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
        if unread > UNREAD_BYTES_MAX {
            self.fail(Status::resource_exhausted(format!(
                "expected replies to be read, came {unread} bytes that wait"
            )));
            return Life::Over;
        }
        match self.sender.send((bytes, Ok(replies))) {
            Ok(()) => Life::On,
            Err(_) => Life::Over,
        }
    }
}

impl Stream for ReplyStream {
    type Item = Result<Replies, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.receiver.poll_recv(context));
        Poll::Ready(item.map(|(bytes, replies)| {
            self.unread_bytes.fetch_sub(bytes, Ordering::Relaxed);
            replies
        }))
    }
}
