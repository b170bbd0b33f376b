//! One worker's channel to the store: when a call is sent, sent again, or given up.
//!
//! Like an exchange, it does no I/O: an adapter tells it what happened to the stream and carries out its
//! [`Command`]s in order. It never looks into a call: the adapter encodes calls, and batches are their bytes in a row.
//!
//! * **Batches form by themselves.** A call is sent at once while fewer than two messages are unacknowledged; else it
//!   queues, and an acknowledgement flushes what has queued. Claims, completions and abandons never queue.
//! * **A store that hangs is noticed** when the oldest unacknowledged message is older than the timeout: the stream is
//!   closed, and until a new one acknowledges, calls that are sent at most once fail at once.
//! * **What may be sent twice is**, on each new stream, until it is answered or its time is over.

use std::collections::{BTreeMap, VecDeque};

use crate::store::Bucket;
use crate::time::Timestamp;

/// Unanswered calls, at most; beyond, a call fails at once.
pub const CALLS_MAX: usize = 65_536;
/// Unacknowledged abandons, at most; beyond, the lease decides.
pub const ABANDONS_MAX: usize = 8_192;
/// Bytes that wait for an acknowledgement, at most; beyond, a call that would wait fails at once.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// Messages that may be unacknowledged before calls queue.
const UNACKNOWLEDGED_MAX: usize = 2;
/// A batch that is sent again is cut at this size.
const RESEND_BYTES_MAX: usize = 128 * 1024;
/// How long a completion is sent again.
const COMPLETE_MS_MAX: u64 = 600_000;
/// How soon an operation that the store could not take is sent again, or a stream reopened at first.
const RETRY_MS: u64 = 50;
/// How long a stream that never acknowledged is left to try: what cannot be reached is closed by the proxy.
const PROBE_MS: u64 = 5_000;
/// How late a stream is reopened, at last.
const BACKOFF_MS_MAX: u64 = 1_000;

/// A call's id, unique in the channel's life.
pub type CallId = u64;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An exchange, by the adapter's name for it.
    Exchange(u32),
    /// The debt of a bucket.
    Debt(Bucket),
    /// Nobody.
    Nobody,
}

/// What a call promises, and so how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sent at most once; it may wait for its batch. Fails after the timeout. Admits and refunds; and charges, which
    /// their owner makes anew.
    Once,
    /// Sent again on each new stream. Fails when it has waited so long, and the timeout on top.
    Claim {
        /// How long the store may keep it waiting, in milliseconds.
        wait_ms: u64,
    },
    /// Sent again until it is acknowledged, at most 10 minutes. Its owner is told of a failure after the timeout.
    Complete,
    /// Sent again until it is acknowledged or its lease is over. Its owner is told of a failure after the timeout.
    Abandon {
        /// The claim's lease, in milliseconds.
        lease_ms: u64,
    },
}

/// The way a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// In a batch on the stream.
    Stream,
    /// By itself, so that a large body does not block the stream.
    Invoke,
}

/// A call as it is handed to the channel.
#[derive(Clone, Copy, Debug)]
pub struct NewCall {
    /// From [`Channel::next_id`].
    pub id: CallId,
    /// Who is told of its failure.
    pub owner: Owner,
    /// What it promises.
    pub kind: Kind,
    /// The way it takes.
    pub via: Via,
}

/// What the adapter is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Open a stream; then tell [`Channel::opened`] or [`Channel::closed`].
    Open,
    /// Send a message on the stream; tell [`Channel::closed`] when that cannot be done.
    Send(Vec<u8>),
    /// Close the stream: its store hangs.
    Close,
    /// Send a call by itself; tell [`Channel::invoke_failed`] when no reply comes.
    Invoke(CallId, Vec<u8>),
    /// A call failed.
    Failed {
        /// Whose it was.
        owner: Owner,
        /// It was put on a stream: the store may have seen it.
        sent: bool,
    },
    /// A completion or an abandon was never acknowledged: the lease decides.
    Lost,
    /// A message was acknowledged so many milliseconds after it was sent.
    Acknowledged(u64),
}

/// A call that was not taken: there is no store, or no room. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTaken;

