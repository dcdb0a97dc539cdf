//! One thread that writes zones from their start on, and keeps so many writes in flight.

use std::time::{Duration, Instant};

use cryptline_engine::{
    Arena, BackendChoice, Buffer, Completion, Gate, GatedQueue, Operation, Request, Ring,
    Submitted, ZoneAction,
};

use super::ZONES;
use crate::CliError;

/// Largest write, and most in flight.
const BLOCK_MAX: u32 = 128 << 10;
pub const DEPTH_MAX: usize = 16;
/// Entries of a ring: what is in flight, and room for the layers.
const RING_ENTRIES: u32 = 64;

/// What is written how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes in a write.
    pub block: u32,
    /// Writes in flight.
    pub depth: u32,
    /// Zones side by side.
    pub zones: u64,
    /// Whether each block is filled with what belongs to its place.
    pub stamped: bool,
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
                        stamped: false,
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
        let block = crate::bench::table::block(self.block);
        format!("{block}, QD {}, {zones}", self.depth)
    }

    /// `4k/16/8`, for the axis of a plot.
    pub fn short(&self) -> String {
        let block = crate::bench::table::block(self.block);
        format!("{block}/{}/{}", self.depth, self.zones)
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

    /// The next; `None` where the zones are full.
    pub fn take(&mut self) -> Option<Place> {
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

/// Bytes that belong to a place and to no other.
pub fn stamp(offset: u64, bytes: &mut [u8]) {
    let mut word = offset.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for piece in bytes.chunks_exact_mut(8) {
        piece.copy_from_slice(&word.to_le_bytes());
        word = word.rotate_left(11).wrapping_add(0x2545_f491_4f6c_dd1d);
    }
}

/// A queue, and the buffers that are not in flight.
pub struct Writer {
    pub ring: Ring,
    queue: GatedQueue,
    done: Vec<Completion>,
    idle: Vec<Buffer>,
    pub zone_size: u64,
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
        })
    }

    /// Makes all zones empty, then writes for `time` or until they are full. Bytes in a second.
    pub fn write(&mut self, load: &Load, time: Duration) -> Result<f64, CliError> {
        self.reset()?;
        let mut places = Places::new(load, self.zone_size);
        let mut free = self.buffers(load);
        let depth = free.len();
        let (start, mut bytes, mut open) = (Instant::now(), 0.0, true);
        loop {
            while open && let Some(mut buffer) = free.pop() {
                let Some(place) = places.take() else {
                    free.push(buffer);
                    open = false;
                    break;
                };
                if load.stamped {
                    stamp(place.offset, &mut buffer);
                }
                bytes += f64::from(load.block);
                free.extend(self.submit(place.offset, buffer)?);
                open = start.elapsed() < time;
            }
            if !open && free.len() == depth {
                break;
            }
            if free.len() < depth {
                self.wait()?;
                self.collect(&mut free)?;
            }
        }
        let rate = bytes / start.elapsed().as_secs_f64();
        self.idle.append(&mut free);
        Ok(rate)
    }

    /// The buffers of a load. They come back by [`give_back`](Self::give_back).
    pub fn buffers(&mut self, load: &Load) -> Vec<Buffer> {
        let depth = usize::try_from(load.depth)
            .unwrap_or(1)
            .min(self.idle.len());
        let mut buffers = self.idle.split_off(self.idle.len() - depth);
        for buffer in &mut buffers {
            buffer.set_len(usize::try_from(load.block).unwrap_or(0));
        }
        buffers
    }

    /// Takes them back.
    pub fn give_back(&mut self, mut buffers: Vec<Buffer>) {
        self.idle.append(&mut buffers);
    }

    /// Makes all zones empty.
    pub fn reset(&mut self) -> Result<(), CliError> {
        let request = Request::zone(0, ZoneAction::ResetAll, 0);
        let mut submitted = self.queue.submit(&mut self.ring, request);
        loop {
            match submitted {
                Submitted::Done(completion) => {
                    return completion.result.map_err(|fault| {
                        CliError::device(format!("the zones cannot be reset: {fault}"))
                    });
                }
                Submitted::Pending => {
                    self.wait()?;
                    self.queue.poll(&mut self.ring, &mut self.done);
                    submitted = match self.done.pop() {
                        Some(completion) => Submitted::Done(completion),
                        None => Submitted::Pending,
                    };
                }
            }
        }
    }

    /// Submits a write; its buffer, where it has ended.
    pub fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<Buffer>, CliError> {
        let request = Request::write(offset, buffer, false, 0);
        match self.queue.submit(&mut self.ring, request) {
            Submitted::Done(completion) => ended(completion).map(Some),
            Submitted::Pending => Ok(None),
        }
    }

    /// Waits until something has ended, or somebody wakes the ring.
    pub fn wait(&mut self) -> Result<(), CliError> {
        let waited = self.ring.wait();
        waited.map_err(|error| CliError::device(format!("cannot wait for I/O: {error}")))
    }

    /// The buffers of what has ended.
    pub fn collect(&mut self, free: &mut Vec<Buffer>) -> Result<(), CliError> {
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
            stamped: false,
        };
        let mut places = Places::new(&load, 8192);
        let offsets: Vec<u64> = std::iter::from_fn(|| places.take())
            .map(|place| place.offset)
            .collect();
        assert_eq!(offsets, [0, 8192, 4096, 12288]);
    }

    #[test]
    fn no_two_places_have_the_same_bytes() {
        let of = |offset| {
            let mut bytes = [0; 64];
            stamp(offset, &mut bytes);
            bytes
        };
        assert_ne!(of(0), of(4096));
        assert_eq!(of(4096), of(4096));
    }
}
