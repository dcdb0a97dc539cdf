//! One history: two exports, their media, a server, its clients, and what is looked at when all is over.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::base::{DirectMode, Image, NbdDevice};
use cryptline_engine::dispatch::Helpers;
use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};
use cryptline_engine::{BackendChoice, Buffer, Channel, Gate, Operation, Request, Submitted};
use cryptline_nbd::{NbdUri, TlsMode};
use cryptline_serve::Flushed;
use cryptline_serve::lane::{Poll, Why};
use cryptline_serve::nbd::{Export, Exports, Listener, Server, ServerOptions, StopHandle};
use cryptline_serve::stats::ExportStats;
use cryptline_testkit::cache::{FileOf, Machine, Survivors, Temper};
use cryptline_testkit::suite::devices::{self, AES_512, CBC_4096, Layout};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::actor::{Actor, Known, World};
use crate::audit::{self, SECTOR, fill};
use crate::below::Below;
use crate::history::{Faults, History, Nature, SECTORS};
use crate::media::Media;
use crate::sim;

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

/// Layers over the file.
#[derive(Clone, Copy, Debug)]
pub enum Stack {
    /// Nothing.
    Plain,
    /// XTS in sectors as small as the clients'.
    Xts,
    /// The same, with the cipher on worker threads.
    QueuedXts,
    /// The same, with helpers at everything.
    HelpedXts,
    /// CBC in sectors of 4096 bytes in which holes read as zeros, offered in blocks of 512.
    SparseCbc,
}

const STACKS: [Stack; 5] = [Stack::Plain, Stack::Xts, Stack::QueuedXts, Stack::HelpedXts, Stack::SparseCbc];

impl Stack {
    fn layout(self) -> Option<&'static Layout> {
        match self {
            Self::Plain => None,
            Self::Xts | Self::QueuedXts | Self::HelpedXts => Some(&AES_512),
            Self::SparseCbc => Some(&CBC_4096),
        }
    }

    /// Bytes that the medium writes at once.
    fn unit(self) -> usize {
        self.layout().map_or(512, |layout| layout.sector_size as usize)
    }

    fn len(self) -> usize {
        SIZE + self.layout().map_or(0, |layout| usize::try_from(layout.start).expect("small"))
    }

    /// What has the same on its medium, and no threads.
    fn simplest(self) -> Self {
        match self {
            Self::QueuedXts | Self::HelpedXts => Self::Xts,
            stack => stack,
        }
    }

    fn open(self, path: &Path, read_only: bool) -> Result<Gate, String> {
        let image = Image::open(path, read_only).map_err(|error| error.to_string())?;
        let file = Gate::new(image.into_device(512, DirectMode::Off).expect("a file").growing());
        let Some(layout) = self.layout() else { return Ok(file) };
        let options = CryptOptions {
            start: layout.start,
            allow_discards: true,
            dispatch: match self {
                Self::QueuedXts => devices::QUEUE,
                Self::HelpedXts => devices::AUTO,
                _ => devices::INLINE,
            },
            helpers: matches!(self, Self::HelpedXts).then(|| Helpers::always(2).expect("two threads")),
            zeroes: if let Self::SparseCbc = self { Zeroes::Detect } else { CryptOptions::default().zeroes },
            ..CryptOptions::default()
        };
        let crypt = CryptDevice::new(file, devices::cipher(layout), options).expect("it fits");
        if layout.sector_size as usize == SECTOR {
            return Ok(Gate::new(crypt));
        }
        let options =
            SubBlockOptions { logical_block: 512, sector: layout.sector_size, exclusion: Exclusion::Exclusive };
        Ok(Gate::new(SubBlockDevice::new(Gate::new(crypt), options).expect("smaller blocks")))
    }
}

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
    image: Arc<Vec<u8>>,
    promises: audit::Export,
}

