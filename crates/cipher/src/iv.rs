//! The IV of every cipher sector, from its place on the target.
//!
//! dm-crypt counts in 512-byte sectors, always: `S = t + iv_offset` modulo 2^64. A larger cipher
//! sector makes the next `S` larger by its size in sectors; only `iv_large_sectors` divides `S`
//! by it again, after the addition.

use aes::Block;

use crate::spec::IvMode;

/// Bytes of an `S` inside the IV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IvLayout {
    /// `LE32(S)`, zero padded.
    Plain,
    /// `LE64(S)`, zero padded.
    Plain64,
    /// Zeros, `BE64(S)`.
    Plain64Be,
    /// Zeros.
    Null,
    /// Zeros, `LE64(S)` (SPDK).
    Spdk,
}

impl IvLayout {
    /// The layout of an IV mode that depends on nothing but the sector number.
    pub(crate) fn of(mode: &IvMode) -> Option<IvLayout> {
        match mode {
            IvMode::Plain => Some(IvLayout::Plain),
            IvMode::Plain64 => Some(IvLayout::Plain64),
            IvMode::Plain64Be => Some(IvLayout::Plain64Be),
            IvMode::Null => Some(IvLayout::Null),
            IvMode::Spdk => Some(IvLayout::Spdk),
            _ => None,
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl IvLayout {
    /// For each byte of the IV the byte of `LE64(S)` that it is, or 0x80 for a zero: what the
    /// byte shuffles of vector instructions take.
    #[inline(always)]
    pub(crate) fn byte_places(self) -> &'static [u8; 16] {
        const Z: u8 = 0x80;
        match self {
            IvLayout::Plain => &[0, 1, 2, 3, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z],
            IvLayout::Plain64 => &[0, 1, 2, 3, 4, 5, 6, 7, Z, Z, Z, Z, Z, Z, Z, Z],
            IvLayout::Plain64Be => &[Z, Z, Z, Z, Z, Z, Z, Z, 7, 6, 5, 4, 3, 2, 1, 0],
            IvLayout::Null => &[Z; 16],
            IvLayout::Spdk => &[Z, Z, Z, Z, Z, Z, Z, Z, 0, 1, 2, 3, 4, 5, 6, 7],
        }
    }
}

/// The IVs of consecutive cipher sectors: first, step, and how they are written down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IvSequence {
    pub(crate) layout: IvLayout,
    /// `t + iv_offset` of the next cipher sector, in 512-byte sectors.
    pub(crate) next: u64,
    /// What one cipher sector adds to `next`.
    pub(crate) step: u64,
    /// `iv_large_sectors`: `next` is shifted right by this when it becomes an IV. Shifting
    /// last is what the kernel does and shows when `next` wraps.
    pub(crate) shift: u32,
}

impl IvSequence {
    /// Stands where none is needed.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) const NONE: IvSequence = IvSequence {
        layout: IvLayout::Null,
        next: 0,
        step: 0,
        shift: 0,
    };

    /// What the `n`th cipher sector from here has in place of `next`.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    pub(crate) fn nth(&self, n: u64) -> u64 {
        self.next.wrapping_add(self.step.wrapping_mul(n))
    }

    /// Writes the next IVs, one for each element.
    #[inline(always)]
    pub(crate) fn fill(&mut self, ivs: &mut [Block]) {
        for iv in ivs {
            let number = self.next >> self.shift;
            self.next = self.next.wrapping_add(self.step);
            *iv = match self.layout {
                IvLayout::Plain => u128::from(number & u64::from(u32::MAX)).to_le_bytes(),
                IvLayout::Plain64 => u128::from(number).to_le_bytes(),
                IvLayout::Plain64Be => u128::from(number).to_be_bytes(),
                IvLayout::Null => [0; 16],
                IvLayout::Spdk => (u128::from(number) << 64).to_le_bytes(),
            }
            .into();
        }
    }
}
