//! Cells: the ranges of bytes that requests are made of and that are audited, each by itself.
//!
//! ```text
//! sectors   │0       │1       │2       │3       │     clients that know sectors
//! odd       │0  │1   │2       │3│4│5   │6       │     programs that use a file
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::history::Place;
use crate::sim;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// Cells of a disk, by their borders.
#[derive(Clone)]
pub struct Cells(Arc<[usize]>);

impl Cells {
    /// One for each sector.
    pub fn sectors(count: usize) -> Self {
        Self((0..=count).map(|border| border * SECTOR).collect())
    }

    /// The same with more borders, at any byte: of half of the sectors, one or two. A cell that was in two sectors could be
    /// written by halves.
    pub fn odd(sectors: usize, seed: u64) -> Self {
        let in_sector = |sector: usize| {
            let word = sim::mix(&[seed, 108, sector as u64]);
            let places = [(word >> 8) as usize, (word >> 32) as usize].map(|place| place % SECTOR);
            let mut borders = vec![0];
            borders.extend(places.into_iter().take((word % 4).saturating_sub(1) as usize));
            borders.sort_unstable();
            borders.dedup();
            borders.into_iter().map(move |border| sector * SECTOR + border)
        };
        Self((0..sectors).flat_map(in_sector).chain([sectors * SECTOR]).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// How many are in the first sectors.
    pub fn within(&self, sectors: usize) -> usize {
        self.0.iter().take_while(|border| **border < sectors * SECTOR).count()
    }

    /// Bytes of a place.
    pub fn range(&self, place: Place) -> Range<usize> {
        self.0[place.first]..self.0[place.first + place.count]
    }

    pub fn cell(&self, number: usize) -> Range<usize> {
        self.0[number]..self.0[number + 1]
    }
}
