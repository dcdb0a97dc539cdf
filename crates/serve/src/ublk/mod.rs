//! A volume as `/dev/ublkbN`: the kernel's requests over a ring, without sockets.
//!
//! ```text
//! file system ─► /dev/ublkbN ─► kernel ─► a tag's buffer ─► UblkWire ─► lane ─► volume
//!                                  ▲  one copy each way          │
//!                                  └──── commit, with the result ┘
//! ```
//!
//! A device outlives its server: what is asked of it meanwhile waits, and a new server is given what the old one
//! had under way ([`Ublk::recover`]). One with zones goes with its server: a write that is asked again would not
//! find its zone as it was. Nor does the kernel keep one that was made without privileges, which can only be had where
//! whoever looks after nodes gives it to the user who has made it ([`user_of`]).
//!
//! Where the kernel can, a server hands its device over to the next one while it is used ([`Ublk::hand_over`]), and a
//! device grows with its volume.

mod abi;
mod control;
mod growth;
mod handover;
mod orphans;
mod shape;
mod wire;
mod zones;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_sys::UblkDevice;

use self::abi::{BATCHES, DeviceInfo, GROWTH, QUIESCING, RECOVERY, UNPRIVILEGED, UblkParameters, ZONES};
use self::control::{Control, is_unprivileged, wait_for_node};
use self::growth::Growth;
pub use self::handover::{HandOver, hand_over_of};
pub use self::orphans::{Orphan, all, orphan};
use self::shape::parameters;
use self::wire::UblkWire;
use crate::device::{AttachError, Crew, EndError, flush, write_back};
use crate::facts::Facts;
use crate::lane::{CHUNK, JOBS_MAX, Lane, Orders};
use crate::net::StopHandle;
use crate::stats::ExportStats;

const NAME: &str = "ublk";

/// How to attach.
pub struct UblkOptions {
    /// Hardware queues, and so lanes.
    pub queues: u16,
    /// Bytes of a block, as dm-crypt would have it: partition tables depend on it. Not less than the volume's.
    pub block: u32,
    /// Its counters.
    pub stats: Arc<ExportStats>,
    /// How long what is under way may take once the device has been stopped.
    pub grace: Duration,
    /// Called, with what went wrong, on a thread that cannot serve its queue any more. It must end the process: only
    /// with that does the kernel take the queue's requests back, and another server may be given them.
    pub on_failure: OnFailure,
}

/// Ends the process.
pub type OnFailure = Arc<dyn Fn(&str) + Send + Sync>;

/// An attached volume.
pub struct Ublk {
    id: u32,
    queues: u16,
    is_unprivileged: bool,
    can_be_handed_over: bool,
    in_batches: bool,
    /// As the kernel knows it.
    owner: u32,
    growth: Growth,
    /// The medium may fall silent, and whoever serves must notice that it is to stop.
    facts: Facts,
    control: Control,
    gate: Gate,
    options: UblkOptions,
    team: Team,
}

/// The threads that serve a device.
struct Team {
    crew: Crew,
    stop: StopHandle,
    /// Requests that each of them has not answered, as far as it knows of them.
    in_hand: Vec<Arc<AtomicUsize>>,
    /// Set once they are to leave the device to another server.
    leaves: Arc<AtomicBool>,
}

impl Ublk {
    /// Makes a block device of the volume. `made` is told of it, and of its queues, before it can be used: from then
    /// on, a process that is killed leaves it behind.
    ///
    /// # Errors
    /// Where the driver is missing or refuses, and where no thread can serve. Threads can be left behind then that
    /// end only with the process.
    pub fn attach(
        gate: Gate,
        options: UblkOptions,
        stop: StopHandle,
        made: impl FnOnce(PathBuf, u16),
    ) -> Result<Self, AttachError> {
        let parameters = parameters(&gate, options.block)?;
        let mut control = Control::open()?;
        let features = control.features()?;
        let flags = match parameters.zones {
            Some(_) if features & ZONES != ZONES => return Err(AttachError::NoZones),
            Some(_) => ZONES | features & BATCHES,
            None if features & RECOVERY == RECOVERY => RECOVERY | features & (GROWTH | QUIESCING | BATCHES),
            None => features & (GROWTH | BATCHES),
        };
        let wanted = DeviceInfo {
            queues: options.queues,
            depth: u16::try_from(JOBS_MAX).unwrap_or(u16::MAX),
            buffer_len: CHUNK,
            id: abi::ANY,
            pid: 0,
            flags,
            owner: (0, 0),
        };
        let info = add(&mut control, wanted, features)?;
        made(path(info.id), info.queues);
        let mut team = Team::new(stop);
        let started = team.start(&mut control, &info, parameters, &gate, &options);
        if let Err(error) = started {
            // Threads that fetch only now would be waited for in vain. The device goes when this process has ended.
            let _ = control.stop(info.id);
            let _ = control.delete_soon(info.id);
            return Err(error);
        }
        Ok(Self::served(control, &info, parameters, gate, options, team))
    }

