//! One piece of work on a device, and its end.
//!
//! A [`Request`] is a plain value that owns its buffer. It travels down the stack from queue to
//! queue and comes back up as a [`Completion`], the same value with a result. A layer that changes
//! it on the way down (shifts the offset, encrypts the data) changes it back on the way up. Anything else that
//! a layer must remember of it is in an [`InFlight`](crate::InFlight) table, whose key is the token below.
//!
//! ```text
//! front   Request ─► gate ─► crypt ─► gate ─► file ─► ring
//! front   ◄─ Completion ◄─── decrypt ◄─────── file ◄─ ring
//! ```
//!
//! The buffer is moved, never borrowed: `crypt` encrypts in it, and while the kernel uses it, it belongs to the ring's slot
//! table, so no Rust reference to it can exist. Data in memory that others can change (a guest's) is copied into a buffer
//! first, each byte read once; no cipher works in such memory.
//!
//! A hint travels as far as somebody understands it: [`Op::Cache`] carries nothing, layers map its range, and where no
//! device has it ([`Geometry::cache`](crate::Geometry)) the lane reads the range instead. So a file needs no `readahead`, which
//! could block a lane.
//!
//! A request is not heap-allocated, can not be cloned, and is consumed by
//! [`complete`](Request::complete): it ends exactly once.

use std::fmt;

use cryptline_sys::Buffer;
use rustix::io::Errno;

use crate::Op;
use crate::zone::ZoneAction;

/// One piece of work, owned by whoever must complete it.
///
/// In this order, so that the buffer lies as it is moved: in aligned pairs of words.
#[derive(Debug)]
#[must_use = "a request must be submitted or completed"]
#[repr(C)]
pub struct Request {
    /// Where on the device, in bytes.
    pub offset: u64,
    /// Operation to carry out.
    pub op: Op,
    /// Data of an operation that [moves some](Op::moves_data). A layer that cuts it keeps the request without it.
    pub data: Option<Buffer>,
    /// Length of the range in bytes, and of the data; 0 for a flush and an action on zones.
    pub len: u64,
    /// The submitter's mark, unchanged in the completion.
    pub token: u64,
}

const _: () = assert!(size_of::<Request>() == 56);

impl Request {
    /// An operation on a range, without data.
    pub fn new(op: Op, offset: u64, len: u64, token: u64) -> Self {
        Self { offset, op, data: None, len, token }
    }

    /// An operation that moves all of `data`.
    pub fn transfer(op: Op, offset: u64, data: Buffer, token: u64) -> Self {
        // A usize always fits: Linux runs on nothing wider than 64 bits.
        Self { offset, op, len: data.len() as u64, data: Some(data), token }
    }

    /// A read of `buffer.len()` bytes.
    pub fn read(offset: u64, buffer: Buffer, token: u64) -> Self {
        Self::transfer(Op::Read, offset, buffer, token)
    }

    /// A write of `data.len()` bytes.
    pub fn write(offset: u64, data: Buffer, durable: bool, token: u64) -> Self {
        Self::transfer(Op::write(durable), offset, data, token)
    }

    /// An append of `data.len()` bytes to the zone that starts at `zone_start`.
    pub fn zone_append(zone_start: u64, data: Buffer, durable: bool, token: u64) -> Self {
        Self::transfer(Op::append(durable), zone_start, data, token)
    }

    /// An action on the zone that starts at `zone_start`; 0 for [`ZoneAction::ResetAll`].
    pub fn zone(zone_start: u64, action: ZoneAction, token: u64) -> Self {
        Self::new(action.into(), zone_start, 0, token)
    }

    /// A flush.
    pub fn flush(token: u64) -> Self {
        Self::new(Op::Flush, 0, 0, token)
    }

    /// Tells if it has the data that its operation moves, of the length that it states, and no other.
    #[must_use]
    #[inline]
    pub fn is_consistent(&self) -> bool {
        match &self.data {
            Some(data) => self.op.moves_data() && data.len() as u64 == self.len,
            None if !self.op.has_range() => self.len == 0,
            None => !self.op.moves_data(),
        }
    }

    /// Ends the request.
    pub fn complete(self, result: Result<(), Fault>) -> Completion {
        Completion { request: self, result }
    }
}

/// A request at its end.
#[derive(Debug)]
#[must_use = "somebody waits for this completion"]
#[repr(C)]
pub struct Completion {
    /// The request as it was submitted, with its buffer.
    pub request: Request,
    /// Outcome of the request.
    pub result: Result<(), Fault>,
}

// A completion is moved several times on its way: it should fit into a cache line.
const _: () = assert!(size_of::<Completion>() == 64);

