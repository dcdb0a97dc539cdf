//! What a read must cost: copying the block out of memory, and decrypting it. Measured in the same
//! runs as the reads, on memory of the same kind and size, in the same order.
//!
//! The copy is a bare one, from memory that no cache holds where the volume is larger than the
//! caches. The cipher works on one block that stays in the first-level cache, which is the least it
//! can take. Neither knows of requests.

use std::hint::black_box;
use std::time::Duration;

use cryptline_cipher::SectorCipher;
use cryptline_sys::SharedMemory;

use super::{BLOCK, SHAPE};
use crate::load::buffer;
use crate::{Error, work};

/// The two costs.
pub struct Model {
    memory: SharedMemory,
    blocks: usize,
    cipher: SectorCipher,
    /// Seconds to copy a block, in each run.
    pub copy: Vec<f64>,
    /// Seconds to decrypt a block, in each run.
    pub decrypt: Vec<f64>,
}

impl Model {
    /// Fills memory of `bytes` bytes.
    pub fn new(bytes: u64, cipher: SectorCipher) -> Result<Self, Error> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = SharedMemory::new(len)
            .map_err(|error| Error::memory(format!("no memory for a copy: {error}; give a smaller --size")))?;
        // Memory that was never written is one page of zeros, again and again.
        let block = buffer(SHAPE.block)?;
        let blocks = len / BLOCK;
        for index in 0..blocks {
            memory.write(index * BLOCK, &block);
        }
        Ok(Self { memory, blocks, cipher, copy: Vec::new(), decrypt: Vec::new() })
    }

    /// Takes one sample of each, from block `start` on.
    pub fn sample(&mut self, start: u64, time: Duration) -> Result<(), Error> {
        let Self { memory, blocks, cipher, .. } = &*self;
        let blocks = *blocks;
        let copied = work::rate(1, time, || {
            let mut block = buffer(SHAPE.block)?;
            let mut next = usize::try_from(start).unwrap_or(0) % blocks;
            Ok(move |count| {
                for _ in 0..count {
                    memory.read(next * BLOCK, &mut block);
                    black_box(&mut *block);
                    next = if next + 1 == blocks { 0 } else { next + 1 };
                }
            })
        })?;
        let decrypted = work::rate(1, time, || {
            let mut block = buffer(SHAPE.block)?;
            let (sectors, mut sector) = (blocks as u64 * 8, 0);
            Ok(move |count| {
                for _ in 0..count {
                    cipher.decrypt_in_place(sector, black_box(&mut *block));
                    sector = (sector + 8) % sectors;
                }
            })
        })?;
        self.copy.push(1.0 / copied.bytes_per_second);
        self.decrypt.push(1.0 / decrypted.bytes_per_second);
        Ok(())
    }

    /// Bytes in a second that a read of each run could have had: those of copy plus cipher.
    pub fn rates(&self) -> Vec<f64> {
        let block = f64::from(SHAPE.block);
        let both = self.copy.iter().zip(&self.decrypt);
        both.map(|(copy, decrypt)| block / (copy + decrypt)).collect()
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
            let sampled = model.sample(start, Duration::from_micros(100));
            sampled.expect("memory");
        }
        let rates = model.rates();
        assert_eq!(rates.len(), 4);
        for (index, rate) in rates.iter().enumerate() {
            assert!(*rate > 0.0 && *rate < 4096.0 / model.decrypt[index]);
        }
    }
}
