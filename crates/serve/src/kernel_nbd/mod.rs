//! A volume as `/dev/nbdN`: the kernel's own NBD client, over sockets that never leave this machine.
//!
//! ```text
//! filesystem ─► /dev/nbdN ─► kernel's client ─► socket pair ─► NbdWire ─► lane ─► volume
//! ```
//!
//! There is no handshake: the kernel is told size, block size and flags by netlink, together with its ends of
//! the sockets. Each socket is one hardware queue of the device and one lane here.

mod netlink;

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Gate};
use cryptline_nbd::ExportLimits;
use rustix::io::Errno;

use self::netlink::{NbdDisk, NetlinkDriver};
use crate::device::{AttachError, Crew, EndError, flush, write_back};
use crate::lane::{Lane, Orders};
use crate::nbd::export::capabilities;
use crate::nbd::wire::{NbdWire, Terms};
use crate::net::{Connected, StopHandle};
use crate::stats::ExportStats;

/// The largest request that the kernel's client sends, in bytes.
const PAYLOAD_MAX: u32 = 32 << 20;
/// The least and the largest block size that it takes.
const BLOCK: std::ops::RangeInclusive<u32> = 512..=4096;
const NAME: &str = "nbd";
/// Seconds that a request may take where there are several sockets: a medium that hangs for a day does not come back.
/// After them the kernel asks another socket, while a slow write can still be under way.
const PATIENCE: u64 = 86400;

/// How to attach.
pub struct NbdAttachOptions {
    /// How lanes do their I/O.
    pub backend: BackendChoice,
    /// Sockets, and so lanes.
    pub connections: usize,
    /// Which `/dev/nbdN`; `None` for any that is free.
    pub index: Option<u32>,
    /// Bytes of a block, as dm-crypt would have it: partition tables depend on it. Not less than the volume's.
    pub block: u32,
    /// How long a request may take before the kernel gives the device up; only with a single connection, since of
    /// several it would ask another.
    pub timeout: Option<Duration>,
    /// Its counters.
    pub stats: Arc<ExportStats>,
    /// How long what is under way may take once the device has been taken away.
    pub grace: Duration,
}

/// An attached volume.
pub struct KernelNbd {
    index: u32,
    /// As the kernel knows it.
    owner: Option<u32>,
    gate: Gate,
    options: NbdAttachOptions,
    crew: Crew,
    stop: StopHandle,
}

impl KernelNbd {
    /// Makes a block device of the volume.
    ///
    /// # Errors
    /// Where the driver is missing or refuses, and where no thread can serve.
    pub fn attach(gate: Gate, options: NbdAttachOptions, stop: StopHandle) -> Result<Self, AttachError> {
        let limits = limits(&gate, options.block)?;
        let mut driver = find_driver()?;
        let mut crew = Crew::new(stop.clone());
        let mut theirs = Vec::new();
        for number in 0..options.connections.max(1) {
            let pair = UnixStream::pair().map_err(AttachError::at("make a pair of sockets"))?;
            theirs.push(pair.1);
            start_lane(&mut crew, number, pair.0, &gate, limits, &options)?;
        }
        let sockets: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
        let connected = driver.connect(&NbdDisk {
            index: options.index,
            size: limits.size,
            block: limits.min_block,
            flags: limits.flags.bits(),
            timeout: timeout(&options),
            sockets: &sockets,
        });
        // The kernel has its own hold on them; ours would keep a lane from seeing that it is gone.
        drop(theirs);
        match connected {
            Ok(index) => Ok(Self {
                index,
                // Unknown, it is nobody's, and so stays where it is.
                owner: owner(index).ok().flatten(),
                gate,
                options,
                crew,
                stop,
            }),
            Err(error) => {
                crew.end(Duration::ZERO, || {});
                Err(refused(error, options.index))
            }
        }
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path(self.index)
    }

    /// Its owner, as [`owner`] will say.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// Serves until it is stopped, or somebody else has taken the device away.
    pub fn serve(&self) {
        while !crate::net::is_stopped_within(&self.stop, None) {}
    }

