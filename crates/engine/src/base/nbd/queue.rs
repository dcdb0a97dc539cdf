//! One thread's way to a server: its own connection, what is under way on it, and what goes out.
//!
//! Answers of the server are handled in [`replies`](super::replies).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_nbd::TransmissionFlags;
use cryptline_nbd::client::request;
use cryptline_nbd::wire::REQUEST_LEN;
use cryptline_net::{BatchedConnection, ConnectionEvent};
use cryptline_sys::{Buffer, Ring, SendBatch, Waker};
use rustix::net::Shutdown;

use super::NbdShared;
use super::again::{Down, is_put_off};
use super::pending::{Abilities, NbdPending};
use super::pool::{LeftConnection, Link};
use super::replies::ReplyIntake;
use crate::slab::Slab;
use crate::{Completion, Fault, Op, Queue, Request, Submitted};

/// A queue's own places on the ring: one to send, one to receive.
const PLACES: u32 = 2;
/// Most pieces of one batch: the kernel's limit for one message.
const PARTS_MAX: usize = 1024;

pub(super) struct NbdQueue {
    pub(super) shared: Arc<NbdShared>,
    /// Not there once the queue goes.
    pub(super) link: Option<Link>,
    pub(super) connection: BatchedConnection,
    pub(super) pending: Slab<NbdPending>,
    /// Requests whose next part is to be sent, in order.
    pub(super) waiting: VecDeque<usize>,
    /// Those whose payloads are in the batch, in order.
    sending: VecDeque<usize>,
    pub(super) intake: ReplyIntake,
    can: Abilities,
    next_cookie: u64,
    /// Changes that were sent so far, and those that were answered.
    changes: u64,
    /// The connection is of no use any more.
    pub(super) is_broken: bool,
    /// The server is about to end, and takes no more requests on this connection.
    pub(super) is_leaving: bool,
    /// Set once the connection was lost, and another is to take its place.
    pub(super) down: Option<Down>,
    /// Until when that is tried. From the loss on, until an answer comes.
    pub(super) until: Option<Instant>,
    /// Where it is tried at all.
    pub(super) waker: Option<Waker>,
}

impl Queue for NbdQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if let Some(result) = self.known(&request) {
            return Submitted::Done(request.complete(result));
        }
        if self.pending.is_full() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let was_idle = self.pending.is_empty();
        let pending = match NbdPending::new(request) {
            Ok(pending) => pending,
            Err(request) => return Submitted::Done(request.complete(Err(Fault::NotSupported))),
        };
        let Ok(index) = self.pending.insert(pending) else { unreachable!("there was a place") };
        self.waiting.push_back(index);
        if was_idle {
            self.confirm_server(ring);
            self.look_for_end(ring);
            self.send(ring);
            self.receive(ring);
        } else if !self.connection.is_sending() {
            // With the others that are about to be submitted, in one message.
            ring.stay_awake();
        }
        Submitted::Pending
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        while let Some(event) = self.connection.reap(ring) {
            match event {
                ConnectionEvent::Sent => self.note_sent(done),
                ConnectionEvent::Received => self.take_in(done),
                ConnectionEvent::ReceivedDirect(buffer, len) => self.received_direct(buffer, len, done),
            }
        }
        self.leave(done);
        self.recover(ring, done);
        if self.is_broken {
            self.fail_all(done);
        } else {
            self.send(ring);
            self.receive(ring);
        }
    }
}

