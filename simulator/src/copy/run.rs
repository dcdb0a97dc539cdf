//! A copy as it happens, run after run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cryptline::{Copied, Copy, CopyRemains as Remains, CopySource, Error, Holes, Problem, Progress};
use cryptline_testkit::cache::{Cut, Left, Names, Survivors, Temper};
use rustix::io::Errno;

use super::judge::{Judge, Wrong};
use super::place::{self, DEST, PART, START, Source};
use super::{CHUNK, Event, From, Into, Place, Plan, Run};
use crate::history::History;
use crate::run::{Outcome, take_panics};
use crate::sim;
use crate::world::World;

/// Threads that the simulation still has so long after its end wait for something that does not come.
const PATIENCE: Duration = Duration::from_secs(600);
/// Runs in which nothing happens, at most: whoever opens a file is told of what was lost before, if nobody was.
const CALM_RUNS: usize = 4;
/// A copy ends within a second once it is stopped, and what its media take besides.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// An operation takes no longer, times the slowness, and so many have to end.
const OPERATION: Duration = Duration::from_millis(9);
const OPERATIONS: u32 = 10;

/// Lets a copy happen.
pub fn run(place: &Place, history: &History, plan: &Plan) -> Outcome {
    let world = World::new(Vec::new(), || None);
    let (mut hash, mut switches, mut lasted, mut is_spoilt) = (history.seed, 0, Duration::ZERO, false);
    let source = place.make_source(plan).expect("a place for files");
    let found = place.found(plan);
    let judge = Judge::new(place, plan, &source.bytes, &found);
    let all = Runs {
        place,
        history,
        plan,
        source: &source,
        judge,
        world: &world,
        spoilt: AtomicBool::new(false),
        is_wrong: AtomicBool::new(false),
        has_met_faults: AtomicBool::new(false),
    };
    place.media.reset(history.seed, history.careless);
    place.media.machine().reset(Temper::default());
    let open_before = sim::descriptors();
    place.begin(plan, &source, &found).expect("a place for files");
    let calm = vec![Run::default(); CALM_RUNS];
    let mut is_done = false;
    for (number, run) in plan.runs.iter().chain(&calm).enumerate() {
        let (ended, simulated) = all.happen(number, run);
        hash = sim::mix(&[hash, simulated.hash]);
        switches += simulated.switches;
        lasted += simulated.lasted;
        if let Some(left) = &simulated.left {
            find(&world, format!("A10: threads are left\n{left}"));
            is_spoilt = true;
            break;
        }
        take_panics().into_iter().for_each(|panic| find(&world, panic));
        is_done = all.look_at(number, run, ended);
        if is_done || !world.lock().findings.is_empty() {
            break;
        }
    }
    place.media.machine().reset(Temper::default());
    let open_after = sim::descriptors();
    if open_after > open_before {
        find(&world, format!("A10: {} descriptors are left open", open_after - open_before));
    }
    let mut inner = world.lock();
    if !is_done && inner.findings.is_empty() {
        inner.findings.push(format!("A1: the copy does not end well in {CALM_RUNS} runs in which nothing happens"));
    }
    Outcome {
        findings: std::mem::take(&mut inner.findings),
        log: std::mem::take(&mut inner.log),
        hash,
        switches,
        lasted,
        promised: usize::from(is_done),
        is_spoilt,
    }
}

/// All runs of a copy.
struct Runs<'a> {
    place: &'a Place,
    history: &'a History,
    plan: &'a Plan,
    source: &'a Source,
    judge: Judge<'a>,
    world: &'a World,
    /// A byte of the copy was changed, in this run or an earlier one.
    spoilt: AtomicBool,
    /// Set while that byte may be there still.
    is_wrong: AtomicBool,
    /// Something that can fail a copy has happened since the machine was switched on.
    has_met_faults: AtomicBool,
}

/// How a run has ended.
struct Ended {
    result: Result<Copied, Error>,
    /// Remains of a power cut, before the end.
    cut: Option<Vec<Left>>,
    was_stopped: bool,
    was_spoilt: bool,
    /// Names of the files before the run.
    before: BTreeSet<OsString>,
}

/// Knowledge of those who make things happen in a run.
#[derive(Default)]
struct Happening {
    is_over: AtomicBool,
    stopped: Mutex<Option<u64>>,
    cut: Mutex<Option<Vec<Left>>>,
}

