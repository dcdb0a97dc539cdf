//! A queue's way through TLS.
//!
//! ```text
//! headers and payloads ─► records ─► socket       socket ─► records ─► a request's own buffer, or the short replies'
//! ```

use std::sync::Arc;

use cryptline_net::Records;
use cryptline_sys::{Buffer, Io, Ring, SendBatch};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::queue::{NbdQueue, RECEIVE_SEALED, SEND_SEALED};
use super::replies::BrokenProtocol;
use crate::Completion;

impl NbdQueue {
    pub(super) fn records(&mut self) -> Option<&mut Records> {
        self.link.as_mut()?.records.as_deref_mut()
    }

    /// Sends what waits, unless something is being sent.
    pub(super) fn send_sealed(&mut self, ring: &mut Ring) {
        if self.records().is_none_or(|records| records.is_sending()) {
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        if batch.remaining() == 0 {
            self.fill(&mut batch);
        }
        let sealed = self.records().and_then(|records| {
            records.seal(&mut batch, |plain, len| {
                plain.note_sent(len);
            })
        });
        self.batch = Some(batch);
        let Some(sealed) = sealed else { return };
        let io = Io::Send { file: self.socket, batch: sealed };
        // Where the ring has no place, it has one when something else has ended.
        if let Err(Io::Send { batch, .. }) = ring.submit(self.source, SEND_SEALED, io)
            && let Some(records) = self.records()
        {
            records.put_out(batch);
        }
    }

    pub(super) fn note_sealed_sent(
        &mut self,
        mut sealed: Box<SendBatch>,
        result: Result<usize, Errno>,
        done: &mut Vec<Completion>,
    ) {
        match result {
            Ok(len) => {
                sealed.advance(len);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => {
                sealed.clear();
                self.hang_up(done);
            }
        }
        let is_over = sealed.remaining() == 0;
        if let Some(records) = self.records() {
            records.put_out(sealed);
        }
        if let Some(mut batch) = self.batch.take() {
            if is_over && batch.remaining() == 0 {
                self.take_payloads(&mut batch, done);
            }
            self.batch = Some(batch);
        }
    }

    /// Takes in what was received.
    pub(super) fn received_sealed(&mut self, buffer: Buffer, result: Result<usize, Errno>, done: &mut Vec<Completion>) {
        let Some(records) = self.records() else {
            return;
        };
        records.put_raw(buffer, *result.as_ref().unwrap_or(&0));
        if !self.is_up() {
            return;
        }
        match result {
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(0) | Err(_) => self.hang_up(done),
            Ok(_) => {
                if self.open_all(done).is_err() {
                    self.give_up(done);
                }
            }
        }
    }

    fn open_all(&mut self, done: &mut Vec<Completion>) -> Result<(), BrokenProtocol> {
        loop {
            let Some(records) = self.link.as_mut().and_then(|link| link.records.as_mut()) else {
                return Err(BrokenProtocol);
            };
            let target = self.intake.target(&mut self.pending).ok_or(BrokenProtocol)?;
            match records.open(target).map_err(|_| BrokenProtocol)? {
                None => return Ok(()),
                // An orderly end.
                Some(0) => {
                    self.hang_up(done);
                    return Ok(());
                }
                Some(len) => self.opened(len, done)?,
            }
        }
    }

    /// Takes in what has come, though nothing is under way.
    pub(super) fn take_unasked(&mut self) {
        let Some(socket) = self.link.as_ref().map(|link| Arc::clone(&link.socket)) else {
            return;
        };
        while self.is_up() {
            let Some(mut buffer) = self.records().and_then(Records::take_raw) else {
                return;
            };
            let received = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT);
            let received = received.map(|(len, _)| len);
            self.received_sealed(buffer, received, &mut Vec::new());
            if received.is_err() {
                return;
            }
        }
    }

    /// Receives more.
    pub(super) fn receive_sealed(&mut self, ring: &mut Ring) {
        if let Some(buffer) = self.records().and_then(Records::take_raw) {
            let len = buffer.len();
            self.start_receive(ring, RECEIVE_SEALED, buffer, (0, len));
        }
    }
}
