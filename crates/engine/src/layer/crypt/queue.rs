//! One thread's way into a crypt device that runs the cipher itself.
//!
//! Finished reads are first all taken from the layer below, which decrypts small ones as they come; large ones come
//! after them, and only so much at a time: a long decryption must not hold up a short one
//! that ends meanwhile. (In the kernel's inline mode the tasklet and `cond_resched` have this part.)
//!
//! A queue with more work keeps its ring from waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::Stopwatch;

use crate::cipher_map::CipherMap;
use crate::gate::GatedQueue;
use crate::layered::{Descent, Layer, LayerOut, Layered};
use crate::queue::AtOnce;
use crate::{Completion, Fault, Op, Request};

/// A read of more bytes than this is decrypted after the smaller ones.
const LARGE: u64 = 64 * 1024;
/// Bytes decrypted in one `poll` beyond the small reads: about 50 microseconds.
pub(super) const TURN: usize = 256 * 1024;

/// The ciphers, and where their data lies.
#[derive(Clone)]
pub(super) struct PlacedCipher {
    pub cipher_map: Arc<CipherMap>,
    /// First byte of the data on the lower device.
    pub start: u64,
    pub watch: Arc<Stopwatch>,
}

pub(super) struct CryptLayer {
    cipher: PlacedCipher,
    /// The device below carries out all requests where they lie.
    answers_at_once: bool,
    /// Large reads, to be decrypted in turns.
    ripe: VecDeque<Completion>,
    /// Bytes of the first of them that are decrypted.
    clear: usize,
    /// Bytes that may be decrypted in this `poll`.
    left: usize,
}

/// A queue over `lower`, for at most `depth` requests in flight.
pub(super) fn over(lower: GatedQueue, cipher: PlacedCipher, depth: usize) -> Layered<CryptLayer> {
    let layer = CryptLayer {
        cipher,
        answers_at_once: lower.at_once() == AtOnce::All,
        ripe: VecDeque::with_capacity(depth),
        clear: 0,
        left: 0,
    };
    Layered::new(layer, vec![lower], depth)
}

impl Layer for CryptLayer {
    type Note = ();

    fn plain() {}

    fn is_plain(_note: &()) -> bool {
        true
    }

    fn begin_poll(&mut self) {
        self.left = TURN;
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

    fn down(&mut self, request: &mut Request) -> Descent<()> {
        self.cipher.descend(request);
        Descent::Through { device: 0, note: () }
    }

    fn up(&mut self, completion: &mut Completion, _note: (), out: &mut LayerOut<()>) -> Option<()> {
        if out.polls && is_large(completion) {
            self.cipher.shift_back(&mut completion.request);
            return Some(());
        }
        self.cipher.ascend(&mut completion.request, completion.result);
        None
    }

    fn back(&mut self, _note: (), completion: Completion, _out: &mut LayerOut<()>) {
        self.ripe.push_back(completion);
    }

    #[inline]
    fn turn(&mut self, out: &mut LayerOut<()>) {
        if !self.ripe.is_empty() {
            self.decrypt_ripe(out);
        }
    }
}

impl CryptLayer {
    /// Decrypts large reads, the oldest first.
    fn decrypt_ripe(&mut self, out: &mut LayerOut<()>) {
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
            }
        }
        out.awake |= !self.ripe.is_empty();
    }
}

impl PlacedCipher {
    /// Encrypts and shifts on the way down.
    #[inline]
    pub fn descend(&self, request: &mut Request) {
        if request.op.is_write() {
            self.encrypt(request);
        }
        // The gate has checked the sum for all but a flush, which has no range and any offset.
        request.offset = request.offset.wrapping_add(self.start);
    }

    /// Undoes on the way up what `descend` did on the way down.
    pub fn ascend(&self, request: &mut Request, result: Result<(), Fault>) {
        self.shift_back(request);
        self.clear(request, result);
    }

    pub fn shift_back(&self, request: &mut Request) {
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

pub(super) fn is_large(completion: &Completion) -> bool {
    let request = &completion.request;
    completion.result.is_ok() && request.op == Op::Read && request.len > LARGE
}