/// One worker's channel to the store.
#[derive(Debug)]
pub struct Channel {
    timeout_ms: u64,
    hello: Vec<u8>,
    link: Link,
    /// The last stream did not fail, or the present one has acknowledged.
    trusted: bool,
    backoff_ms: u64,
    last_id: CallId,
    calls: BTreeMap<CallId, Call>,
    queue: Vec<u8>,
    queued: Vec<CallId>,
    abandons: usize,
    retained_bytes: usize,
}

#[derive(Debug)]
enum Link {
    Down {
        reopen_at: Timestamp,
    },
    Up {
        acknowledged: u64,
        unacknowledged: VecDeque<Timestamp>,
    },
}

#[derive(Debug)]
struct Call {
    owner: Option<Owner>,
    kind: Kind,
    via: Via,
    /// Kept of calls that may be sent again; else empty.
    bytes: Vec<u8>,
    state: Sending,
    /// It was put on a stream, once or more.
    sent: bool,
    tell_at: Timestamp,
    end_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// In the queue, or for the next stream.
    Waiting,
    /// On its way, or with the store.
    Out,
    /// The store could not take it: to be sent again.
    Again { at: Timestamp },
}

impl Channel {
    /// A channel that opens its stream at the first [`Self::tick`]. `hello` is each stream's first message.
    pub fn new(timeout_ms: u64, hello: Vec<u8>) -> Self {
        Self {
            timeout_ms,
            hello,
            link: Link::Down {
                reopen_at: Timestamp::default(),
            },
            trusted: true,
            backoff_ms: RETRY_MS,
            last_id: 0,
            calls: BTreeMap::new(),
            queue: Vec::new(),
            queued: Vec::new(),
            abandons: 0,
            retained_bytes: 0,
        }
    }

