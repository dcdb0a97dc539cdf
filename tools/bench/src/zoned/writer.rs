//! One thread that writes zones from their start on, and keeps so many writes in flight.

use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate, ZoneAction};

use super::ZONES;
use super::pool::{DEPTH_MAX, Place, Pool, Write};
use crate::contents::Contents;
use crate::error::{Of as _, Result};
use crate::load::{Calls, Transport};
use crate::report::{Direction, Pattern, Shape};

/// Largest write.
const BLOCK_MAX: u32 = 128 << 10;

/// Writes of so many bytes, so many in flight, to so many zones side by side.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub block: u32,
    pub depth: u32,
    pub zones: u64,
}

impl Load {
    /// All that are measured.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|index| Self {
            block: [4096, BLOCK_MAX][index / 4],
            depth: [1, 16][index / 2 % 2],
            zones: [1, ZONES][index % 2],
        })
    }

    /// `128 KiB writes in order, 16 in flight, 8 zones`.
    pub fn name(&self) -> String {
        let plural = if self.zones == 1 { "" } else { "s" };
        format!("{}, {} zone{plural}", self.shape().title(), self.zones)
    }

    pub fn shape(&self) -> Shape {
        Shape::new(Direction::Write, Pattern::Sequential, self.block, self.depth)
    }
}

/// The places of a load, each zone in turn from its start on, until the zones are full.
pub fn places(load: Load, zone_size: u64) -> impl Iterator<Item = Place> {
    let block = u64::from(load.block);
    (0..zone_size / block * load.zones).map(move |index| {
        let (zone, number) = (index % load.zones, index / load.zones);
        Place { offset: zone * zone_size + number * block, zone: usize::try_from(zone).unwrap_or(0), number }
    })
}

/// A way to write to a zoned device.
pub struct Writer {
    calls: Calls,
    blocking: Blocking,
    /// Who encrypts where the device below does not.
    pool: Option<Pool>,
}

impl Writer {
    /// Into the zoned device behind `gate`.
    pub fn new(gate: &Gate) -> Result<Self> {
        let shape = Shape { direction: Direction::Write, block: BLOCK_MAX, depth: DEPTH_MAX, ..Shape::default() };
        Ok(Self { calls: Calls::open(gate, shape)?, blocking: Blocking::new(gate, BackendChoice::Auto)?, pool: None })
    }

    /// The same, with threads that encrypt what is written.
    pub fn with_pool(mut self, cipher: SectorCipher, threads: u32) -> Result<Self> {
        let waker = self.calls.waker()?;
        self.pool = Some(Pool::new(cipher, threads, waker).of("cannot start threads")?);
        Ok(self)
    }

    /// Makes all zones empty, then writes to `places`, which are of this load, or for `time`, whichever
    /// ends first: bytes that are there, or those that belong to each place. Bytes in a second.
    pub fn write(
        &mut self,
        load: &Load,
        mut places: impl Iterator<Item = Place>,
        contents: Option<Contents>,
        time: Duration,
    ) -> Result<f64> {
        self.reset(load)?;
        let depth = usize::try_from(load.depth).unwrap_or(1);
        let mut free: Vec<usize> = (0..depth).collect();
        let (start, mut bytes, mut open) = (Instant::now(), 0.0, true);
        while open || free.len() < depth {
            while open && let Some(slot) = free.pop() {
                let Some(place) = places.next() else {
                    free.push(slot);
                    open = false;
                    break;
                };
                if let (Some(contents), Some(buffer)) = (contents, self.calls.buffer(slot)) {
                    contents.fill(place.offset, buffer);
                }
                bytes += f64::from(load.block);
                if self.submit(slot, place)? {
                    free.push(slot);
                }
                open = start.elapsed() < time;
            }
            let before = free.len();
            if before < depth && self.pool.is_some() {
                self.collect(false, &mut free)?;
            }
            if before < depth && free.len() == before {
                self.collect(true, &mut free)?;
            }
        }
        Ok(bytes / start.elapsed().as_secs_f64())
    }

    /// Makes all zones empty, and all buffers as long as the load's blocks.
    fn reset(&mut self, load: &Load) -> Result<()> {
        self.calls.set_block(load.block);
        if let Some(pool) = &mut self.pool {
            pool.reset();
        }
        self.blocking.zone(0, ZoneAction::ResetAll).of("the zones cannot be reset")
    }

    /// Starts a write. Whether it has ended at once.
    fn submit(&mut self, slot: usize, place: Place) -> Result<bool> {
        let Some(pool) = &mut self.pool else {
            return self.calls.submit(slot, place.offset);
        };
        if let Some(buffer) = self.calls.buffer(slot).take() {
            pool.encrypt(Write { place, slot, buffer });
        }
        Ok(false)
    }

    /// Submits what the pool has encrypted and whose turn it is, and takes what has ended. Waits first,
    /// where told to, until there is something or the pool wakes the ring.
    fn collect(&mut self, wait: bool, free: &mut Vec<usize>) -> Result<()> {
        self.calls.collect(wait, free)?;
        let Some(pool) = &mut self.pool else {
            return Ok(());
        };
        pool.collect();
        while let Some(write) = pool.next_in_order() {
            *self.calls.buffer(write.slot) = Some(write.buffer);
            if self.calls.submit(write.slot, write.place.offset)? {
                free.push(write.slot);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_written_in_turn_from_their_start_to_their_end() {
        let load = Load { block: 4096, depth: 1, zones: 2 };
        let offsets: Vec<u64> = places(load, 8192).map(|place| place.offset).collect();
        assert_eq!(offsets, [0, 8192, 4096, 12288]);
    }
}
