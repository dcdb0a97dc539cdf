//! The bare cipher: the least that encryption costs a request, on data as cold as a server has it.
//!
//! ```text
//! memory that no cache holds ─ copied, as a system call would ─► buffers ─ encrypted in place, timed
//! ```
//!
//! The buffers hold what a server has in hand at a time: all requests in flight, or one chunk of large ones.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use cryptline_cipher::ceiling::median;
use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::Buffer;

use crate::error::{Of as _, Result, fail};
use crate::load::{LoadJob, buffer, pin};
use crate::report::{DataDirection, TurnResults};

/// Row of the cipher alone.
pub const BARE: &str = "bare-cipher";
/// Bytes that are worked on between two looks at the clock: enough to hide those, and no more than a server's chunk.
const LEAST: u32 = 32 << 10;
const MOST: u32 = 256 << 10;
/// Memory that the data comes from: more than the second-level caches hold.
const MEMORY: u32 = 64 << 20;

/// AES-XTS with a 512-bit key, and memory with data for it.
pub struct BareCipher {
    cipher: SectorCipher,
    memory: Buffer,
}

impl BareCipher {
    /// For cipher sectors of so many bytes.
    pub fn new(sector_size: u32) -> Result<Self> {
        let spec = CipherSpec::parse("aes-xts-plain64").of(BARE)?;
        let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
        let key: Vec<u8> = (1..=64).collect();
        Ok(Self { cipher: SectorCipher::new(&spec, &key, options).of(BARE)?, memory: buffer(MEMORY)? })
    }

    /// The median speed of a turn, on the processor of a server.
    pub fn sample(&self, job: &LoadJob, cpu: Option<usize>) -> Result<TurnResults> {
        let turn = || {
            cpu.map_or(Ok(()), pin)?;
            self.run(job)
        };
        // Only a thread of its own can be kept on a processor.
        thread::scope(|scope| match scope.spawn(turn).join() {
            Ok(sample) => sample,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn run(&self, job: &LoadJob) -> Result<TurnResults> {
        let (block, depth) = (job.shape.block, job.shape.depth);
        let len = block.saturating_mul(depth).clamp(LEAST, MOST);
        let mut data = buffer(len)?;
        let block = usize::try_from(block.min(len))?;
        let mut took = Vec::new();
        let start = Instant::now();
        for (number, from) in self.memory.chunks_exact(data.len()).cycle().enumerate() {
            data.copy_from_slice(from);
            let sector = number as u64 * u64::from(len / 512);
            let began = Instant::now();
            for request in black_box(&mut *data).chunks_mut(block) {
                match job.shape.direction {
                    DataDirection::Read => self.cipher.decrypt_in_place(sector, request),
                    DataDirection::Write => self.cipher.encrypt_in_place(sector, request),
                }
            }
            let now = Instant::now();
            if now - start >= job.warm_up {
                took.push((now - began).max(Duration::from_nanos(1)).as_secs_f64());
            }
            if now - start >= job.warm_up + job.time && !took.is_empty() {
                break;
            }
        }
        let Some(took) = median(&took) else { fail!("{BARE}: nothing was measured") };
        Ok(TurnResults { bytes_per_second: f64::from(len) / took, ..TurnResults::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{LoadShape, Pattern};

    #[test]
    fn every_shape_has_a_speed_both_ways() {
        let bare = BareCipher::new(512).expect("a cipher");
        for (block, depth) in [(512, 1), (4096, 32), (1 << 20, 4)] {
            for direction in [DataDirection::Read, DataDirection::Write] {
                let shape = LoadShape::new(direction, Pattern::Random, block, depth);
                let job = LoadJob::timed(shape, Duration::ZERO, Duration::ZERO, 0);
                assert!(bare.sample(&job, None).expect("memory").bytes_per_second > 0.0);
            }
        }
    }
}