impl NbdQueue {
    pub fn new(
        shared: &Arc<NbdShared>,
        mut link: Link,
        ring: &mut Ring,
        received: Buffer,
        waker: Option<Waker>,
    ) -> Self {
        let depth = ring.depth();
        ring.reserve(PLACES);
        let block = u64::from(shared.geometry.logical_block);
        let most_data = u64::from(shared.agreed.block_sizes.maximum).min(64 << 20);
        let can = Abilities {
            most_data: most_data - most_data % block,
            fua: shared.can(TransmissionFlags::SEND_FUA),
            writes_through: shared.writes_through(),
        };
        let parts = (2 * depth).min(PARTS_MAX);
        let batch = SendBatch::new(parts * REQUEST_LEN, parts);
        let bytes = (Arc::clone(&link.socket), link.records.take());
        Self {
            connection: BatchedConnection::new(ring, bytes, (received, 0), batch),
            link: Some(link),
            pending: Slab::new(depth),
            waiting: VecDeque::new(),
            sending: VecDeque::new(),
            intake: ReplyIntake::new(shared.agreed.structured_replies),
            shared: Arc::clone(shared),
            can,
            next_cookie: 0,
            changes: 0,
            is_broken: false,
            is_leaving: false,
            down: None,
            until: None,
            waker,
        }
    }

    /// How a request ends that needs no server.
    fn known(&self, request: &Request) -> Option<Result<(), Fault>> {
        if request.op.is_sync() && self.shared.is_lost() {
            return Some(Err(Fault::Latched));
        }
        if self.is_broken {
            return Some(Err(Fault::Lost));
        }
        let is_flush = request.op == Op::Flush;
        (is_flush && !self.shared.needs_flush()).then_some(Ok(()))
    }

    /// Gives the connection up where it leads to another server than the first. Asked once, before its first request.
    fn confirm_server(&mut self, ring: &mut Ring) {
        if let Some(link) = self.link.as_mut().filter(|link| !link.is_confirmed)
            && self.down.is_none()
            // A server that did not answer when the queue was opened may do so never.
            && (ring.serves_several() || !self.shared.confirms(link))
        {
            // There is nothing that this could end.
            self.hang_up(&mut Vec::new());
            ring.stay_awake();
        }
    }

    /// Tells if the connection is of use.
    pub(super) fn is_up(&self) -> bool {
        !self.is_broken && self.down.is_none()
    }

