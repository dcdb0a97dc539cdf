//! An open volume for programs that know neither blocks nor queues: any bytes, from any thread.
//!
//! Queues belong to no thread. Whoever comes takes one that is free, its own of the last time as a rule; closing the disk closes all of
//! them.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{Combined, Extent, Fault, Gate, OpenError, RoamingRing, ZEROS};
use rustix::io::Errno;

use crate::{Result, Volume};

/// Threads that are served at a time. More wait for each other.
const PLACES: usize = 16;

/// Where one thread at a time does its work; empty until then.
type Workplace = Mutex<Option<Blocking<RoamingRing>>>;
type PlaceGuard<'a> = MutexGuard<'a, Option<Blocking<RoamingRing>>>;

/// An open volume as bytes: any offset, any length, any thread.
///
/// ```no_run
/// let disk = cryptline::Open::new("disk.img").passphrase("secret").open()?.disk()?;
/// let mut word = [0; 11];
/// disk.read_at(4093, &mut word)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The calling thread does the work. Several threads do theirs at the same time, each with a queue that it finds
/// free: its own of the last time, as a rule, so that no lock is waited for. Nothing belongs to a thread, so the
/// volume is closed when this is dropped.
pub struct Disk {
    // Before the volume, which they lead into.
    places: Vec<Workplace>,
    gate: Gate,
    volume: Volume,
}

impl Disk {
    pub(crate) fn new(volume: Volume) -> Result<Self> {
        let gate = volume.gate_for_any_bytes()?;
        let count = gate.traits().queues.clamp(1, PLACES);
        let disk = Self { places: (0..count).map(|_| Mutex::new(None)).collect(), gate, volume };
        // What cannot work is told now.
        if let Some(place) = disk.places.first() {
            *cryptline_sys::lock(place) = Some(Blocking::roaming(&disk.gate)?);
        }
        Ok(disk)
    }

    /// Returns what was opened. Its own gate must not be used beside this: small writes of both would be lost.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The way in for fronts and queues that share the volume with this.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Bytes of the clear disk.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.gate.size()
    }

    /// Fills `target` from `offset`.
    ///
    /// # Errors
    /// A range that leaves the disk; a device that fails.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> std::result::Result<(), Fault> {
        self.with(|disk| disk.read_at(offset, target))
    }

    /// Writes `source` at `offset`; durable on return where asked.
    ///
    /// # Errors
    /// A range that leaves the disk, of which nothing is written; a device that fails or cannot be written.
    pub fn write_at(&self, offset: u64, source: &[u8], durable: bool) -> std::result::Result<(), Fault> {
        self.with(|disk| disk.write_at(offset, source, durable))
    }

    /// Makes everything durable that was written, by whichever thread.
    ///
    /// # Errors
    /// Where that is not known to be so. Later flushes fail then, too.
    pub fn flush(&self) -> std::result::Result<(), Fault> {
        self.with(Blocking::flush)
    }

    /// Says that a range is no longer needed. Its contents are then unspecified.
    ///
    /// # Errors
    /// [`Fault::NotSupported`] where discards are not passed down.
    pub fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), Fault> {
        self.with(|disk| disk.discard(offset, len))
    }

    /// Makes a range read as zeros, by writing them where the volume has no other way.
    ///
    /// # Errors
    /// A range that leaves the disk; a device that fails or cannot be written.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> std::result::Result<(), Fault> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size()).ok_or(Fault::OutOfRange)?;
        // Before the first part is written. Where there is nothing to zero, nothing is wrong.
        if !(offset | len).is_multiple_of(self.gate.geometry().logical_block.into()) {
            return Err(Fault::Misaligned);
        }
        self.with(|disk| {
            let mut outcome = Combined::new(true);
            match disk.write_zeroes(offset, len, false) {
                Err(Fault::NotSupported | Fault::Misaligned) => {}
                Err(Fault::Partly) => outcome.add(Ok(())),
                done => return done,
            }
            let mut at = offset;
            while at < end && !outcome.has_failed() {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                let piece = &ZEROS[..left.min(ZEROS.len())];
                outcome.add(disk.write_at(at, piece, false));
                at += piece.len() as u64;
            }
            outcome.result()
        })
    }

    /// Returns what is known of the allocation of all bytes from `offset` on, run by run.
    pub fn extents(&self, offset: u64) -> impl Iterator<Item = std::result::Result<Extent, Fault>> {
        self.volume.extents(offset)
    }

    /// Does `work` in the first free place, beginning with that of this thread.
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Blocking<RoamingRing>) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        let (count, own) = (self.places.len(), own_place());
        let mut in_turn = (0..count).map(|step| &self.places[(own + step) % count]);
        let free = in_turn.find_map(|place| match place.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(afresh(place, poisoned)),
            Err(TryLockError::WouldBlock) => None,
        });
        let mut place = free.unwrap_or_else(|| wait_for(&self.places[own % count]));
        let disk = match &mut *place {
            Some(disk) => disk,
            empty => empty.insert(Blocking::roaming(&self.gate).map_err(|error| match error {
                OpenError::Remote { .. } => Fault::Lost,
                OpenError::Memory(_) | OpenError::Thread(_) => Fault::Io(Errno::NOMEM),
                _ => Fault::Io(Errno::IO),
            })?),
        };
        work(disk)
    }
}

fn wait_for(place: &Workplace) -> PlaceGuard<'_> {
    let locked = place.lock();
    locked.unwrap_or_else(|poisoned| afresh(place, poisoned))
}

/// A place empty and sound again: whoever panicked there may have left it halfway through a request.
fn afresh<'a>(place: &'a Workplace, poisoned: PoisonError<PlaceGuard<'a>>) -> PlaceGuard<'a> {
    let mut guard = poisoned.into_inner();
    place.clear_poison();
    *guard = None;
    guard
}

/// A number of this thread's own.
fn own_place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(next));
            next
        })
    })
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
