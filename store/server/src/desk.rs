//! Where do the runtime's thread and the writer's thread meet?
//!
//! The front stands behind one lock that is only ever held for work in memory. The runtime's thread puts calls in;
//! the writer takes a batch, and brings back what came of it. Who waits for an answer is known by stream, so an
//! answer finds its way, or finds nobody, whatever became of the task that asked.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hashbrown::HashMap;
use porch_engine::{Answer, Caller, Clock, Front, Limits, Outcome};
use porch_wire::Replies;
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};
use tonic::Status;

use crate::{
    metrics::Metrics,
    outlet::{self, Outlet, ReplyStream},
    reply,
};

/// The front, and those who wait.
#[derive(Debug)]
pub(crate) struct Desk {
    front: Mutex<Front>,
    /// Told when there is work for the writer.
    work: Condvar,
    /// Told when claims were parked.
    parked: Notify,
    clock: Clock,
    waiters: Mutex<Waiters>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Waiters {
    last: u64,
    streams: HashMap<u64, Arc<Outlet>>,
    single: HashMap<u64, oneshot::Sender<Outcome>>,
}

/// When a call by itself was answered.
#[derive(Debug)]
pub(crate) enum Answered<T> {
    /// As it was put in.
    AtOnce(T),
    /// With a batch.
    Later(Outcome),
}

impl Desk {
    pub(crate) fn new(limits: Limits, clock: Clock, metrics: Metrics) -> Self {
        Self {
            front: Mutex::new(Front::new(limits)),
            work: Condvar::new(),
            parked: Notify::new(),
            clock,
            waiters: Mutex::default(),
            metrics,
        }
    }

    /// What is counted.
    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Streams that are open.
    pub(crate) fn channels(&self) -> usize {
        self.waiters().streams.len()
    }

    /// The logical time, in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// A panic ends the process (`serve` sees to it), so a poisoned lock is never met.
    pub(crate) fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts calls in, and wakes the writer when they left work.
    pub(crate) fn with_front<T>(&self, calls: impl FnOnce(&mut Front) -> T) -> T {
        let mut front = self.front();
        let done = calls(&mut front);
        if front.has_work() {
            self.work.notify_one();
        }
        done
    }

    /// Waits until there is work or the front is closed.
    pub(crate) fn wait<'a>(&self, front: MutexGuard<'a, Front>) -> MutexGuard<'a, Front> {
        self.work
            .wait(front)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses new calls; what was taken in is still answered.
    pub(crate) fn close(&self) {
        for outlet in self.waiters().streams.values() {
            outlet.stop_reading();
        }
        let mut answers = Vec::new();
        self.front().close(&mut answers);
        self.deliver(&mut answers);
        self.work.notify_one();
    }

    /// Tells [`Desk::keep_parked`] that another claim may be due first.
    pub(crate) fn look_at_parked(&self) {
        self.parked.notify_one();
    }

    /// Lets claims that wait for another go when their time has come. Never ends.
    pub(crate) async fn keep_parked(&self) {
        loop {
            let next_ms = self.front().next_due_ms();
            let changed = self.parked.notified();
            match next_ms.map(|due_ms| due_ms.saturating_sub(self.now_ms())) {
                None => changed.await,
                Some(0) => {
                    let now_ms = self.now_ms();
                    let mut answers = Vec::new();
                    self.with_front(|front| front.expire(now_ms, &mut answers));
                    self.deliver(&mut answers);
                }
                Some(wait_ms) => {
                    let wait = Duration::from_millis(wait_ms);
                    // Either is a reason to look again.
                    drop(timeout(wait, changed).await);
                }
            }
        }
    }

    /// A stream of many calls.
    pub(crate) fn open_stream(&self) -> (u64, Arc<Outlet>, ReplyStream) {
        let (outlet, replies) = outlet::open();
        let outlet = Arc::new(outlet);
        let mut waiters = self.waiters();
        waiters.last += 1;
        let stream = waiters.last;
        waiters.streams.insert(stream, Arc::clone(&outlet));
        (stream, outlet, replies)
    }

    /// Nobody reads the stream's replies any more.
    pub(crate) fn close_stream(&self, stream: u64) {
        self.waiters().streams.remove(&stream);
        self.front().stream_closed(stream);
    }

    /// One call by itself: puts it in and waits for its answer. The call is carried out also when this future is
    /// dropped.
    ///
    /// # Errors
    /// UNAVAILABLE when the store ends before it has answered.
    pub(crate) async fn ask<T>(
        &self,
        call: impl FnOnce(&mut Front, Caller) -> Option<T>,
    ) -> Result<Answered<T>, Status> {
        let (sender, receiver) = oneshot::channel();
        let stream = {
            let mut waiters = self.waiters();
            waiters.last += 1;
            let stream = waiters.last;
            waiters.single.insert(stream, sender);
            stream
        };
        let caller = Caller { stream, call: 0 };
        if let Some(answer) = self.with_front(|front| call(front, caller)) {
            self.waiters().single.remove(&stream);
            return Ok(Answered::AtOnce(answer));
        }
        let later = receiver.await;
        later
            .map(Answered::Later)
            .map_err(|_| Status::unavailable("the store ended before it had answered"))
    }

    /// Hands out the answers of a batch, one message a stream.
    pub(crate) fn deliver(&self, answers: &mut Vec<Answer>) {
        answers.sort_by_key(|answer| answer.caller.stream);
        let mut answers = answers.drain(..).peekable();
        while let Some(Answer { caller, outcome }) = answers.next() {
            let stream = caller.stream;
            let mut waiters = self.waiters();
            if let Some(single) = waiters.single.remove(&stream) {
                // Who asked may have gone; the work is done all the same.
                drop(single.send(outcome));
                continue;
            }
            let outlet = waiters.streams.get(&stream).map(Arc::clone);
            drop(waiters);
            let mut replies = vec![reply::reply(caller.call, outcome)];
            while let Some(answer) = answers.next_if(|answer| answer.caller.stream == stream) {
                replies.push(reply::reply(answer.caller.call, answer.outcome));
            }
            for reply in &replies {
                self.metrics.answered_in(reply);
            }
            if let Some(outlet) = outlet
                && outlet.answer(replies).is_over()
            {
                self.close_stream(stream);
            }
        }
    }

    /// Ends all streams: nothing more will be answered.
    pub(crate) fn end(&self) {
        let mut waiters = self.waiters();
        waiters.streams.clear();
        waiters.single.clear();
    }
}

/// How much of a message a group of replies may take: well below what either side accepts.
pub(crate) const GROUP_BYTES_MAX: usize = porch_wire::MESSAGE_BYTES_MAX / 4;

/// An empty acknowledgement.
pub(crate) const fn received(received: u64) -> Replies {
    Replies {
        received,
        reply: Vec::new(),
    }
}
