//! VAES on 256-bit registers: units of 256 bytes, eight registers of two blocks.
//!
//! ```text
//!   T ──► T·x^0 1, T·x^2 3, T·x^4 5, T·x^6 7          bit shifts, once a sector
//!   these four ──► times x^8                          whole bytes, for each unit
//!                  times x^16                         the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm256_add_epi64, _mm256_aesdec_epi128, _mm256_aesdeclast_epi128,
    _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_broadcastsi128_si256, _mm256_bslli_epi128,
    _mm256_bsrli_epi128, _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sllv_epi64, _mm256_srl_epi64, _mm256_srlv_epi64,
    _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use crate::cpu::detection::Avx2;
use crate::iv::IvSequence;
use crate::xts::driver::{Aligned, FIRST_SECTORS, REGISTERS, Tweaked, each, field_by_field, xts_ivs, xts_kernel};
use crate::xts::keys::{RoundKey, Schedule, XtsKeys, opaque};
use crate::xts::x86::registers::{registers, wide_registers};
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

/// Bytes in a unit.
const UNIT: usize = 256;
type Vector = __m256i;
/// A tweak in both halves.
type Spread = __m256i;
/// The first four registers' tweaks.
type Powers = [__m256i; 4];
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m256i; 8];

/// x^128 is x^7 + x^2 + x + 1, as bits.
const REDUCTION: i64 = 0x87;
/// Blocks in a register.
const LANES: u64 = 2;

xts_ivs! { "avx2,vaes,vpclmulqdq", _mm256_aesenc_epi128 }

registers! {
    "avx2,vaes,vpclmulqdq", 32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256, _mm256_aesenclast_epi128
}

wide_registers! {
    "avx2,vaes,vpclmulqdq", _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_broadcastsi128_si256, _mm256_add_epi64,
    _mm256_shuffle_epi8, _mm256_srl_epi64, _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_aesdec_epi128,
    _mm256_aesdeclast_epi128, [], order([zero(); 2])
}

xts_kernel! {
    /// The kernel of CPUs with VAES, used on 256 bits.
    Avx2Xts, Avx2, "avx2,vaes,vpclmulqdq", "aes-xts (vaes, avx2)", [9, 11, 13]
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: &mut Masks,
    powers: &mut Powers,
    start: Option<&[u8; 16]>,
    data: &mut [u8; UNIT],
) {
    let keys = opaque(keys);
    let state = enter(keys, *masks, data);
    let mut rounds = Rounds::<ENCRYPT, MIDDLE> { keys, state };
    // Straight-line code: a loop would not keep all of it in registers.
    let [a, b, c, d] = *powers;
    let ([a, b], [c, d]) = match start {
        Some(tweak) => {
            let tweak = spread(tweak);
            let low = rounds.with_powers::<0>(tweak, 0);
            (low, rounds.with_powers::<3>(tweak, 4))
        }
        None => {
            let low = rounds.with_times::<0, 2, 14>([a, b], zero());
            (low, rounds.with_times::<3, 2, 14>([c, d], zero()))
        }
    };
    let last = round_key(&keys.last);
    let [m4, m5] = rounds.with_times::<6, 1, 15>([a, b], last);
    let [m6, m7] = rounds.with_times::<9, 1, 15>([c, d], last);
    rounds.end(*masks, data);
    *masks = [xor(a, last), xor(b, last), xor(c, last), xor(d, last), m4, m5, m6, m7];
    *powers = [a, b, c, d];
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn enter(keys: &Schedule, masks: Masks, source: &[u8; UNIT]) -> [__m256i; 8] {
    let (source, _) = source.as_chunks();
    let first = round_key(&keys.first);
    each!([0 1 2 3 4 5 6 7] AT => xor(xor(masks[AT], first), load(&source[AT])))
}

/// Parts of other work in the rounds of a unit.
const WORKS: usize = 12;

impl<const ENCRYPT: bool, const MIDDLE: usize> Rounds<'_, ENCRYPT, MIDDLE> {
    /// Two registers' blocks times x^(8 · `LEFT`), and XORed with `other`; `RIGHT` is
    /// 16 - `LEFT`.
    #[inline]
    #[target_feature(enable = "avx2,vaes,vpclmulqdq")]
    fn with_times<const PART: usize, const LEFT: i32, const RIGHT: i32>(
        &mut self,
        powers: [__m256i; 2],
        other: __m256i,
    ) -> [__m256i; 2] {
        const { assert!(LEFT + RIGHT == 16) };
        let over = each!([0 1] AT => _mm256_bsrli_epi128::<RIGHT>(powers[AT]));
        let over = self.go_on(PART, over);
        let reduced = self.go_on(PART + 1, each!([0 1] AT => reduce_low(over[AT])));
        let left = each!([0 1] AT => xor(_mm256_bslli_epi128::<LEFT>(powers[AT]), other));
        self.go_on(PART + 2, each!([0 1] AT => xor(left[AT], reduced[AT])))
    }

    /// Two registers of a sector's first unit: `tweak` times x^`first` and so on.
    #[inline]
    #[target_feature(enable = "avx2,vaes,vpclmulqdq")]
    fn with_powers<const PART: usize>(&mut self, tweak: Spread, first: i64) -> [__m256i; 2] {
        let over = [over_by(tweak, first), over_by(tweak, first + 2)];
        let over = self.go_on(PART, over);
        let reduced = self.go_on(PART + 1, each!([0 1] AT => reduce_high(over[AT])));
        let shifted = [_mm256_sllv_epi64(tweak, two_powers(first)), _mm256_sllv_epi64(tweak, two_powers(first + 2))];
        let made = each!([0 1] AT => {
            let carried = _mm256_bslli_epi128::<8>(over[AT]);
            xor(xor(shifted[AT], carried), reduced[AT])
        });
        self.go_on(PART + 2, made)
    }

    /// Has the caller's values ready for this part of the work, and then does rounds up to the next part.
    #[inline]
    #[target_feature(enable = "avx2,vaes,vpclmulqdq")]
    fn go_on(&mut self, part: usize, made: [__m256i; 2]) -> [__m256i; 2] {
        let made = self.order(made);
        self.pairs(part * Self::PAIRS, Self::PAIRS);
        made
    }

    /// The compiler leaves this where it is, and has everything ready before it.
    #[inline]
    #[target_feature(enable = "avx2,vaes,vpclmulqdq")]
    fn order(&mut self, made: [__m256i; 2]) -> [__m256i; 2] {
        if cfg!(miri) {
            return made;
        }
        let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] = self.state;
        let [mut m0, mut m1] = made;
        // SAFETY: no instruction at all.
        unsafe {
            asm!(
                "/* {} {} {} {} {} {} {} {} {} {} */",
                inout(ymm_reg) s0, inout(ymm_reg) s1, inout(ymm_reg) s2, inout(ymm_reg) s3,
                inout(ymm_reg) s4, inout(ymm_reg) s5, inout(ymm_reg) s6, inout(ymm_reg) s7,
                inout(ymm_reg) m0, inout(ymm_reg) m1,
                options(nomem, nostack, preserves_flags)
            );
        }
        self.state = [s0, s1, s2, s3, s4, s5, s6, s7];
        [m0, m1]
    }
}

