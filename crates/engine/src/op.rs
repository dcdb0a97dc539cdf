//! The operations of a device, as everybody from a lane down to a base calls them.

use crate::zone::ZoneAction;

/// Operation to carry out.
///
/// A whole word: a request is moved in words then, and what was stored in words can be
/// loaded at once. (One byte makes the compiler move the rest in pieces that straddle
/// words; the processor then waits until all earlier stores have left, those of a copy among them.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Op {
    /// Fill the buffer from the device.
    Read,
    /// Write the buffer to the device.
    ///
    /// The buffer belongs to the request: a layer may transform it in place (that is how `crypt`
    /// encrypts in one pass without a second buffer), so what comes back in it is unspecified.
    Write,
    /// Force unit access: a write that is durable when it completes.
    WriteFua,
    /// Write the buffer at the write pointer of the zone that starts at the request's offset. The
    /// completion of one that succeeded has in its offset where the bytes are.
    Append,
    /// An append that is durable when it completes.
    AppendFua,
    /// Make every write that completed before durable, through whichever queue it went.
    Flush,
    /// Tell the device that a range is no longer needed. Its contents are then unspecified.
    Discard,
    /// Make a range read as zeros without a transfer. It keeps its space.
    Zero,
    /// The same, where the range may become a hole.
    ZeroUnmap,
    /// The range will be read soon: bring it nearer, without a transfer. Changes nothing.
    Cache,
    /// Open the zone that starts at the request's offset, as [`ZoneAction::Open`].
    ZoneOpen,
    /// As [`ZoneAction::Close`].
    ZoneClose,
    /// As [`ZoneAction::Finish`].
    ZoneFinish,
    /// As [`ZoneAction::Reset`].
    ZoneReset,
    /// As [`ZoneAction::ResetAll`].
    ZoneResetAll,
}

impl Op {
    /// All of them, each at its number.
    pub const ALL: [Self; 15] = [
        Self::Read,
        Self::Write,
        Self::WriteFua,
        Self::Append,
        Self::AppendFua,
        Self::Flush,
        Self::Discard,
        Self::Zero,
        Self::ZeroUnmap,
        Self::Cache,
        Self::ZoneOpen,
        Self::ZoneClose,
        Self::ZoneFinish,
        Self::ZoneReset,
        Self::ZoneResetAll,
    ];

    /// A write, durable when it completes or not.
    #[must_use]
    pub const fn write(durable: bool) -> Self {
        if durable { Self::WriteFua } else { Self::Write }
    }

    /// An append, durable when it completes or not.
    #[must_use]
    pub const fn append(durable: bool) -> Self {
        if durable { Self::AppendFua } else { Self::Append }
    }

    /// A zeroing that may make holes or not.
    #[must_use]
    pub const fn zero(may_unmap: bool) -> Self {
        if may_unmap { Self::ZeroUnmap } else { Self::Zero }
    }

    /// Tells if it writes a buffer to a place that the request names.
    #[must_use]
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteFua)
    }

    /// Tells if it writes a buffer at a write pointer.
    #[must_use]
    #[inline]
    pub const fn is_append(self) -> bool {
        matches!(self, Self::Append | Self::AppendFua)
    }

    /// Tells if it brings the bytes that are written.
    #[must_use]
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.is_write() || self.is_append()
    }

    /// Tells if it makes a range read as zeros.
    #[must_use]
    #[inline]
    pub const fn is_zero(self) -> bool {
        matches!(self, Self::Zero | Self::ZeroUnmap)
    }

    /// Tells if it has a buffer.
    #[must_use]
    #[inline]
    pub const fn moves_data(self) -> bool {
        matches!(self, Self::Read) || self.has_payload()
    }

    /// Tells if it is for a range: anything but a flush and actions on zones.
    #[must_use]
    #[inline]
    pub const fn has_range(self) -> bool {
        !matches!(self, Self::Flush) && self.zone_action().is_none()
    }

    /// Tells if it changes the device.
    #[must_use]
    #[inline]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Flush | Self::Cache)
    }

    /// Tells if its success promises that something is durable: a flush, or a durable write.
    #[must_use]
    #[inline]
    pub const fn is_sync(self) -> bool {
        matches!(self, Self::Flush | Self::WriteFua | Self::AppendFua)
    }

    /// Tells if it is for zoned devices alone: an append, or an action on zones.
    #[must_use]
    pub const fn is_zoned(self) -> bool {
        self.is_append() || self.zone_action().is_some()
    }

    /// The action, of one on zones.
    #[must_use]
    pub const fn zone_action(self) -> Option<ZoneAction> {
        match self {
            Self::ZoneOpen => Some(ZoneAction::Open),
            Self::ZoneClose => Some(ZoneAction::Close),
            Self::ZoneFinish => Some(ZoneAction::Finish),
            Self::ZoneReset => Some(ZoneAction::Reset),
            Self::ZoneResetAll => Some(ZoneAction::ResetAll),
            _ => None,
        }
    }
}

impl From<ZoneAction> for Op {
    fn from(action: ZoneAction) -> Self {
        match action {
            ZoneAction::Open => Self::ZoneOpen,
            ZoneAction::Close => Self::ZoneClose,
            ZoneAction::Finish => Self::ZoneFinish,
            ZoneAction::Reset => Self::ZoneReset,
            ZoneAction::ResetAll => Self::ZoneResetAll,
        }
    }
}
