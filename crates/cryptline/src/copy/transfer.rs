//! All threads of a copy: started, watched, and brought to one end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};

use super::feed::{CHUNK, Feed, Grow, PADDED, SourceStream};
use super::hashes::{CopyHash, CopyHashed, Hashes};
use super::marks::WorkerMarks;
use super::source::{CopySource, SourceBytes};
use super::sums::{CopyComparison, Sum};
use super::worker::{CopyShared, Worker, Zeros};
use super::{Copy, CopyJournal, CopyTrouble};
use crate::create::Progress;

/// More threads than this gain nothing: memory is the limit by then.
const WORKERS_MAX: usize = 16;
/// How often a flush tells how much is durable.
const FLUSHES: Duration = Duration::from_secs(2);
/// A flush each time so many bytes are written, or of a copy that can go on later, parts of it.
const FLUSHED: u64 = 256 << 20;
const PARTS: u64 = 32;
/// How often the caller is told how far it is.
const TICK: Duration = Duration::from_millis(250);

/// One copy.
pub(crate) struct Transfer<'a> {
    pub source: &'a CopySource,
    pub dest: &'a Gate,
    pub backend: BackendChoice,
    pub zeros: Zeros,
    /// Remember what was read.
    pub sums: bool,
    /// Hash what was read.
    pub hashes: &'a [CopyHash],
    pub stop: &'a AtomicBool,
    /// Makes room in the destination, for a stream.
    pub grow: Option<Grow<'a>>,
    /// For a copy that can go on later.
    pub again: Option<&'a CopyJournal<'a>>,
    pub tell: &'a dyn Fn(Progress<'_>) -> crate::Result<()>,
}

/// Result of a transfer.
pub(crate) struct Moved {
    /// Bytes of the source.
    pub bytes: u64,
    /// Of them, those that did not have to be written.
    pub skipped: u64,
    pub sums: Vec<Sum>,
    pub hashed: Vec<CopyHashed>,
}

