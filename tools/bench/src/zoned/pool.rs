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
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
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

/// A write, and where it goes.
pub struct Write {
    /// Byte on the device.
    pub offset: u64,
    /// Which of those in flight.
    pub slot: usize,
    pub buffer: Buffer,
}

/// Threads that encrypt, and what they have encrypted.
pub struct EncryptingPool {
    shared: Arc<PoolShared>,
    /// Has room for every write in flight.
    results: Receiver<Write>,
    threads: Vec<JoinHandle<()>>,
    zones: Vec<EncryptedWrites>,
    zone_size: u64,
    /// Bytes of a write.
    block: u64,
}

/// The threads' own. They wait in `more`, which wakes one for each write: in a channel that they take turns at, each
/// write would wake the next in line as well, and the pool would be slower than it need be.
struct PoolShared {
    /// `None` once the threads are to end.
    jobs: Mutex<Option<VecDeque<Write>>>,
    more: Condvar,
    cipher: SectorCipher,
    submitter: Waker,
}

/// Writes that are encrypted and wait for their turn.
#[derive(Default)]
struct EncryptedWrites {
    waiting: [Option<Write>; PLACES],
    /// Number of the write whose turn it is.
    next: u64,
}

impl EncryptingPool {
    /// Starts the threads, which wake the submitter when one of them has done something.
    pub fn new(cipher: SectorCipher, threads: u32, submitter: Waker, zone_size: u64) -> io::Result<Self> {
        let jobs = Mutex::new(Some(VecDeque::with_capacity(PLACES)));
        let shared = Arc::new(PoolShared { jobs, more: Condvar::new(), cipher, submitter });
        let (done, results) = sync_channel(PLACES);
        let start = |_| {
            let (shared, done) = (Arc::clone(&shared), done.clone());
            std::thread::Builder::new().name("pool".into()).spawn(move || shared.work(&done))
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        let zones = (0..ZONES).map(|_| EncryptedWrites::default()).collect();
        Ok(Self { shared, results, threads, zones, zone_size, block: 1 })
    }

    /// From the start of each zone again, with writes of `block` bytes.
    pub fn reset(&mut self, block: u64) {
        self.block = block;
        self.zones.iter_mut().for_each(|zone| zone.next = 0);
    }

    /// Gives a block to the threads.
    pub fn encrypt(&self, write: Write) {
        if let Some(jobs) = &mut *lock(&self.shared.jobs) {
            jobs.push_back(write);
        }
        self.shared.more.notify_one();
    }

    /// A write that is encrypted and next in its zone.
    pub fn next_in_order(&mut self) -> Option<Write> {
        for write in self.results.try_iter() {
            let (zone, number) = (write.offset / self.zone_size, write.offset % self.zone_size / self.block);
            self.zones[place(zone)].waiting[place(number) % PLACES] = Some(write);
        }
        self.zones.iter_mut().find_map(|zone| {
            let write = zone.waiting[place(zone.next) % PLACES].take()?;
            zone.next += 1;
            Some(write)
        })
    }
}

impl Drop for EncryptingPool {
    fn drop(&mut self) {
        *lock(&self.shared.jobs) = None;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl PoolShared {
    fn work(&self, done: &SyncSender<Write>) {
        while let Some(mut write) = self.next() {
            self.cipher.encrypt_in_place(write.offset / 512, &mut write.buffer);
            if done.send(write).is_ok() {
                self.submitter.wake();
            }
        }
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<Write> {
        let mut jobs = lock(&self.jobs);
        loop {
            match jobs.as_mut()?.pop_front() {
                Some(write) => return Some(write),
                None => jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
