//! The page-cache model: a machine whose files behave as Linux's page cache does towards several
//! open files, and which loses power.
//!
//! ```text
//! FileDevice ─► Ring (simulated) ─► Machine ─► file: cached, medium, durable; errseq_t
//!                                     ▲
//!      writeback, eviction, another program's fsync, power cut: steps of a test
//! ```
//!
//! * A write into the cache is lost when its writeback fails: the page is then clean, reads show it
//!   until it is evicted, and the error is reported once to each open file (`errseq_t`,
//!   lib/errseq.c), by `fsync` or a durable write. A file opened later gets it only if nobody has.
//! * The number of the error is any, `EINTR` too: a sync that is interrupted, and nothing else, looks the same.
//! * `fsync` makes durable what the medium has; a durable write only its own range. One that is refused (`EINVAL`,
//!   `EOPNOTSUPP`, `EPERM` and others) does nothing.
//! * A crash keeps any version of each unit that was not made durable: 512 bytes, or as many as the
//!   medium writes at once.
//! * Transfers come back short or interrupted; operations take effect, and are reported, in any order.
//!
//! Open files are the system's, so the code above opens them as usual; only their content is here. A
//! file counts as opened when a ring gets it. A machine is made once and for good (a ring's backend
//! refers to it), and [reset](Machine::reset) for each history.

mod chance;
mod content;
pub mod errseq;
mod folder;
mod inode;
mod mapped;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use cryptline_sys::{Allocate, BackendChoice, HandedOver, Io, NextEvent, SimulatedKernel, Simulation};
use rustix::fs::OFlags;
use rustix::io::Errno;

pub use chance::{Chance, Temper};
pub use content::FileContent;
pub use folder::{Cut, Left, Names};
pub use inode::Survivors;

use errseq::Since;
use folder::Folder;
use inode::Inode;

/// A machine with files.
#[derive(Default)]
pub struct Machine {
    state: Mutex<State>,
}

/// A file of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOf(usize);

/// A file that another program has open.
#[derive(Debug)]
pub struct Foreign {
    file: FileOf,
    since: Since,
}

#[derive(Default)]
struct State {
    files: Vec<Inode>,
    /// By device and inode number.
    names: HashMap<(u64, u64), FileOf>,
    open: HashMap<RawFd, Open>,
    chance: Chance,
    /// Files whose page cache is the system's own, since they are mapped.
    real: HashMap<usize, File>,
    mapped: HashMap<RawFd, (FileOf, Since)>,
    /// A folder whose files come and go, and those of its files that were met.
    folder: Option<Folder>,
    real_members: HashMap<usize, File>,
    /// After how many syncs of a mapping the power fails, and what that leaves.
    outage: Option<(u32, Survivors)>,
    left: Option<FileContent>,
}

struct Open {
    identity: Weak<OwnedFd>,
    file: FileOf,
    since: Since,
    direct: bool,
}

impl Machine {
    /// A machine, for good.
    #[must_use]
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The backend of rings on this machine.
    #[must_use]
    pub fn backend(&'static self) -> BackendChoice {
        BackendChoice::Simulated(Simulation::new(self))
    }

    /// Forgets all files and open files; from here on the machine is as wild as `temper` says.
    pub fn reset(&self, temper: Temper) {
        let mut state = self.lock();
        *state = State::default();
        state.chance.temper = temper;
        state.chance.restart(None);
    }

    /// From here on the machine is as wild as `temper` says.
    pub fn change_temper(&self, temper: Temper) {
        self.lock().chance.temper = temper;
    }

    /// Puts a file of the system on this machine, with the content `image`, on a medium that writes
    /// `unit` bytes at once.
    ///
    /// # Panics
    /// Where the file can not be asked for its number.
    pub fn attach(&self, file: &File, image: FileContent, unit: usize) -> FileOf {
        let name = name_of(file);
        let mut state = self.lock();
        let number = FileOf(state.files.len());
        state.files.push(Inode::new(image, unit));
        state.names.insert(name, number);
        number
    }

    /// Begins a step of a history: what is left to chance is drawn from `seed`; all goes well
    /// where there is none.
    pub fn step(&self, seed: Option<u64>) {
        self.lock().chance.restart(seed);
    }

    /// The kernel writes back what is dirty in a range, and fails where there is a `fault`. How
    /// many units.
    pub fn write_back(&self, file: FileOf, range: Range<usize>, fault: Option<Errno>) -> usize {
        let mut state = self.lock();
        state.absorb(file);
        let State { files, chance, .. } = &mut *state;
        let count = files[file.0].write_back(range, fault, chance);
        state.reflect(file);
        count
    }

    /// The kernel drops what is clean in a range from the cache.
    pub fn evict(&self, file: FileOf, range: Range<usize>) {
        let mut state = self.lock();
        state.absorb(file);
        state.files[file.0].evict(range);
        state.reflect(file);
    }

    /// Another program opens a file.
    #[must_use]
    pub fn foreign_open(&self, file: FileOf) -> Foreign {
        let since = self.lock().files[file.0].errors.sample();
        Foreign { file, since }
    }