/// Where histories happen, one after the other.
pub struct Stage {
    media: &'static Media,
    folder: TempDir,
    images: Vec<Arc<Vec<u8>>>,
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
        let mut stage = Self { media: Media::new(), folder, images: Vec::new() };
        for stack in STACKS {
            let path = stage.path(stack);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.set_len(stack.len() as u64)?;
            let image = stage.filled(stack, &path, &file);
            stage.images.push(image);
        }
        Ok(stage)
    }

    fn path(&self, stack: Stack) -> PathBuf {
        self.folder.path().join(format!("{stack:?}"))
    }

    /// The file after write 0 has filled the disk.
    fn filled(&self, stack: Stack, path: &Path, file: &File) -> Arc<Vec<u8>> {
        let machine = self.media.machine();
        machine.reset(Temper::default());
        let of = machine.attach(file, Arc::new(vec![0; stack.len()]), stack.unit());
        let gate = stack.open(path, false).expect("the file is there");
        let mut data = Buffer::alloc(SIZE).expect("memory");
        fill(&mut data, 0, 0, 0);
        finish(&gate, machine.backend(), Request::write(0, data, true, 0)).expect("it is written");
        drop(gate);
        machine.after_crash(of, Survivors::None)
    }

    /// Lets a history happen.
    pub fn run(&self, history: &History) -> Outcome {
        let stack = STACKS[(sim::mix(&[history.seed, 103]) % STACKS.len() as u64) as usize];
        let path = self.path(stack);
        let file = File::options().read(true).write(true).open(&path).expect("the file is there");
        let Faults { loses, refuses, unsynced, short, interrupts, .. } = history.faults;
        let temper = Temper {
            short,
            interrupted: interrupts,
            writeback: loses,
            flush: loses,
            refused: refuses,
            unsynced,
            ..Temper::default()
        };
        let machine = self.media.machine();
        machine.reset(temper);
        self.media.reset(history.seed, history.careless);
        let image = Arc::clone(&self.images[stack as usize]);
        let of = machine.attach(&file, image, stack.unit());
        let exports = vec![
            Known {
                audit: audit::Export::new(0, SECTORS),
                is_unwell: false,
                is_gone: false,
                loss_is_told: false,
                is_sound: loses == 0 && interrupts == 0 && unsynced == 0,
                has_lost: Box::new(move || machine.has_lost(of)),
            },
            Known {
                audit: audit::Export::new(1, SECTORS),
                is_unwell: history.faults.below.late > 0 || history.faults.below.drops > 0,
                is_gone: false,
                loss_is_told: false,
                is_sound: true,
                has_lost: Box::new(|| false),
            },
        ];
        let world = World::new(exports);
        let open_before = descriptors();
        let happen = || Play { stage: self, history, stack, file: &file, of, world: &world }.happen();
        let (below, ended) = sim::simulate(history.seed, PATIENCE, happen);
        let mut inner = world.lock();
        let inner = &mut *inner;
        if let Some(left) = &ended.left {
            inner.findings.push(format!("A10: threads are left\n{left}"));
        } else {
            let at_last = Self::cut(machine, of, history.seed, "at last", &inner.exports[0].audit);
            for Left { what, image, mut promises } in inner.cut.take().into_iter().flatten().chain(at_last) {
                if let Err(wrong) = self.look(stack, &file, &image, &mut promises) {
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
    fn cut(machine: &Machine, of: FileOf, seed: u64, when: &str, promises: &audit::Export) -> [Left; 2] {
        let some = Survivors::Some(sim::mix(&[seed, 9]));
        [(Survivors::None, "nothing"), (some, "some")].map(|(survivors, what)| Left {
            what: format!("{when} that left {what} of what was not synced"),
            image: machine.after_crash(of, survivors),
            promises: promises.clone(),
        })
    }

    /// Judges what a power cut has left of the file.
    fn look(&self, stack: Stack, file: &File, image: &Arc<Vec<u8>>, audit: &mut audit::Export) -> Result<(), String> {
        if stack.layout().is_some() && audit.has_pattern(image) {
            return Err("A6: what a client has written is on the medium, unencrypted".to_owned());
        }
        let machine = self.media.machine();
        machine.reset(Temper::default());
        machine.attach(file, Arc::clone(image), stack.unit());
        let gate = stack.simplest().open(&self.path(stack), true)?;
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
    stack: Stack,
    file: &'a File,
    of: FileOf,
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
            self.stack.open(&self.stage.path(self.stack), false)?
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
        let mut foreign = machine.foreign_open(self.of);
        let began = sim::now();
        for (number, (at, nature)) in self.history.nature.iter().enumerate() {
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(sim::now())));
            let chance = sim::mix(&[self.history.seed, 10, number as u64]);
            machine.step(Some(chance));
            let what = match nature {
                Nature::WriteBack { fails } => {
                    let fault = fails.then_some(if chance.is_multiple_of(2) { Errno::IO } else { Errno::NOSPC });
                    format!("writes back {} units", machine.write_back(self.of, 0..usize::MAX, fault))
                }
                Nature::Evict => {
                    machine.evict(self.of, 0..usize::MAX);
                    "evicts".to_owned()
                }
                Nature::ForeignSync => format!("another program syncs: {:?}", machine.foreign_sync(&mut foreign)),
            };
            self.world.say(|| format!("nature: {nature:?}: {what}"));
        }
    }

    /// A medium falls silent, and perhaps speaks again.
    fn trouble(&self, below: &Below) {
        let Some((export, begins, ends)) = self.history.faults.silence else { return };
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
            self.stage.media.silence(self.file)
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
