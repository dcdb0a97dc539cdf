//! Which range of the clear device lies where: sorted, without gaps, and searched by halves.

use crate::{Op, Request};

/// A range of the clear device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinearRange {
    pub start: u64,
    pub len: u64,
    /// Which of the devices below has it.
    pub device: usize,
    /// Where it begins there.
    pub offset: u64,
}

/// The way of a request, or of a piece of one, to a device below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub device: usize,
    /// Added to the offset on the way down, modulo 2^64.
    pub shift: u64,
}

/// All ranges of a device.
pub(super) struct Map {
    ranges: Box<[LinearRange]>,
    /// How many devices there are.
    devices: usize,
}

impl LinearRange {
    fn way(self) -> Route {
        Route { device: self.device, shift: self.offset.wrapping_sub(self.start) }
    }

    fn end(self) -> u64 {
        self.start + self.len
    }
}

impl Map {
    /// Ranges one behind the other from 0 on, at least one. Those that are neighbours below as well
    /// become one.
    pub fn new(ranges: impl IntoIterator<Item = LinearRange>, devices: usize) -> Self {
        let mut merged: Vec<LinearRange> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.device == range.device && last.offset + last.len == range.offset => {
                    last.len += range.len;
                }
                _ => merged.push(range),
            }
        }
        Self { ranges: merged.into(), devices }
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.ranges.last().map_or(0, |last| last.end())
    }

    /// How many devices there are, each of which a flush goes to.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// The way of the byte at `offset`, and how many bytes from there on share it. `offset` is on the
    /// device.
    pub fn find(&self, offset: u64) -> (Route, u64) {
        let after = self.ranges.partition_point(|range| range.start <= offset);
        let range = self.ranges[after - 1];
        (range.way(), range.end() - offset)
    }

    /// The way of a request that needs only one.
    #[inline]
    pub fn alone(&self, request: &Request) -> Option<Route> {
        if request.op == Op::Flush {
            let only = Route { device: 0, shift: 0 };
            return (self.devices == 1).then_some(only);
        }
        let (way, len) = self.find(request.offset);
        (request.len <= len).then_some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64, device: usize, offset: u64) -> LinearRange {
        LinearRange { start, len, device, offset }
    }

    #[test]
    fn each_byte_is_found_in_its_range() {
        let ranges = [range(0, 512, 0, 1 << 20), range(512, 1536, 1, 0), range(2048, 512, 0, 0)];
        let map = Map::new(ranges, 2);
        assert_eq!((map.count(), map.size()), (3, 2560));
        for range in ranges {
            for offset in [range.start, range.start + range.len - 1] {
                let (way, len) = map.find(offset);
                assert_eq!(way.device, range.device);
                assert_eq!(offset.wrapping_add(way.shift), range.offset + offset - range.start);
                assert_eq!(len, range.start + range.len - offset);
            }
        }
    }

    #[test]
    fn ranges_that_are_neighbours_below_too_are_one() {
        assert_eq!(Map::new([range(0, 512, 3, 512), range(512, 512, 3, 1024)], 1).count(), 1);
        assert_eq!(Map::new([range(0, 512, 3, 512), range(512, 512, 3, 0)], 1).count(), 2);
        assert_eq!(Map::new([range(0, 512, 3, 512), range(512, 512, 4, 1024)], 1).count(), 2);
    }

    #[test]
    fn request_goes_alone_up_to_the_border_and_not_over_it() {
        let map = Map::new([range(0, 1024, 0, 0), range(1024, 512, 1, 0)], 1);
        let discard = |offset, len| Request::new(Op::Discard, offset, len, 0);
        assert_eq!(map.alone(&discard(512, 512)).unwrap().device, 0);
        assert_eq!(map.alone(&discard(1024, 512)).unwrap().device, 1);
        assert_eq!(map.alone(&discard(512, 1024)), None);
        assert_eq!(map.alone(&Request::flush(0)).unwrap().device, 0);
        assert_eq!(Map::new([range(0, 512, 0, 0), range(512, 512, 1, 0)], 2).alone(&Request::flush(0)), None);
    }
}
