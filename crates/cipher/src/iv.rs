//! The IV of every cipher sector, from its place on the target.
//!
//! dm-crypt always counts in 512-byte sectors: `S = t + iv_offset` modulo 2^64. A larger cipher
//! sector advances `S` by its size in sectors; only `iv_large_sectors` divides `S` by that size
//! again, after the addition.

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
    /// How an IV mode writes its number down. What it does to the number before, and to the bytes
    /// after, is in `modes`.
    pub(crate) fn of(mode: &IvMode) -> IvLayout {
        match mode {
            IvMode::Plain => IvLayout::Plain,
            IvMode::Plain64 | IvMode::Essiv(_) | IvMode::Eboiv | IvMode::Elephant => IvLayout::Plain64,
            IvMode::Plain64Be | IvMode::Benbi => IvLayout::Plain64Be,
            IvMode::Spdk => IvLayout::Spdk,
            IvMode::Null | IvMode::None | IvMode::Lmk | IvMode::Tcw | IvMode::Random => IvLayout::Null,
        }
    }

    /// The IV of this number.
    #[inline(always)]
    pub(crate) fn iv(self, number: u64) -> Block {
        match self {
            IvLayout::Plain => u128::from(number & u64::from(u32::MAX)).to_le_bytes(),
            IvLayout::Plain64 => u128::from(number).to_le_bytes(),
            IvLayout::Plain64Be => u128::from(number).to_be_bytes(),
            IvLayout::Null => [0; 16],
            IvLayout::Spdk => (u128::from(number) << 64).to_le_bytes(),
        }
        .into()
    }

    /// For each byte of the IV, the byte of `LE64(S)` that goes there, or 0x80 for a zero: the
    /// operand of a vector byte shuffle.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
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

/// Consecutive cipher sectors as their IVs count them. Iterates over their numbers.
#[derive(Debug, Clone)]
pub(crate) struct IvSequence {
    pub(crate) layout: IvLayout,
    /// `t + iv_offset` of the next cipher sector, in 512-byte sectors.
    pub(crate) next: u64,
    /// Increment of `next` for one cipher sector.
    pub(crate) step: u64,
    /// `iv_large_sectors`: `next` is shifted right by this when it becomes an IV. The kernel too
    /// shifts last, which shows when `next` wraps.
    pub(crate) shift: u32,
}

impl IvSequence {
    /// A placeholder where no IV is needed.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) const NONE: IvSequence = IvSequence { layout: IvLayout::Null, next: 0, step: 0, shift: 0 };

    /// The value of `next` after `sectors` more cipher sectors.
    #[inline(always)]
    pub(crate) fn after(&self, sectors: u64) -> u64 {
        self.next.wrapping_add(self.step.wrapping_mul(sectors))
    }

    /// Writes the next IVs, one for each element.
    #[inline(always)]
    pub(crate) fn fill(&mut self, ivs: &mut [Block]) {
        let layout = self.layout;
        for (iv, number) in ivs.iter_mut().zip(self) {
            *iv = layout.iv(number);
        }
    }
}

impl Iterator for IvSequence {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        let number = self.next >> self.shift;
        self.next = self.after(1);
        Some(number)
    }
}