    /// The id for the next call, to be encoded in it.
    pub fn next_id(&mut self) -> CallId {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    /// Whether the store is believed to be there.
    pub fn is_trusted(&self) -> bool {
        self.trusted && matches!(self.link, Link::Up { .. })
    }

    /// Bytes that are kept for completions and abandons.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Whether completions or abandons are still unacknowledged.
    pub fn is_settling(&self) -> bool {
        self.calls
            .values()
            .any(|call| matches!(call.kind, Kind::Complete | Kind::Abandon { .. }))
    }

    /// Takes a call that was encoded, with its id, to `bytes`.
    ///
    /// # Errors
    /// [`NotTaken`] when it cannot be sent now and may not be sent later, or a bound is reached.
    pub fn call(
        &mut self,
        new: NewCall,
        bytes: &[u8],
        now: Timestamp,
        commands: &mut Vec<Command>,
    ) -> Result<(), NotTaken> {
        let NewCall {
            id,
            owner,
            kind,
            via,
        } = new;
        if self.calls.len() >= CALLS_MAX {
            return Err(NotTaken);
        }
        let wait_ms = match kind {
            Kind::Claim { wait_ms } => wait_ms,
            Kind::Once | Kind::Complete | Kind::Abandon { .. } => 0,
        };
        let tell_at = now.after_ms(wait_ms).after_ms(self.timeout_ms);
        let end_at = match kind {
            Kind::Once | Kind::Claim { .. } => tell_at,
            Kind::Complete => now.after_ms(COMPLETE_MS_MAX),
            Kind::Abandon { lease_ms } => now.after_ms(lease_ms),
        };
        let kept = match kind {
            Kind::Once => {
                let up = matches!(self.link, Link::Up { .. });
                if !up || !self.trusted || self.queue.len() >= QUEUE_BYTES_MAX {
                    return Err(NotTaken);
                }
                Vec::new()
            }
            Kind::Claim { .. } | Kind::Complete => bytes.to_vec(),
            Kind::Abandon { .. } if self.abandons >= ABANDONS_MAX => return Err(NotTaken),
            Kind::Abandon { .. } => {
                self.abandons = self.abandons.saturating_add(1);
                bytes.to_vec()
            }
        };
        if matches!(kind, Kind::Complete | Kind::Abandon { .. }) {
            self.retained_bytes = self.retained_bytes.saturating_add(kept.len());
        }
        let mut call = Call {
            owner: Some(owner),
            kind,
            via,
            bytes: kept,
            state: Sending::Waiting,
            sent: false,
            tell_at,
            end_at,
        };
        match via {
            Via::Invoke => {
                call.sent = true;
                call.state = Sending::Out;
                commands.push(Command::Invoke(id, bytes.to_vec()));
                self.calls.insert(id, call);
            }
            Via::Stream => {
                self.calls.insert(id, call);
                if matches!(self.link, Link::Up { .. }) {
                    self.queue.extend_from_slice(bytes);
                    self.queued.push(id);
                    self.flush(kind != Kind::Once, now, commands);
                }
            }
        }
        Ok(())
    }

    /// Gives up a call whose owner is gone. True when the store may have seen it.
    pub fn give_up(&mut self, owner: Owner) -> bool {
        let mine =
            |call: &Call| call.owner == Some(owner) && matches!(call.kind, Kind::Claim { .. });
        let ids: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, call)| mine(call))
            .map(|(id, _)| *id)
            .collect();
        let mut sent = false;
        for id in ids {
            sent |= self.remove(id).is_some_and(|call| call.sent);
        }
        sent
    }

    /// The stream that was asked for is there: what waits is sent.
    pub fn opened(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        self.link = Link::Up {
            acknowledged: 0,
            unacknowledged: VecDeque::from([now]),
        };
        commands.push(Command::Send(self.hello.clone()));
        self.send_again(now, commands);
    }

    /// The stream is gone, or could not be opened.
    pub fn closed(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        if matches!(self.link, Link::Down { .. }) && !self.trusted {
            self.link = Link::Down {
                reopen_at: now.after_ms(self.backoff_ms),
            };
            self.backoff_ms = self.backoff_ms.saturating_mul(2).min(BACKOFF_MS_MAX);
            return;
        }
        self.trusted = false;
        self.link = Link::Down {
            reopen_at: now.after_ms(self.backoff_ms),
        };
        self.backoff_ms = self.backoff_ms.saturating_mul(2).min(BACKOFF_MS_MAX);
        self.queue.clear();
        self.queued.clear();
        let mut lost = Vec::new();
        for (id, call) in &mut self.calls {
            match (call.via, call.kind) {
                (Via::Stream, Kind::Once) => lost.push(*id),
                (Via::Stream, Kind::Claim { .. } | Kind::Complete | Kind::Abandon { .. }) => {
                    call.state = Sending::Waiting;
                }
                (Via::Invoke, _) => {}
            }
        }
        for id in lost {
            self.fail(id, commands);
        }
    }

    /// A message came on the stream: so many of ours were received, in all. To be told before its replies are.
    pub fn received(&mut self, messages: u64, now: Timestamp, commands: &mut Vec<Command>) {
        let Link::Up {
            acknowledged,
            unacknowledged,
        } = &mut self.link
        else {
            return;
        };
        while *acknowledged < messages
            && let Some(sent) = unacknowledged.pop_front()
        {
            commands.push(Command::Acknowledged(now.ms_since(sent)));
            *acknowledged = acknowledged.saturating_add(1);
        }
        if *acknowledged > 0 {
            self.trusted = true;
            self.backoff_ms = RETRY_MS;
        }
        self.flush(false, now, commands);
    }

    /// A call was answered. Whose it is, if anyone still waits.
    pub fn answered(&mut self, id: CallId) -> Option<Owner> {
        self.remove(id)?.owner
    }

    /// The store could not take a call now. True when it will be sent again; false when it is to be taken as answered.
    pub fn refused_for_now(&mut self, id: CallId, now: Timestamp) -> bool {
        match self.calls.get_mut(&id) {
            Some(call) if call.kind != Kind::Once => {
                call.state = Sending::Again {
                    at: now.after_ms(RETRY_MS),
                };
                true
            }
            Some(_) | None => false,
        }
    }

    /// A call that was sent by itself got no reply.
    pub fn invoke_failed(&mut self, id: CallId, now: Timestamp) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.state = Sending::Again {
                at: now.after_ms(RETRY_MS),
            };
        }
    }

    /// Time has passed: to be told a few times within the timeout.
    pub fn tick(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        let hangs = match &self.link {
            Link::Up {
                acknowledged,
                unacknowledged,
            } => {
                let patience_ms = if *acknowledged == 0 {
                    PROBE_MS.max(self.timeout_ms)
                } else {
                    self.timeout_ms
                };
                unacknowledged
                    .front()
                    .is_some_and(|sent| now.ms_since(*sent) > patience_ms)
            }
            Link::Down { .. } => false,
        };
        if hangs {
            commands.push(Command::Close);
            self.closed(now, commands);
        }
        let due: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, call)| call.is_due(now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.expire(id, now, commands);
        }
        match self.link {
            Link::Down { reopen_at } if reopen_at <= now => commands.push(Command::Open),
            Link::Down { .. } => {}
            Link::Up { .. } => self.send_again(now, commands),
        }
        self.invoke_again(now, commands);
    }

    fn expire(&mut self, id: CallId, now: Timestamp, commands: &mut Vec<Command>) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        match call.kind {
            Kind::Once | Kind::Claim { .. } => self.fail(id, commands),
            Kind::Complete | Kind::Abandon { .. } => {
                if let Some(owner) = call.owner.take() {
                    commands.push(Command::Failed {
                        owner,
                        sent: call.sent,
                    });
                }
                if call.end_at <= now {
                    self.remove(id);
                    commands.push(Command::Lost);
                }
            }
        }
    }

    fn fail(&mut self, id: CallId, commands: &mut Vec<Command>) {
        if let Some(Call {
            owner: Some(owner),
            sent,
            ..
        }) = self.remove(id)
        {
            commands.push(Command::Failed { owner, sent });
        }
    }

    fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        match call.kind {
            Kind::Once | Kind::Claim { .. } => {}
            Kind::Complete => {
                self.retained_bytes = self.retained_bytes.saturating_sub(call.bytes.len());
            }
            Kind::Abandon { .. } => {
                self.retained_bytes = self.retained_bytes.saturating_sub(call.bytes.len());
                self.abandons = self.abandons.saturating_sub(1);
            }
        }
        Some(call)
    }

    fn send_again(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        let ids: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(id, call)| {
                call.via == Via::Stream && call.is_to_be_sent(now) && !self.queued.contains(id)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            if let Some(call) = self.calls.get(&id) {
                self.queue.extend_from_slice(&call.bytes);
                self.queued.push(id);
            }
            if self.queue.len() >= RESEND_BYTES_MAX {
                self.flush(true, now, commands);
            }
        }
        let urgent = self.queued.iter().any(|id| {
            self.calls
                .get(id)
                .is_some_and(|call| call.kind != Kind::Once)
        });
        self.flush(urgent, now, commands);
    }

    fn invoke_again(&mut self, now: Timestamp, commands: &mut Vec<Command>) {
        for (id, call) in &mut self.calls {
            if call.via == Via::Invoke && call.is_to_be_sent(now) {
                call.state = Sending::Out;
                commands.push(Command::Invoke(*id, call.bytes.clone()));
            }
        }
    }

    fn flush(&mut self, urgent: bool, now: Timestamp, commands: &mut Vec<Command>) {
        let Link::Up { unacknowledged, .. } = &mut self.link else {
            return;
        };
        if self.queue.is_empty() || (unacknowledged.len() >= UNACKNOWLEDGED_MAX && !urgent) {
            return;
        }
        unacknowledged.push_back(now);
        for id in self.queued.drain(..) {
            if let Some(call) = self.calls.get_mut(&id) {
                call.sent = true;
                call.state = Sending::Out;
            }
        }
        commands.push(Command::Send(std::mem::take(&mut self.queue)));
    }
}

impl Call {
    fn is_due(&self, now: Timestamp) -> bool {
        self.end_at <= now || (self.owner.is_some() && self.tell_at <= now)
    }

    fn is_to_be_sent(&self, now: Timestamp) -> bool {
        match self.state {
            Sending::Waiting => self.kind != Kind::Once,
            Sending::Out => false,
            Sending::Again { at } => at <= now,
        }
    }
}

#[cfg(test)]
mod tests;
