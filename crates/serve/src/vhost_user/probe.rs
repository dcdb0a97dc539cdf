//! Virtqueues under a driver whose memory and timing are made of arbitrary bytes: what a fuzzer needs.
//!
//! ```text
//! head      choices u8, places u8, base u32
//! records   0 put: at u16, count u8, bytes       1 take      2 finish: which u8, written u8      3 publish
//!           6 descriptor: index u8, at u8, length u8, its last two words       4 ask for a kick
//!           5 the next server       7 the memory is shared once more
//! ```

use std::io;

use cryptline_sys::{GuestMemory, GuestRange, GuestRegion};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::config::SectorLimits;
use super::inflight::size_of_queue;
use super::queue::{DescriptorChain, PackedRing, RingError, SplitRing, Virtqueue, VirtqueueLayout};
use super::request::{RequestVerdict, judge};
use crate::lane::WireRequest;

const MEMORY: u64 = 1 << 16;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const INFLIGHT: usize = 0x3000;
const DATA: u64 = 0x5000;
const PLACES_MAX: u8 = 64;
const DISK: u64 = 1 << 20;
/// As many requests as a lane has.
const HELD_MAX: usize = 64;

/// Serves the rings that `input` describes.
///
/// # Panics
/// Where a ring breaks a promise: more requests than places, or a request that leaves the disk.
pub fn exercise(mut input: &[u8]) {
    let Some(([choices, places, base @ ..], records)) = input.split_first_chunk::<6>() else {
        return;
    };
    input = records;
    let is = |bit: u8| choices & bit != 0;
    let size = 1 + u16::from(places % PLACES_MAX);
    let layout = VirtqueueLayout {
        size: if is(1) { size } else { size.next_power_of_two() },
        descriptors: USER + DESCRIPTORS,
        available: USER + AVAILABLE,
        used: USER + USED,
        base: u32::from_le_bytes(*base),
        is_packed: is(1),
        event_idx: is(2),
        indirect: is(4),
    };
    let Ok((memory, bytes)) = share() else {
        return;
    };
    let inflight = size_of_queue(layout.size, layout.is_packed);
    let probe = FeatureProbe {
        layout,
        memory,
        inflight: bytes.part(INFLIGHT, inflight).ok().filter(|_| is(8)),
        bytes,
        limits: SectorLimits {
            size: DISK,
            block: 512,
            read_only: is(16),
            discards: is(32),
            zeroes: is(64),
            zeroes_max: SectorLimits::RANGE_MAX,
            flushes: is(128),
        },
    };
    // Whatever ends a ring is an error that the server's log tells.
    let _ = if probe.layout.is_packed { probe.run::<PackedRing>(input) } else { probe.run::<SplitRing>(input) };
}

fn share() -> io::Result<(GuestMemory, GuestRange)> {
    let file = memfd_create("probe", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, MEMORY)?;
    let mut memory = GuestMemory::default();
    let region = GuestRegion { guest: GUEST, user: USER, len: MEMORY, offset: 0 };
    memory.add(region, &file)?;
    let len = usize::try_from(MEMORY).map_err(io::Error::other)?;
    let bytes = memory.user_range(USER, len).map_err(io::Error::other)?;
    Ok((memory, bytes))
}

struct FeatureProbe {
    layout: VirtqueueLayout,
    memory: GuestMemory,
    bytes: GuestRange,
    inflight: Option<GuestRange>,
    limits: SectorLimits,
}

impl FeatureProbe {
    fn open<Q: Virtqueue>(&self, base: u32) -> Result<Q, RingError> {
        let layout = VirtqueueLayout { base, ..self.layout };
        Q::open(layout, &self.memory, self.inflight.clone())
    }

    fn run<Q: Virtqueue>(&self, mut records: &[u8]) -> Result<(), RingError> {
        let mut ring = self.open::<Q>(self.layout.base)?;
        let mut held: Vec<DescriptorChain> = Vec::new();
        while let Some(([kind], rest)) = records.split_first_chunk::<1>() {
            records = rest;
            match kind % 8 {
                0 => records = self.put(records),
                1 if held.len() < HELD_MAX => {
                    let mut chain = DescriptorChain::new();
                    if ring.next(&self.memory, &mut chain)? {
                        self.judge(&chain)?;
                        held.push(chain);
                    }
                }
                2 if !held.is_empty() => {
                    let Some(([which, written], rest)) = records.split_first_chunk() else {
                        break;
                    };
                    records = rest;
                    let chain = held.swap_remove(usize::from(*which) % held.len());
                    ring.finish(&chain, (*written).into())?;
                }
                3 => {
                    ring.publish()?;
                    assert!(!ring.has_unpublished());
                }
                4 => {
                    ring.ask_for_kick()?;
                }
                5 => {
                    held.clear();
                    let base = ring.base();
                    drop(ring);
                    ring = self.open::<Q>(base)?;
                }
                6 => records = self.describe(records),
                7 => ring.remap(&self.memory)?,
                _ => {}
            }
            let is_bounded = held.len() <= usize::from(self.layout.size);
            assert!(is_bounded || !self.layout.is_packed, "more than places");
        }
        Ok(())
    }

    /// Does with a request what a wire does.
    fn judge(&self, chain: &DescriptorChain) -> Result<(), RingError> {
        let verdict = judge(chain, &self.memory, &self.limits)?;
        let RequestVerdict::Serve(WireRequest { offset, length, .. }) = verdict else {
            return Ok(());
        };
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= DISK), "it leaves the disk");
        let mut data = [0; 600];
        let _ = chain.read(&self.memory, 16, &mut data);
        let _ = chain.write(&self.memory, 0, &data);
        Ok(())
    }

    fn put<'a>(&self, records: &'a [u8]) -> &'a [u8] {
        let Some(([low, high, count], rest)) = records.split_first_chunk() else {
            return &[];
        };
        let (bytes, rest) = rest.split_at(usize::from(*count).min(rest.len()));
        let at = u16::from_le_bytes([*low, *high]);
        // What leaves the memory is not put there.
        let _ = self.bytes.write(at.into(), bytes);
        rest
    }

    fn describe<'a>(&self, records: &'a [u8]) -> &'a [u8] {
        let Some(([index, at, len, words @ ..], rest)) = records.split_first_chunk::<7>() else {
            return &[];
        };
        let address = GUEST + DATA + 16 * u64::from(*at);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&u32::from(*len).to_le_bytes());
        bytes[12..].copy_from_slice(words);
        let _ = self.bytes.write(16 * usize::from(*index), &bytes);
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The fuzzer's seeds, and bytes around them.
    #[test]
    fn no_bytes_break_a_promise() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/virtqueue");
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 40).unwrap()
        };
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read(entry.unwrap().path()).unwrap();
            exercise(&seed);
            for _ in 0..200 {
                let mut bytes = seed.clone();
                for _ in 0..1 + random() % 4 {
                    let place = random() % bytes.len();
                    bytes[place] = random().to_le_bytes()[0];
                }
                exercise(&bytes);
            }
            seeds += 1;
        }
        assert!(seeds >= 10, "{seeds}");
    }
}