    /// Another program's `fsync`.
    pub fn foreign_sync(&self, foreign: &mut Foreign) -> Result<(), Errno> {
        let mut state = self.lock();
        state.absorb(foreign.file);
        let synced = state.sync(foreign.file, None, &mut foreign.since);
        state.reflect(foreign.file);
        synced
    }

    /// Another program reads a range.
    pub fn foreign_read(&self, foreign: &Foreign, range: Range<usize>) {
        self.lock().files[foreign.file.0].populate(range);
    }

    /// Writes into the cache of a file, without a ring.
    pub fn write_at(&self, file: FileOf, offset: usize, source: &[u8]) {
        self.lock().files[file.0].write_cached(offset, source);
    }

    /// Reads a file through the cache, without a ring.
    pub fn read_at(&self, file: FileOf, offset: usize, target: &mut [u8]) {
        self.lock().files[file.0].read(offset, target, false);
    }

    /// The next place, from `offset` on, at which a file has data, or has a hole: wherever it reads as zeros, as if its file
    /// system knew all of them. `None` for files of the system, and for those of a folder.
    pub fn seek(&self, file: impl AsFd, offset: usize, hole: bool) -> Option<Result<usize, Errno>> {
        // Held by whoever asks: it is this model, which asks the system for the pages of a mapping.
        let state = self.state.try_lock().ok()?;
        let file = state.names.get(&name_of(file)).copied().filter(|file| !state.is_member(*file))?;
        let inode = &state.files[file.0];
        if offset >= inode.size() {
            return Some(Err(Errno::NXIO));
        }
        let mut unit = vec![0; inode.unit()];
        let begins = (offset / unit.len()..inode.size() / unit.len()).map(|number| number * inode.unit());
        let found = begins.into_iter().find(|at| {
            inode.read(*at, &mut unit, false);
            unit.iter().all(|byte| *byte == 0) == hole
        });
        Some(match found {
            Some(at) => Ok(at.max(offset)),
            None if hole => Ok(inode.size()),
            None => Err(Errno::NXIO),
        })
    }

    /// Tells if a write into this file was lost so far.
    #[must_use]
    pub fn has_lost(&self, file: FileOf) -> bool {
        self.lock().files[file.0].has_lost
    }

    /// Returns what a power cut now leaves of a file.
    #[must_use]
    pub fn after_crash(&self, file: FileOf, survivors: Survivors) -> FileContent {
        let mut state = self.lock();
        state.absorb(file);
        state.files[file.0].after_crash(survivors)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        cryptline_sys::lock(&self.state)
    }
}

impl State {
    /// `range` is `None` for all of the file.
    fn sync(&mut self, file: FileOf, range: Option<Range<usize>>, since: &mut Since) -> Result<(), Errno> {
        let chance = &mut self.chance;
        if chance.one_in(chance.temper.unsynced) {
            // Those of a file system that asks a server are what that says.
            const REFUSALS: [Errno; 7] = [
                Errno::INVAL,
                Errno::OPNOTSUPP,
                Errno::NOSYS,
                Errno::PERM,
                Errno::ACCESS,
                Errno::ROFS,
                Errno::SHUTDOWN,
            ];
            return Err(REFUSALS[chance.below(REFUSALS.len())]);
        }
        self.files[file.0].sync(range.unwrap_or(0..usize::MAX), since, chance)
    }

    fn read(&mut self, file: FileOf, direct: bool, at: usize, target: &mut [u8]) -> Reply {
        let inode = &mut self.files[file.0];
        let len = target.len().min(inode.size().saturating_sub(at));
        if direct {
            inode.settle(at, len)?;
        }
        let len = shortened(len, inode.unit(), &mut self.chance);
        inode.read(at, &mut target[..len], direct);
        Ok(len)
    }

    fn write(&mut self, file: FileOf, direct: bool, at: usize, source: &[u8]) -> Reply {
        let inode = &mut self.files[file.0];
        let chance = &mut self.chance;
        let len = shortened(source.len(), inode.unit(), chance);
        if !direct {
            inode.write_cached(at, &source[..len]);
            return Ok(len);
        }
        inode.settle(at, len)?;
        if chance.one_in(chance.temper.direct) {
            // What comes before the place that failed has arrived.
            let arrived = len / inode.unit() / 2 * inode.unit();
            inode.write_direct(at, &source[..arrived]);
            return Err(inode::an_error(chance));
        }
        inode.write_direct(at, &source[..len]);
        Ok(len)
    }

    fn allocate(&mut self, file: FileOf, at: usize, len: usize) -> Reply {
        let inode = &mut self.files[file.0];
        if self.chance.one_in(self.chance.temper.refused) {
            // FUSE finds out when the range has been written back.
            if self.chance.one_in(2) {
                inode.settle(at, len)?;
            }
            return Err(Errno::OPNOTSUPP);
        }
        inode.settle(at, len)?;
        if self.chance.one_in(self.chance.temper.direct) {
            let error = inode::an_error(&mut self.chance);
            if error != Errno::INTR {
                // As with writes. One that was interrupted is asked for again, and may be refused then.
                let arrived = len / inode.unit() / 2 * inode.unit();
                inode.write_direct(at, &vec![0; arrived]);
            }
            return Err(error);
        }
        inode.write_direct(at, &vec![0; len]);
        Ok(0)
    }
}