impl Runs<'_> {
    fn happen(&self, number: usize, run: &Run) -> (Ended, sim::Ended) {
        let plan = self.plan;
        let loses = run.faults.loses;
        let temper = Temper {
            short: run.faults.short,
            interrupted: run.faults.interrupts,
            writeback: loses,
            flush: loses,
            direct: loses,
            refused: run.faults.refuses,
            unsynced: run.faults.unsynced,
        };
        self.place.media.machine().change_temper(temper);
        self.place.media.be(plan.slowness, run.faults.errors);
        self.has_met_faults.fetch_or(run.faults.can_fail(), Ordering::Relaxed);
        self.world.lock().log.push(format!("run {number}: {run:?}"));
        let before = self.place.names().expect("a folder is read");
        let was_spoilt = self.spoilt.load(Ordering::Relaxed);
        sim::set_processors(plan.workers);
        let seed = sim::mix(&[self.history.seed, 300, number as u64]);
        let (mut ended, simulated) = sim::simulate(seed, PATIENCE, || self.live(run, seed));
        sim::set_processors(0);
        self.place.media.be(1, 0);
        self.place.media.machine().step(None);
        self.place.media.machine().change_temper(Temper::default());
        ended.before = before;
        ended.was_spoilt = !was_spoilt && self.spoilt.load(Ordering::Relaxed);
        (ended, simulated)
    }

    fn live(&self, run: &Run, seed: u64) -> Ended {
        let (happening, stop) = (Happening::default(), Arc::new(AtomicBool::new(false)));
        let result = std::thread::scope(|scope| {
            let (own, happens) = (&stop, &happening);
            scope.spawn(move || self.events(run, happens, own, seed));
            let copy = || {
                let result = match self.plan.from {
                    From::Stream => std::thread::scope(|feeding| {
                        let (theirs, ours) = UnixStream::pair().expect("sockets");
                        feeding.spawn(move || self.feed(theirs));
                        self.copy(Some(ours), &stop)
                    }),
                    _ => self.copy(None, &stop),
                };
                happening.is_over.store(true, Ordering::Relaxed);
                let told = result
                    .as_ref()
                    .map_or_else(|error| format!("ends: {error}"), |copied| format!("is done: {copied:?}"));
                self.world.say(|| format!("the copy {told}"));
                if let Some(at) = *happening.stopped.lock().unwrap_or_else(PoisonError::into_inner) {
                    self.judge_stop(sim::now() - at);
                }
                result
            };
            scope.spawn(copy).join()
        });
        let cut = happening.cut.lock().unwrap_or_else(PoisonError::into_inner).take();
        let was_stopped = stop.load(Ordering::Relaxed);
        let result = result.unwrap_or_else(|_| Err(Problem::NothingToCopy.into()));
        Ended { result, cut, was_stopped, was_spoilt: false, before: BTreeSet::new() }
    }

    fn judge_stop(&self, took: u64) {
        let limit = STOPS_WITHIN + OPERATION * OPERATIONS * u32::try_from(self.plan.slowness).expect("small");
        if u128::from(took) > limit.as_nanos() {
            self.world.find(format!("A8: the copy has ended {} ms after it was stopped", took / 1_000_000));
        }
    }

    /// Writes the source into a socket.
    fn feed(&self, mut stream: UnixStream) {
        for (number, piece) in self.source.bytes.chunks(100_000).enumerate() {
            let word = sim::mix(&[self.history.seed, 301, number as u64]);
            if word.is_multiple_of(4) {
                std::thread::sleep(Duration::from_micros((word >> 8) % 5_000 * self.plan.slowness));
            }
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    }

    fn copy(&self, stream: Option<UnixStream>, stop: &Arc<AtomicBool>) -> Result<Copied, Error> {
        let (plan, dest) = (self.plan, self.place.dest_path());
        let path = self.place.source_path();
        let volume = match plan.from {
            From::Volume => Some(place::volume(&path).read_only(true).open()?),
            _ => None,
        };
        let source = match (stream, &volume) {
            (Some(stream), _) => CopySource::stream(File::from(OwnedFd::from(stream)), "a stream"),
            (None, Some(volume)) => CopySource::volume(volume),
            (None, None) => CopySource::raw(&path)?,
        };
        let spoils = plan.spoils.filter(|_| !self.spoilt.load(Ordering::Relaxed));
        let was_spoilt = Arc::new(AtomicBool::new(false));
        let change = {
            let (of, into, done) = (plan.size() as u64, plan.into, Arc::clone(&was_spoilt));
            let folder = dest.parent().expect("a file lies in a folder").to_owned();
            move |progress: Progress<'_>| {
                if let (Some(at), Progress::Copied { bytes, .. }) = (spoils, progress)
                    && bytes == of
                    && !done.swap(true, Ordering::Relaxed)
                {
                    spoil(&folder, into, at);
                }
                Ok(())
            }
        };
        let copy = Copy::new(source)
            .holes(if plan.keeps_holes { Holes::Keep } else { Holes::Encrypt })
            .verify(plan.verifies)
            .replace(plan.replaces || plan.into.is_in_place())
            .stop(Arc::clone(stop))
            .backend(self.place.media.backend());
        let copy = if plan.into.is_again() { copy.resume("") } else { copy };
        let result = match plan.into {
            Into::File | Into::FileAgain => copy.on_progress(change).into_file(&dest),
            Into::Range => copy.on_progress(change).into_target(place::range_of(&dest)),
            Into::Volume => copy.on_progress(change).into_volume(|| Ok(self.place.opened(Into::Volume, &dest, false))),
            Into::Sealed | Into::SealedAgain => {
                let create = place::new_volume(&dest).replace(plan.replaces).fill(copy).on_progress(change);
                create.create().map(|created| created.copied.expect("it was filled"))
            }
        };
        self.spoilt.fetch_or(was_spoilt.load(Ordering::Relaxed), Ordering::Relaxed);
        result
    }

    /// Lets things happen while the copy runs.
    fn events(&self, run: &Run, happening: &Happening, stop: &AtomicBool, seed: u64) {
        let began = sim::now();
        let machine = self.place.media.machine();
        for (number, (at, event)) in run.events.iter().enumerate() {
            let until = began + nanos(*at);
            while sim::now() < until && !happening.is_over.load(Ordering::Relaxed) {
                let left = Duration::from_nanos(until.saturating_sub(sim::now()));
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
            if happening.is_over.load(Ordering::Relaxed) {
                return;
            }
            self.world.say(|| format!("{event:?}"));
            let chance = sim::mix(&[seed, 302, number as u64]);
            machine.step(Some(chance));
            match *event {
                Event::PowerCut => {
                    let left = sim::bypass(|| machine.folder_after_each(&cuts(chance)));
                    *happening.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
                    // What comes after it is of no interest.
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                Event::Stop => {
                    *happening.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(sim::now());
                    stop.store(true, Ordering::Relaxed);
                }
                Event::WriteBack { fails } => {
                    let fault = fails.then_some([Errno::IO, Errno::NOSPC, Errno::INTR][(chance % 3) as usize]);
                    let count = sim::bypass(|| machine.write_back_folder(fault));
                    self.world.say(|| format!("{count} units are written back"));
                }
                Event::Evict => sim::bypass(|| machine.evict_folder()),
                Event::Silence { source, lasts } => {
                    if stop.load(Ordering::Relaxed) {
                        // It would be waited for.
                        continue;
                    }
                    let files = sim::bypass(|| self.place.files()).unwrap_or_default();
                    if source {
                        self.place.media.silence(&self.source.file);
                    } else {
                        files.iter().for_each(|file| self.place.media.silence(file));
                    }
                    sim::bypass(|| drop(files));
                    std::thread::sleep(lasts);
                    self.place.media.speak();
                }
            }
        }
    }

    /// Judges what a run has left, and prepares the next one. Tells if the copy is done.
    fn look_at(&self, number: usize, run: &Run, ended: Ended) -> bool {
        let Ended { result, cut, was_stopped, was_spoilt, before } = ended;
        let is_done = result.is_ok() && cut.is_none();
        let is_wrong = was_spoilt || self.is_wrong.load(Ordering::Relaxed) && !is_done;
        self.is_wrong.store(is_wrong, Ordering::Relaxed);
        if let Some(all) = cut {
            for (at, how) in cuts(0).into_iter().enumerate().filter(|(at, _)| !all[..*at].contains(&all[*at])) {
                self.take(
                    self.judge.judge(&all[at], false, is_wrong),
                    &format!("after a power cut in run {number}, {how:?}"),
                );
            }
            let chosen = sim::mix(&[self.history.seed, 303, number as u64]) as usize % all.len();
            self.world.lock().log.push(format!("power cut {chosen} of run {number} it is"));
            self.place.begin(self.plan, self.source, &all[chosen]).expect("a place for files");
            self.has_met_faults.store(false, Ordering::Relaxed);
            // It had its name already, and is refused to be made again.
            return self.found_by_name(&all[chosen]);
        }
        let mut seen = vec![self.place.shown().expect("a folder is read")];
        self.take(self.judge.judge(&seen[0], is_done, is_wrong), &format!("after run {number}"));
        let survivors = sim::mix(&[self.history.seed, 304, number as u64]);
        // What has failed promises little.
        let cuts = &cuts(survivors)[..if is_done { 3 } else { 1 }];
        for (left, how) in self.place.media.machine().folder_after_each(cuts).into_iter().zip(cuts) {
            // Most cuts leave what another has left, which is judged once.
            if !seen.contains(&left) {
                let wrong = self.judge.judge(&left, is_done, is_wrong);
                self.take(wrong, &format!("after run {number} and a power cut, {how:?}"));
                seen.push(left);
            }
        }
        let shown = &seen[0];
        match &result {
            Ok(copied) => self.judge_success(copied, was_spoilt),
            Err(error) => {
                self.judge_failure(error, &before, shown);
                let is_differing = matches!(error.problem(), Problem::CopyDiffers { .. });
                let has_cause = match error.problem() {
                    Problem::CopyStopped(_) => was_stopped,
                    Problem::CopyDiffers { .. } => is_wrong || self.has_met_faults.load(Ordering::Relaxed),
                    _ => self.has_met_faults.load(Ordering::Relaxed),
                };
                if !has_cause {
                    find(self.world, format!("A9: run {number} fails without a cause: {error}"));
                }
                if is_differing && !self.plan.into.is_in_place() {
                    self.is_wrong.store(false, Ordering::Relaxed);
                }
                if was_spoilt && !is_differing && !was_stopped && !run.faults.can_fail() {
                    find(self.world, format!("A1: a byte was changed, and what is told is another thing: {error}"));
                }
            }
        }
        is_done
    }

    /// Tells if a new file has its name, which says that it is whole.
    fn found_by_name(&self, left: &Left) -> bool {
        self.judge.found.is_empty() && left.keys().any(|name| name == DEST)
    }

    fn judge_success(&self, copied: &Copied, was_spoilt: bool) {
        if copied.bytes != self.plan.size() as u64 || copied.verified != self.plan.verifies {
            find(self.world, format!("A1: the copy is done, and tells of something else: {copied:?}"));
        }
        if was_spoilt {
            let wrong = "A1: a byte of the copy was changed before it was compared, and nobody has noticed";
            find(self.world, wrong.to_owned());
        }
    }

    /// Where a run has failed, there is what it says.
    fn judge_failure(&self, error: &Error, before: &BTreeSet<OsString>, shown: &Left) {
        let remains = match error.problem() {
            Problem::CopyStopped(left)
            | Problem::CopyChanged(left)
            | Problem::CopyFault { left, .. }
            | Problem::CopyFull { left, .. }
            | Problem::CopyDiffers { left, .. } => Some(left),
            _ => None,
        };
        let has_part = shown.keys().any(|name| name == PART);
        match remains {
            Some(Remains::Kept) if !has_part => {
                find(self.world, format!("A2: what was copied is not kept: {error}"));
            }
            Some(Remains::Nothing) if shown.keys().any(|name| name != PART && !before.contains(name)) || has_part => {
                find(self.world, format!("A2: something was kept: {:?}: {error}", shown.keys()));
            }
            Some(Remains::Part(_)) if !self.plan.into.is_in_place() => {
                find(self.world, format!("A2: there is no part: {error}"));
            }
            _ => {}
        }
    }

    fn take(&self, judged: Result<(), Wrong>, when: &str) {
        if let Err((rule, wrong)) = judged {
            find(self.world, format!("{rule}: {when}: {wrong}"));
        }
    }
}

/// Takes note of something that was found between two runs.
fn find(world: &World, what: String) {
    let mut world = world.lock();
    world.log.push(format!("FOUND: {what}"));
    world.findings.push(what);
}

/// Power cuts at one moment.
fn cuts(seed: u64) -> [Cut; 3] {
    let cut = |names, content| Cut { names, content };
    [
        cut(Names::Durable, Survivors::None),
        cut(Names::Latest, Survivors::Some(sim::mix(&[seed, 9]))),
        cut(Names::Latest, Survivors::None),
    ]
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("seconds")
}

/// Changes a byte of what was copied into a folder.
fn spoil(folder: &Path, into: Into, at: usize) {
    let start = if into.is_sealed() || into.is_in_place() { START } else { 0 };
    let change = || -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            // What was there before stays as it is.
            if !into.is_in_place() && entry.file_name() == DEST {
                continue;
            }
            let file = File::options().read(true).write(true).open(entry.path())?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, (start + at) as u64)?;
            file.write_all_at(&[byte[0] ^ 1], (start + at) as u64)?;
        }
        Ok(())
    };
    let _ = sim::bypass(change);
}
const _: () = assert!(START.is_multiple_of(CHUNK));