/// Why a request failed. Small and `Copy`: making one costs nothing on the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The range leaves the device.
    OutOfRange,
    /// Offset or length is not a multiple of the logical block.
    Misaligned,
    /// A write to a read-only device.
    ReadOnly,
    /// The device has no such operation.
    NotSupported,
    /// No space left below (`ENOSPC`, `EDQUOT`), or none allowed (`EFBIG`: `ulimit -f`), for this write. Nothing that was
    /// acknowledged is lost by that: where it may be, the fault is [`Io`](Self::Io) with that number.
    NoSpace,
    /// The device ended before its announced size: the image was cut short while open.
    Truncated,
    /// An earlier write or flush failed, so this flush can not promise anything.
    Latched,
    /// The connection to the server that has the data was lost, and perhaps what it had acknowledged.
    Lost,
    /// The source of the read was removed while it was open.
    Gone,
    /// The range crosses from one zone into the next.
    CrossesZone,
    /// A write to a sequential zone that does not start at its write pointer or leaves its capacity.
    WritePointer,
    /// The zone is read-only, offline, full, conventional, or else in no condition for this.
    ZoneCondition,
    /// A write or action on this zone is under way; they come one at a time here.
    ZoneBusy,
    /// A write to this zone failed, so its write pointer is not known until it is reported again.
    ZoneFrozen,
    /// One more zone can not be open ([`ZoneModel::max_open`](crate::zone::ZoneModel)).
    TooManyOpen,
    /// One more zone can not be active ([`ZoneModel::max_active`](crate::zone::ZoneModel)).
    TooManyActive,
    /// A change to a range that nothing can be stored in.
    NoStore,
    /// A part of a change was carried out and another refused. Nothing that was acknowledged is lost by that.
    Partly,
    /// More requests than there are places for; this one can be submitted again when others have
    /// ended.
    Busy,
    /// Any other error from below.
    Io(Errno),
}

