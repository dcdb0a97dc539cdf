//! A queue: one thread's private way into a device.
//!
//! Takes requests and gives completions. A queue is never shared and never locked: two threads that use one device have
//! two queues. It may be handed from one thread to another together with its ring.
//!
//! ```text
//! loop {
//!     queue.submit(ring, request)   Done(completion) from a medium that answers at once,
//!                                   Pending otherwise
//!     ring.wait()                   one system call submits all and waits
//!     queue.poll(ring, &mut done)   whatever finished, decrypted and ready
//! }
//! ```
//!
//! A medium that answers at once is asked by reference (`answer_at_once`), where the request lies. Moving a request
//! through two layers and its completion back took 60 ns, as long as copying 4 KiB: a copy's fresh stores keep the
//! processor from loading what other pieces have stored. So an operation's tag is a whole word, a completion fits into
//! a cache line, and the gate checks it in place.

use cryptline_sys::Ring;

use crate::{Completion, Fault, Request};

/// One thread's way into a device.
pub trait Queue: Send {
    /// Takes a request. The gate above has checked range, alignment and capability.
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted;

    /// Carries out a request where it lies, if the medium answers at once; `None` where it must be
    /// submitted, and then nothing was done. The gate asks before it submits, where the device's
    /// [`Traits::at_once`](crate::Traits) is not [`AtOnce::None`].
    fn answer_at_once(&mut self, _request: &mut Request) -> Option<Result<(), Fault>> {
        None
    }

    /// Moves what has finished since the last call to the end of `done`, in any order.
    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>);
}

/// Which requests [`Queue::answer_at_once`] carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// None, as far as anybody knows.
    None,
    /// Those that nothing is in the way of.
    Some,
    /// All.
    All,
}

/// A queue into a medium that answers at once, all of whose requests are carried out where they lie
/// ([`Traits::immediate`](crate::Traits)).
///
/// A request stays where its submitter made it: moving it down and back takes longer than copying
/// a page, since the processor cannot forward what a copy has just stored in other pieces.
pub trait Immediate {
    /// Carries out a request that the gate has checked.
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault>;
}

impl<Q: Immediate + Send> Queue for Q {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        let result = self.answer(&mut request);
        Submitted::Done(request.complete(result))
    }

    fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        Some(self.answer(request))
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}
}

/// State of a submitted request.
#[derive(Debug)]
#[must_use = "a completed request must be passed on"]
pub enum Submitted {
    /// A request has already ended: this one, or one before it of the same token.
    Done(Completion),
    /// The completion will come out of [`Queue::poll`].
    Pending,
}
