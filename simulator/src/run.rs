//! One history: its disks, servers and clients, and what is looked at when all is over.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::actor::{Actor, Dialogue};
use crate::cells::SECTOR;
use crate::control::{Controlled, Controller};
use crate::copy;
use crate::disks::{Disks, Laid, SIZE};
use crate::guest::Guest;
use crate::history::{Client, Door, History, MORE, Nature, Step};
use crate::mount::Kernel;
use crate::nbd_client::Connection;
use crate::points::{Point, sometimes};
use crate::program::Program;
use crate::serving::Running;
use crate::sim;
use crate::under::{Last, Under};
use crate::world::World;

/// How long a stopping server waits for its clients, and for the flushes.
pub const GRACE: Duration = Duration::from_secs(2);
/// Socket of the NBD server.
const NBD: &str = "server";
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

/// Panics since they were last taken.
pub fn take_panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where histories happen, one after the other.
pub struct Stage {
    disks: Disks,
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
        Ok(Self { disks: Disks::new()? })
    }

    /// Lets a history happen.
    pub fn run(&self, history: &History) -> Outcome {
        if let Some(plan) = &history.copy {
            return copy::run(&self.disks.copies, history, plan);
        }
        let laid = self.disks.lay(history);
        let world = World::new(laid.known(), laid.cut_in_a_sync());
        let open_before = sim::descriptors();
        let happen = || Play { laid: &laid, history, world: &world }.happen();
        let (last, ended) = sim::simulate(history.seed, PATIENCE, happen);
        let mut inner = world.lock();
        let inner = &mut *inner;
        if let Some(left) = &ended.left {
            inner.findings.push(format!("A10: threads are left\n{left}"));
        } else {
            let at_last = laid.cut("at last", &inner.exports[0].audit);
            for left in std::mem::take(&mut inner.cuts).into_iter().chain(at_last) {
                let what = left.what.clone();
                if let Err(wrong) = laid.look(left) {
                    inner.findings.push(format!("A4: after a power cut {what}: {wrong}"));
                }
            }
        }
        inner.findings.extend(take_panics());
        let open_after = sim::descriptors();
        if open_after > open_before {
            inner.findings.push(format!("A10: {} descriptors are left open", open_after - open_before));
        }
        inner.findings.extend(last.findings);
        let audit = &mut inner.exports[1].audit;
        let sent = audit.tick();
        if let Err(wrong) = last.least.map_or(Ok(()), |least| audit.left(&least)) {
            inner.findings.push(format!("A4: what the cluster below has to keep: {wrong}"));
        }
        if let Err(wrong) = audit.read(0, &last.data, sent, false) {
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
}

/// A history under way.
pub struct Play<'a> {
    pub laid: &'a Laid<'a>,
    pub history: &'a History,
    pub world: &'a Arc<World>,
}

/// Servers at work.
#[derive(Default)]
struct Served {
    running: Vec<Running>,
    /// The one that takes orders.
    controlled: Option<Controlled>,
    mount: Option<Arc<Kernel>>,
}