    /// Takes over a device whose server is gone. The volume must be the same one.
    ///
    /// # Errors
    /// As [`attach`](Self::attach)'s; where the device is served, or is not one of this volume's shape.
    pub fn recover(id: u32, gate: Gate, options: UblkOptions, stop: StopHandle) -> Result<Self, AttachError> {
        let parameters = parameters(&gate, options.block)?;
        let mut control = Control::of(id)?;
        let info = control.info(id)?;
        let (sectors, block) = control.shape(id)?;
        let shaped = UblkParameters { sectors, ..parameters };
        if block != parameters.logical_block || !Growth::of(&info, shaped).accepts(parameters.sectors) {
            return Err(AttachError::Different(path(id)));
        }
        control.start_recovery(id)?;
        let mut team = Team::new(stop);
        // Where this fails, the device is as it was as soon as this process has ended, and another may try.
        team.serve_queues(&mut control, id, &gate, &options)?;
        control.end_recovery(id)?;
        Ok(Self::served(control, &DeviceInfo { id, ..info }, shaped, gate, options, team))
    }

    /// A device whose queues are served.
    fn served(
        mut control: Control,
        info: &DeviceInfo,
        parameters: UblkParameters,
        gate: Gate,
        options: UblkOptions,
        team: Team,
    ) -> Self {
        Self {
            id: info.id,
            queues: info.queues,
            is_unprivileged: is_unprivileged(info),
            can_be_handed_over: info.flags & QUIESCING != 0,
            in_batches: info.flags & BATCHES != 0,
            owner: our_number(&mut control, info.id),
            growth: Growth::of(info, parameters),
            facts: Facts::new(),
            control,
            gate,
            options,
            team,
        }
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path(self.id)
    }

    /// Its hardware queues: the kernel makes no more than there are processors.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Tells if it was made without privileges. It is of no use to another server then.
    #[must_use]
    pub fn is_unprivileged(&self) -> bool {
        self.is_unprivileged
    }

    /// Its owner, as [`owner`] will say.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Serves until it is stopped, or somebody else has stopped the device. Meanwhile the device grows with the volume,
    /// and `grown` is told its size; `log` takes why it does not. Once a write or flush has failed, `lost` is called,
    /// for the servers to come.
    pub fn serve(&mut self, grown: impl Fn(u64), lost: impl FnOnce(), log: impl Fn(&str)) {
        let look = Some(growth::LOOK).filter(|_| self.growth.may_come(&self.gate));
        let mut lost = Some(lost).filter(|_| !self.gate.is_latched());
        while !crate::net::is_stopped_within(&self.team.stop, look) {
            self.look_for_growth(&grown, &log);
            if let Some(lost) = lost.take_if(|_| self.gate.is_latched()) {
                lost();
            }
        }
    }

    /// Has the kernel write back what it has cached; then the device goes, and the volume is flushed. `log` takes what
    /// lanes had trouble with.
    ///
    /// # Errors
    /// The first of these that failed; the others were done all the same.
    pub fn end(mut self, log: impl Fn(&str)) -> Result<(), EndError> {
        let path = self.path();
        let server = self.control.server(self.id);
        let is_ours = server.map(|pid| pid.is_some_and(|pid| pid <= 0 || u32::try_from(pid).ok() == Some(self.owner)));
        let is_there = matches!(is_ours, Ok(true));
        // A device that can be recovered refuses writes as soon as it is to stop, also those of its own cache.
        let (claimed, written) = match is_ours {
            Ok(false) => (None, Ok(())),
            _ => write_back(&path, &self.gate, self.options.backend(), self.options.grace),
        };
        // Or else somebody else has removed it.
        let stopped = match is_ours {
            Ok(true) => self.stop(),
            is_ours => is_ours.map(drop),
        };
        // What has it open would keep it from going.
        drop(claimed);
        if let Err(error) = stopped {
            // Its threads wait for the device, and so only the end of the process ends them.
            // What was written is safe all the same, and the first failure is told.
            let _ = flush(&self.gate, self.options.backend(), self.options.grace);
            return written.and(Err(EndError::Remove { path, error }));
        }
        for trouble in self.team.crew.end(self.options.grace, || {}) {
            log(&trouble);
        }
        let deleted = if is_there { self.control.delete(self.id) } else { Ok(()) };
        let removed = deleted.map_err(|error| EndError::Remove { path, error });
        let flushed = flush(&self.gate, self.options.backend(), self.options.grace);
        written.and(removed).and(flushed)
    }