    /// For how long a lost connection is made again.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.shared.reconnect
    }

    /// Tells if the ring has nothing of it.
    pub(super) fn is_still(&self) -> bool {
        !self.connection.is_sending() && !self.connection.is_receiving()
    }

    /// Sends what waits, unless something is being sent.
    fn send(&mut self, ring: &mut Ring) {
        if !self.is_up() {
            return;
        }
        let Some(mut batch) = self.connection.take_batch() else {
            return;
        };
        if batch.remaining() == 0 {
            self.fill(&mut batch);
        }
        self.connection.send(ring, batch);
    }

    fn fill(&mut self, batch: &mut SendBatch) {
        while !self.is_leaving
            && batch.has_room(REQUEST_LEN, 2)
            && let Some(index) = self.waiting.pop_front()
        {
            let cookie = self.next_cookie << 32 | index as u64;
            self.next_cookie = (self.next_cookie + 1) & u64::from(u32::MAX);
            let Some(pending) = self.pending.get_mut(index) else {
                continue;
            };
            let header = pending.begin(cookie, self.can);
            batch.push_header(&request(&header));
            if let Some((start, len)) = pending.payload()
                && let Some(buffer) = pending.buffer.take()
            {
                batch.push_payload(buffer, start, len);
                pending.is_sending = true;
                self.sending.push_back(index);
            }
            if pending.is_change() && !pending.is_flush() {
                self.changes += 1;
                if let Some(link) = &mut self.link {
                    link.is_unflushed = true;
                }
            }
            pending.changes = self.changes;
            self.intake.expect_answer(pending);
        }
    }

    fn note_sent(&mut self, done: &mut Vec<Completion>) {
        if self.connection.is_broken {
            self.hang_up(done);
        }
        let is_over = self.connection.batch().is_some_and(|batch| batch.remaining() == 0);
        if is_over || !self.is_up() {
            self.take_payloads(done);
        }
    }

    /// Gives payloads that are not on their way back to their requests.
    pub(super) fn take_payloads(&mut self, done: &mut Vec<Completion>) {
        while let Some(buffer) = self.connection.batch().and_then(SendBatch::pop_payload) {
            let index = self.sending.pop_back();
            let Some(index) = index else { unreachable!("each payload is a request's") };
            if let Some(pending) = self.pending.get_mut(index) {
                pending.buffer = Some(buffer);
                pending.is_sending = false;
                if pending.answer.is_some() && !self.is_broken {
                    self.settle(index, done);
                }
            }
        }
    }

    /// Notes how the part of a request that is under way has ended.
    pub(super) fn answered(&mut self, index: usize, result: Result<(), Fault>, done: &mut Vec<Completion>) {
        let Some(pending) = self.pending.get_mut(index) else {
            return;
        };
        self.intake.take_answer(pending);
        if !is_put_off(self.shared.reconnect, result) {
            self.until = None;
        }
        if pending.is_change() && !pending.is_flush() {
            self.shared.status.note_change();
            // A flush that was under way before does not cover it, even one that has been answered.
            self.changes += 1;
            if let Some(link) = &mut self.link {
                link.is_unflushed = true;
            }
        }
        pending.cookie = None;
        pending.answer = Some(result);
        if !pending.is_sending {
            self.settle(index, done);
        }
    }

    /// Goes on with a request whose part has ended and whose buffer is here.
    fn settle(&mut self, index: usize, done: &mut Vec<Completion>) {
        let answer = self.pending.get_mut(index).map(|it| it.answer.take());
        let Some(answer) = answer else { return };
        let result = answer.unwrap_or(Ok(()));
        if is_put_off(self.shared.reconnect, result) && self.put_off(index) {
            return;
        }
        let Some(pending) = self.pending.get_mut(index) else {
            return;
        };
        let is_all = pending.is_flush() && pending.changes == self.changes;
        if let (Ok(()), true, Some(link)) = (result, is_all, &mut self.link) {
            link.is_unflushed = false;
        }
        if result.is_ok() && pending.advance(self.can) {
            self.waiting.push_back(index);
        } else {
            self.end(index, result, done);
        }
    }

    fn end(&mut self, index: usize, result: Result<(), Fault>, done: &mut Vec<Completion>) {
        let Some(pending) = self.pending.remove(index) else {
            return;
        };
        let mut completion = pending.complete(result);
        if completion.result.is_ok() && completion.request.op.is_sync() && self.shared.is_lost() {
            completion.result = Err(Fault::Latched);
        }
        done.push(completion);
    }

    /// Ends the connection, for good: it failed, or the server broke the protocol.
    pub(super) fn give_up(&mut self, done: &mut Vec<Completion>) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        self.shared.lose();
        self.shut();
        self.waiting.clear();
        self.take_payloads(done);
    }

    /// Ends the operations on the connection that the ring has.
    pub(super) fn shut(&self) {
        if let Some(link) = &self.link {
            let _ = rustix::net::shutdown(&*link.socket, Shutdown::Both);
        }
    }

    /// Fails all requests whose buffers are here; the others when the ring gives theirs back.
    fn fail_all(&mut self, done: &mut Vec<Completion>) {
        for index in 0..self.pending.capacity() {
            if self.pending.get(index).is_some_and(|entry| !entry.is_away()) {
                self.end(index, Err(Fault::Lost), done);
            }
        }
    }
}

impl Drop for NbdQueue {
    fn drop(&mut self) {
        let is_up = self.is_up();
        // Nobody waits for another any more.
        self.down = None;
        let Some(mut link) = self.link.take() else { return };
        let is_quiet = self.connection.is_quiet() && self.intake.expects_header();
        link.records = self.connection.take_records();
        let left = if self.pending.iter().any(NbdPending::is_change) {
            LeftConnection::Changing
        } else if self.pending.is_empty() && is_quiet && is_up {
            LeftConnection::Quiet
        } else {
            LeftConnection::Reading
        };
        self.shared.give_back(link, left);
    }
}
