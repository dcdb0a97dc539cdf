//! The marks of a RAM disk's pages under every interleaving that the memory model allows.
//!
//! The very source is taken in once more, over loom's atomics in the place of the standard ones. A page
//! is one atomic byte: copied in and dropped without any order of its own.

#[path = "marks.rs"]
#[allow(clippy::duplicate_mod, dead_code, reason = "over other atomics")]
mod marks;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

mod barrier {
    use loom::sync::atomic::{Ordering, fence};

    /// Barriers of both sides. membarrier(2) puts the writer's where it is least wanted; here the
    /// writer always has one, and the clearer's may fail.
    #[derive(Clone, Copy)]
    pub struct Barrier {
        pub writer: bool,
        pub clearer: bool,
    }

    impl Barrier {
        pub fn of_writer(self) {
            if self.writer {
                fence(Ordering::SeqCst);
            }
        }

        pub fn of_clearer(self) -> bool {
            fence(Ordering::SeqCst);
            self.clearer
        }
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use barrier::Barrier;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, Ordering};
use loom::thread;
use marks::PageMarks;

struct Memory {
    marks: PageMarks,
    page: AtomicU8,
}

impl Memory {
    fn write(&self, byte: u8) {
        self.page.store(byte, Ordering::Relaxed);
        self.marks.after_copy(0..1);
    }

    fn clear(&self) {
        self.marks.before_drop(0..1);
        self.page.store(0, Ordering::Relaxed);
    }
}

/// Writers and clearers of one page that holds data at first; what is left must be known.
fn race(barrier: Barrier, writers: u8, clearers: usize) {
    loom::model(move || {
        let memory = Arc::new(Memory { marks: PageMarks::new(1, barrier).unwrap(), page: AtomicU8::new(0) });
        memory.write(9);
        let writers = (1..=writers).map(|byte| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(byte))
        });
        let mut threads: Vec<_> = writers.collect();
        for _ in 1..clearers {
            let memory = Arc::clone(&memory);
            threads.push(thread::spawn(move || memory.clear()));
        }
        memory.clear();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let byte = memory.page.load(Ordering::Relaxed);
        assert!(byte == 0 || memory.marks.is_marked(0), "hidden: {byte}");
    });
}

const BOTH: Barrier = Barrier { writer: true, clearer: true };

#[test]
fn live_data_is_marked_whatever_the_order_of_a_write_and_a_trim() {
    race(BOTH, 1, 1);
}

#[test]
fn live_data_is_marked_after_two_writes_and_a_trim() {
    race(BOTH, 2, 1);
}

#[test]
fn live_data_is_marked_after_a_write_and_two_trims() {
    race(BOTH, 1, 2);
}

/// Where the writers can not be made to pass a barrier, nothing is forgotten.
#[test]
fn live_data_is_marked_without_any_barrier_of_the_writer() {
    let none = Barrier { writer: false, clearer: false };
    race(none, 1, 1);
}

/// The model can fail: a look that may come before the copy hides data.
#[test]
fn missing_barrier_is_seen() {
    let forgotten = Barrier { writer: false, clearer: true };
    let outcome = catch_unwind(AssertUnwindSafe(|| race(forgotten, 1, 1)));
    assert!(outcome.is_err(), "the model does not see the mistake");
}
