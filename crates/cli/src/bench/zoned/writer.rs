//! One thread that writes zones from their start on, and keeps so many writes in flight.

use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_engine::{
    Arena, BackendChoice, Buffer, Completion, Gate, GatedQueue, Operation, Request, Ring,
    Submitted, ZoneAction,
};

use super::ZONES;
use super::pool::Pool;
use crate::CliError;
use crate::bench::contents::Contents;
use crate::bench::table;

/// Largest write, and most in flight.
const BLOCK_MAX: u32 = 128 << 10;
pub const DEPTH_MAX: usize = 16;
/// Entries of a ring: what is in flight, and room for the layers.
const RING_ENTRIES: u32 = 64;

/// What is written how.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes in a write.
    pub block: u32,
    /// Writes in flight.
    pub depth: u32,
    /// Zones side by side.
    pub zones: u64,
}

impl Load {
    /// All that are measured.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for block in [4096, BLOCK_MAX] {
            for depth in [1, 16] {
                for zones in [1, ZONES] {
                    all.push(Self {
                        block,
                        depth,
                        zones,
                    });
                }
            }
        }
        all
    }

    /// `4k, QD 16, 8 zones`.
    pub fn name(&self) -> String {
        let zones = match self.zones {
            1 => "1 zone".to_owned(),
            zones => format!("{zones} zones"),
        };
        format!("{}, QD {}, {zones}", table::block(self.block), self.depth)
    }

    /// `4k/16/8`, for the axis of a plot.
    pub fn short(&self) -> String {
        format!("{}/{}/{}", table::block(self.block), self.depth, self.zones)
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Byte on the device.
    pub offset: u64,
    /// Number of the zone.
    pub zone: usize,
    /// Number of the write in its zone.
    pub number: u64,
}

/// A write, and where it goes.
pub struct Write {
    /// Where.
    pub place: Place,
    /// What.
    pub buffer: Buffer,
}

/// The places of a load, each zone in turn.
pub struct Places {
    block: u64,
    zones: u64,
    zone_size: u64,
    next: u64,
}

impl Places {
    /// From the start of each zone on.
    pub fn new(load: &Load, zone_size: u64) -> Self {
        Self {
            block: u64::from(load.block),
            zones: load.zones,
            zone_size,
            next: 0,
        }
    }
}

impl Iterator for Places {
    type Item = Place;

    /// `None` where the zones are full.
    fn next(&mut self) -> Option<Place> {
        let (zone, number) = (self.next % self.zones, self.next / self.zones);
        let at = number * self.block;
        if at + self.block > self.zone_size {
            return None;
        }
        self.next += 1;
        Some(Place {
            offset: zone * self.zone_size + at,
            zone: usize::try_from(zone).ok()?,
            number,
        })
    }
}

/// A queue, and the buffers that are not in flight.
pub struct Writer {
    ring: Ring,
    queue: GatedQueue,
    done: Vec<Completion>,
    idle: Vec<Buffer>,
    zone_size: u64,
    /// Who encrypts where the device below does not.
    pool: Option<Pool>,
}

impl Writer {
    /// A queue into the zoned device behind `gate`.
    pub fn new(gate: &Gate) -> Result<Self, CliError> {
        let no_memory = |error| CliError::memory(format!("no memory to measure with: {error}"));
        let mut ring = Ring::new(BackendChoice::Auto, RING_ENTRIES)
            .map_err(|error| CliError::device(format!("cannot set up I/O: {error}")))?;
        let len = usize::try_from(BLOCK_MAX).unwrap_or(0);
        let arena = Arena::new(len, DEPTH_MAX).map_err(no_memory)?;
        let mut idle: Vec<Buffer> = std::iter::from_fn(|| arena.take()).collect();
        for buffer in &mut idle {
            buffer.fill(0x5a);
        }
        let zones = gate.geometry().zones;
        Ok(Self {
            queue: gate.open_queue(&mut ring)?,
            ring,
            done: Vec::with_capacity(2 * DEPTH_MAX),
            idle,
            zone_size: zones.map_or(0, |zones| zones.zone_size),
            pool: None,
        })
    }

    /// The same, with threads that encrypt what is written.
    pub fn with_pool(mut self, cipher: SectorCipher, threads: u32) -> Result<Self, CliError> {
        let failed = |error| CliError::memory(format!("cannot start threads: {error}"));
        let waker = self.ring.waker().map_err(failed)?;
        self.pool = Some(Pool::new(cipher, threads, waker).map_err(failed)?);
        Ok(self)
    }

