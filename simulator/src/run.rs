//! One history: two exports, their media, a server, its clients, and what is looked at when all is over.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::base::NbdDevice;
use cryptline_engine::{BackendChoice, Buffer, Channel, Gate, Operation, Request, Submitted};
use cryptline_nbd::{NbdUri, TlsMode};
use cryptline_serve::Flushed;
use cryptline_serve::lane::{Poll, Why};
use cryptline_serve::nbd::{Export, Exports, Listener, Server, ServerOptions, StopHandle};
use cryptline_serve::stats::ExportStats;
use cryptline_testkit::cache::{FileOf, Machine, Survivors, Temper};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::actor::{Actor, Known, World};
use crate::audit::{self, SECTOR, fill};
use crate::below::Below;
use crate::history::{Faults, History, Nature, SECTORS};
use crate::media::Media;
use crate::sim;
use crate::stack::{Bed, Stack, after_crash};

/// Bytes of an export.
const SIZE: usize = SECTORS * SECTOR;
/// How long a stopping server waits for its clients, and for the flushes.
const GRACE: Duration = Duration::from_secs(2);
/// A server stops within twice the grace and three seconds, and what it takes besides.
pub const STOPS_WITHIN: Duration = Duration::from_millis(7_500);
/// How long lost connections to the server below are made again.
const RECONNECT: Duration = Duration::from_secs(2);
/// Threads that the simulation still has so long after its end wait for something that does not come.
const PATIENCE: Duration = Duration::from_secs(600);

/// Panics of the server.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes panics of the server for findings.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("A10: {panic}"));
    }));
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// A server at work.
struct Running {
    server: Arc<Server>,
    thread: JoinHandle<io::Result<Flushed>>,
    stop: StopHandle,
}

/// Leftovers of a power cut, with the promises made by then.
pub struct Left {
    what: String,
    images: Vec<Arc<Vec<u8>>>,
    promises: audit::Export,
}

/// Where histories happen, one after the other.
pub struct Stage {
    media: &'static Media,
    folder: TempDir,
    beds: Vec<(Stack, Bed)>,
    _memory: Option<TempDir>,
}

/// How a history ended.
pub struct Outcome {
    /// Rules that were broken.
    pub findings: Vec<String>,
    pub log: Vec<String>,
    pub hash: u64,
    pub switches: u64,
    pub lasted: Duration,
    /// Writes that were promised.
    pub promised: usize,
    /// The process can not be used any more.
    pub is_spoilt: bool,
}

