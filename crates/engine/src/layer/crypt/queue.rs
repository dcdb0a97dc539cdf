//! One thread's way into a crypt device.
//!
//! ```text
//! write   encrypt ─► below                         or ─► exchange ─► below
//! read    below ─► small: decrypt, in place        or, of several, ─► exchange
//!               └► large: ripe ─► decrypt in turns
//! ```
//!
//! Finished reads are first all taken from the device below, and small ones decrypted as they come. Large ones come after
//! them, and only so much at a time: a long decryption must not hold up a short one that ends meanwhile. (In the kernel's
//! inline mode the tasklet and `cond_resched` have this part.) A queue with more work keeps its ring from waiting.
//!
//! The exchange, where there is one, takes what is worth sharing. All else goes as under `inline`.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::Stopwatch;

use super::exchange::{EXTRA_MAX, Exchange};
use crate::cipher_map::CipherMap;
use crate::gate::GatedQueue;
use crate::layered::{Descent, Layer, LayerOut, Layered};
use crate::queue::AtOnce;
use crate::{Completion, Fault, Op, Request};

/// A read of more bytes than this is decrypted after the smaller ones.
const LARGE: u64 = 64 * 1024;
/// A finished read of fewer bytes is not worth sharing by itself.
const ALONE_LEAST: u64 = 8 * 1024;
/// Bytes under the cipher in one `poll` beyond the small reads: about 50 microseconds.
pub(super) const TURN: usize = 256 * 1024;

/// The ciphers, and where their data lies.
#[derive(Clone)]
pub(super) struct PlacedCipher {
    pub cipher_map: Arc<CipherMap>,
    /// First byte of the data on the lower device.
    pub start: u64,
    pub watch: Arc<Stopwatch>,
}

/// A piece of a request that the exchange has cut.
#[derive(Clone, Copy)]
pub(super) struct CryptPiece {
    /// The request's place in the exchange.
    pub split: usize,
    pub part: usize,
}

/// Note on a request below: the piece that it is, or none for a whole one.
pub(super) type CryptNote = Option<CryptPiece>;

pub(super) type CryptOut = LayerOut<CryptNote>;

pub(super) struct CryptLayer {
    cipher: PlacedCipher,
    /// The device below carries out all requests where they lie.
    answers_at_once: bool,
    /// Large reads, to be decrypted in turns.
    ripe: VecDeque<Completion>,
    /// Bytes of the first of them that are decrypted.
    clear: usize,
    /// Bytes that may be encrypted or decrypted in this `poll`.
    left: usize,
    /// A read of so many bytes does not end on its way up.
    waits_from: u64,
    /// Reads that have come back in this `poll` and may be lent.
    reaped: VecDeque<Completion>,
    exchange: Option<Exchange>,
}

/// A queue over `lower`, for at most `depth` requests in flight.
pub(super) fn over(
    lower: GatedQueue,
    cipher: PlacedCipher,
    exchange: Option<Exchange>,
    depth: usize,
) -> Layered<CryptLayer> {
    let lends = exchange.as_ref().is_some_and(Exchange::may_lend);
    let most = depth + if exchange.is_some() { EXTRA_MAX } else { 0 };
    let layer = CryptLayer {
        cipher,
        answers_at_once: lower.at_once() == AtOnce::All,
        ripe: VecDeque::new(),
        clear: 0,
        left: 0,
        waits_from: if lends { ALONE_LEAST } else { LARGE + 1 },
        reaped: VecDeque::new(),
        exchange,
    };
    Layered::new(layer, vec![lower], most)
}

impl Layer for CryptLayer {
    type Note = CryptNote;

    fn begin_poll(&mut self) {
        self.left = TURN;
        if let Some(exchange) = &mut self.exchange {
            exchange.begin_poll();
        }
    }

    fn at_once(&mut self, request: &mut Request) -> Option<(usize, u64)> {
        // A write that is not answered would have been encrypted for nothing.
        if request.op.is_write() {
            if !self.answers_at_once {
                return None;
            }
            self.cipher.encrypt(request);
        }
        Some((0, self.cipher.start))
    }

    fn asked_at_once(&mut self, request: &mut Request, result: Option<Result<(), Fault>>) {
        if let Some(result) = result {
            self.cipher.clear(request, result);
        }
    }

    #[inline]
    fn down(&mut self, request: &mut Request) -> Descent<CryptNote> {
        if self.exchange.as_mut().is_some_and(|exchange| exchange.plan(request)) {
            return Descent::Take;
        }
        self.cipher.descend(request);
        Descent::Through { device: 0, note: None }
    }

    fn take(&mut self, request: Request, out: &mut CryptOut) {
        let Some(exchange) = &mut self.exchange else { unreachable!("without an exchange all goes through") };
        exchange.take(request, out);
    }