    /// Has the kernel write back what it has cached; then the device goes, and the volume is flushed. `log` takes what
    /// lanes had trouble with.
    ///
    /// # Errors
    /// The first of these that failed; the others were done all the same.
    pub fn end(self, log: impl Fn(&str)) -> Result<(), EndError> {
        let path = self.path();
        // Where somebody else has taken the device away, another disk may be there by now.
        let is_ours = owner(self.index).map(|owner| owner == self.owner);
        let (claimed, written) = match is_ours {
            Ok(false) => (None, Ok(())),
            _ => write_back(&path, &self.gate, self.options.backend, self.options.grace),
        };
        let removed = match is_ours {
            Ok(true) => detach(self.index),
            is_ours => is_ours.map(drop),
        };
        let removed = removed.map_err(|error| EndError::Remove { path, error });
        // The disk is empty only once nobody has it open.
        drop(claimed);
        for trouble in self.crew.end(self.options.grace, || {}) {
            log(&trouble);
        }
        let flushed = flush(&self.gate, self.options.backend, self.options.grace);
        written.and(removed).and(flushed)
    }
}

/// The path of a device.
#[must_use]
pub fn path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{index}"))
}

/// Takes the disk of `/dev/nbdN` away, whoever serves it. What is cached of it and was not written is lost.
///
/// # Errors
/// Where the driver is missing or refuses.
pub fn detach(index: u32) -> io::Result<()> {
    NetlinkDriver::find()?.disconnect(index)
}

/// The process that has given `/dev/nbdN` its disk, which may be gone; `None` where it has none.
///
/// # Errors
/// Where that cannot be known.
pub fn owner(index: u32) -> io::Result<Option<u32>> {
    match std::fs::read_to_string(format!("/sys/block/nbd{index}/pid")) {
        Ok(owner) => {
            let owner = owner.trim().parse();
            owner.map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Verifies that the driver is there.
///
/// # Errors
/// Where it is not.
pub fn check() -> Result<(), AttachError> {
    find_driver().map(drop)
}

fn find_driver() -> Result<NetlinkDriver, AttachError> {
    NetlinkDriver::find().map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => AttachError::NoDriver(NAME),
        _ => AttachError::at("ask for the nbd driver")(error),
    })
}

fn refused(error: io::Error, index: Option<u32>) -> AttachError {
    match (Errno::from_io_error(&error), index) {
        (Some(Errno::BUSY), Some(index)) => AttachError::InUse(path(index)),
        _ => AttachError::at("connect the nbd device")(error),
    }
}

/// Returns the time limit of a request that the kernel is told, in seconds, of which 0 would be none.
fn timeout(options: &NbdAttachOptions) -> Option<u64> {
    match options.connections {
        0 | 1 => options.timeout.map(|limit| limit.as_secs().max(1)),
        _ => Some(PATIENCE),
    }
}

/// Returns what the kernel's client is told, and held to.
fn limits(gate: &Gate, block: u32) -> Result<ExportLimits, AttachError> {
    let geometry = gate.geometry();
    if geometry.zones.is_some() {
        return Err(AttachError::Zoned(NAME));
    }
    let block = block.max(geometry.logical_block).max(*BLOCK.start());
    if !BLOCK.contains(&block) {
        return Err(AttachError::Blocks(block));
    }
    Ok(ExportLimits {
        size: geometry.size - geometry.size % u64::from(block),
        min_block: block,
        max_payload: PAYLOAD_MAX,
        flags: capabilities(geometry).into(),
        structured_replies: false,
        block_status: false,
        zeroes_are_fast: geometry.write_zeroes,
    })
}

fn start_lane(
    crew: &mut Crew,
    number: usize,
    ours: UnixStream,
    gate: &Gate,
    limits: ExportLimits,
    options: &NbdAttachOptions,
) -> Result<(), AttachError> {
    let handle = ours.try_clone().map_err(AttachError::at("copy a socket"))?;
    let cut = move || {
        // Failing means that it is shut down already.
        let _ = handle.shutdown(Shutdown::Both);
    };
    let (gate, stats) = (gate.clone(), Arc::clone(&options.stats));
    let backend = options.backend;
    let work = move |orders: Arc<Orders>| {
        stats.metered(|meter| {
            let connected = Connected { socket: Arc::new(ours.into()), tls: None, leftover: Vec::new() };
            let terms = Terms { gate: gate.clone(), limits, context: 0, meter: meter.clone() };
            let open = |ring: &mut _| NbdWire::new(ring, connected, terms);
            let mut lane = Lane::new(&gate, backend, orders, meter, open).map_err(|error| error.to_string())?;
            lane.run().map_err(|error| error.to_string())
        })
    };
    crew.start(format!("nbd-{number}"), cut, work).map_err(AttachError::at("start a thread"))
}
