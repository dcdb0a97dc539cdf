//! Zones: the words of host-managed zoned devices (SMR disks, ZNS), as the kernel has them.
//!
//! ```text
//! zone   start ├── written ──┤ write pointer      ├ start + capacity   ├ start + length
//!              └─ may be read ┴─ next write here ─┴─ never written ────┘
//! ```
//!
//! A sequential zone is written at its write pointer only, and becomes empty again by a reset. The
//! device's [`ZoneModel`] is part of its geometry; what differs from zone to zone is in the report
//! ([`Device::report_zones`](crate::Device::report_zones)).
//!
//! Sources: include/uapi/linux/blkzoned.h and Documentation/ABI/stable/sysfs-block of Linux; ZBC
//! (INCITS 536) and ZNS (NVMe) below them.

pub mod journal;
mod layout;
pub mod state;
mod table;

pub use layout::{LayoutError, ZoneLayout};
pub use table::{Saved, ZoneTable};

/// Properties common to all zones of a device. Bytes, where it is not a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneModel {
    /// From the start of one zone to that of the next. A power of two.
    pub zone_size: u64,
    /// Zones that may be open at a time, implicitly or explicitly; 0 for any number.
    pub max_open: u32,
    /// Zones that may be open or closed, that is, partly written, at a time; 0 for any number.
    pub max_active: u32,
    /// Length of the longest append; 0 where there is no append.
    pub append_limit: u64,
    /// Writes to sequential zones are multiples of this. A power of two, at least a logical block.
    pub write_granularity: u32,
}

impl ZoneModel {
    /// Tells if a range leaves the zone in which it starts. `offset + len` must not overflow.
    #[must_use]
    pub fn crosses(&self, offset: u64, len: u64) -> bool {
        (offset & (self.zone_size - 1)) + len > self.zone_size
    }

    /// Where the zone that holds `offset` starts.
    #[must_use]
    pub fn start_of(&self, offset: u64) -> u64 {
        offset & !(self.zone_size - 1)
    }

    /// The number of the zone that holds `offset`.
    #[must_use]
    pub fn index_of(&self, offset: u64) -> u64 {
        offset >> self.zone_size.trailing_zeros()
    }

    /// How many zones a device of `size` bytes has; the last may be shorter than the others.
    #[must_use]
    pub fn count(&self, size: u64) -> u64 {
        size.div_ceil(self.zone_size)
    }
}

/// One zone of a report. Bytes from the start of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Bytes up to the next zone.
    pub length: u64,
    /// Bytes that can be used, from the start on.
    pub capacity: u64,
    /// Where the next write must start. Past the capacity of a full zone; without meaning for a
    /// conventional zone and one that is read-only or offline.
    pub write_pointer: u64,
    /// Type of the zone: how it is written.
    pub kind: ZoneType,
    /// In which state it is.
    pub condition: ZoneCondition,
}

/// How a zone is written. The numbers are the kernel's (`enum blk_zone_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneType {
    /// Anywhere, like an ordinary disk.
    #[default]
    Conventional = 1,
    /// At the write pointer only.
    SequentialRequired = 2,
    /// Best at the write pointer, but anywhere (host-aware disks).
    SequentialPreferred = 3,
}

impl ZoneType {
    /// The type with the kernel's number `code`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Conventional, Self::SequentialRequired, Self::SequentialPreferred]
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    /// The kernel's number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Tells if writes must be at the write pointer.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        self == Self::SequentialRequired
    }
}

/// The state of a zone. The numbers are the kernel's (`enum blk_zone_cond`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneCondition {
    /// No write pointer: a conventional zone.
    #[default]
    NotWritePointer = 0,
    /// Nothing is written.
    Empty = 1,
    /// Opened by a write.
    ImplicitOpen = 2,
    /// Opened by an open.
    ExplicitOpen = 3,
    /// Partly written and not open.
    Closed = 4,
    /// No longer writable.
    ReadOnly = 0xd,
    /// Written to its end, or finished.
    Full = 0xe,
    /// Neither readable nor writable.
    Offline = 0xf,
}

impl ZoneCondition {
    /// The condition with the kernel's number `code`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::NotWritePointer,
            Self::Empty,
            Self::ImplicitOpen,
            Self::ExplicitOpen,
            Self::Closed,
            Self::ReadOnly,
            Self::Full,
            Self::Offline,
        ]
        .into_iter()
        .find(|condition| condition.code() == code)
    }

    /// The kernel's number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Tells if it is open, either way.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::ImplicitOpen | Self::ExplicitOpen)
    }

    /// Tells if it takes one of the places of [`ZoneModel::max_active`].
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is_open() || self == Self::Closed
    }
}

/// Actions on a zone without data (`BLKOPENZONE` and its like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Open it explicitly.
    Open,
    /// Close it. One in which nothing is written becomes empty.
    Close,
    /// Make it full.
    Finish,
    /// Make it empty.
    Reset,
    /// Make all sequential zones empty that are neither read-only nor offline.
    ResetAll,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_kernels_both_ways() {
        for code in 0..=u8::MAX {
            let kind = ZoneType::from_code(code).map(ZoneType::code);
            assert_eq!(kind, (1..=3).contains(&code).then_some(code));
            let known = matches!(code, 0..=4 | 0xd..=0xf);
            assert_eq!(ZoneCondition::from_code(code).map(ZoneCondition::code), known.then_some(code));
        }
    }

    #[test]
    fn range_that_ends_with_its_zone_does_not_cross() {
        let model =
            ZoneModel { zone_size: 1 << 20, max_open: 0, max_active: 0, append_limit: 0, write_granularity: 512 };
        assert!(!model.crosses((5 << 20) + 4096, (1 << 20) - 4096));
        assert!(model.crosses((5 << 20) + 4096, 1 << 20));
        assert_eq!(model.index_of((5 << 20) + 4096), 5);
        assert_eq!(model.start_of((5 << 20) + 4096), 5 << 20);
        assert_eq!(model.count((5 << 20) + 1), 6);
    }
}
