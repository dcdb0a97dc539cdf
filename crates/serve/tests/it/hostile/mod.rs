//! Clients that mean harm, or die: nobody else notices, and nothing is left of them.
//!
//! The tests measure the memory of the whole process, so they run one after another.

mod handshake;
mod transmission;

use std::sync::{Mutex, MutexGuard};

use crate::common::raw::Raw;
use crate::common::{Served, pattern, resident_bytes, wait_until};

/// Holds off the other tests of this program.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    cryptline_sys::lock(&TURN)
}

/// A new client gets full service.
#[track_caller]
fn others_are_served(served: &Served) {
    let mut client = Raw::connect(served);
    for round in 0..20 {
        let data = pattern(round, 65536, round);
        client.write(round * 4096, &data).expect("written");
        assert!(client.read(round * 4096, 65536) == data);
    }
    client.flush().expect("flushed");
}

/// Says that the process has not grown by more than `limit` bytes.
struct MemoryBound {
    before: u64,
    limit: u64,
}

impl MemoryBound {
    fn new(limit: u64) -> Self {
        Self { before: resident_bytes(), limit }
    }

    #[track_caller]
    fn check(&self) {
        let grown = self.grown();
        assert!(grown <= self.limit, "grown by {grown} bytes");
    }

    /// As [`check`](Self::check), once what was left behind has been cleared away.
    fn check_soon(&self) {
        wait_until("the memory is given back", || self.grown() <= self.limit);
    }

    fn grown(&self) -> u64 {
        resident_bytes().saturating_sub(self.before)
    }
}
