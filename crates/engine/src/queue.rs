//! A queue: one thread's private way into a device.
//!
//! It takes requests and gives completions. It is never shared and never locked: two threads that
//! use one device have two queues.
//!
//! ```text
//! loop {
//!     queue.submit(ring, request)   Done(completion) from a medium that answers at once,
//!                                   Pending otherwise
//!     ring.wait()                   one system call submits all and waits
//!     queue.poll(ring, &mut done)   whatever finished, decrypted and ready
//! }
//! ```

use cryptline_sys::Ring;

use crate::{Completion, Request};

/// One thread's way into a device.
pub trait Queue {
    /// Takes a request. The gate above has checked range, alignment and capability.
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted;

    /// Moves what has finished since the last call to the end of `done`, in any order.
    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>);

    /// Switches the measurement of [`crypto_time_ns`](Self::crypto_time_ns) on or off, here and
    /// below. Off at first: reading the clock costs more than a short request's bookkeeping.
    fn measure(&mut self, on: bool);

    /// Nanoseconds this queue and those below it have spent in ciphers while measuring.
    fn crypto_time_ns(&self) -> u64;
}

/// What became of a submitted request.
#[derive(Debug)]
#[must_use = "a completed request must be passed on"]
pub enum Submitted {
    /// It has already ended.
    Done(Completion),
    /// It will come out of [`Queue::poll`].
    Pending,
}