    /// Stops the device. The driver waits until all that is under way has been answered, or its server is gone; so what
    /// takes longer than it may is left to the driver.
    fn stop(&mut self) -> io::Result<()> {
        match self.control.stop_within(self.id, self.options.grace) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            stopped => return stopped,
        }
        self.team.crew.abandon();
        // One that has not been answered in time is of no more use.
        self.control = Control::of(self.id).map_err(system)?;
        self.control.stop(self.id)
    }
}

impl UblkOptions {
    /// Commands take a ring.
    fn backend(&self) -> BackendChoice {
        BackendChoice::IoUring
    }
}

/// The path of a device.
#[must_use]
pub fn path(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{id}"))
}

/// The path of a device's own side, which its server opens.
fn own_side(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{id}"))
}

/// Verifies that the driver is there.
///
/// # Errors
/// Where it is not.
pub fn check() -> Result<(), AttachError> {
    Control::open()?.features().map(drop)
}

/// The process that serves a device, or has served it last; `None` where there is no such device, or nobody has
/// served it yet.
///
/// # Errors
/// Where that cannot be known.
pub fn owner(id: u32) -> io::Result<Option<u32>> {
    let server = Control::of(id).map_err(system)?.server(id)?;
    Ok(server.and_then(|pid| u32::try_from(pid).ok().filter(|&pid| pid > 0)))
}

/// User and group that a device is of, where it was made without privileges: nobody else can be given it. For
/// programs that give nodes to users.
///
/// # Errors
/// Where that cannot be known.
pub fn user_of(id: u32) -> io::Result<Option<(u32, u32)>> {
    let info = Control::open().map_err(system)?.info_of_any(id)?;
    Ok(is_unprivileged(&info).then_some(info.owner))
}

/// Adds a device, one of the user's own where that is all that may be had.
fn add(control: &mut Control, wanted: DeviceInfo, features: u64) -> Result<DeviceInfo, AttachError> {
    match control.add(wanted) {
        // Zones are copied by calls, which the kernel lets no user's device do.
        Err(AttachError::NoPermission) if features & UNPRIVILEGED != 0 && wanted.flags & ZONES == 0 => {
            control.add(DeviceInfo { flags: UNPRIVILEGED | wanted.flags & (GROWTH | BATCHES), ..wanted })
        }
        added => added,
    }
}

/// Our process, as the driver knows it.
fn our_number(control: &mut Control, id: u32) -> u32 {
    let known = control.server(id).ok().flatten();
    let known = known.and_then(|pid| u32::try_from(pid).ok());
    known.unwrap_or_else(std::process::id)
}

/// Stops and deletes a device, whoever serves it. What is cached of it and was not written is lost.
///
/// # Errors
/// Where the driver is missing or refuses.
pub fn detach(id: u32) -> io::Result<()> {
    let mut control = Control::of(id).map_err(system)?;
    control.stop(id)?;
    control.delete(id)
}

fn system(error: AttachError) -> io::Error {
    match error {
        AttachError::System { error, .. } => error,
        AttachError::NoPermission => io::ErrorKind::PermissionDenied.into(),
        error => io::Error::other(error.to_string()),
    }
}

impl Team {
    fn new(stop: StopHandle) -> Self {
        Self { crew: Crew::new(stop.clone()), stop, in_hand: Vec::new(), leaves: Arc::default() }
    }

    /// Makes a block device of one that was added.
    fn start(
        &mut self,
        control: &mut Control,
        info: &DeviceInfo,
        parameters: UblkParameters,
        gate: &Gate,
        options: &UblkOptions,
    ) -> Result<(), AttachError> {
        if is_unprivileged(info) {
            wait_for_node(&own_side(info.id))?;
        }
        control.set_parameters(info.id, parameters)?;
        self.serve_queues(control, info.id, gate, options)?;
        control.start(info.id)?;
        if is_unprivileged(info) {
            wait_for_node(&path(info.id))?;
        }
        Ok(())
    }

