//! What a read must cost: copying the block out of memory, and decrypting it. Measured in the same
//! runs as the reads, on memory of the same kind and size, in the same order.
//!
//! The copy is a bare one, from memory that no cache holds where the volume is larger than the
//! caches. The cipher works on one block that stays in the first-level cache, which is the least it
//! can take. Neither knows of requests.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_sys::{Buffer, SharedMemory};

use super::BLOCK;
use crate::Error;
use crate::load::{CLOCK_EVERY, WINDOW};
use crate::report::median;

/// The two costs, and their samples in seconds for each block.
pub struct Model {
    memory: SharedMemory,
    blocks: usize,
    block: Buffer,
    cipher: SectorCipher,
    /// Copying a block.
    pub copy: Vec<f64>,
    /// Decrypting a block.
    pub decrypt: Vec<f64>,
}

impl Model {
    /// Fills memory of `bytes` bytes.
    pub fn new(bytes: u64, cipher: SectorCipher) -> Result<Self, Error> {
        let no_memory = |error| {
            Error::memory(format!(
                "no memory for a copy: {error}; give a smaller --size"
            ))
        };
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = SharedMemory::new(len).map_err(no_memory)?;
        let mut block = Buffer::alloc(BLOCK).map_err(no_memory)?;
        // Memory that was never written is one page of zeros, again and again.
        block.fill(0x5a);
        let blocks = len / BLOCK;
        for index in 0..blocks {
            memory.write(index * BLOCK, &block);
        }
        Ok(Self {
            memory,
            blocks,
            block,
            cipher,
            copy: Vec::new(),
            decrypt: Vec::new(),
        })
    }

    /// Takes one sample of each, from block `start` on.
    pub fn sample(&mut self, start: u64, warm_up: Duration, time: Duration) {
        let (memory, blocks, block) = (&self.memory, self.blocks, &mut self.block);
        let mut next = usize::try_from(start).unwrap_or(0) % blocks;
        let copied = each(warm_up, time, || {
            memory.read(next * BLOCK, block);
            black_box(&mut **block);
            next = if next + 1 == blocks { 0 } else { next + 1 };
        });
        let (sectors, mut sector) = (blocks as u64 * 8, 0);
        let decrypted = each(warm_up, time, || {
            let block = black_box(&mut *self.block);
            self.cipher.decrypt_in_place(sector, block);
            sector = (sector + 8) % sectors;
        });
        self.copy.push(copied);
        self.decrypt.push(decrypted);
    }

    /// Bytes in a second that a read of each run could have had: those of copy plus cipher.
    pub fn rates(&self) -> Vec<f64> {
        let block = f64::from(super::SHAPE.block);
        let both = self.copy.iter().zip(&self.decrypt);
        both.map(|(copy, decrypt)| block / (copy + decrypt))
            .collect()
    }
}

/// Seconds that `work` takes each time after the warm-up.
fn each(warm_up: Duration, time: Duration, mut work: impl FnMut()) -> f64 {
    let _ = timed(warm_up, &mut work);
    timed(time, &mut work)
}

/// The median of windows of about a millisecond, as the load generator has them.
fn timed(time: Duration, work: &mut impl FnMut()) -> f64 {
    let mut windows = Vec::new();
    let start = Instant::now();
    let (mut begun, mut count) = (start, 0u32);
    loop {
        for _ in 0..CLOCK_EVERY {
            work();
            count = count.saturating_add(1);
        }
        let now = Instant::now();
        let is_over = now - start >= time;
        if now - begun >= WINDOW || (is_over && windows.is_empty()) {
            windows.push((now - begun).as_secs_f64() / f64::from(count));
            (begun, count) = (now, 0);
        }
        if is_over {
            return median(&windows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Cipher;

    #[test]
    fn both_costs_are_measured_in_every_run() {
        let cipher = Cipher::new("aes-xts-plain64").expect("aes");
        let mut model = Model::new(1 << 20, cipher.sectors().expect("sectors")).expect("memory");
        for start in [0, 255, 256, 1000] {
            model.sample(start, Duration::from_micros(10), Duration::from_micros(100));
        }
        let rates = model.rates();
        assert_eq!(rates.len(), 4);
        for (index, rate) in rates.iter().enumerate() {
            assert!(*rate > 0.0 && *rate < 4096.0 / model.decrypt[index]);
        }
    }
}