impl Play<'_> {
    /// All that happens. What the server below has come to.
    fn happen(&self) -> Last {
        let below = self.laid.start_below(self.world);
        if let Some(has_lost) = below.has_lost() {
            self.world.lock().exports[1].has_lost = has_lost;
        }
        let mut served = Served::default();
        match self.serve(&mut served) {
            Ok(()) => self.live(&below, served),
            Err(why) => {
                // Its first connection was dropped, which is nobody's fault.
                self.world.say(|| format!("a server does not start: {why}"));
                self.stop(served.running, &below);
                served.controlled.iter_mut().for_each(Controlled::end);
            }
        }
        self.laid.end_below(below)
    }

    /// Starts a server for each door that leads somewhere.
    fn serve(&self, served: &mut Served) -> Result<(), String> {
        if let Some((kernel, server)) = self.serve_mount()? {
            served.running.push(server);
            served.mount = Some(kernel);
        }
        if !self.history.behind(Door::Nbd).is_empty() {
            let (server, running) = self.serve_nbd(&self.laid.disks.socket(NBD))?;
            served.running.push(running);
            served.controlled = Some(server);
        }
        if !self.history.behind(Door::VhostUser).is_empty() {
            served.running.push(self.serve_machines()?);
        }
        Ok(())
    }

    /// Begins the conversation of a client.
    fn open(&self, number: usize, client: &Client, mount: Option<&Arc<Kernel>>) -> io::Result<Box<dyn Dialogue>> {
        let export = client.export;
        let name = format!("e{export}");
        match (self.history.doors[export], mount) {
            (Door::Nbd, _) => {
                let cells = self.world.lock().exports[export].audit.cells.clone();
                let structured = sim::mix(&[self.history.seed, 114, number as u64]).is_multiple_of(2);
                Ok(Box::new(Connection::open(&self.laid.disks.path(NBD), &name, cells, structured)?))
            }
            (Door::Mount, Some(kernel)) => {
                let cells = self.world.lock().exports[export].audit.cells.clone();
                Ok(Box::new(Program::open(kernel, export, &cells)?))
            }
            (Door::Mount, None) => Err(io::ErrorKind::NotFound.into()),
            (Door::VhostUser, _) => {
                let seed = sim::mix(&[self.history.seed, 111, number as u64]);
                Ok(Box::new(Guest::come(self.socket_of(number), &name, seed, client.steps.contains(&Step::Busy))?))
            }
        }
    }

    fn live(&self, below: &Under, served: Served) {
        let Served { running, mut controlled, mount } = served;
        let control = controlled.as_mut().and_then(Controlled::take);
        let (world, mount): (&World, _) = (self.world, mount.as_ref());
        std::thread::scope(|scope| {
            scope.spawn(|| self.trouble(below));
            scope.spawn(|| self.power());
            scope.spawn(|| self.nature());
            if let Some(served) = &controlled {
                scope.spawn(|| self.operate(served));
            }
            let mut awaited = Vec::new();
            for (number, controller) in self.history.controllers.iter().enumerate() {
                let thread = scope.spawn(move || self.control(number, controller));
                // One that is silent would stay for ever.
                if self.history.is_patient && *controller != Controller::Silent {
                    awaited.push(thread);
                }
            }
            scope.spawn(|| self.grow());
            if let Some(kernel) = mount {
                scope.spawn(|| kernel.serve());
                scope.spawn(|| self.cut_off(kernel));
            }
            let clients = self.history.clients.iter().enumerate();
            let clients = clients.map(|(number, client)| {
                let door = self.history.doors[client.export];
                let come = move || self.open(number, client, mount);
                scope.spawn(move || Actor::new(number, client, door, world, come).live())
            });
            awaited.extend(clients);
            let until = sim::now() + u64::try_from(self.history.stop.as_nanos()).expect("seconds");
            while sim::now() < until && !awaited.iter().all(|client| client.is_finished()) {
                sim::wait_for(None, Some(Duration::from_millis(20)));
            }
            self.stop(running, below);
            // As when the process ends.
            if let Some(control) = control {
                control.end();
            }
            self.laid.speak(below);
        });
    }

    /// The power fails, and nobody notices yet.
    fn power(&self) {
        std::thread::sleep(self.history.cut);
        let mut world = self.world.lock();
        world.say("the power may have failed here".to_owned());
        if world.exports[0].audit.has_writes_under_way() {
            sometimes(Point::CutUnderWay);
        }
        let cut = self.laid.cut("meanwhile", &world.exports[0].audit);
        world.cuts.extend(cut);
    }

    /// The file below grows.
    fn grow(&self) {
        let Some(at) = self.history.growth else { return };
        std::thread::sleep(at);
        if self.laid.grow() {
            let mut world = self.world.lock();
            world.say("the file below export 0 has grown".to_owned());
            let known = &mut world.exports[0];
            known.size = (known.audit.tick(), (SIZE + MORE * SECTOR) as u64);
        }
    }

    /// The kernel and another program at work on the file.
    fn nature(&self) {
        let (machine, files) = (self.laid.disks.media.machine(), &self.laid.of);
        let mut foreign: Vec<_> = files.iter().map(|of| machine.foreign_open(*of)).collect();
        let began = sim::now();
        for (number, (at, nature)) in self.history.nature.iter().enumerate() {
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(sim::now())));
            let chance = sim::mix(&[self.history.seed, 10, number as u64]);
            machine.step(Some(chance));
            let file = (chance >> 8) as usize % files.len();
            let of = files[file];
            let what = match nature {
                Nature::WriteBack { fails } => {
                    let fault = fails.then_some([Errno::IO, Errno::NOSPC, Errno::INTR][(chance % 3) as usize]);
                    let units = machine.write_back(of, 0..usize::MAX, fault);
                    if fault.is_some() && units > 0 {
                        sometimes(Point::WriteBackLost);
                    }
                    format!("writes back {units} units")
                }
                Nature::Evict => {
                    machine.evict(of, 0..usize::MAX);
                    "evicts".to_owned()
                }
                Nature::ForeignRead => {
                    machine.foreign_read(&foreign[file], 0..usize::MAX);
                    "another program reads".to_owned()
                }
                Nature::ForeignSync => format!("another program syncs: {:?}", machine.foreign_sync(&mut foreign[file])),
            };
            self.world.say(|| format!("nature: {nature:?}: {what}"));
        }
    }

    /// A medium falls silent, and perhaps speaks again.
    fn trouble(&self, below: &Under) {
        let Some((export, begins, ends)) = self.history.faults.silence else { return };
        if export == 0 && self.laid.bed.is_mapped() {
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
        self.laid.silence(export, below);
        if let Some(ends) = ends {
            std::thread::sleep(ends - begins);
            self.world.say(|| format!("the medium of export {export} speaks again"));
            self.laid.speak(below);
        }
    }
}
