//! Room for the threads that Ceph's libraries start.
//!
//! Where they cannot start one they throw through whoever has called them, or abort, and the program ends by a signal. So
//! what nobody can catch is refused beforehand: as many threads are started here, all at once, and ended again.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::confine::{thread_id, threads};
use crate::lock;

/// Stack of a thread where nothing limits it, by the C library.
const STACK: usize = 2 << 20;
/// Addresses that the C library takes for the heap of a thread, when the thread first allocates. They count where a limit is
/// on addresses.
const HEAP: usize = 64 << 20;
/// As many for each processor (mallopt(3), M_ARENA_MAX).
const HEAPS: usize = 8;
/// How long threads that have ended may still be counted.
const GONE_MAX: Duration = Duration::from_secs(2);

/// There was room once, so that the heaps are there.
static HAD_ROOM: AtomicBool = AtomicBool::new(false);

/// Looks for room for `count` more threads, with stacks like those that the C library gives them.
///
/// Errors: why one could not be started, and how many could.
pub(super) fn have_room(count: usize) -> Result<(), (usize, io::Error)> {
    let (gate, heaps) = (StartGate::default(), heaps_to_come());
    let started = std::thread::scope(|scope| {
        let start = |started| start(scope, &gate, started < heaps).map_err(|error| (started, error));
        let started = (0..count).try_for_each(start);
        gate.open();
        started
    });
    // Each counts until the kernel has let go of it, a moment after it has ended.
    let deadline = Instant::now() + GONE_MAX;
    let ids = lock(&gate.ids);
    let is_one_there = || threads().is_ok_and(|now| now.iter().any(|id| ids.contains(id)));
    while is_one_there() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    HAD_ROOM.fetch_or(started.is_ok(), Ordering::Relaxed);
    started
}

/// Starts one, with room for a heap if that is said.
fn start<'scope>(scope: &'scope Scope<'scope, '_>, gate: &'scope StartGate, with_heap: bool) -> io::Result<()> {
    let limit = getrlimit(Resource::Stack).current;
    let stack = limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(STACK);
    let heap = if with_heap { HEAP } else { 0 };
    let builder = Builder::new().name("room".to_owned()).stack_size(stack.saturating_add(heap));
    builder.spawn_scoped(scope, || gate.wait()).map(drop)
}

/// How many heaps the C library may still make, where a limit is on addresses. It makes so many for each processor, and
/// gives none back.
fn heaps_to_come() -> usize {
    let is_limited = getrlimit(Resource::As).current.is_some();
    if is_limited && !HAD_ROOM.load(Ordering::Relaxed) {
        std::thread::available_parallelism().map_or(1, NonZero::get).saturating_mul(HEAPS)
    } else {
        0
    }
}

/// Keeps all of them until the last one has been started.
#[derive(Default)]
struct StartGate {
    ids: Mutex<Vec<i32>>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl StartGate {
    fn wait(&self) {
        lock(&self.ids).push(thread_id());
        // A poisoned lock ends the wait, too.
        let _open = self.opened.wait_while(lock(&self.is_open), |is_open| !*is_open);
    }

    fn open(&self) {
        *lock(&self.is_open) = true;
        self.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_and_given_back() {
        have_room(8).expect("eight threads");
    }
}
