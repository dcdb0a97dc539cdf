//! The arena that a ring has registered, and the share of locked memory that such arenas may take.
//!
//! An arena that is registered is locked, in use or not, and the kernel counts it together with the rings of all processes
//! of a user. A ring is worth more: without one, each operation is a system call. So arenas leave half of the limit to rings, and take
//! no more than [`SHARE_MAX`] where there is no limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use super::uring::Uring;
use super::{Ring, RingEngine};
use crate::Arena;

/// Most bytes that all arenas of a process may lock.
const SHARE_MAX: usize = 64 << 20;

/// Bytes that arenas of this process lock.
static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// An arena, and its share, which is free again when this is dropped.
pub(super) struct RegisteredArena {
    pub arena: Arc<Arena>,
    locked: &'static AtomicUsize,
}

impl Ring {
    /// Registers an arena's memory with the kernel, so that file I/O on its buffers need not pin
    /// pages each time. One arena a ring. `false` where the engine has no such thing, `RLIMIT_MEMLOCK` is too low, or
    /// other arenas of this process have all of it that is not for rings; I/O then works all the same.
    pub fn register(&mut self, arena: &Arc<Arena>) -> bool {
        if let (RingEngine::Uring(uring), None) = (&self.engine, &self.registered) {
            self.registered = RegisteredArena::register(arena, uring);
        }
        self.registered.is_some()
    }

    /// The same with the first transfer between a file and one of the arena's buffers: all of its memory is there and
    /// locked from then on, which a ring that has nothing to do should not cost.
    pub fn register_when_used(&mut self, arena: &Arc<Arena>) {
        if self.unregistered.is_some() || self.registered.is_some() {
            return;
        }
        match &self.engine {
            RingEngine::Uring(uring) if uring.registers_at_work() => self.unregistered = Some(Arc::clone(arena)),
            _ => _ = self.register(arena),
        }
    }
}

impl RegisteredArena {
    /// Takes the share of `arena`, if there is as much left, and registers it.
    pub fn register(arena: &Arc<Arena>, uring: &Uring) -> Option<Self> {
        let limit = getrlimit(Resource::Memlock).current;
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
        Self::of(arena, most.min(SHARE_MAX), &LOCKED).filter(|taken| uring.register(&taken.arena))
    }

    fn of(arena: &Arc<Arena>, most: usize, locked: &'static AtomicUsize) -> Option<Self> {
        let more = |locked: usize| locked.checked_add(arena.size()).filter(|&all| all <= most);
        locked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self { arena: Arc::clone(arena), locked })
    }
}

impl Drop for RegisteredArena {
    fn drop(&mut self) {
        self.locked.fetch_sub(self.arena.size(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_leave_the_rest_to_rings_and_give_back_what_they_had() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let arena = Arena::new(4096, 4).unwrap();
        let take = || RegisteredArena::of(&arena, 3 * arena.size() - 1, &TAKEN);
        let (one, two) = (take().unwrap(), take().unwrap());
        assert!(take().is_none());
        drop(one);
        assert!(take().is_some());
        drop(two);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