impl<'a> Transfer<'a> {
    /// From the source of `copy`, once.
    pub fn new(
        copy: &'a Copy,
        dest: &'a Gate,
        zeros: Zeros,
        tell: &'a dyn Fn(Progress<'_>) -> crate::Result<()>,
    ) -> Self {
        let Copy { source, backend, verify, hashes, stop, .. } = copy;
        Self { source, dest, backend: *backend, zeros, sums: *verify, hashes, stop, grow: None, again: None, tell }
    }

    /// Bytes that the destination must have: whole blocks.
    pub fn needs(source: &CopySource, dest: &Gate) -> Option<u64> {
        let block = u64::from(dest.geometry().logical_block);
        source.size().map(|size| size.next_multiple_of(block))
    }

    /// Copies everything, and returns once it is durable.
    pub fn run(&self) -> Result<Moved, CopyTrouble> {
        let (feed, end) = self.feed();
        let of = self.source.size();
        let from = self.again.map_or(0, |journal| journal.mark);
        (self.tell)(Progress::Copied { bytes: from, of }).map_err(CopyTrouble::Told)?;
        let hashes = self.start_hashes(from)?;
        let shared = CopyShared {
            feed,
            dest: self.dest,
            backend: self.backend,
            zeros: self.zeros,
            sums: self.sums,
            hashes: hashes.map(Mutex::new),
            marks: WorkerMarks::new(WORKERS_MAX, from),
            flushed: match self.again {
                Some(_) => (end / PARTS).clamp(4 * CHUNK as u64, FLUSHED),
                None => FLUSHED,
            },
            stop: self.stop,
            failed: AtomicBool::new(false),
            flush: AtomicBool::new(false),
            done: AtomicU64::new(from),
            written: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            durable: AtomicU64::new(from),
        };
        let chunks = usize::try_from(end / CHUNK as u64).map_or(usize::MAX, |chunks| chunks + 1);
        let workers = self.workers(chunks);
        let each = chunks.div_ceil(workers).saturating_mul(2).min(1 << 20);
        let work = || Worker::new(&shared, each).and_then(Worker::run);
        let (mut told, mut noted) = (Instant::now(), from);
        let tell = || {
            if let Some(journal) = self.again
                && shared.marks.durable() > noted
            {
                noted = shared.marks.durable();
                journal.note(noted).map_err(CopyTrouble::Grow)?;
            }
            if told.elapsed() >= FLUSHES {
                told = Instant::now();
                shared.flush.store(true, Ordering::Relaxed);
            }
            let bytes = shared.durable.load(Ordering::Relaxed);
            (self.tell)(Progress::Copied { bytes, of }).map_err(CopyTrouble::Told)
        };
        let mut sums: Vec<Sum> = together(workers, &shared.failed, work, tell)?.into_iter().flatten().collect();
        let bytes = match shared.feed {
            Feed::Device { .. } => of.unwrap_or(end),
            Feed::Stream(stream) => {
                stream.into_inner().map_or_else(|poisoned| poisoned.into_inner().position, |it| it.position)
            }
        };
        if bytes == 0 {
            // Whoever should have written into the pipe has failed.
            return Err(CopyTrouble::Empty);
        }
        if self.sums {
            sums.extend(self.sums_before(from)?);
        }
        let mut hashes = shared.hashes.map(|it| it.into_inner().unwrap_or_else(PoisonError::into_inner));
        if let SourceBytes::Device { .. } = self.source.bytes {
            sums.extend(self.copy_rest(end, hashes.as_mut())?.filter(|_| self.sums));
        }
        let mut dest = Blocking::new(self.dest, self.backend).map_err(CopyTrouble::Open)?;
        dest.flush().map_err(CopyTrouble::Flush)?;
        if self.source.has_changed() {
            return Err(CopyTrouble::Changed);
        }
        (self.tell)(Progress::Copied { bytes, of }).map_err(CopyTrouble::Told)?;
        assert!(hashes.as_ref().is_none_or(|it| it.len == bytes), "all that was copied was hashed");
        let hashed = hashes.map_or_else(Vec::new, Hashes::finish);
        Ok(Moved { bytes, skipped: shared.skipped.into_inner(), sums, hashed })
    }

    /// Where the chunks come from, and where the last whole block ends.
    fn feed(&self) -> (Feed<'_>, u64) {
        match &self.source.bytes {
            SourceBytes::Device { gate, size, .. } => {
                let blocks = [gate, self.dest].map(|it| u64::from(it.geometry().logical_block));
                let block = blocks[0].max(blocks[1]);
                let from = self.again.map_or(0, |journal| journal.mark);
                let next = AtomicU64::new(from);
                let end = size - size % block;
                (Feed::Device { gate, next, end }, end)
            }
            SourceBytes::Stream(file) => {
                let stream = SourceStream {
                    file,
                    position: 0,
                    room: self.dest.size(),
                    grow: self.grow,
                    block: PADDED.max(self.dest.geometry().logical_block as usize),
                    is_over: false,
                };
                (Feed::Stream(Mutex::new(stream)), self.dest.size())
            }
        }
    }

    fn workers(&self, chunks: usize) -> usize {
        if !self.hashes.is_empty() {
            return 1;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let source = match &self.source.bytes {
            SourceBytes::Device { gate, .. } => gate.traits().queues,
            SourceBytes::Stream(_) => usize::MAX,
        };
        let queues = source.min(self.dest.traits().queues);
        cores.min(WORKERS_MAX).min(queues).min(chunks).max(1)
    }

    /// Returns the sums of what the source has where an earlier run has copied it.
    fn sums_before(&self, mark: u64) -> Result<Vec<Sum>, CopyTrouble> {
        let SourceBytes::Device { gate, .. } = &self.source.bytes else {
            return Ok(Vec::new());
        };
        let (next, failed, backend) = (AtomicU64::new(0), AtomicBool::new(false), self.backend);
        let work = || {
            let mut source = Blocking::new(gate, backend).map_err(CopyTrouble::Open)?;
            let (mut bytes, mut sums) = (vec![0; CHUNK], Vec::new());
            loop {
                if self.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
                    return Err(CopyTrouble::Stopped);
                }
                let offset = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if offset >= mark {
                    return Ok(sums);
                }
                let read = source.read_at(offset, &mut bytes);
                read.map_err(|fault| CopyTrouble::Read { offset, fault })?;
                sums.push(Sum::of(offset, &bytes));
            }
        };
        let chunks = usize::try_from(mark / CHUNK as u64).unwrap_or(usize::MAX);
        let sums = together(self.workers(chunks), &failed, work, || Ok(()))?;
        Ok(sums.into_iter().flatten().collect())
    }

    /// Starts hashing, with what the source has where an earlier run has copied it.
    fn start_hashes(&self, mark: u64) -> Result<Option<Hashes>, CopyTrouble> {
        let Some(mut hashes) = Hashes::start(self.hashes)? else { return Ok(None) };
        let Some(gate) = self.source.gate().filter(|_| mark > 0) else { return Ok(Some(hashes)) };
        let mut source = Blocking::new(gate, self.backend).map_err(CopyTrouble::Open)?;
        let mut bytes = vec![0; CHUNK];
        for offset in (0..mark).step_by(CHUNK) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CopyTrouble::Stopped);
            }
            let read = source.read_at(offset, &mut bytes);
            read.map_err(|fault| CopyTrouble::Read { offset, fault })?;
            hashes.add(&bytes);
        }
        Ok(Some(hashes))
    }

    /// Copies what lies behind the last block that both sides have, and zeros up to the end of the destination's.
    fn copy_rest(&self, end: u64, hashes: Option<&mut Hashes>) -> Result<Option<Sum>, CopyTrouble> {
        let mut rest = self.source.rest(end, self.backend)?;
        if rest.is_empty() {
            return Ok(None);
        }
        if let Some(hashes) = hashes {
            hashes.add(&rest);
        }
        let block = self.dest.geometry().logical_block as usize;
        rest.resize(rest.len().next_multiple_of(block), 0);
        let mut dest = Blocking::new(self.dest, self.backend).map_err(CopyTrouble::Open)?;
        let written = dest.write_at(end, &rest, false);
        written.map_err(|fault| CopyTrouble::Write { offset: end, fault })?;
        Ok(Some(Sum::of(end, &rest)))
    }
}