    /// Starts a lane for each queue of a device, and waits until all of them are about to fetch.
    fn serve_queues(
        &mut self,
        control: &mut Control,
        id: u32,
        gate: &Gate,
        options: &UblkOptions,
    ) -> Result<(), AttachError> {
        let device = Arc::new(control.open_device(id)?);
        if device.buffer_len() != CHUNK as usize || usize::from(device.depth()) > JOBS_MAX {
            return Err(AttachError::Different(path(id)));
        }
        let (ready, is_ready) = mpsc::channel();
        for number in 0..device.queues() {
            self.start_lane(&device, number, gate, options, ready.clone())?;
        }
        let count = device.queues();
        drop((device, ready));
        let mut all = Ok(());
        for _ in 0..count {
            // Nothing comes of a thread that has panicked.
            let opened = is_ready.recv();
            all = all.and(opened.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())));
        }
        all.map_err(AttachError::at("open a queue of the ublk device"))
    }

    fn start_lane(
        &mut self,
        device: &Arc<UblkDevice>,
        number: u16,
        gate: &Gate,
        options: &UblkOptions,
        ready: mpsc::Sender<io::Result<()>>,
    ) -> Result<(), AttachError> {
        let (device, gate) = (Arc::clone(device), gate.clone());
        let stats = Arc::clone(&options.stats);
        let (on_failure, backend) = (Arc::clone(&options.on_failure), options.backend());
        let in_hand: Arc<AtomicUsize> = Arc::default();
        self.in_hand.push(Arc::clone(&in_hand));
        let leaves = Arc::clone(&self.leaves);
        let work = move |orders: Arc<Orders>| {
            stats.metered(|meter| {
                let lane = Lane::new(&gate, backend, Arc::clone(&orders), meter, |ring| {
                    let on_failure = Arc::clone(&on_failure);
                    UblkWire::new(&device, number, ring, &gate, (in_hand, leaves), on_failure)
                });
                drop(device);
                match lane {
                    Ok(mut lane) => {
                        // Nobody asks where another queue could not be opened.
                        let _ = ready.send(Ok(()));
                        drop(ready);
                        keep_ring(&orders, &on_failure, || lane.run())
                    }
                    Err(error) => {
                        let _ = ready.send(Err(io::Error::other(error.to_string())));
                        Err(error.to_string())
                    }
                }
            })
        };
        // Nothing but the kernel ends a wait here, when the device is stopped.
        self.crew.start(format!("ublk-{number}"), || {}, work).map_err(AttachError::at("start a thread"))
    }
}

/// Has a lane run, and reports it before its ring is dropped: with that the kernel takes the queue's requests back, and
/// another server may be given them while this one still writes. Where lanes are to stop, the device is stopped.
fn keep_ring(orders: &Orders, on_failure: &OnFailure, run: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
    /// The first thing to go on unwinding.
    struct UnwindGuard<'a>(&'a Orders, &'a OnFailure);
    impl Drop for UnwindGuard<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() && !self.0.is_stopping() {
                (self.1)("a thread that served the device has panicked");
            }
        }
    }
    let guard = UnwindGuard(orders, on_failure);
    let served = run().map_err(|error| error.to_string());
    drop(guard);
    if let Err(error) = &served
        && !orders.is_stopping()
    {
        on_failure(error);
    }
    served
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn reported(is_stopping: bool, run: impl FnOnce() -> io::Result<()>) -> Vec<String> {
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&said);
        let on_failure: OnFailure = Arc::new(move |why| cryptline_sys::lock(&heard).push(why.into()));
        let orders = Orders::default();
        if is_stopping {
            orders.stop();
        }
        let run = std::panic::AssertUnwindSafe(|| keep_ring(&orders, &on_failure, run));
        let _ = std::panic::catch_unwind(run);
        std::mem::take(&mut cryptline_sys::lock(&said))
    }

    #[test]
    fn lane_that_fails_or_panics_is_reported_once_unless_it_is_to_stop() {
        let fail = || Err(io::Error::other("no memory"));
        let panic = || panic!("a test's panic");
        assert!(reported(false, || Ok(())).is_empty());
        assert_eq!(reported(false, fail), ["no memory"]);
        assert_eq!(reported(false, panic).len(), 1);
        assert!(reported(true, fail).is_empty());
        assert!(reported(true, panic).is_empty());
    }
}