    /// The places of a load on this device.
    pub fn places(&self, load: &Load) -> Places {
        Places::new(load, self.zone_size)
    }

    /// Makes all zones empty, then writes to `places`, which are of this load, or for `time`, whichever
    /// ends first: bytes that are there, or those that belong to each place. Bytes in a second.
    pub fn write(
        &mut self,
        load: &Load,
        mut places: impl Iterator<Item = Place>,
        contents: Option<Contents>,
        time: Duration,
    ) -> Result<f64, CliError> {
        self.reset()?;
        let mut free = self.buffers(load);
        let depth = free.len();
        let (start, mut bytes, mut open) = (Instant::now(), 0.0, true);
        while open || free.len() < depth {
            while open && let Some(mut buffer) = free.pop() {
                let Some(place) = places.next() else {
                    free.push(buffer);
                    open = false;
                    break;
                };
                if let Some(contents) = contents {
                    contents.fill(place.offset, &mut buffer);
                }
                bytes += f64::from(load.block);
                let write = Write { place, buffer };
                match &mut self.pool {
                    Some(pool) => pool.encrypt(write),
                    None => free.extend(self.submit(write)?),
                }
                open = start.elapsed() < time;
            }
            let before = free.len();
            if before < depth {
                self.collect(&mut free)?;
                if free.len() == before {
                    self.wait()?;
                }
            }
        }
        let rate = bytes / start.elapsed().as_secs_f64();
        self.idle.append(&mut free);
        Ok(rate)
    }

    fn buffers(&mut self, load: &Load) -> Vec<Buffer> {
        let depth = usize::try_from(load.depth)
            .unwrap_or(1)
            .min(self.idle.len());
        let mut buffers = self.idle.split_off(self.idle.len() - depth);
        for buffer in &mut buffers {
            buffer.set_len(usize::try_from(load.block).unwrap_or(0));
        }
        buffers
    }

    /// Makes all zones empty.
    fn reset(&mut self) -> Result<(), CliError> {
        if let Some(pool) = &mut self.pool {
            pool.reset();
        }
        let request = Request::zone(0, ZoneAction::ResetAll, 0);
        let mut ended = match self.queue.submit(&mut self.ring, request) {
            Submitted::Done(completion) => Some(completion),
            Submitted::Pending => None,
        };
        while ended.is_none() {
            self.wait()?;
            self.queue.poll(&mut self.ring, &mut self.done);
            ended = self.done.pop();
        }
        ended
            .map_or(Ok(()), |completion| completion.result)
            .map_err(|fault| CliError::device(format!("the zones cannot be reset: {fault}")))
    }

    /// Submits a write; its buffer, where it has ended.
    fn submit(&mut self, write: Write) -> Result<Option<Buffer>, CliError> {
        let request = Request::write(write.place.offset, write.buffer, false, 0);
        match self.queue.submit(&mut self.ring, request) {
            Submitted::Done(completion) => ended(completion).map(Some),
            Submitted::Pending => Ok(None),
        }
    }

    /// Waits until something has ended, or somebody wakes the ring.
    fn wait(&mut self) -> Result<(), CliError> {
        let waited = self.ring.wait();
        waited.map_err(|error| CliError::device(format!("cannot wait for I/O: {error}")))
    }

    /// Submits what the pool has encrypted and whose turn it is, and takes the buffers of what has
    /// ended.
    fn collect(&mut self, free: &mut Vec<Buffer>) -> Result<(), CliError> {
        if let Some(pool) = &mut self.pool {
            pool.collect();
        }
        while let Some(write) = self.pool.as_mut().and_then(Pool::next_in_order) {
            free.extend(self.submit(write)?);
        }
        self.queue.poll(&mut self.ring, &mut self.done);
        for completion in self.done.drain(..) {
            free.push(ended(completion)?);
        }
        Ok(())
    }
}

fn ended(completion: Completion) -> Result<Buffer, CliError> {
    let Completion { request, result } = completion;
    if let Err(fault) = result {
        return Err(CliError::device(format!(
            "a write at byte {} failed: {fault}",
            request.offset
        )));
    }
    match request.operation {
        Operation::Write { data, .. } => Ok(data),
        _ => Err(CliError::device("a write came back as something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_written_in_turn_from_their_start_to_their_end() {
        let load = Load {
            block: 4096,
            depth: 1,
            zones: 2,
        };
        let offsets: Vec<u64> = Places::new(&load, 8192).map(|place| place.offset).collect();
        assert_eq!(offsets, [0, 8192, 4096, 12288]);
    }
}
