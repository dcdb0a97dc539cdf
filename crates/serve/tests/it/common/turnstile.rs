//! A disk that carries out one request for each pass that the test gives out, so that a test counts
//! steps where it would else measure time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cryptline_engine::{Fault, Geometry, Op};
use cryptline_sys::lock;
use cryptline_testkit::scripted::{answering, geometry};
use cryptline_testkit::suite::Fresh;

use super::wait_until;

/// A disk of any size that holds nothing: what is written is gone, and what is read is noise.
#[derive(Clone)]
pub struct Turnstile {
    size: u64,
    inner: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    passes: u64,
    passed: u64,
    waiting: u64,
    flushes: u64,
    /// Zeroing by itself that it still does.
    zeroes_left: Option<u64>,
}

impl Turnstile {
    /// A disk of `size` bytes that nobody may use yet.
    pub fn new(size: u64) -> Self {
        Self { size, inner: Arc::default() }
    }

    /// Returns the disk, ready to be served.
    pub fn stack(&self) -> Fresh {
        let disk = self.clone();
        let geometry = Geometry { cache: false, ..geometry(self.size) };
        Fresh::new(answering(geometry, move |request| {
            match (request.op, &mut request.data) {
                (Op::Flush, _) => disk.lock().flushes += 1,
                (Op::Read, Some(buffer)) => {
                    disk.pass();
                    buffer.fill(0xa7);
                }
                (Op::Zero | Op::ZeroUnmap, _) if !disk.zeroes() => return Some(Err(Fault::NotSupported)),
                _ => disk.pass(),
            }
            Some(Ok(()))
        }))
    }

    /// Gives out `count` more passes. A flush needs none.
    pub fn let_pass(&self, count: u64) {
        let mut state = self.lock();
        state.passes = state.passes.saturating_add(count);
        self.inner.1.notify_all();
    }

    /// Takes back the passes that nobody has used.
    pub fn take_back(&self) {
        self.lock().passes = 0;
    }

    /// Makes it refuse to zero by itself after the next `count` times.
    pub fn zero_only(&self, count: u64) {
        self.lock().zeroes_left = Some(count);
    }

    /// Requests carried out so far.
    pub fn passed(&self) -> u64 {
        self.lock().passed
    }

    /// Flushes carried out so far.
    pub fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    /// Waits until `count` requests have been carried out and the next one wants a pass.
    pub fn wait_for(&self, count: u64) {
        wait_until("the passes are used up", || {
            let state = self.lock();
            state.passed == count && state.waiting > 0
        });
    }

    fn zeroes(&self) -> bool {
        match &mut self.lock().zeroes_left {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.passes == 0 {
            let waited = self.inner.1.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.passes -= 1;
        state.passed += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.inner.0)
    }
}
