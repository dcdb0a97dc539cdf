//! The arena that a ring has registered, and the share of locked memory that such arenas may take.
//!
//! An arena that is registered is locked, in use or not, and the kernel counts it together with the rings of all processes
//! of a user. A ring is worth more: without one, each operation is a system call. So arenas leave half of the limit to rings, and take
//! no more than [`SHARE_MAX`] where there is no limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

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

impl RegisteredArena {
    /// Takes the share of `arena`, if there is as much left.
    pub fn take(arena: &Arc<Arena>) -> Option<Self> {
        let limit = getrlimit(Resource::Memlock).current;
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
        Self::of(arena, most.min(SHARE_MAX), &LOCKED)
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