impl Stage {
    pub fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let folder = TempDir::new_in(program.parent().expect("a program lies in a folder"))?;
        let memory = Path::new("/dev/shm").is_dir().then(|| TempDir::new_in("/dev/shm")).transpose()?;
        let folders = [folder.path(), memory.as_ref().map_or(folder.path(), TempDir::path)];
        let media = Media::new();
        let fill = |gate: &Gate| {
            // Write 0.
            let mut data = Buffer::alloc(SIZE).expect("memory");
            fill(&mut data, 0, 0, 0);
            for request in [Request::write(0, data, true, 0), Request::flush(0)] {
                finish(gate, media.machine().backend(), request).expect("it is written");
            }
        };
        let mut beds = Vec::new();
        for stack in Stack::all() {
            match Bed::new(stack, folders, media, fill) {
                Ok(bed) => beds.push((stack, bed)),
                // Not every file system can be gone around.
                Err(why) if stack.is_direct() => eprintln!("SKIP {stack:?}: {why}"),
                Err(why) => return Err(why),
            }
        }
        Ok(Self { media, folder, beds, _memory: memory })
    }

    /// Files of the stack of a history; of the first, where its own cannot be had here.
    fn bed(&self, history: &History) -> &(Stack, Bed) {
        self.beds.iter().find(|(stack, _)| *stack == history.stack).unwrap_or(&self.beds[0])
    }

    /// Lets a history happen.
    pub fn run(&self, history: &History) -> Outcome {
        let (stack, bed) = self.bed(history);
        let Faults { loses, refuses, unsynced, short, interrupts, .. } = history.faults;
        let temper = Temper {
            short,
            interrupted: interrupts,
            writeback: loses,
            flush: loses,
            direct: if stack.is_direct() { loses } else { 0 },
            refused: refuses,
            unsynced,
        };
        let machine = self.media.machine();
        machine.reset(temper);
        self.media.reset(history.seed, history.careless);
        let of = bed.attach(&bed.content);
        let has_lost = {
            let of = of.clone();
            move || of.iter().any(|of| machine.has_lost(*of))
        };
        let exports = vec![
            Known {
                audit: audit::Export::new(0, SECTORS),
                is_unwell: false,
                is_gone: false,
                has_failed: false,
                loss_is_told: false,
                is_sound: loses == 0 && interrupts == 0 && unsynced == 0,
                has_lost: Box::new(has_lost),
            },
            Known {
                audit: audit::Export::new(1, SECTORS),
                is_unwell: history.faults.below.late > 0 || history.faults.below.drops > 0,
                is_gone: false,
                has_failed: false,
                loss_is_told: false,
                is_sound: true,
                has_lost: Box::new(|| false),
            },
        ];
        let world = World::new(exports);
        let open_before = descriptors();
        let happen = || Play { stage: self, history, bed, of: &of, world: &world }.happen();
        let (below, ended) = sim::simulate(history.seed, PATIENCE, happen);
        let mut inner = world.lock();
        let inner = &mut *inner;
        if let Some(left) = &ended.left {
            inner.findings.push(format!("A10: threads are left\n{left}"));
        } else {
            let at_last = Self::cut(machine, &of, history.seed, "at last", &inner.exports[0].audit);
            for Left { what, images, mut promises } in inner.cut.take().into_iter().flatten().chain(at_last) {
                if let Err(wrong) = self.look(*stack, bed, &images, &mut promises) {
                    inner.findings.push(format!("A4: after a power cut {what}: {wrong}"));
                }
            }
        }
        inner.findings.extend(std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner)));
        let open_after = descriptors();
        if open_after > open_before {
            inner.findings.push(format!("A10: {} descriptors are left open", open_after - open_before));
        }
        let audit = &mut inner.exports[1].audit;
        let sent = audit.tick();
        if let Err(wrong) = audit.read(0, &below, sent, false) {
            inner.findings.push(format!("A1: what the server below holds at last: {wrong}"));
        }
        let promised = inner.exports.iter().map(|known| known.audit.promised).sum();
        Outcome {
            findings: std::mem::take(&mut inner.findings),
            log: std::mem::take(&mut inner.log),
            hash: ended.hash,
            switches: ended.switches,
            lasted: ended.lasted,
            promised,
            is_spoilt: ended.left.is_some(),
        }
    }

    /// Leftovers of a power cut now: nothing that was not synced, or some of it.
    fn cut(machine: &Machine, of: &[FileOf], seed: u64, when: &str, promises: &audit::Export) -> [Left; 2] {
        let some = Survivors::Some(sim::mix(&[seed, 9]));
        [(Survivors::None, "nothing"), (some, "some")].map(|(survivors, what)| Left {
            what: format!("{when} that left {what} of what was not synced"),
            images: after_crash(machine, of, survivors),
            promises: promises.clone(),
        })
    }

    /// Judges what a power cut has left of the files.
    fn look(&self, stack: Stack, bed: &Bed, images: &[Arc<Vec<u8>>], audit: &mut audit::Export) -> Result<(), String> {
        if stack.is_encrypted() && images.iter().any(|image| audit.has_pattern(image)) {
            return Err("A6: what a client has written is on the medium, unencrypted".to_owned());
        }
        let machine = self.media.machine();
        machine.reset(Temper::default());
        bed.attach(images);
        let gate = bed.look()?;
        let read = Request::read(0, Buffer::alloc(SIZE).expect("memory"), 0);
        match finish(&gate, machine.backend(), read) {
            Ok(Operation::Read(bytes)) => audit.left(&bytes),
            Ok(_) => unreachable!("a read comes back as a read"),
            Err(why) => Err(why),
        }
    }
}

/// Carries out one request.
fn finish(gate: &Gate, backend: BackendChoice, request: Request) -> Result<Operation, String> {
    let mut channel = Channel::open(gate, backend, 4).map_err(|error| error.to_string())?;
    let mut done = Vec::new();
    if let Submitted::Done(completion) = channel.submit(request) {
        done.push(completion);
    }
    while done.is_empty() {
        channel.wait(&mut done).map_err(|error| error.to_string())?;
    }
    let completion = done.pop().expect("one request, one answer");
    completion.result.map(|()| completion.request.operation).map_err(|fault| fault.to_string())
}

