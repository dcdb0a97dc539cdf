//! Files in the page-cache model, whose medium takes its time, and is silent when it is told to.
//!
//! Each operation gets its plan when it is handed over: when it takes effect and when it is reported. A silent medium has
//! none: its operations begin when it speaks again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cryptline_sys::{BackendChoice, HandedOver, Io, NextEvent, SimulatedKernel, Simulation};
use cryptline_testkit::cache::Machine;
use rustix::io::Errno;

use crate::history::Careless;
use crate::points::{Point, sometimes};
use crate::sim::{self, Files, Held, name_of};

/// A ring over a silent medium waits so long, unless it speaks again: nothing else must end that wait by chance.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Whoever is in a system call to a silent medium waits for this key.
const SILENT_KEY: usize = 2;

/// The machine with all files of the simulation.
pub struct Media {
    machine: &'static Machine,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    seed: u64,
    careless: Option<Careless>,
    count: u64,
    /// All takes so many times as long.
    slowness: u64,
    /// Transfers that fail, one in so many.
    errors: u32,
    /// By number: when an operation takes effect, and when it is reported, after it was handed over at the first.
    moments: Vec<Moments>,
    silent: Vec<Silence>,
    /// Threads whose rings wait for a silent medium.
    waiting: Vec<usize>,
}

struct Moments {
    handed: u64,
    effect: u64,
    report: u64,
    file: (u64, u64),
}

struct Silence {
    file: (u64, u64),
    _held: Held,
}

impl Media {
    /// Media for good.
    pub fn new() -> &'static Self {
        Box::leak(Box::new(Self { machine: Machine::new(), plans: Mutex::default() }))
    }

    pub fn machine(&self) -> &'static Machine {
        self.machine
    }

    /// The backend of rings over these media.
    pub fn backend(&'static self) -> BackendChoice {
        BackendChoice::Simulated(Simulation::new(self))
    }

    /// Begins a history.
    pub fn reset(&self, seed: u64, careless: Option<Careless>) {
        *self.plans() = Plans { seed, careless, slowness: 1, ..Plans::default() };
    }

    /// From here on all takes so many times as long, and one transfer in so many fails; none where that is 0.
    pub fn be(&self, slowness: u64, errors: u32) {
        let mut plans = self.plans();
        (plans.slowness, plans.errors) = (slowness, errors);
    }

    /// Makes the medium of a file silent.
    pub fn silence(&self, file: &File) {
        let file = name_of(file);
        let held = sim::hold(file);
        self.plans().silent.push(Silence { file, _held: held });
    }

    /// All media speak again.
    pub fn speak(&self) {
        let (silent, waiting) = {
            let mut plans = self.plans();
            (std::mem::take(&mut plans.silent), std::mem::take(&mut plans.waiting))
        };
        drop(silent);
        if !waiting.is_empty() {
            sometimes(Point::SpokeAgain);
        }
        waiting.into_iter().for_each(sim::rouse);
        sim::kick(SILENT_KEY, usize::MAX);
    }

    /// Draws what the machine leaves to chance in its next step.
    fn begin_step(&self) -> u64 {
        let mut plans = self.plans();
        plans.count += 1;
        let chance = sim::mix(&[plans.seed, 8, plans.count]);
        drop(plans);
        self.machine.step(Some(chance));
        chance
    }

    /// Lets the caller wait for the medium of a file: for a while, and until it speaks.
    fn take_time(&self, file: impl AsFd, waits: bool) {
        if !sim::is_managed() {
            return;
        }
        let file = name_of(file);
        if waits {
            let time = self.plans().draw();
            sim::wait_for(None, Some(Duration::from_nanos(time)));
        }
        while self.plans().is_silent(file) {
            sim::wait_for(Some(SILENT_KEY), None);
        }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plans {
    fn is_silent(&self, file: (u64, u64)) -> bool {
        self.silent.iter().any(|silence| silence.file == file)
    }

    /// Nanoseconds that something takes: mostly little.
    fn draw(&mut self) -> u64 {
        self.count += 1;
        let word = sim::mix(&[self.seed, 7, self.count]);
        let range = [20_000, 100_000, 100_000, 4_000_000][(word % 4) as usize];
        let slow = if self.careless == Some(Careless::IsSlow) && word.is_multiple_of(64) { 2_000_000_000 } else { 0 };
        (1_000 + (word >> 8) % range) * self.slowness.max(1) + slow
    }
}

fn set_durable(io: &mut Io, is_durable: bool) {
    if let Io::Write { durable, .. } = io {
        *durable = is_durable;
    }
}

/// A point that the end of an operation may have reached.
fn point_of(io: &Io, result: Result<usize, Errno>) -> Option<Point> {
    match (io, result) {
        (Io::Sync { .. }, Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)) => Some(Point::SyncRefused),
        (Io::Allocate { .. }, Err(Errno::OPNOTSUPP)) => Some(Point::PunchRefused),
        (Io::Read { len, .. } | Io::Write { len, .. }, Ok(done)) if done < *len => Some(Point::TransferShort),
        _ => None,
    }
}

