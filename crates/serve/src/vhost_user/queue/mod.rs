//! Virtqueues: rings of descriptors in memory that a guest can change at any moment.
//!
//! ```text
//! descriptors ─► Chain (address and length of each segment) ─► a request ─► used element
//! ```
//!
//! Each word of a ring is read once and judged before it is used. What breaks the rules ends the ring, since nothing
//! that follows could be told apart from a request.
//!
//! Split and packed rings stand behind one trait, and a queue's lane is compiled for each: the choice is made once, and
//! no request pays for it.

mod packed;
mod split;

use cryptline_sys::{GuestFault, GuestMemory, GuestRange};

pub(super) use self::packed::{PackedRing, RingPosition};
pub(super) use self::split::SplitRing;

/// Segments of one request: `SEG_MAX` of data, a header and a status, each of which a driver may cut in pieces.
pub(super) const SEGMENTS_MAX: usize = 256;
/// The smallest virtqueue that has room for a request.
pub const QUEUE_SIZE_MIN: u16 = 4;
/// The largest virtqueue that there can be.
pub const QUEUE_SIZE_MAX: u16 = 32768;

/// Why a ring can not be served any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingError {
    #[error("{0}{hint}", hint = hint(*.0))]
    Memory(#[from] GuestFault),
    #[error("its driver made {0} requests available, more than the ring has places")]
    Ahead(u16),
    #[error("descriptor {0} is not in its table")]
    Index(u32),
    #[error("a chain of descriptors has a loop, leaves its ring or has more than {SEGMENTS_MAX} segments")]
    Long,
    #[error("a ring of this kind cannot have {0} places")]
    Size(u16),
    #[error("the buffer of requests under way contradicts itself")]
    Inflight,
    #[error("a device-readable segment follows a device-writable one")]
    Order,
    #[error("an indirect table is inside another, continued, of no use or not negotiated")]
    Indirect,
    #[error("a request without a whole header or without a place for its status")]
    Header,
    #[error("its kick descriptor is no eventfd")]
    Kick,
}

/// Whoever runs a machine may not know that its memory must be shared.
fn hint(fault: GuestFault) -> &'static str {
    match fault {
        GuestFault::Outside => " (QEMU shares all of a memory-backend with share=on)",
        GuestFault::Misaligned | GuestFault::Lost => "",
    }
}

/// Where a virtqueue lies, and how its driver uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtqueueLayout {
    pub size: u16,
    /// User addresses. In a packed ring, `available` is the driver's area, `used` the device's.
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    /// Where the first request to take is; in a packed ring also where the next used element goes.
    pub base: u32,
    pub is_packed: bool,
    pub event_idx: bool,
    pub indirect: bool,
}

impl VirtqueueLayout {
    /// Tells if no server has had the ring. Whoever can not tell says no.
    pub fn is_fresh(&self, memory: &GuestMemory) -> bool {
        let is_fresh =
            if self.is_packed { PackedRing::is_fresh(self, memory) } else { SplitRing::is_fresh(self, memory) };
        is_fresh.unwrap_or(false)
    }
}

/// A ring as its wire sees it: chosen once for a queue, so a request meets no second choice.
pub(super) trait Virtqueue: Sized {
    /// Begins where the driver and an earlier server have left it. A ring that was fresh is not any more.
    fn open(layout: VirtqueueLayout, memory: &GuestMemory, inflight: Option<GuestRange>) -> Result<Self, RingError>;

    /// Tells if the ring is at its beginning, and no server has had it: each lap, or 65536 requests, leads there again,
    /// and one that was never used may be another server's too.
    fn is_fresh(layout: &VirtqueueLayout, memory: &GuestMemory) -> Result<bool, RingError>;

    /// The memory lies elsewhere from now on. Where it does not have all of the ring, as between two messages that
    /// replace a region, the ring stays where it was.
    fn remap(&mut self, memory: &GuestMemory) -> Result<(), RingError>;

