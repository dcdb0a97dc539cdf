//! One thread that writes zones from their start on, and keeps so many writes in flight.

use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate, ZoneAction};

use super::ZONES;
use super::pool::{DEPTH_MAX, EncryptingPool, Write};
use crate::contents::TestPattern;
use crate::error::{Of as _, Result};
use crate::load::{ChannelCalls, LoadTransport, each};
use crate::report::{DataDirection, LoadShape, Pattern};

/// Largest write.
const BLOCK_MAX: u32 = 128 << 10;

/// Writes of so many bytes, so many in flight, to so many zones side by side.
#[derive(Clone, Copy, Debug)]
pub struct ZoneLoad {
    pub block: u32,
    pub depth: u32,
    pub zones: u64,
}

impl ZoneLoad {
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

    pub fn shape(&self) -> LoadShape {
        LoadShape::new(DataDirection::Write, Pattern::Sequential, self.block, self.depth)
    }
}

/// The offsets of a load's writes, each zone in turn from its start on, until the zones are full.
pub fn offsets(load: ZoneLoad, zone_size: u64) -> impl Iterator<Item = u64> {
    let block = u64::from(load.block);
    (0..zone_size / block * load.zones).map(move |index| index % load.zones * zone_size + index / load.zones * block)
}

/// A way to write to a zoned device.
pub struct ZoneWriter {
    calls: ChannelCalls,
    blocking: Blocking,
    /// Threads that encrypt where the device below does not.
    pool: Option<EncryptingPool>,
    /// Data to write; otherwise the bytes that are there.
    contents: Option<TestPattern>,
}

impl ZoneWriter {
    /// Into the zoned device behind `gate`.
    pub fn new(gate: &Gate) -> Result<Self> {
        let shape =
            LoadShape { direction: DataDirection::Write, block: BLOCK_MAX, depth: DEPTH_MAX, ..LoadShape::default() };
        let (calls, blocking) = (ChannelCalls::open(gate, shape)?, Blocking::new(gate, BackendChoice::Auto)?);
        Ok(Self { calls, blocking, pool: None, contents: None })
    }

    /// The same, with threads that encrypt what is written.
    pub fn with_pool(mut self, cipher: SectorCipher, threads: u32, zone_size: u64) -> Result<Self> {
        let waker = self.calls.waker()?;
        self.pool = Some(EncryptingPool::new(cipher, threads, waker, zone_size).of("cannot start threads")?);
        Ok(self)
    }

    /// Makes all zones empty, then writes at `offsets`, which are of this load, or for `time`, whichever ends first:
    /// bytes that are there, or those that belong to each place. Bytes in a second.
    pub fn write(
        &mut self,
        load: &ZoneLoad,
        offsets: impl Iterator<Item = u64>,
        contents: Option<TestPattern>,
        time: Duration,
    ) -> Result<f64> {
        self.calls.set_block(load.block);
        self.contents = contents;
        if let Some(pool) = &mut self.pool {
            pool.reset(load.block.into());
        }
        self.blocking.zone(0, ZoneAction::ResetAll).of("the zones cannot be reset")?;
        let (start, mut bytes) = (Instant::now(), 0.0);
        let offsets = offsets.take_while(|_| start.elapsed() < time).inspect(|_| bytes += f64::from(load.block));
        each(self, load.depth, offsets, |_, _| Ok(()))?;
        Ok(bytes / start.elapsed().as_secs_f64())
    }
}

impl LoadTransport for ZoneWriter {
    fn size(&self) -> u64 {
        self.calls.size()
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool> {
        if let (Some(contents), Some(buffer)) = (self.contents, self.calls.buffer(slot)) {
            contents.fill(offset, buffer);
        }
        let Some(pool) = &self.pool else {
            return self.calls.submit(slot, offset);
        };
        if let Some(buffer) = self.calls.buffer(slot).take() {
            pool.encrypt(Write { offset, slot, buffer });
        }
        Ok(false)
    }

    /// Also submits what the pool has encrypted and whose turn it is. Waits first, where told to, until there is
    /// something or the pool wakes the ring.
    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()> {
        self.calls.collect(wait, ended)?;
        while let Some(Write { offset, slot, buffer }) = self.pool.as_mut().and_then(EncryptingPool::next_in_order) {
            *self.calls.buffer(slot) = Some(buffer);
            if self.calls.submit(slot, offset)? {
                ended.push(slot);
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
        let load = ZoneLoad { block: 4096, depth: 1, zones: 2 };
        let offsets: Vec<u64> = offsets(load, 8192).collect();
        assert_eq!(offsets, [0, 8192, 4096, 12288]);
    }
}
