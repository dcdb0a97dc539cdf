//! Presence of an image or a snapshot that is only read: whether it is still there.
//!
//! ```text
//! a read has ended with zeros ─► thread of its own looks for the image ─► there ─► they were its zeros
//!                                                                     └─► gone  ─► reads fail from now on
//! ```
//!
//! Nobody waits for readers: an image, or a snapshot, is removed under them. Of its objects the daemons then say that they
//! are not there, which the library takes for zeros, or for the parent's data, and a hole in the ciphertext would decrypt
//! to noise. So such data is doubted: it is given out once the image was found in the cluster after it came. Ceph takes
//! the name away first and the objects behind it, so what has its name still has its data.
//!
//! Data that is not zeros is the image's own, so who reads what was written pays nothing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cryptline_sys::{RbdError, RbdPresence, Waker, lock, visit_ceph};
use rustix::io::Errno;

use crate::Fault;

/// Requests begin and end at multiples of this, and so do objects.
const BLOCK: usize = 512;
/// How long the end of the thread is waited for: a look into a cluster that does not answer has no end.
const END_MAX: Duration = Duration::from_secs(2);

pub(super) struct Presence {
    of: RbdPresence,
    /// Set if objects that are not there are not zeros but a parent's.
    inherits: bool,
    gone: AtomicBool,
    looks: Arc<Looks>,
}

/// Looks, by their numbers.
#[derive(Default)]
struct Looks {
    state: Mutex<PresenceState>,
    more: Condvar,
}

#[derive(Default)]
struct PresenceState {
    /// The last one that is wanted.
    wanted: u64,
    /// All up to this one are over.
    over: u64,
    /// All up to this one have found it there.
    found: u64,
    is_end: bool,
    /// The thread lives and has its share of what it looks at.
    is_watched: bool,
    /// Whom to call after each, and the last one that they wait for.
    waiting: Vec<(Waker, u64)>,
}

impl Presence {
    pub fn new(of: RbdPresence, inherits: bool) -> Self {
        Self { of, inherits, gone: AtomicBool::new(false), looks: Arc::default() }
    }

    /// Tells if it is known to be gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Tells if some of `data` could stand for what is not there.
    pub fn doubts(&self, data: &[u8]) -> bool {
        self.inherits || data.chunks(BLOCK).any(is_zero)
    }

    /// Has somebody look, and calls `waker` then: the number of the look, to [ask](Self::outcome) for.
    pub fn look_for(&self, waker: &Waker) -> u64 {
        self.looks.want(waker)
    }

    /// Returns the result of a look; `None` before its end.
    pub fn outcome(&self, number: u64) -> Option<Result<(), Fault>> {
        let state = lock(&self.looks.state);
        if number <= state.found {
            Some(Ok(()))
        } else if self.is_gone() {
            Some(Err(Fault::Gone))
        } else {
            (number <= state.over).then_some(Err(Fault::Io(Errno::IO)))
        }
    }

    /// Looks itself, and waits for the cluster.
    pub fn is_there(&self) -> bool {
        !self.is_gone() && self.note(self.of.is_there()) == Some(true)
    }

    fn note(&self, found: Result<bool, RbdError>) -> Option<bool> {
        if matches!(found, Ok(false)) {
            self.gone.store(true, Ordering::Release);
        }
        found.ok()
    }

    /// Ends the thread that looks and waits for it, so that the connection is not closed by a thread that nobody waits for:
    /// the process may end meanwhile, and the library's memory with it.
    pub fn end(&self) {
        self.looks.end(END_MAX);
    }
}

impl Looks {
    /// One more, after which `waker` is called: its number.
    fn want(&self, waker: &Waker) -> u64 {
        let mut state = lock(&self.state);
        state.wanted += 1;
        let number = state.wanted;
        match (state.waiting.iter_mut()).find(|(other, _)| other.is(waker)) {
            Some((_, last)) => *last = number,
            None => state.waiting.push((waker.clone(), number)),
        }
        self.more.notify_one();
        number
    }

    /// Waits until one is wanted: the last one that is.
    fn next(&self) -> Option<u64> {
        let state = lock(&self.state);
        let is_idle = |state: &mut PresenceState| state.wanted == state.over && !state.is_end;
        let state = self.more.wait_while(state, is_idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (!state.is_end).then_some(state.wanted)
    }

    /// Has the thread leave, and waits for that.
    fn end(&self, at_most: Duration) {
        let mut state = lock(&self.state);
        state.is_end = true;
        self.more.notify_all();
        let _late = self.more.wait_timeout_while(state, at_most, |state| state.is_watched);
    }

    /// Says that nobody looks any more.
    fn leave(&self) {
        lock(&self.state).is_watched = false;
        self.more.notify_all();
    }

    /// Notes the end of one. Whoever waits for a later one is called now and then again.
    fn looked(&self, number: u64, found: Option<bool>) {
        let mut state = lock(&self.state);
        state.over = number;
        if found == Some(true) {
            state.found = number;
        }
        state.waiting.retain(|(waker, last)| {
            waker.wake();
            *last > number
        });
    }
}

/// Looks whenever that is wanted. One look is for all that wanted it before it began.
pub(super) fn watch(presence: &Arc<Presence>) -> io::Result<()> {
    let (presence, looks) = (Arc::clone(presence), Arc::clone(&presence.looks));
    lock(&looks.state).is_watched = true;
    let leave = Arc::clone(&looks);
    let look = move || {
        while let Some(number) = looks.next() {
            let found = presence.note(visit_ceph(|| presence.of.is_there()));
            looks.looked(number, found);
        }
        visit_ceph(|| drop(presence));
        looks.leave();
    };
    let builder = std::thread::Builder::new().name("rbd-presence".to_owned());
    builder.spawn(look).map(drop).inspect_err(|_| leave.leave())
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use cryptline_sys::{BackendChoice, Ring};

    use super::*;

    #[test]
    fn whoever_asks_during_a_look_is_called_after_the_next_one_too() {
        let mut ring = Ring::new(BackendChoice::Syscalls, 8).unwrap();
        let (looks, waker) = (Looks::default(), ring.waker().unwrap());
        assert_eq!(looks.want(&waker), 1);
        let first = looks.next().unwrap();
        // The look has begun, so it says nothing of this one.
        assert_eq!(looks.want(&waker), 2);
        looks.looked(first, Some(true));
        assert!(ring.look().unwrap());
        assert!(!ring.look().unwrap());
        let second = looks.next().unwrap();
        looks.looked(second, Some(true));
        assert_eq!((first, second), (1, 2));
        assert!(ring.look().unwrap());
        assert!(lock(&looks.state).waiting.is_empty());
    }

    #[test]
    fn end_is_told_to_the_thread_and_waited_for() {
        let looks = Looks::default();
        lock(&looks.state).is_watched = true;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert_eq!(looks.next(), None);
                looks.leave();
            });
            looks.end(Duration::from_secs(60));
            assert!(!lock(&looks.state).is_watched);
            thread.join().unwrap();
        });
        // One that does not come back keeps nobody.
        lock(&looks.state).is_watched = true;
        looks.end(Duration::from_millis(1));
    }
}
