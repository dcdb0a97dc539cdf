//! A device: something with a geometry that reads, writes, flushes, discards and zeroes.
//!
//! A device is shared (`Send + Sync`) and does no I/O itself. Each thread that wants some opens a
//! [`Queue`](crate::Queue) of its own into it; nothing on the way of a request is shared between
//! queues but the bytes on the medium.
//!
//! A device is never used bare: it is put behind a [`Gate`](crate::Gate), which checks every
//! request once so that no device has to.

use std::os::fd::BorrowedFd;

use cryptline_sys::Ring;

use crate::queue::AtOnce;
use crate::zone::{Zone, ZoneModel};
use crate::{Fault, Gate, OpenError, Queue};

/// Something that stores bytes. `base/` has those at the bottom, `layer/` those over another.
pub trait Device: Send + Sync {
    /// Properties as it was opened. Asked once, by the gate before it; only the size can change later
    /// ([`grow`](Self::grow)).
    fn traits(&self) -> Traits;

    /// Looks whether what it lies on has grown, if it is to grow with it, and gets ready for requests to what is new; its
    /// size now, and never less than before. All others keep the size that they were opened with.
    fn grow(&self) -> u64 {
        self.traits().geometry.size
    }

    /// A queue for the calling thread, whose I/O goes over `ring`.
    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError>;

    /// Tells about the allocation of the bytes from `offset` on, as far as known: the state of the first byte, and how
    /// many of the next `len` bytes (at least one) share it. `len > 0`, and the gate has checked the range. As below
    /// where there is one device; elsewhere all is data.
    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        match self.below() {
            [lower] => lower.extent(offset, len),
            _ => Ok(Extent { len, hole: false, zero: false }),
        }
    }

    /// The devices that it lies over.
    fn below(&self) -> &[Gate] {
        &[]
    }

    /// The open file that each of its queues opens again.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Opens its own files of so many queues at a time now, for a process that can open none later.
    fn reserve_files(&self, _queues: usize) -> Result<(), OpenError> {
        Ok(())
    }

    /// Closes what it keeps open for queues to come, and what is below it does not concern.
    fn close_spare(&self) {}

    /// Fills `zones` from the zone that holds `offset` on; how many there were. May ask the medium
    /// and wait for it. As below where there is one device.
    ///
    /// Errors: [`Fault::NotSupported`] where [`Geometry::zones`] is `None`.
    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        match self.below() {
            [lower] => lower.report_zones(offset, zones),
            _ => Err(Fault::NotSupported),
        }
    }
}

/// Properties of a device that do not change once the stack is laid.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Size, alignment and abilities.
    pub geometry: Geometry,
    /// Which requests its queues carry out where they lie.
    pub at_once: AtOnce,
    /// How many queues there can be at a time.
    pub queues: usize,
    /// How many queues it has below beside one for each of its own.
    pub beside: usize,
    /// A queue is to be kept until its reads have ended, even if nobody waits for them: it could not be replaced.
    pub awaits_reads: bool,
    /// Each request is a message to a server, which takes processor time whatever its length. Then a request that is
    /// cut costs more than it gains.
    pub sends_messages: bool,
    /// The connections that it makes on its own while it is open.
    pub connects: Connections,
}

impl Traits {
    /// Those of a device over nothing, with any number of queues.
    #[must_use]
    pub const fn base(geometry: Geometry) -> Self {
        Self {
            geometry,
            at_once: AtOnce::None,
            queues: usize::MAX,
            beside: 0,
            awaits_reads: false,
            sends_messages: false,
            connects: Connections { tcp: false, unix: false, by_library: false },
        }
    }

    /// Those of a device over nothing whose requests are all carried out where they lie.
    #[must_use]
    pub const fn immediate(geometry: Geometry) -> Self {
        Self { at_once: AtOnce::All, ..Self::base(Geometry { answers_at_once: true, ..geometry }) }
    }

    /// Properties that all of `below` have in common, for a layer that submits each request.
    ///
    /// # Panics
    /// Where there is nothing below.
    #[must_use]
    pub fn over(below: &[Gate]) -> Self {
        let both = |one: Self, other: Self| Self {
            geometry: one.geometry.and(other.geometry),
            queues: one.queues.min(other.queues),
            awaits_reads: one.awaits_reads || other.awaits_reads,
            sends_messages: one.sends_messages || other.sends_messages,
            connects: one.connects.and(other.connects),
            ..one
        };
        let all = below.iter().map(|lower| *lower.traits()).reduce(both).expect("a layer lies over something");
        Self { at_once: AtOnce::None, beside: 0, ..all }
    }

    /// The same of a layer that has so many queues below beside one for each of its own.
    #[must_use]
    pub fn with_beside(self, beside: usize) -> Self {
        let queues = if self.queues == usize::MAX { usize::MAX } else { self.queues.saturating_sub(beside) };
        Self { queues, beside, ..self }
    }

    /// How many queues so many of its own have below.
    pub(crate) fn queues_below(&self, queues: usize) -> usize {
        queues.saturating_add(self.beside)
    }
}

/// Kinds of connections that are made by a device that is open, beside those that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// By TCP.
    pub tcp: bool,
    /// To a socket of this machine.
    pub unix: bool,
    /// Not only by threads of ours, but by those of a library.
    pub by_library: bool,
}

impl Connections {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            tcp: self.tcp || other.tcp,
            unix: self.unix || other.unix,
            by_library: self.by_library || other.by_library,
        }
    }

    /// Tells if there are any.
    #[must_use]
    pub fn are_any(self) -> bool {
        self != Self::default()
    }
}

/// Size, alignment and abilities of a device. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size; a multiple of `logical_block`.
    pub size: u64,
    /// Offsets and lengths must be multiples of this. A power of two.
    pub logical_block: u32,
    /// Transfers of this size or more are efficient. A power of two.
    pub preferred_block: u32,
    /// No write, discard or zeroing.
    pub read_only: bool,
    /// A seek costs time.
    pub rotational: bool,
    /// Discard works.
    pub discard: bool,
    /// Write-zeroes works, and faster than writing.
    pub write_zeroes: bool,
    /// Bytes can be brought nearer without a transfer. Elsewhere reading them does.
    pub cache: bool,
    /// A request is finished when `submit` returns (RAM).
    pub answers_at_once: bool,
    /// The zones of a host-managed zoned device.
    pub zones: Option<ZoneModel>,
}

impl Geometry {
    /// A device of `size` bytes in blocks of `logical_block` that can be read, written and flushed.
    #[must_use]
    pub const fn plain(size: u64, logical_block: u32) -> Self {
        Self {
            size,
            logical_block,
            preferred_block: logical_block,
            read_only: false,
            rotational: false,
            discard: false,
            write_zeroes: false,
            cache: false,
            answers_at_once: false,
            zones: None,
        }
    }

    /// Abilities that both have, in the larger blocks; the smaller size.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            size: self.size.min(other.size),
            logical_block: self.logical_block.max(other.logical_block),
            preferred_block: self.preferred_block.max(other.preferred_block),
            read_only: self.read_only || other.read_only,
            rotational: self.rotational || other.rotational,
            discard: self.discard && other.discard,
            write_zeroes: self.write_zeroes && other.write_zeroes,
            cache: self.cache && other.cache,
            answers_at_once: self.answers_at_once && other.answers_at_once,
            zones: self.zones.or(other.zones),
        }
    }
}

/// A run of bytes in one allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length of the run in bytes, at least 1.
    pub len: u64,
    /// No space is allocated for it.
    pub hole: bool,
    /// Set if it is known to read as zeros.
    pub zero: bool,
}