    /// The next request; `false` where there is none.
    fn next(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError>;

    /// Returns what [`next`](Self::next) would give, and does then.
    fn peek(&mut self, memory: &GuestMemory, chain: &mut DescriptorChain) -> Result<bool, RingError>;

    /// Notes that a request is over, for which `written` bytes were written. The driver does not know yet.
    fn finish(&mut self, chain: &DescriptorChain, written: u32) -> Result<(), RingError>;

    /// Lets the driver know of everything that is over. Whether it wants an interrupt for that.
    fn publish(&mut self) -> Result<bool, RingError>;

    /// Asks for a kick when the driver makes more available. `true` where it has done so already.
    fn ask_for_kick(&mut self) -> Result<bool, RingError>;

    /// Tells if the driver has made more available, without asking for a kick.
    fn has_more(&mut self) -> Result<bool, RingError>;

    /// Tells if requests that an earlier server has taken are still to be taken here, before any new one.
    fn has_left(&self) -> bool;

    /// Tells if the driver does not know yet of something that is over.
    fn has_unpublished(&self) -> bool;

    /// Where the next server is to begin, once nothing is under way and nothing is [left](Self::has_left).
    fn base(&self) -> u32;
}

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuestSegment {
    pub address: u64,
    pub len: u32,
}

/// The memory of one request: what the device may read, then what it may write. Its own memory is allocated once.
#[derive(Debug)]
pub(super) struct DescriptorChain {
    /// Identity to the driver: the first descriptor's index, or in a packed ring the buffer's id.
    pub head: u16,
    /// Descriptors of a packed ring that it takes.
    count: u16,
    /// Where the buffer of requests under way has it, for a packed ring.
    entry: u16,
    segments: Vec<GuestSegment>,
    /// How many of the segments are readable.
    readable: usize,
}

impl DescriptorChain {
    pub fn new() -> Self {
        Self { head: 0, count: 0, entry: 0, segments: Vec::with_capacity(SEGMENTS_MAX), readable: 0 }
    }

    fn begin(&mut self, head: u16) {
        self.head = head;
        self.count = 0;
        self.entry = 0;
        self.segments.clear();
        self.readable = 0;
    }

    fn push(&mut self, segment: GuestSegment, is_writable: bool) -> Result<(), RingError> {
        if self.segments.len() == SEGMENTS_MAX {
            return Err(RingError::Long);
        }
        if !is_writable {
            if self.readable < self.segments.len() {
                return Err(RingError::Order);
            }
            self.readable += 1;
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Bytes that the device may read.
    pub fn readable_len(&self) -> u64 {
        total(&self.segments[..self.readable])
    }

    /// Bytes that the device may write.
    pub fn writable_len(&self) -> u64 {
        total(&self.segments[self.readable..])
    }

    /// Tells if all of it lies in `memory`.
    pub fn lies_in(&self, memory: &GuestMemory) -> bool {
        self.segments.iter().all(|segment| memory.has(segment.address, segment.len))
    }

    /// Copies out what the driver has written, from its byte `at` on.
    pub fn read(&self, memory: &GuestMemory, at: u64, target: &mut [u8]) -> Result<(), GuestFault> {
        let mut done = 0;
        let end = target.len();
        each_piece(&self.segments[..self.readable], at, end, |address, len| {
            let result = memory.read(address, &mut target[done..done + len]);
            done += len;
            result
        })
    }

    /// Copies bytes to where the driver reads them, from its byte `at` on.
    pub fn write(&self, memory: &GuestMemory, at: u64, source: &[u8]) -> Result<(), GuestFault> {
        let mut done = 0;
        let end = source.len();
        each_piece(&self.segments[self.readable..], at, end, |address, len| {
            let result = memory.write(address, &source[done..done + len]);
            done += len;
            result
        })
    }
}

fn total(segments: &[GuestSegment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len)).sum()
}

/// Calls `visit` with the address and length of each piece of `len` bytes that begin `skip` bytes into `segments`.
fn each_piece(
    segments: &[GuestSegment],
    mut skip: u64,
    mut len: usize,
    mut visit: impl FnMut(u64, usize) -> Result<(), GuestFault>,
) -> Result<(), GuestFault> {
    for segment in segments {
        if len == 0 {
            break;
        }
        let whole = u64::from(segment.len);
        if skip >= whole {
            skip -= whole;
            continue;
        }
        let address = segment.address.checked_add(skip);
        let address = address.ok_or(GuestFault::Outside)?;
        let here = usize::try_from(whole - skip).unwrap_or(usize::MAX).min(len);
        visit(address, here)?;
        len -= here;
        skip = 0;
    }
    if len == 0 { Ok(()) } else { Err(GuestFault::Outside) }
}

/// Tells if a driver that wants to hear of index `event` wants to hear of the step from `old` to `new`.
fn is_crossed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
#[path = "tests/guest.rs"]
mod guest;
#[cfg(test)]
mod kill_tests;
