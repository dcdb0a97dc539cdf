//! The IVs of consecutive cipher sectors.

use aes::Block;

use crate::spec::{CipherSpec, IvMode};

/// Sector numbers as IVs count them: `S = t + iv_offset`, then divided under `iv_large_sectors`.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// `t + iv_offset` of the next cipher sector, in 512-byte sectors.
    pub(crate) next: u64,
    /// What one cipher sector adds to `next`.
    pub(crate) step: u64,
    /// `iv_large_sectors`: `next` is shifted right by this when it becomes an IV.
    pub(crate) shift: u32,
}

impl Numbers {
    /// Which of `keys` keys the next sector has. Counted in 512-byte sectors, always.
    pub(super) fn key_index(&self, keys: usize) -> usize {
        let keys = u64::try_from(keys).unwrap_or(1);
        usize::try_from(self.next & (keys - 1)).unwrap_or(0)
    }

    pub(super) fn skip_sectors(&mut self, sectors: usize) {
        let sectors = u64::try_from(sectors).unwrap_or(0);
        self.next = self.next.wrapping_add(self.step.wrapping_mul(sectors));
    }
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let number = self.next >> self.shift;
        self.next = self.next.wrapping_add(self.step);
        Some(number)
    }
}

/// What a sector number looks like as an IV, before any encryption of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IvGenerator {
    /// `LE32(S)`, zero padded.
    Plain,
    /// `LE64(S)`, zero padded. ESSIV encrypts it.
    Plain64,
    /// Zeros, `BE64(S)`.
    Plain64Be,
    /// Zeros: also where the IV is made of other things than the number.
    Zeros,
    /// Zeros, `LE64(S)`: not dm-crypt's, but SPDK's.
    Spdk,
    /// Zeros, big-endian number of the sector's first block, counted from 1.
    Benbi { shift: u32 },
    /// `LE64(S * sector_size)`, zero padded; the cipher itself encrypts zeros with it as IV.
    Encrypted { sector_size: u64 },
}

impl IvGenerator {
    pub(super) fn of(spec: &CipherSpec, sector_size: u32) -> Option<IvGenerator> {
        Some(match spec.iv_mode() {
            IvMode::Plain => IvGenerator::Plain,
            IvMode::Plain64 | IvMode::Essiv(_) => IvGenerator::Plain64,
            IvMode::Plain64Be => IvGenerator::Plain64Be,
            IvMode::Null | IvMode::None | IvMode::Lmk | IvMode::Tcw => IvGenerator::Zeros,
            IvMode::Spdk => IvGenerator::Spdk,
            // Blocks in 512 bytes, whatever the cipher sector; a stream cipher's have one byte.
            IvMode::Benbi => IvGenerator::Benbi {
                shift: if spec.chain_mode() == "ctr" { 9 } else { 5 },
            },
            IvMode::Eboiv | IvMode::Elephant => IvGenerator::Encrypted {
                sector_size: sector_size.into(),
            },
            IvMode::Random => return None,
        })
    }

    /// Writes the IVs of the next sectors.
    pub(super) fn fill(self, numbers: Numbers, ivs: &mut [Block]) {
        for (iv, number) in ivs.iter_mut().zip(numbers) {
            *iv = self.iv(number).into();
        }
    }

    fn iv(self, number: u64) -> [u8; 16] {
        match self {
            IvGenerator::Plain => u128::from(number & u64::from(u32::MAX)).to_le_bytes(),
            IvGenerator::Plain64 => u128::from(number).to_le_bytes(),
            IvGenerator::Plain64Be => u128::from(number).to_be_bytes(),
            IvGenerator::Zeros => [0; 16],
            IvGenerator::Spdk => (u128::from(number) << 64).to_le_bytes(),
            // Modulo 2^64, as the kernel counts.
            IvGenerator::Benbi { shift } => {
                u128::from((number << shift).wrapping_add(1)).to_be_bytes()
            }
            IvGenerator::Encrypted { sector_size } => {
                u128::from(number.wrapping_mul(sector_size)).to_le_bytes()
            }
        }
    }
}
