//! An open volume.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions};
use cryptline_engine::{BackendChoice, Channel, Extent, Fault, Gate, Zone};

use crate::bytes::GateBytes;
use crate::contents::{self, Contents};
use crate::error::Problem;
use crate::header::lock::InUse;
use crate::info::Info;
use crate::stamp::Stamp;
use crate::target::Target;
use crate::{Disk, Result, Warning};

/// The smallest I/O that every program knows: one that never asks takes it for granted.
pub(crate) const LEAST_BLOCK: u32 = 512;
/// Zones asked for at a time.
const BATCH: usize = 256;

/// An open volume: the clear disk. Closed when it, its gates and its queues are all dropped.
pub struct Volume {
    gate: Gate,
    info: Info,
    warnings: Vec<Warning>,
    /// The smallest I/O stays as it is: it was asked for, or others write to the target.
    keeps_blocks: bool,
    /// Of the file that it lies in.
    stamp: Option<Stamp>,
    /// Where it lies: its name in `info` is for messages. None for a table.
    target: Option<Target>,
    /// Its header, where that is elsewhere.
    header: Option<PathBuf>,
}

impl Volume {
    pub(crate) fn new(gate: Gate, info: Info, warnings: Vec<Warning>, keeps_blocks: bool) -> Self {
        Self { gate, info, warnings, keeps_blocks, stamp: None, target: None, header: None }
    }

    /// Keeps others from reencrypting it while anybody can reach it, by the lock taken here or that of another process.
    pub(crate) fn kept(mut self, locks: (Option<InUse>, Option<OwnedFd>)) -> Self {
        self.gate = self.gate.keeping(locks);
        self
    }

    /// Remembers where it and its header lie, and what is there as it was before it was opened.
    pub(crate) fn at(mut self, target: Option<Target>, header: Option<PathBuf>, stamp: Option<Stamp>) -> Self {
        (self.target, self.header, self.stamp) = (target, header, stamp);
        self
    }

    pub(crate) fn header(&self) -> Option<&Path> {
        self.header.as_deref()
    }

    pub(crate) fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    pub(crate) fn stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref()
    }

    pub(crate) fn identified(mut self, identity: Option<String>, key_slot: Option<u32>) -> Self {
        self.info.identity = identity;
        self.info.key_slot = key_slot;
        self
    }

    /// The way into the clear disk, for fronts and other programs with queues of their own.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Bytes of the clear disk: those of [`info`](Self::info), or more since [`grow`](Self::grow).
    #[must_use]
    pub fn size(&self) -> u64 {
        self.gate.size()
    }

    /// Looks whether the file or block device has grown, where neither its header nor its caller says how large the
    /// volume is, and makes what is new a part of it. Its size now; it never becomes smaller.
    ///
    /// New space reads as noise until it is written, like all that never was. Everything that was opened before can be
    /// used on, and reaches it.
    pub fn grow(&self) -> u64 {
        self.gate.grow()
    }

    /// Returns a description of what was opened.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns what the user should know.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// One call at a time, on the calling thread.
    ///
    /// # Errors
    /// Where no ring or queue can be had.
    pub fn blocking(&self) -> Result<Blocking> {
        Ok(Blocking::new(&self.gate, BackendChoice::Auto)?)
    }

    /// Names what the decrypted disk has, where that is known: a file system, partitions and what is in them, zeros. Only so
    /// that it can be told.
    ///
    /// # Errors
    /// A disk that cannot be read.
    pub fn contents(&self) -> Result<Option<Contents>> {
        let mut bytes = GateBytes::new(&self.gate)?;
        let found = contents::told(&mut bytes, self.gate.size(), None);
        found.map_err(|source| Problem::Io { action: "read", source }.on(&self.info.source))
    }

    /// Any bytes, from any thread.
    ///
    /// # Errors
    /// Where no queue can be had.
    pub fn disk(self) -> Result<Disk> {
        Disk::new(self)
    }

    /// The calling thread's own way in, for at most `depth` requests in flight.
    ///
    /// # Errors
    /// Where no ring or queue can be had.
    pub fn channel(&self, depth: u32) -> Result<Channel> {
        Ok(Channel::open(&self.gate, BackendChoice::Auto, depth)?)
    }

    /// Returns what is known of the allocation of all bytes from `offset` on, run by run.
    pub fn extents(&self, offset: u64) -> impl Iterator<Item = std::result::Result<Extent, Fault>> {
        let (gate, mut at) = (&self.gate, offset);
        std::iter::from_fn(move || {
            let left = gate.size().checked_sub(at)?;
            let extent = (left > 0).then(|| gate.extent(at, left))?;
            at = match &extent {
                Ok(extent) => at.saturating_add(extent.len),
                Err(_) => u64::MAX,
            };
            Some(extent)
        })
    }

    /// The volume in blocks of 512 bytes for clients that never ask how small blocks may be: where it has none,
    /// each write of part of a block rewrites the whole. All clients must go through one such gate, so that no
    /// write is lost between the reading and the writing.
    ///
    /// Where blocks were asked for, or others write to the target, it is the volume as it is.
    ///
    /// # Errors
    /// None that is known.
    pub fn gate_for_any_client(&self) -> Result<Gate> {
        self.gate_in_blocks(LEAST_BLOCK)
    }

    /// The volume in single bytes, for clients that know no blocks at all, as programs that use a file. All of
    /// them must go through one such gate, as above; so must clients of blocks that share the volume with them.
    ///
    /// Where blocks were asked for, or others write to the target, it is the volume as it is.
    ///
    /// # Errors
    /// None that is known.
    pub fn gate_for_any_bytes(&self) -> Result<Gate> {
        self.gate_in_blocks(1)
    }

    fn gate_in_blocks(&self, block: u32) -> Result<Gate> {
        let least = self.gate.geometry().logical_block;
        let is_fit = least <= block || self.gate.geometry().zones.is_some();
        if is_fit || self.keeps_blocks {
            return Ok(self.gate.clone());
        }
        let options = SubBlockOptions { logical_block: block, sector: least, exclusion: Exclusion::Shared };
        Ok(Gate::new(SubBlockDevice::new(self.gate.clone(), options)?))
    }
}

/// All zones of a zoned device.
///
/// # Errors
/// A device without zones, or one that does not report them.
pub fn zones(gate: &Gate) -> Result<Vec<Zone>> {
    let size = gate.geometry().size;
    gate.geometry().zones.ok_or(Problem::NoZones)?;
    let (mut all, mut at) = (Vec::new(), 0);
    let mut batch = vec![Zone::default(); BATCH];
    while at < size {
        let count = gate.report_zones(at, &mut batch).map_err(Problem::NoReport)?;
        let Some(last) = batch[..count].last() else {
            break;
        };
        let next = last.start.saturating_add(last.length);
        if next <= at {
            // The same zone again and again: the device is failing.
            return Err(Problem::NoReport(Fault::Io(rustix::io::Errno::IO)).into());
        }
        at = next;
        all.extend_from_slice(&batch[..count]);
    }
    Ok(all)
}