impl Files for Media {
    fn sync(&self, file: &File) -> Option<io::Result<()>> {
        if !sim::bypass(|| self.machine.watches(file)) {
            return None;
        }
        self.take_time(file, true);
        self.begin_step();
        sim::bypass(|| self.machine.synced(file))
    }

    fn seek(&self, file: BorrowedFd<'_>, offset: usize, hole: bool) -> Option<Result<usize, Errno>> {
        sim::bypass(|| self.machine.seek(file, offset, hole))
    }
}

impl SimulatedKernel for Media {
    fn opened(&self, file: &Arc<OwnedFd>) {
        if sim::is_socket(&**file) {
            return;
        }
        sim::bypass(|| self.machine.opened(file));
    }

    fn begin(&self, file: &OwnedFd, _io: &Io) -> u64 {
        let file = name_of(file);
        let mut plans = self.plans();
        let handed = sim::now();
        let effect = handed + plans.draw();
        let report = effect + plans.draw();
        plans.moments.push(Moments { handed, effect, report, file });
        plans.moments.len() as u64 - 1
    }

    fn run(&self, file: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        let (careless, errors) = {
            let plans = self.plans();
            (plans.careless, u64::from(plans.errors))
        };
        let chance = self.begin_step();
        let fails = errors > 0 && sim::mix(&[chance, 11]).is_multiple_of(errors);
        let result = match (careless, &mut *io) {
            (_, Io::Read { .. } | Io::Write { .. } | Io::Allocate { .. }) if fails => {
                Err(if chance.is_multiple_of(2) { Errno::IO } else { Errno::NOSPC })
            }
            (Some(Careless::SyncsNothing), Io::Sync { .. }) => Ok(0),
            (Some(Careless::Fails), Io::Read { .. } | Io::Write { .. }) if chance.is_multiple_of(16) => Err(Errno::IO),
            (Some(Careless::LosesWrites), Io::Write { len, .. }) if chance.is_multiple_of(8) => Ok(*len),
            (Some(Careless::ForgetsDurable), io @ Io::Write { durable: true, .. }) => {
                set_durable(io, false);
                let result = sim::bypass(|| self.machine.run(file, io));
                set_durable(io, true);
                result
            }
            (_, io) => sim::bypass(|| self.machine.run(file, io)),
        };
        point_of(io, result).into_iter().for_each(sometimes);
        sim::note(result.map_or(u64::MAX, |len| len as u64));
        result
    }

    fn run_at_once(&self, fd: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        let waits =
            matches!(io, Io::Sync { .. } | Io::Allocate { .. } | Io::Read { .. } | Io::Write { durable: true, .. });
        self.take_time(fd, waits);
        self.run(fd, io)
    }

    fn mapped(&self, file: &File) {
        sim::bypass(|| self.machine.mapped(file));
    }

    fn msync(&self, file: &File, offset: usize, len: usize) -> Result<(), Errno> {
        self.take_time(file, true);
        self.begin_step();
        sim::bypass(|| self.machine.msync(file, offset, len))
    }

    fn next(&self, pending: &[HandedOver]) -> NextEvent {
        let plans = &mut *self.plans();
        let now = sim::now();
        let mut first: Option<(u64, NextEvent)> = None;
        for (index, handed) in pending.iter().enumerate() {
            let moments = &plans.moments[usize::try_from(handed.number()).expect("an index")];
            debug_assert!(moments.handed <= now, "the clock goes forward");
            if plans.is_silent(moments.file) {
                continue;
            }
            let next = if handed.has_run() {
                (moments.report, NextEvent::Finish(index))
            } else {
                (moments.effect, NextEvent::Run(index))
            };
            if first.is_none_or(|known| next.0 < known.0) {
                first = Some(next);
            }
        }
        match first {
            Some((moment, next)) if moment <= now => next,
            Some((moment, _)) => NextEvent::Wait(Duration::from_nanos(moment - now)),
            None => {
                plans.waiting.push(sim::me());
                NextEvent::Wait(SILENCE)
            }
        }
    }

    fn outlives_its_ring(&self) -> bool {
        let outlives = self.plans().draw().is_multiple_of(2);
        if outlives {
            sometimes(Point::OutlivedRing);
        }
        outlives
    }
}
