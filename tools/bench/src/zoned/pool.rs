//! The other way to encrypt: threads take blocks as they come, and what comes back in any order is put
//! in order again before it is written.
//!
//! ```text
//! submitter ─► jobs ─► threads encrypt ─► results ─┐
//!     ▲                                            ▼
//!     └──── ended ◄── zone: written next? ◄── waiting room: one place for each write in flight
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use cryptline_cipher::SectorCipher;
use cryptline_engine::Buffer;
use cryptline_sys::{Waker, lock};

use super::ZONES;

/// Most writes in flight.
pub const DEPTH_MAX: u32 = 16;
/// Places for what waits in a zone: as many as there are writes in flight, so no two meet in one.
const PLACES: usize = DEPTH_MAX as usize;

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Byte on the device.
    pub offset: u64,
    pub zone: usize,
    /// Number of the write in its zone.
    pub number: u64,
}

/// A write, and where it goes.
pub struct Write {
    pub place: Place,
    /// Which of those in flight.
    pub slot: usize,
    pub buffer: Buffer,
}

/// What the submitter and the threads share.
struct Shared {
    /// `None` once the threads are to end.
    jobs: Mutex<Option<VecDeque<Write>>>,
    more: Condvar,
    results: Mutex<Vec<Write>>,
    cipher: SectorCipher,
    submitter: Waker,
}

/// Threads that encrypt, and what they have encrypted.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    arrived: Vec<Write>,
    zones: Vec<Zone>,
}

/// What is encrypted and not yet its turn.
#[derive(Default)]
struct Zone {
    waiting: [Option<Write>; PLACES],
    /// Number of the write whose turn it is.
    next: u64,
}

impl Pool {
    /// Starts the threads, which wake the submitter when one of them has done something.
    pub fn new(cipher: SectorCipher, threads: u32, submitter: Waker) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            jobs: Mutex::new(Some(VecDeque::with_capacity(PLACES))),
            more: Condvar::new(),
            results: Mutex::new(Vec::with_capacity(PLACES)),
            cipher,
            submitter,
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("pool".into());
            thread.spawn(move || shared.work())
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok(Self {
            threads,
            shared,
            arrived: Vec::with_capacity(PLACES),
            zones: (0..ZONES).map(|_| Zone::default()).collect(),
        })
    }

    /// From the start of each zone again.
    pub fn reset(&mut self) {
        self.zones.iter_mut().for_each(|zone| zone.next = 0);
    }

    /// Gives a block to the threads.
    pub fn encrypt(&self, write: Write) {
        if let Some(jobs) = &mut *lock(&self.shared.jobs) {
            jobs.push_back(write);
        }
        self.shared.more.notify_one();
    }

    /// Takes what the threads have encrypted.
    pub fn collect(&mut self) {
        std::mem::swap(&mut *lock(&self.shared.results), &mut self.arrived);
        for write in self.arrived.drain(..) {
            let place = write.place;
            self.zones[place.zone].waiting[slot(place.number)] = Some(write);
        }
    }

    /// A write that is encrypted and next in its zone.
    pub fn next_in_order(&mut self) -> Option<Write> {
        self.zones.iter_mut().find_map(|zone| {
            let write = zone.waiting[slot(zone.next)].take()?;
            zone.next += 1;
            Some(write)
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.jobs) = None;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// A thread's life.
    fn work(&self) {
        while let Some(mut write) = self.next() {
            let sector = write.place.offset / 512;
            self.cipher.encrypt_in_place(sector, &mut write.buffer);
            lock(&self.results).push(write);
            self.submitter.wake();
        }
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<Write> {
        let mut jobs = lock(&self.jobs);
        loop {
            match jobs.as_mut()?.pop_front() {
                Some(write) => return Some(write),
                None => {
                    jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) % PLACES
}
