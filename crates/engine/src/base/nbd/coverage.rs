//! Which bytes of a read have come: a server may answer in pieces, in any order, each byte once.

/// Pieces with gaps between them at a time. Servers answer in order or nearly so.
const GAPS_MAX: usize = 8;

/// Ranges that have come, in order, none touching another.
#[derive(Clone, Copy, Default)]
pub(super) struct Coverage {
    ranges: [(u32, u32); GAPS_MAX],
    count: usize,
}

impl Coverage {
    /// Adds `start..end`. `false` where some of it has come already, or there would be too many gaps.
    pub fn add(&mut self, start: u32, end: u32) -> bool {
        let ranges = &self.ranges[..self.count];
        let at = ranges.partition_point(|&(_, before)| before < start);
        let (mut start, mut end, mut replaced) = (start, end, 0);
        if let Some(&(from, to)) = ranges.get(at)
            && to == start
        {
            (start, replaced) = (from, 1);
        }
        if let Some(&(from, to)) = ranges.get(at + replaced) {
            if from < end {
                return false;
            }
            if from == end {
                (end, replaced) = (to, replaced + 1);
            }
        }
        if replaced == 0 && self.count == GAPS_MAX {
            return false;
        }
        let after = at + replaced;
        let count = self.count;
        match replaced {
            0 => self.ranges.copy_within(after..count, at + 1),
            2 => self.ranges.copy_within(after..count, at + 1),
            _ => {}
        }
        self.ranges[at] = (start, end);
        self.count = count + 1 - replaced;
        true
    }

    /// Tells if all of `0..len` has come.
    pub fn is_all(&self, len: u32) -> bool {
        self.count == 1 && self.ranges[0] == (0, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_in_any_order_make_a_whole_and_none_may_come_twice() {
        let mut coverage = Coverage::default();
        assert!(!coverage.is_all(12));
        for (start, end) in [(8, 12), (0, 2), (4, 6)] {
            assert!(coverage.add(start, end));
            assert!(!coverage.add(start, end));
            assert!(!coverage.is_all(12));
        }
        assert!(!coverage.add(1, 3) && !coverage.add(3, 5) && !coverage.add(0, 12));
        assert!(coverage.add(2, 4) && !coverage.is_all(12));
        assert!(coverage.add(6, 8) && coverage.is_all(12));
        assert!(!coverage.add(5, 6) && !coverage.add(11, 13));
    }

    #[test]
    fn more_gaps_than_there_is_room_for_are_refused() {
        let mut coverage = Coverage::default();
        assert!((0..8).all(|index| coverage.add(index * 2, index * 2 + 1)));
        assert!(!coverage.add(100, 101));
        assert!(coverage.add(15, 16), "no new gap");
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_bytes(pieces in prop::collection::vec((0u32..40, 1u32..9), 1..40)) {
            let (mut coverage, mut bytes) = (Coverage::default(), [false; 64]);
            for (start, len) in pieces {
                let range = start as usize..(start + len) as usize;
                let is_new = !bytes[range.clone()].contains(&true);
                let added = coverage.add(start, start + len);
                prop_assert!(is_new || !added);
                if added {
                    bytes[range].fill(true);
                }
                let gaps = bytes.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(bytes[0]);
                prop_assert_eq!(coverage.count, gaps);
                for len in 1..64u32 {
                    let all = bytes[..len as usize].iter().all(|byte| *byte) && !bytes[len as usize..].contains(&true);
                    prop_assert_eq!(coverage.is_all(len), all);
                }
            }
        }
    }
}