/// A history under way.
pub struct Play<'a> {
    stage: &'a Stage,
    pub history: &'a History,
    bed: &'a Bed,
    of: &'a [FileOf],
    pub world: &'a Arc<World>,
}

impl Play<'_> {
    /// All that happens. What the server below holds at last.
    fn happen(&self) -> Vec<u8> {
        let folder = self.stage.folder.path();
        let (own, under) = (folder.join("server"), folder.join("below"));
        for path in [&own, &under] {
            let _ = std::fs::remove_file(path);
        }
        let mut data = vec![0; SIZE];
        fill(&mut data, 1, 0, 0);
        let below = Below::start(&under, data, self.history.faults.below, self.history.seed).expect("a server below");
        match self.serve(&own) {
            Ok(running) => self.live(&own, &below, running),
            // Its first connection was dropped, which is nobody's fault.
            Err(why) => self.world.say(|| format!("the server does not start: {why}")),
        }
        below.end(&under)
    }

    /// An export, opened anew.
    pub fn export(&self, number: usize) -> Result<Export, String> {
        let gate = if number == 0 {
            self.bed.open()?
        } else {
            let under = self.stage.folder.path().join("below");
            let uri = format!("nbd+unix:///?socket={}", under.display()).parse::<NbdUri>().expect("a URI");
            let remote = NbdDevice::open_again(&uri, false, Some(RECONNECT));
            Gate::new(remote.map_err(|error| error.to_string())?)
        };
        let stats = ExportStats::new(false);
        Ok(Export { name: format!("e{number}"), description: String::new(), gate, minimum_block: 512, stats })
    }

    fn serve(&self, own: &Path) -> Result<Running, String> {
        let mut exports = vec![self.export(0)?, self.export(1)?];
        if sim::mix(&[self.history.seed, 104]).is_multiple_of(2) {
            exports.reverse();
        }
        let exports = Exports::new(exports, TlsMode::Off).map_err(|error| error.to_string())?;
        let world = Arc::clone(self.world);
        exports.on_closed(move |export, flushed| {
            let mut world = world.lock();
            world.say(format!("export {} is gone: {flushed:?}", export.name));
            let number = usize::from(export.name == "e1");
            // Whoever runs the server has been told, by this or by what `remove` says.
            world.exports[number].loss_is_told |= flushed.is_err();
        });
        let world = Arc::clone(self.world);
        let options = ServerOptions {
            backend: self.stage.media.backend(),
            poll: Poll::Never(Why::Asked),
            tls: None,
            max_connections: self.history.clients.len() + 1,
            max_handshakes: 8,
            handshake_timeout: Duration::from_secs(10),
            grace: GRACE,
            log: Box::new(move |event| world.say(|| format!("server: {event}"))),
        };
        let failed = |error: io::Error| error.to_string();
        let listener = UnixListener::bind(own).map_err(failed)?;
        let stop = StopHandle::new().map_err(failed)?;
        let server = Server::new(exports, options);
        let (running, stopped) = (Arc::clone(&server), stop.clone());
        let run = move || running.run(&[Listener::Unix(listener)], &stopped);
        let thread = std::thread::Builder::new().name("nbd".to_owned()).spawn(run).map_err(failed)?;
        Ok(Running { server, thread, stop })
    }

    fn live(&self, own: &Path, below: &Below, running: Running) {
        let world: &World = self.world;
        std::thread::scope(|scope| {
            scope.spawn(|| self.trouble(below));
            scope.spawn(|| self.power());
            scope.spawn(|| self.nature());
            let server = Arc::clone(&running.server);
            scope.spawn(move || self.operate(&server));
            let clients = self.history.clients.iter().enumerate();
            let clients: Vec<_> = clients
                .map(|(number, client)| scope.spawn(move || Actor::new(number, client, world, own).live()))
                .collect();
            let until = sim::now() + u64::try_from(self.history.stop.as_nanos()).expect("seconds");
            while sim::now() < until && !clients.iter().all(|client| client.is_finished()) {
                sim::wait_for(None, Some(Duration::from_millis(20)));
            }
            self.stop(running);
            self.stage.media.speak();
            below.speak();
        });
    }

    /// The power fails, and nobody notices yet.
    fn power(&self) {
        std::thread::sleep(self.history.cut);
        let mut world = self.world.lock();
        world.say("the power may have failed here".to_owned());
        let machine = self.stage.media.machine();
        world.cut = Some(Stage::cut(machine, self.of, self.history.seed, "meanwhile", &world.exports[0].audit));
    }

    /// The kernel and another program at work on the file.
    fn nature(&self) {
        let machine = self.stage.media.machine();
        let mut foreign: Vec<_> = self.of.iter().map(|of| machine.foreign_open(*of)).collect();
        let began = sim::now();
        for (number, (at, nature)) in self.history.nature.iter().enumerate() {
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(sim::now())));
            let chance = sim::mix(&[self.history.seed, 10, number as u64]);
            machine.step(Some(chance));
            let file = (chance >> 8) as usize % self.of.len();
            let of = self.of[file];
            let what = match nature {
                Nature::WriteBack { fails } => {
                    let fault = fails.then_some([Errno::IO, Errno::NOSPC, Errno::INTR][(chance % 3) as usize]);
                    format!("writes back {} units", machine.write_back(of, 0..usize::MAX, fault))
                }
                Nature::Evict => {
                    machine.evict(of, 0..usize::MAX);
                    "evicts".to_owned()
                }
                Nature::ForeignSync => format!("another program syncs: {:?}", machine.foreign_sync(&mut foreign[file])),
            };
            self.world.say(|| format!("nature: {nature:?}: {what}"));
        }
    }

    /// A medium falls silent, and perhaps speaks again.
    fn trouble(&self, below: &Below) {
        let Some((export, begins, ends)) = self.history.faults.silence else { return };
        if export == 0 && self.bed.is_mapped() {
            // Whoever touched the mapping would wait, which is no call.
            return;
        }
        std::thread::sleep(begins);
        if self.world.lock().is_stopping {
            return;
        }
        {
            let mut world = self.world.lock();
            world.exports[export].is_unwell = true;
            world.say(format!("the medium of export {export} falls silent"));
        }
        if export == 0 {
            self.bed.files.iter().for_each(|file| self.stage.media.silence(file))
        } else {
            below.silence()
        }
        if let Some(ends) = ends {
            std::thread::sleep(ends - begins);
            self.world.say(|| format!("the medium of export {export} speaks again"));
            self.stage.media.speak();
            below.speak();
        }
    }

    fn stop(&self, running: Running) {
        let Running { server, thread, stop } = running;
        drop(server);
        let sent: Vec<_> = {
            let mut world = self.world.lock();
            world.is_stopping = true;
            world.say("the server is to stop".to_owned());
            world.exports.iter_mut().map(Known::moment).collect()
        };
        let began = sim::now();
        stop.stop();
        let limit = began + u64::try_from(STOPS_WITHIN.as_nanos()).expect("seconds");
        while !thread.is_finished() && sim::now() < limit {
            sim::wait_for(None, Some(Duration::from_millis(20)));
        }
        if !thread.is_finished() {
            self.world.find(format!("A8: the server has not stopped after {STOPS_WITHIN:?}\n{}", sim::describe()));
            // Whatever it waits for comes now.
            self.stage.media.speak();
        }
        let result = match thread.join() {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return self.world.find(format!("A8: the server fails as it stops: {error}")),
            Err(_) => return self.world.find("A10: the server has panicked".to_owned()),
        };
        let mut world = self.world.lock();
        world.say(format!("the server has stopped: {result:?}"));
        for (number, (sent, after_loss)) in sent.into_iter().enumerate() {
            let known = &mut world.exports[number];
            if known.is_gone {
                // It has had its last flush, or has it when its clients have gone.
                continue;
            }
            let failed = result.as_ref().err().filter(|(name, _)| *name == format!("e{number}"));
            match failed {
                Some((_, fault)) if known.is_sound && !known.is_unwell => {
                    world.find(format!("A9: the last flush of export {number} fails without a cause: {fault}"));
                }
                Some(_) => {}
                // With another that failed before it, nothing is known of an export that is not well.
                None if result.is_err() && (known.is_unwell || !known.is_sound) => {}
                None if after_loss => {
                    world.find(format!("A5: the last flush of export {number} says yes after a write was lost"));
                }
                None => known.audit.promise(sent, None),
            }
        }
    }
}
