//! A ring that is handed from thread to thread.
//!
//! Made of system calls, since an io_uring takes work only from the thread that made it.

use std::borrow::{Borrow, BorrowMut};
use std::io;

use super::{BackendChoice, InKernel, Ring, RingEngine};

/// A ring on system calls, which any thread may use, one at a time: for callers who choose their threads themselves.
///
/// An io_uring takes work only from the thread that made it; plain system calls do not care.
pub struct RoamingRing(Ring);

// SAFETY: a value may move to another thread if each of its parts may. `parts_may_move` has the compiler check that for
// those that are not plainly so; the one part that may not is the marker `not_send`, which holds no data and is there
// because the kernel refuses the submissions of a second thread to an io_uring. There is none in here, and if somebody
// swapped one in through `BorrowMut`, the kernel's refusal would be an error like any other.
unsafe impl Send for RoamingRing {}

const fn may_move<T: Send>() {}

/// Compiles only while it is true.
const _: () = {
    may_move::<RingEngine>();
    may_move::<InKernel>();
    may_move::<super::Unheard>();
    may_move::<super::RingDescriptor>();
    may_move::<std::sync::Arc<super::Sleeper>>();
    may_move::<std::sync::Arc<crate::Arena>>();
};

impl RoamingRing {
    /// A ring for at most `depth` operations in flight.
    ///
    /// # Errors
    /// None that is known.
    pub fn new(depth: u32) -> io::Result<Self> {
        Ring::new(BackendChoice::Syscalls, depth).map(Self)
    }
}

impl Borrow<Ring> for RoamingRing {
    fn borrow(&self) -> &Ring {
        &self.0
    }
}

impl BorrowMut<Ring> for RoamingRing {
    fn borrow_mut(&mut self) -> &mut Ring {
        &mut self.0
    }
}
