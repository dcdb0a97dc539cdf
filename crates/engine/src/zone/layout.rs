//! The layout of an emulated zoned device: how large its zones are and how many of which type.

use super::{Zone, ZoneCondition, ZoneModel, ZoneType};

/// Smallest zone in bytes: a block, and a reset that can free pages.
const ZONE_SIZE_LEAST: u64 = 4096;
/// Zones at most: their state takes memory and time at each open.
const COUNT_MAX: u64 = 1 << 20;
/// Write granularities in bytes.
const GRANULARITIES: [u32; 4] = [512, 1024, 2048, 4096];

/// A layout that has been checked. Conventional zones come first; the others must be written
/// sequentially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// Bytes from zone to zone, a power of two.
    pub zone_size: u64,
    /// Bytes that can be used of a sequential zone.
    pub capacity: u64,
    /// How many zones there are.
    pub count: u32,
    /// How many of them, from the first, are conventional.
    pub conventional: u32,
    /// Zones open at a time; 0 for any number.
    pub max_open: u32,
    /// Zones open or closed at a time; 0 for any number.
    pub max_active: u32,
    /// Bytes in the unit of writes to sequential zones.
    pub write_granularity: u32,
}

/// Why there is no such layout: what is wrong, and what to give instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LayoutError(pub String);

impl ZoneLayout {
    /// A device of `size` bytes in zones of `zone_size`, without limits and in units of 4096 bytes.
    /// Change what is to be different and [`check`](Self::check) it.
    ///
    /// Errors: a size that is not whole zones, or a zone size that is no power of two.
    pub fn new(size: u64, zone_size: u64) -> Result<Self, LayoutError> {
        let fail = |what: String| Err(LayoutError(what));
        if !zone_size.is_power_of_two() {
            return fail(format!(
                "a zone size of {zone_size} bytes is no power of two, which the kernel demands; use zone-size={}",
                zone_size.max(1).checked_next_power_of_two().unwrap_or(1 << 63)
            ));
        }
        if zone_size < ZONE_SIZE_LEAST {
            return fail(format!(
                "zones of {zone_size} bytes are too small; use a zone-size of at least {ZONE_SIZE_LEAST}"
            ));
        }
        if size == 0 || !size.is_multiple_of(zone_size) {
            return fail(format!(
                "{size} bytes are not whole zones of {zone_size} bytes; make it {} bytes, or use another zone-size",
                size.div_ceil(zone_size).max(1).saturating_mul(zone_size)
            ));
        }
        let count = size / zone_size;
        match u32::try_from(count) {
            Ok(count) if u64::from(count) <= COUNT_MAX => Ok(Self {
                zone_size,
                capacity: zone_size,
                count,
                conventional: 0,
                max_open: 0,
                max_active: 0,
                write_granularity: 4096,
            }),
            _ => fail(format!("{count} zones are too many (at most {COUNT_MAX}); use a larger zone-size")),
        }
    }

    /// Checks what was changed. Limits that could never be reached become none, as `null_blk` has
    /// it, and no more zones can be open than active.
    pub fn check(mut self) -> Result<Self, LayoutError> {
        let fail = |what: String| Err(LayoutError(what));
        let granularity = self.write_granularity;
        if !GRANULARITIES.contains(&granularity) {
            return fail(format!(
                "a write granularity of {granularity} bytes; use granularity=512, 1024, 2048 or 4096"
            ));
        }
        if self.capacity > self.zone_size {
            return fail(format!(
                "a zone capacity of {} bytes is above the zone size of {}; use a smaller zone-capacity",
                self.capacity, self.zone_size
            ));
        }
        if self.capacity == 0 || !self.capacity.is_multiple_of(u64::from(granularity)) {
            return fail(format!(
                "a zone capacity of {} bytes is not a multiple of the write granularity of {granularity}; round it",
                self.capacity
            ));
        }
        if self.conventional >= self.count {
            return fail(format!(
                "{} conventional zones of {} leave none to be written sequentially; use fewer",
                self.conventional, self.count
            ));
        }
        let sequential = self.count - self.conventional;
        if self.max_active >= sequential {
            self.max_active = 0;
        }
        if self.max_active > 0 && self.max_open > self.max_active {
            self.max_open = self.max_active;
        } else if self.max_open >= sequential {
            self.max_open = 0;
        }
        Ok(self)
    }

    /// Bytes in all zones.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.count) * self.zone_size
    }

    /// First byte of a zone.
    #[must_use]
    pub fn start_of(&self, index: u32) -> u64 {
        u64::from(index) * self.zone_size
    }

    /// Tells if a zone has a write pointer.
    #[must_use]
    pub fn is_sequential(&self, index: u32) -> bool {
        index >= self.conventional
    }

    /// Returns the model that follows from the layout. Appends may fill a zone.
    #[must_use]
    pub fn model(&self) -> ZoneModel {
        ZoneModel {
            zone_size: self.zone_size,
            max_open: self.max_open,
            max_active: self.max_active,
            append_limit: self.capacity,
            write_granularity: self.write_granularity,
        }
    }

    /// The report of a conventional zone. Its write pointer is its end, as `null_blk` says.
    #[must_use]
    pub fn conventional_zone(&self, index: u32) -> Zone {
        let start = self.start_of(index);
        Zone {
            start,
            length: self.zone_size,
            capacity: self.zone_size,
            write_pointer: start + self.zone_size,
            kind: ZoneType::Conventional,
            condition: ZoneCondition::NotWritePointer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn refusals_name_what_is_wrong_and_what_to_give() {
        let error = |size, zone_size| ZoneLayout::new(size, zone_size).unwrap_err().0;
        assert!(error(64 * MIB, 3 * MIB).contains("zone-size=4194304"));
        assert!(error(64 * MIB + 512, MIB).contains("make it 68157440 bytes"));
        assert!(error(0, MIB).contains("whole zones"));
        assert!(error(64 * MIB, 0).contains("power of two"));
        assert!(error(64 * MIB, u64::MAX).contains("power of two"));
        assert!(error(64 * MIB, 512).contains("at least 4096"));
        assert!(error(u64::MAX - u64::MAX % 4096, 4096).contains("too many"));
        let changed = |change: fn(&mut ZoneLayout)| {
            let mut layout = ZoneLayout::new(64 * MIB, MIB).unwrap();
            change(&mut layout);
            layout.check().unwrap_err().0
        };
        assert!(changed(|it| it.capacity = MIB + 4096).contains("above the zone size"));
        assert!(changed(|it| it.capacity = MIB - 512).contains("multiple"));
        assert!(changed(|it| it.capacity = 0).contains("multiple"));
        assert!(changed(|it| it.conventional = 64).contains("use fewer"));
        assert!(changed(|it| it.write_granularity = 8192).contains("granularity=512"));
    }

    #[test]
    fn limits_that_can_not_be_reached_are_none_as_null_blk_has_it() {
        let limits = |open, active| {
            let mut layout = ZoneLayout::new(8 * MIB, MIB).unwrap();
            (layout.conventional, layout.max_open, layout.max_active) = (2, open, active);
            let layout = layout.check().unwrap();
            (layout.max_open, layout.max_active)
        };
        assert_eq!(limits(3, 5), (3, 5));
        assert_eq!(limits(5, 3), (3, 3));
        assert_eq!(limits(3, 6), (3, 0));
        assert_eq!(limits(6, 0), (0, 0));
        assert_eq!(limits(0, 4), (0, 4));
    }
}
