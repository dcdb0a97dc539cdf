//! Cells: the ranges of bytes that requests are made of and that are audited, each by itself.
//!
//! ```text
//! sectors   │0       │1       │2       │3       │     clients that know sectors
//! odd       │0  │1   │2       │3│4│5   │6       │     programs that use a file
//! wide      │0 1 2 3 4│  5  │6 7 8 │  30 │31 32 33│   requests longer than a chunk of a lane
//! ```
//!
//! The long cells of a wide disk are written and read as all others, and nobody looks at them.

use std::ops::Range;
use std::sync::Arc;

use crate::history::{MORE, Place, SECTORS};
use crate::sim;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// Bytes that a lane serves at a time.
const CHUNK: usize = 256 << 10;

/// Cells of a disk, by their borders.
#[derive(Clone)]
pub struct Cells {
    borders: Arc<[usize]>,
    /// Cells of the disk as it is at first; others are where it may grow.
    used: usize,
}

impl Cells {
    /// One for each sector.
    pub fn sectors() -> Self {
        Self { borders: (0..=SECTORS + MORE).map(|border| border * SECTOR).collect(), used: SECTORS }
    }

    /// As many in a larger disk, which does not grow: sectors at its start, around where a request from there has its second
    /// chunk, and at its end.
    pub fn wide() -> Self {
        let sectors = |from: usize, count: usize| (0..=count).map(move |border| from + border * SECTOR);
        let borders: Arc<[usize]> =
            sectors(0, 5).chain(sectors(CHUNK - 4 * SECTOR, 24)).chain(sectors(CHUNK + (96 << 10), 9)).collect();
        Self { used: borders.len() - 1, borders }
    }

    /// The same with more borders, at any byte: of half of the sectors, one or two. A cell that was in two sectors could be
    /// written by halves.
    pub fn odd(seed: u64) -> Self {
        let in_sector = |sector: usize| {
            let word = sim::mix(&[seed, 108, sector as u64]);
            let places = [(word >> 8) as usize, (word >> 32) as usize].map(|place| place % SECTOR);
            let mut borders = vec![0];
            borders.extend(places.into_iter().take((word % 4).saturating_sub(1) as usize));
            borders.sort_unstable();
            borders.dedup();
            borders.into_iter().map(move |border| sector * SECTOR + border)
        };
        let all = SECTORS + MORE;
        let borders: Arc<[usize]> = (0..all).flat_map(in_sector).chain([all * SECTOR]).collect();
        let used = borders.iter().take_while(|border| **border < SECTORS * SECTOR).count();
        Self { borders, used }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.borders.len() - 1
    }

    /// Count of those that the disk has at first.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes that the disk has at first, and at most.
    pub fn sizes(&self) -> [usize; 2] {
        [self.borders[self.used], self.borders[self.count()]]
    }

    /// Tells if anybody looks at a cell.
    pub fn is_audited(&self, number: usize) -> bool {
        self.cell(number).len() <= SECTOR
    }

    /// Bytes of a place.
    pub fn range(&self, place: Place) -> Range<usize> {
        self.borders[place.first]..self.borders[place.first + place.count]
    }

    pub fn cell(&self, number: usize) -> Range<usize> {
        self.borders[number]..self.borders[number + 1]
    }
}