impl Fault {
    /// Tells if somebody who hears this of a sync takes it for one that is not needed, or that has changed nothing: kernels
    /// and programs ignore a flush that is not supported, or that a file does not have; to clients of NBD, what was not
    /// permitted was not tried, and what a server refuses because it ends can be asked of the next one.
    pub(crate) fn sounds_refused(self) -> bool {
        let Self::Io(errno) = self else { return self.is_refusal() };
        let not_there = matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS);
        not_there || matches!(errno, Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::SHUTDOWN)
    }

    /// The fault to tell where something may have been changed: never one that is a refusal, or that sounds like one.
    #[must_use]
    pub fn unrefused(self) -> Self {
        if self.sounds_refused() { Self::Io(Errno::IO) } else { self }
    }

    /// Tells if a request was refused before it changed anything. A change that was refused is not one that was lost.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        match self {
            Self::OutOfRange
            | Self::Misaligned
            | Self::ReadOnly
            | Self::NotSupported
            | Self::CrossesZone
            | Self::WritePointer
            | Self::ZoneCondition
            | Self::ZoneBusy
            | Self::ZoneFrozen
            | Self::TooManyOpen
            | Self::TooManyActive
            | Self::NoStore
            | Self::Busy => true,
            Self::NoSpace | Self::Truncated | Self::Latched | Self::Lost | Self::Gone | Self::Partly | Self::Io(_) => {
                false
            }
        }
    }

    /// Tells if it says more than `other`, where two parts of one request fail: what can be tried again must not hide
    /// that something was lost.
    fn outweighs(self, other: Self) -> bool {
        let weight = |fault: Self| match fault {
            _ if fault.is_refusal() => 0,
            Self::Partly => 1,
            Self::NoSpace => 2,
            _ => 3,
        };
        weight(other) < weight(self)
    }

    /// The error number that the kernel's block layer gives for it.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::OutOfRange | Self::Misaligned | Self::CrossesZone => Errno::INVAL,
            Self::ReadOnly => Errno::PERM,
            Self::NotSupported => Errno::OPNOTSUPP,
            Self::NoSpace => Errno::NOSPC,
            Self::ZoneBusy => Errno::BUSY,
            // BLK_STS_ZONE_OPEN_RESOURCE and BLK_STS_ZONE_ACTIVE_RESOURCE.
            Self::TooManyOpen => Errno::TOOMANYREFS,
            Self::TooManyActive => Errno::OVERFLOW,
            Self::Truncated
            | Self::Latched
            | Self::Lost
            | Self::Gone
            | Self::WritePointer
            | Self::ZoneCondition
            | Self::ZoneFrozen
            | Self::NoStore
            | Self::Partly => Errno::IO,
            Self::Busy => Errno::AGAIN,
            // Whoever hears that there is no room waits for some, and believes that nothing is lost.
            Self::Io(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Errno::IO,
            Self::Io(errno) => errno,
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::NOTSUP | Errno::NOSYS => Self::NotSupported,
            other => Self::Io(other),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("the range leaves the device"),
            Self::Misaligned => f.write_str("the range is not aligned to the logical block"),
            Self::ReadOnly => f.write_str("the device is read-only"),
            Self::NotSupported => f.write_str("the device does not support this operation"),
            Self::NoSpace => f.write_str("no space left on the device below"),
            Self::Truncated => f.write_str("the image was cut short while it was open"),
            Self::Latched => f.write_str("an earlier write or flush failed; reopen the volume"),
            Self::Lost => f.write_str("the connection to its server was lost; reopen the volume"),
            Self::Gone => f.write_str("it was removed or renamed while it was open; open another"),
            Self::CrossesZone => f.write_str("the range crosses from one zone into the next"),
            Self::WritePointer => f.write_str("the write is not at the zone's write pointer or leaves its capacity"),
            Self::ZoneCondition => f.write_str("the zone is in no condition for this operation"),
            Self::ZoneBusy => f.write_str("another write or action on the zone is under way"),
            Self::ZoneFrozen => f.write_str("an earlier write to the zone failed; report zones before writing more"),
            Self::TooManyOpen => f.write_str("too many open zones; close, finish or reset one first"),
            Self::TooManyActive => f.write_str("too many active zones; finish or reset one first"),
            Self::NoStore => f.write_str("nothing can be stored in this range"),
            Self::Partly => f.write_str("one part of the request was carried out, and another was refused"),
            Self::Busy => f.write_str("too many requests at a time; try again when others have ended"),
            Self::Io(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// How a request in parts has gone so far. All that cut requests join the ends of the parts by it:
///
/// * the worst fault counts, and of equals the first;
/// * a refusal says that nothing was changed. Where one part of a change was carried out and another refused, the change
///   was not refused: it ends with [`Fault::Partly`], and with `EIO` where the other failed by a number that sounds like a
///   refusal. [`Fault::Busy`] stays what it is, since the whole comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combined {
    fault: Option<Fault>,
    is_change: bool,
    has_changed: bool,
}

impl Combined {
    /// Nothing has ended yet of a request that changes the device, or of one that does not.
    #[must_use]
    pub fn new(is_change: bool) -> Self {
        Self { fault: None, is_change, has_changed: false }
    }

    /// Takes in how a part has ended.
    pub fn add(&mut self, result: Result<(), Fault>) {
        match (result, self.fault) {
            (Ok(()), _) => self.has_changed |= self.is_change,
            (Err(fault), before) => {
                self.has_changed |= self.is_change && !fault.sounds_refused();
                if before.is_none_or(|before| fault.outweighs(before)) {
                    self.fault = Some(fault);
                }
            }
        }
    }

    /// Tells if a part has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Tells if a part has changed something, or may have.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// How the whole has gone, as far as its parts have ended.
    pub fn result(&self) -> Result<(), Fault> {
        match self.fault {
            None | Some(Fault::Busy) => self.fault.map_or(Ok(()), Err),
            Some(fault) if self.has_changed && fault.is_refusal() => Err(Fault::Partly),
            Some(fault) => Err(if self.has_changed { fault.unrefused() } else { fault }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIO: Fault = Fault::Io(Errno::IO);

    fn joined(is_change: bool, parts: &[Result<(), Fault>]) -> Result<(), Fault> {
        let mut whole = Combined::new(is_change);
        parts.iter().for_each(|part| whole.add(*part));
        whole.result()
    }

    #[test]
    fn worst_fault_of_all_parts_counts_in_whatever_order_they_end() {
        // From the least to the worst.
        let faults = [Fault::NotSupported, Fault::Partly, Fault::NoSpace, EIO];
        for (less, more) in
            faults.iter().enumerate().flat_map(|(at, less)| faults[at + 1..].iter().map(move |it| (*less, *it)))
        {
            for is_change in [false, true] {
                assert_eq!(joined(is_change, &[Err(less), Err(more)]), Err(more));
                assert_eq!(joined(is_change, &[Err(more), Err(less)]), Err(more));
                assert_eq!(joined(is_change, &[Ok(()), Err(less), Ok(()), Err(more)]), Err(more));
            }
        }
        assert_eq!(joined(true, &[Err(Fault::Truncated), Err(EIO)]), Err(Fault::Truncated), "of equals the first");
        assert_eq!(joined(true, &[]), Ok(()));
    }

    #[test]
    fn change_of_which_a_part_was_carried_out_was_not_refused() {
        for refusal in [Fault::NotSupported, Fault::NoStore, Fault::WritePointer, Fault::ReadOnly] {
            assert_eq!(joined(true, &[Err(refusal), Err(refusal)]), Err(refusal));
            for parts in [[Ok(()), Err(refusal)], [Err(refusal), Ok(())]] {
                assert_eq!(joined(true, &parts), Err(Fault::Partly));
                assert!(!Fault::Partly.is_refusal());
                // A read changes nothing.
                assert_eq!(joined(false, &parts), Err(refusal));
            }
        }
        for number in [Errno::PERM, Errno::INVAL, Errno::OPNOTSUPP, Errno::SHUTDOWN] {
            let failure = Fault::Io(number);
            assert_eq!(joined(true, &[Err(failure), Err(failure)]), Err(failure));
            for other in [EIO, Fault::Partly] {
                for parts in [[Err(other), Err(failure)], [Err(failure), Err(other)]] {
                    assert_eq!(joined(true, &parts).map_err(Fault::sounds_refused), Err(false), "{parts:?}");
                }
            }
            for parts in [[Ok(()), Err(failure)], [Err(failure), Ok(())]] {
                assert_eq!(joined(true, &parts), Err(EIO), "{number} sounds like a refusal");
                assert_eq!(joined(false, &parts), Err(failure));
            }
        }
        assert_eq!(joined(true, &[Ok(()), Err(Fault::Busy)]), Err(Fault::Busy), "it comes again as a whole");
    }
}