impl Moved {
    /// Compares what `gate` has with what was read of the source.
    pub fn compare(
        &self,
        gate: &Gate,
        copy: &Copy,
        tell: &dyn Fn(Progress<'_>) -> crate::Result<()>,
    ) -> Result<(), CopyTrouble> {
        let comparison = CopyComparison {
            gate,
            sums: &self.sums,
            backend: copy.backend,
            next: AtomicUsize::new(0),
            stop: &copy.stop,
            failed: AtomicBool::new(false),
            done: AtomicU64::new(0),
        };
        let of = self.bytes;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.min(WORKERS_MAX).min(gate.traits().queues).max(1);
        let tell = || {
            let bytes = comparison.done.load(Ordering::Relaxed).min(of);
            tell(Progress::Compared { bytes, of }).map_err(CopyTrouble::Told)
        };
        together(workers, &comparison.failed, || comparison.run(), tell)?;
        Ok(())
    }
}

/// Runs `work` on so many threads, and says how far it is. The first that fails ends the others.
fn together<T: Send>(
    workers: usize,
    failed: &AtomicBool,
    work: impl Fn() -> Result<T, CopyTrouble> + Sync,
    mut tell: impl FnMut() -> Result<(), CopyTrouble>,
) -> Result<Vec<T>, CopyTrouble> {
    let ended = AtomicUsize::new(0);
    let here = thread::current();
    let one = || {
        let mut ending = ThreadEnding { failed, ended: &ended, here: &here, is_good: false };
        let done = work();
        ending.is_good = done.is_ok();
        done
    };
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(workers);
        for number in 0..workers {
            let named = thread::Builder::new().name(format!("copy-{number}"));
            match named.spawn_scoped(scope, one) {
                Ok(handle) => running.push(handle),
                // Fewer do as well.
                Err(_) if number > 0 => break,
                Err(error) => return Err(CopyTrouble::Thread(error)),
            }
        }
        let mut trouble = None;
        while ended.load(Ordering::Acquire) < running.len() {
            thread::park_timeout(TICK);
            if trouble.is_none()
                && let Err(error) = tell()
            {
                trouble = Some(error);
                failed.store(true, Ordering::Relaxed);
            }
        }
        let mut all = Vec::with_capacity(running.len());
        for handle in running {
            match handle.join() {
                Ok(Ok(one)) => all.push(one),
                Ok(Err(error)) => trouble = Some(error.or(trouble)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        trouble.map_or(Ok(all), Err)
    })
}

/// Tells the others when a thread ends, also by a panic.
struct ThreadEnding<'a> {
    failed: &'a AtomicBool,
    ended: &'a AtomicUsize,
    here: &'a Thread,
    is_good: bool,
}

impl Drop for ThreadEnding<'_> {
    fn drop(&mut self) {
        if !self.is_good {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Release);
        self.here.unpark();
    }
}