type Reply = Result<usize, Errno>;

impl SimulatedKernel for Machine {
    fn opened(&self, file: &Arc<OwnedFd>) {
        let mut state = self.lock();
        let fd = file.as_raw_fd();
        let identity = Arc::downgrade(file);
        let known = state.open.get(&fd);
        if known.is_some_and(|known| known.identity.ptr_eq(&identity)) {
            return;
        }
        // Sockets and the like are the system's.
        let known = state.names.get(&name_of(file)).copied();
        let adopt = |state: &mut State| {
            let file = state.folder.as_ref().and_then(|_| file.try_clone().ok())?;
            state.adopted(&File::from(file))
        };
        let Some(number) = known.or_else(|| adopt(&mut state)) else { return };
        let flags = rustix::fs::fcntl_getfl(file).expect("an open file has flags");
        let open = Open {
            identity,
            file: number,
            since: state.files[number.0].errors.sample(),
            direct: flags.contains(OFlags::DIRECT),
        };
        state.open.insert(fd, open);
    }

    fn run(&self, fd: &OwnedFd, io: &mut Io) -> Reply {
        let mut state = self.lock();
        let interrupted = state.chance.temper.interrupted;
        if state.chance.one_in(interrupted) {
            return Err(Errno::INTR);
        }
        let open = &state.open[&fd.as_raw_fd()];
        let (file, direct, mut since) = (open.file, open.direct, open.since);
        let range = range_of(io).filter(|_| state.is_member(file));
        let changes = !matches!(io, Io::Read { .. });
        if let Some(range) = &range {
            if changes {
                state.happens();
            }
            state.take_stores(file, Some(range.clone()));
        }
        let result = match io {
            Io::Read { buffer, start, len, offset, .. } => {
                let target = &mut buffer[*start..*start + *len];
                state.read(file, direct, position(*offset), target)
            }
            Io::Write { buffer, start, len, offset, durable, .. } => {
                let at = position(*offset);
                let written = state.write(file, direct, at, &buffer[*start..*start + *len]);
                match written {
                    Ok(len) if *durable => {
                        let synced = state.sync(file, Some(at..at + len), &mut since);
                        synced.map(|()| len)
                    }
                    other => other,
                }
            }
            Io::Sync { .. } if state.is_member(file) => {
                state.happens();
                state.sync_adopted(file, &mut since).map(|()| 0)
            }
            Io::Sync { .. } => state.sync(file, None, &mut since).map(|()| 0),
            Io::Allocate { what: Allocate::PunchHole | Allocate::ZeroRange, offset, len, .. } => {
                state.allocate(file, position(*offset), position(*len))
            }
            Io::Receive { .. }
            | Io::Send { .. }
            | Io::ReadMessage { .. }
            | Io::WriteMessage { .. }
            | Io::Command(_)
            | Io::Fuse(_) => Err(Errno::NOTSOCK),
        };
        if let Some(range) = range.filter(|_| changes) {
            state.show(file, Some(range));
        }
        if let Some(open) = state.open.get_mut(&fd.as_raw_fd()) {
            open.since = since;
        }
        result
    }

    fn mapped(&self, file: &File) {
        self.lock().map(file);
    }

    fn msync(&self, file: &File, offset: usize, len: usize) -> Result<(), Errno> {
        self.lock().msync(file, offset, len)
    }

    fn next(&self, pending: &[HandedOver]) -> NextEvent {
        let count = pending.len();
        let chance = &mut self.lock().chance;
        if chance.is_calm() {
            return NextEvent::Finish(0);
        }
        match chance.below(4) {
            0 => NextEvent::Rest,
            1 => NextEvent::Run(chance.below(count)),
            _ => NextEvent::Finish(chance.below(count)),
        }
    }

    fn outlives_its_ring(&self) -> bool {
        self.lock().chance.one_in(2)
    }
}

/// Returns the bytes of its file that an operation reads or changes.
fn range_of(io: &Io) -> Option<Range<usize>> {
    let (at, len) = match io {
        Io::Read { offset, len, .. } | Io::Write { offset, len, .. } => (position(*offset), *len),
        Io::Allocate { offset, len, .. } => (position(*offset), position(*len)),
        _ => return None,
    };
    Some(at..at + len)
}

/// A length that a transfer came to: whole units, as after a signal or on a full disk.
fn shortened(len: usize, unit: usize, chance: &mut Chance) -> usize {
    let units = len / unit;
    if units > 1 && chance.one_in(chance.temper.short) { (1 + chance.below(units - 1)) * unit } else { len }
}

fn name_of(file: impl AsFd) -> (u64, u64) {
    let stat = rustix::fs::fstat(file).expect("an open file has a number");
    (stat.st_dev, stat.st_ino)
}

fn position(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a modelled file fits in memory")
}

#[cfg(test)]
mod tests;