/// No step for the first block, one for the second.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn lanes(ivs: &IvSequence) -> Vector {
    _mm256_set_epi64x(ivs.step.cast_signed(), ivs.step.cast_signed(), 0, 0)
}

/// Masks and powers of the unit that begins with `tweak`.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn first_masks(keys: &Schedule, tweak: Spread) -> (Masks, Powers) {
    let last = round_key(&keys.last);
    let powers = each!([0 1 2 3 4 5 6 7] AT => power(tweak, [0, 2, 4, 6, 8, 10, 12, 14][AT]));
    let [a, b, c, d, ..] = powers;
    let masks = each!([0 1 2 3 4 5 6 7] AT => xor(powers[AT], last));
    (masks, [a, b, c, d])
}

/// Times x^`first` and x^(`first` + 1).
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn power(tweak: Spread, first: i64) -> __m256i {
    let over = over_by(tweak, first);
    let shifted = _mm256_sllv_epi64(tweak, two_powers(first));
    // What leaves the low half enters the high one; what leaves the high half is reduced.
    let carried = xor(shifted, _mm256_bslli_epi128::<8>(over));
    xor(carried, reduce_high(over))
}

/// Powers of x for the two blocks, in both halves of each.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn two_powers(first: i64) -> __m256i {
    _mm256_set_epi64x(first + 1, first + 1, first, first)
}

/// Bits that leave each half of the blocks when it is shifted left by its power.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn over_by(tweak: __m256i, first: i64) -> __m256i {
    // 64 - 0 shifts everything out.
    let rest = _mm256_sub_epi64(_mm256_set1_epi64x(64), two_powers(first));
    _mm256_srlv_epi64(tweak, rest)
}

/// The high halves times x^128, modulo the polynomial.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn reduce_high(over: __m256i) -> __m256i {
    _mm256_clmulepi64_epi128::<0x01>(over, _mm256_set1_epi64x(REDUCTION))
}

/// The low halves' product with x^128, modulo the polynomial.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn reduce_low(over: __m256i) -> __m256i {
    _mm256_clmulepi64_epi128::<0x00>(over, _mm256_set1_epi64x(REDUCTION))
}
