//! The other way to encrypt: threads take blocks as they come, and what comes back in any order is put
//! in order again before it is written.
//!
//! ```text
//! submitter ─► jobs ─► threads encrypt ─► results ─┐
//!     ▲                                            ▼
//!     └──── ended ◄── zone: written next? ◄── waiting room: one place for each write in flight
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_engine::Buffer;
use cryptline_sys::Waker;

use super::ZONES;
use super::writer::{DEPTH_MAX, Load, Place, Places, Writer, stamp};
use crate::CliError;

/// A block and where it goes.
struct Job {
    place: Place,
    buffer: Buffer,
}

/// What the submitter and the threads share.
struct Desk {
    jobs: Mutex<Option<VecDeque<Job>>>,
    more: Condvar,
    results: Mutex<Vec<Job>>,
    cipher: SectorCipher,
    submitter: Waker,
}

/// A writer that does not encrypt, and threads that do.
pub struct Pool {
    writer: Writer,
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
    arrived: Vec<Job>,
    /// For each zone, what is encrypted and not yet its turn.
    waiting: Vec<[Option<Buffer>; DEPTH_MAX]>,
}

impl Pool {
    /// `threads` threads before `writer`, whose zones are those of the medium.
    pub fn new(mut writer: Writer, cipher: SectorCipher, threads: u32) -> Result<Self, CliError> {
        let failed = |error| CliError::memory(format!("cannot start threads: {error}"));
        let desk = Arc::new(Desk {
            jobs: Mutex::new(Some(VecDeque::with_capacity(DEPTH_MAX))),
            more: Condvar::new(),
            results: Mutex::new(Vec::with_capacity(DEPTH_MAX)),
            cipher,
            submitter: writer.ring.waker().map_err(failed)?,
        });
        let start = |_| {
            let desk = Arc::clone(&desk);
            let thread = std::thread::Builder::new().name("pool".into());
            thread.spawn(move || desk.work())
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>();
        Ok(Self {
            threads: threads.map_err(failed)?,
            writer,
            desk,
            arrived: Vec::with_capacity(DEPTH_MAX),
            waiting: (0..ZONES).map(|_| Default::default()).collect(),
        })
    }

    /// As [`Writer::write`], through the threads.
    pub fn write(&mut self, load: &Load, time: Duration) -> Result<f64, CliError> {
        self.writer.reset()?;
        let mut places = Places::new(load, self.writer.zone_size);
        let mut free = self.writer.buffers(load);
        let depth = free.len();
        let mut next = vec![0; self.waiting.len()];
        let (start, mut bytes, mut open) = (Instant::now(), 0.0, true);
        loop {
            while open && let Some(mut buffer) = free.pop() {
                let Some(place) = places.take() else {
                    free.push(buffer);
                    open = false;
                    break;
                };
                if load.stamped {
                    stamp(place.offset, &mut buffer);
                }
                bytes += f64::from(load.block);
                self.desk.lay_out(Job { place, buffer });
                open = start.elapsed() < time;
            }
            if !open && free.len() == depth {
                break;
            }
            let before = free.len();
            self.release(&mut next, &mut free)?;
            self.writer.collect(&mut free)?;
            if free.len() == before {
                self.writer.wait()?;
            }
        }
        let rate = bytes / start.elapsed().as_secs_f64();
        self.writer.give_back(free);
        Ok(rate)
    }

    /// Writes what is encrypted and next in its zone.
    fn release(&mut self, next: &mut [u64], free: &mut Vec<Buffer>) -> Result<(), CliError> {
        std::mem::swap(&mut *lock(&self.desk.results), &mut self.arrived);
        for Job { place, buffer } in self.arrived.drain(..) {
            self.waiting[place.zone][slot(place.number)] = Some(buffer);
        }
        for (zone, (waiting, next)) in self.waiting.iter_mut().zip(next).enumerate() {
            while let Some(buffer) = waiting[slot(*next)].take() {
                let zone = u64::try_from(zone).unwrap_or(0);
                let len = u64::try_from(buffer.len()).unwrap_or(0);
                let offset = zone * self.writer.zone_size + *next * len;
                free.extend(self.writer.submit(offset, buffer)?);
                *next += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.desk.jobs) = None;
        self.desk.more.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn lay_out(&self, job: Job) {
        if let Some(jobs) = &mut *lock(&self.jobs) {
            jobs.push_back(job);
        }
        self.more.notify_one();
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(mut job) = self.next() {
            let sector = job.place.offset / 512;
            self.cipher.encrypt_in_place(sector, &mut job.buffer);
            lock(&self.results).push(job);
            self.submitter.wake();
        }
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            match jobs.as_mut()?.pop_front() {
                Some(job) => return Some(job),
                None => {
                    jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Fewer writes are in flight than there are places, so no two meet in one.
fn slot(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) % DEPTH_MAX
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