    #[inline]
    fn up(&mut self, completion: &mut Completion, note: CryptNote, out: &mut CryptOut) -> Option<CryptNote> {
        if note.is_some() {
            return Some(note);
        }
        let Completion { request, result } = completion;
        let read = if request.op == Op::Read && result.is_ok() { request.len } else { 0 };
        let waits = out.polls && read >= self.waits_from;
        if self.exchange.is_some() {
            self.came_back(read, waits);
        }
        if waits {
            self.cipher.shift_back(request);
            return Some(None);
        }
        self.cipher.ascend(request, *result);
        None
    }

    fn back(&mut self, note: CryptNote, completion: Completion, out: &mut CryptOut) {
        match (note, &mut self.exchange) {
            (Some(piece), Some(exchange)) => exchange.back(piece, completion, out),
            (_, Some(_)) => self.reaped.push_back(completion),
            (_, None) => self.ripe.push_back(completion),
        }
    }

    #[inline]
    fn turn(&mut self, out: &mut CryptOut) {
        if self.exchange.is_some() {
            self.turn_to_others(out);
        }
        if !self.ripe.is_empty() && out.polls && out.has_sent_all() {
            self.decrypt_ripe(out);
        }
    }

    /// A whole write that found no place ends so: tried again here, it would not keep its turn in a zone either.
    fn comes_again(&self, note: &CryptNote) -> bool {
        note.is_some()
    }
}

impl CryptLayer {
    /// Notes that a whole request has come back, which waits here or ends.
    #[inline(never)]
    fn came_back(&mut self, read: u64, waits: bool) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.came_back(read);
        if !waits {
            exchange.ended();
        }
    }

    /// Lends the reads that have come back where that is worth a helper's while, and else goes on with them here; then
    /// works for the exchange.
    #[inline(never)]
    fn turn_to_others(&mut self, out: &mut CryptOut) {
        let Some(exchange) = &mut self.exchange else { return };
        let lends = !self.reaped.is_empty() && exchange.lends();
        while let Some(mut completion) = self.reaped.pop_front() {
            if lends && exchange.has_room() {
                exchange.lend(completion, out);
            } else if completion.request.len > LARGE {
                self.ripe.push_back(completion);
            } else {
                self.cipher.clear(&mut completion.request, completion.result);
                exchange.ended();
                out.done.push(completion);
            }
        }
        if lends {
            exchange.call();
        }
        exchange.turn(!self.ripe.is_empty(), &mut self.left, out);
    }

    /// Decrypts large reads, the oldest first.
    fn decrypt_ripe(&mut self, out: &mut CryptOut) {
        while self.left > 0
            && let Some(ripe) = self.ripe.front_mut()
        {
            let Some(data) = &mut ripe.request.data else { unreachable!("only reads ripen") };
            let part = self.left.min(data.len() - self.clear);
            let offset = ripe.request.offset + self.clear as u64;
            self.cipher.decrypt(offset, &mut data[self.clear..][..part]);
            self.left -= part;
            self.clear += part;
            if self.clear == data.len() {
                self.clear = 0;
                out.done.extend(self.ripe.pop_front());
                self.exchange.iter_mut().for_each(Exchange::ended);
            }
        }
        out.awake |= !self.ripe.is_empty();
    }
}

impl PlacedCipher {
    /// Encrypts and shifts on the way down.
    #[inline]
    fn descend(&self, request: &mut Request) {
        if request.op.is_write() {
            self.encrypt(request);
        }
        // The gate has checked the sum for all but a flush, which has no range and any offset.
        request.offset = request.offset.wrapping_add(self.start);
    }

    /// Undoes on the way up what `descend` did on the way down.
    fn ascend(&self, request: &mut Request, result: Result<(), Fault>) {
        self.shift_back(request);
        self.clear(request, result);
    }

    fn shift_back(&self, request: &mut Request) {
        request.offset = request.offset.wrapping_sub(self.start);
    }

    /// Encrypts the data of a write. Apart, as reads have nothing of it.
    #[inline(never)]
    fn encrypt(&self, request: &mut Request) {
        if let Some(data) = &mut request.data {
            let started = self.watch.start();
            self.cipher_map.encrypt(request.offset, data);
            self.watch.stop(started);
        }
    }

    /// Decrypts the data of what has ended, if it is to be clear.
    #[inline]
    fn clear(&self, request: &mut Request, result: Result<(), Fault>) {
        // Who found no place may come again, with what it came with before.
        let is_to_be_clear =
            matches!((request.op, result), (Op::Read, Ok(())) | (Op::Write | Op::WriteFua, Err(Fault::Busy)));
        if let (true, Some(data)) = (is_to_be_clear, &mut request.data) {
            self.decrypt(request.offset, data);
        }
    }

    pub fn decrypt(&self, offset: u64, data: &mut [u8]) {
        let started = self.watch.start();
        self.cipher_map.decrypt(offset, data);
        self.watch.stop(started);
    }
}
