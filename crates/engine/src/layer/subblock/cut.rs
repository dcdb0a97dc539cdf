//! Where a request lies among the sectors.
//!
//! ```text
//! sectors  ├────────┼────────┼────────┼────────┤
//! request      ├ head ┼───── body ────┼ tail ┤
//! ```

/// A range of bytes and the sectors it touches. Lengths in bytes; a sector is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectorCut {
    sector: u64,
    offset: u64,
    len: u64,
}

/// One part of a range: nothing but whole sectors, or bytes of a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CutPart {
    /// Where it begins, in bytes.
    pub offset: u64,
    pub len: u64,
}

impl SectorCut {
    pub fn new(offset: u64, len: u64, sector: u64) -> Self {
        Self { sector, offset, len }
    }

    /// Tells if it is whole sectors.
    pub fn is_whole(self) -> bool {
        (self.offset | self.len) & (self.sector - 1) == 0
    }

    /// The first sector it touches, and how many.
    pub fn span(self) -> (u64, u64) {
        let first = self.offset / self.sector;
        (first, (self.offset + self.len).div_ceil(self.sector) - first)
    }

    /// The whole sectors in it, if any.
    pub fn inner(self) -> Option<CutPart> {
        let start = self.offset.next_multiple_of(self.sector);
        let end = self.offset + self.len;
        let end = end - end % self.sector;
        (start < end).then(|| CutPart { offset: start, len: end - start })
    }

    /// Its parts in order: head, body, tail; those that are there.
    pub fn parts(self) -> impl Iterator<Item = CutPart> + Clone {
        let end = self.offset + self.len;
        let (body, body_end) = match self.inner() {
            Some(inner) => (inner.offset, inner.offset + inner.len),
            // In one sector, or on the edge of two.
            None => {
                let edge = self.offset.next_multiple_of(self.sector).min(end);
                (edge, edge)
            }
        };
        [(self.offset, body), (body, body_end), (body_end, end)]
            .into_iter()
            .filter(|(from, to)| from < to)
            .map(|(from, to)| CutPart { offset: from, len: to - from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(offset: u64, len: u64) -> Vec<(u64, u64)> {
        let parts = SectorCut::new(offset, len, 4096).parts();
        parts.map(|part| (part.offset, part.len)).collect()
    }

    #[test]
    fn parts_cover_the_range_and_each_is_in_one_sector_or_whole() {
        assert_eq!(parts(0, 4096), [(0, 4096)]);
        assert_eq!(parts(512, 512), [(512, 512)]);
        assert_eq!(parts(3584, 1024), [(3584, 512), (4096, 512)]);
        assert_eq!(parts(3584, 512), [(3584, 512)]);
        assert_eq!(parts(4096, 4608), [(4096, 4096), (8192, 512)]);
        assert_eq!(parts(3584, 9216), [(3584, 512), (4096, 8192), (12288, 512)]);
        for offset in (0..16384).step_by(512) {
            for len in (512..16384).step_by(512) {
                let mut at = offset;
                for (start, len) in parts(offset, len) {
                    assert_eq!(start, at);
                    let cut = SectorCut::new(start, len, 4096);
                    assert!(cut.is_whole() || cut.span().1 == 1);
                    at += len;
                }
                assert_eq!(at, offset + len);
            }
        }
    }

    #[test]
    fn inner_is_the_whole_sectors_only() {
        assert_eq!(SectorCut::new(512, 3584, 4096).inner(), None);
        assert_eq!(SectorCut::new(512, 7680, 4096).inner().unwrap().len, 4096);
        assert_eq!(SectorCut::new(0, 8191, 4096).span(), (0, 2));
        assert_eq!(SectorCut::new(3584, 1024, 4096).span(), (0, 2));
    }
}
