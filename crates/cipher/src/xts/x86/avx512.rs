//! VAES on 512-bit registers: units of 512 bytes, eight registers of four blocks.
//!
//! ```text
//!   T ──► A = T·x^0 .. T·x^3, B = T·x^4 .. T·x^7      bit shifts, once a sector
//!   A, B ──► A·x^8, B·x^8, .. B·x^24                  whole bytes, for each unit
//!   A, B ──► A·x^32, B·x^32                           the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm512_add_epi64, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128,
    _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_alignr_epi8, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_bsrli_epi128, _mm512_clmulepi64_epi128, _mm512_loadu_si512, _mm512_set_epi64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_shldv_epi64, _mm512_shuffle_epi8, _mm512_shuffle_epi32, _mm512_sll_epi64,
    _mm512_slli_epi64, _mm512_sllv_epi64, _mm512_srl_epi64, _mm512_srlv_epi64, _mm512_storeu_si512, _mm512_sub_epi64,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::cpu::detection::Avx512;
use crate::iv::IvSequence;
use crate::xts::driver::{Aligned, FIRST_SECTORS, REGISTERS, Tweaked, each, field_by_field, xts_ivs, xts_kernel};
use crate::xts::keys::{RoundKey, Schedule, XtsKeys, opaque};
use crate::xts::x86::registers::{registers, wide_registers};
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

/// Bytes in a unit.
const UNIT: usize = 512;
type Vector = __m512i;
/// A tweak in every 128 bits.
type Spread = __m512i;
/// A and B of the picture above.
type Powers = [__m512i; 2];
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m512i; 8];

/// Blocks in a register.
const LANES: u64 = 4;
/// Truth table of the XOR of three.
const XOR3: i32 = 0x96;

xts_ivs! { "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq", _mm512_aesenc_epi128 }

registers! {
    "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq", 64, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512,
    _mm512_aesenclast_epi128
}

wide_registers! {
    "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq", _mm512_set1_epi64, _mm512_setzero_si512, _mm512_broadcast_i32x4,
    _mm512_add_epi64, _mm512_shuffle_epi8, _mm512_srl_epi64, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_aesdec_epi128, _mm512_aesdeclast_epi128, [PRODUCTS], order([zero(); 2], [zero(); 2])
}

/// A module with a kernel that reduces tweaks by carry-less multiplications, or by shifts and additions.
macro_rules! reducing {
    ($(#[$doc:meta])* $module:ident, by_products: $products:literal) => {
        $(#[$doc])*
        pub(in crate::xts) mod $module {
            use super::*;

            xts_kernel! {
                /// The kernel of CPUs with VAES and AVX-512.
                Avx512Xts, Avx512, "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq", "aes-xts (vaes, avx512)", [9, 11, 13]
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
            fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
                keys: &Schedule,
                masks: &mut Masks,
                powers: &mut Powers,
                start: Option<&[u8; 16]>,
                data: &mut [u8; UNIT],
            ) {
                unit::<$products, ENCRYPT, MIDDLE>(keys, masks, powers, start, data);
            }
        }
    };
}

reducing! {
    /// For CPUs whose AES units also do carry-less multiplications: AMD's.
    shifts, by_products: false
}

reducing! {
    /// For those whose AES units also do shifts: Intel's.
    products, by_products: true
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn unit<const PRODUCTS: bool, const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: &mut Masks,
    powers: &mut Powers,
    start: Option<&[u8; 16]>,
    data: &mut [u8; UNIT],
) {
    let keys = opaque(keys);
    let state = enter(keys, *masks, data);
    let mut rounds = Rounds::<PRODUCTS, ENCRYPT, MIDDLE> { keys, state };
    // Straight-line code: a loop would not keep all of it in registers.
    let next = match start {
        Some(tweak) => rounds.with_first_powers(spread(tweak)),
        None => {
            rounds.go_on(0, *powers, *powers);
            rounds.with_times::<1, 4>(*powers, zero())
        }
    };
    let last = load(&keys.last);
    let [m2, m3] = rounds.with_times::<5, 1>(next, last);
    let [m4, m5] = rounds.with_times::<9, 2>(next, last);
    let [m6, m7] = rounds.with_times::<13, 3>(next, last);
    rounds.end(*masks, data);
    let [m0, m1] = each!([0 1] AT => xor(next[AT], last));
    *masks = [m0, m1, m2, m3, m4, m5, m6, m7];
    *powers = next;
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn enter(keys: &Schedule, masks: Masks, source: &[u8; UNIT]) -> [__m512i; 8] {
    let (source, _) = source.as_chunks();
    let first = load(&keys.first);
    each!([0 1 2 3 4 5 6 7] AT => xor3(masks[AT], load(&source[AT]), first))
}

/// Parts of other work in the rounds of a unit.
const WORKS: usize = 17;

impl<const PRODUCTS: bool, const ENCRYPT: bool, const MIDDLE: usize> Rounds<'_, PRODUCTS, ENCRYPT, MIDDLE> {
    /// A and B times x^(8 · `BYTES`), and XORed with `other`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
    fn with_times<const PART: usize, const BYTES: usize>(&mut self, powers: Powers, other: __m512i) -> Powers {
        let rotated = each!([0 1] AT => rotate_bytes::<BYTES>(powers[AT]));
        let lowest = load(&const { lowest(BYTES) });
        let over = each!([0 1] AT => _mm512_and_si512(rotated[AT], lowest));
        self.with_reduce::<PART>(rotated, [other; 2], over)
    }

    /// A and B of a sector's first unit.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
    fn with_first_powers(&mut self, tweak: Spread) -> Powers {
        let [(a, a_over), (b, b_over)] = [shifted(tweak, 0), shifted(tweak, 4)];
        let (shifted, over) = self.go_on(0, [a, b], [a_over, b_over]);
        // What leaves the low half enters the high one, and what leaves the high half the low one:
        // that is its product with the 1 of x^7 + x^2 + x + 1.
        let crossed = each!([0 1] AT => _mm512_shuffle_epi32::<0x4e>(over[AT]));
        let over = each!([0 1] AT => _mm512_bsrli_epi128::<8>(over[AT]));
        self.with_reduce::<1>(shifted, crossed, over)
    }

    /// `a ^ b ^ over · (x^7 + x^2 + x)`, twice.
    ///
    /// A carry-less multiplication runs where the AES rounds do on AMD's CPUs, a bit shift on Intel's: eight of these
    /// for each unit are 7 % of the time.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
    fn with_reduce<const PART: usize>(&mut self, a: [__m512i; 2], b: [__m512i; 2], over: [__m512i; 2]) -> [__m512i; 2] {
        let (a, over) = self.go_on(PART, a, over);
        if PRODUCTS {
            let factor = _mm512_set1_epi64(0x86);
            let over = each!([0 1] AT => _mm512_clmulepi64_epi128::<0x00>(over[AT], factor));
            let (a, over) = self.go_on(PART + 1, a, over);
            let reduced = each!([0 1] AT => xor3(a[AT], b[AT], over[AT]));
            let reduced = self.go_on(PART + 2, reduced, reduced).0;
            return self.go_on(PART + 3, reduced, reduced).0;
        }
        let by_x = each!([0 1] AT => _mm512_add_epi64(over[AT], over[AT]));
        let by_x7 = each!([0 1] AT => _mm512_slli_epi64::<7>(over[AT]));
        let (by_x, by_x7) = self.go_on(PART + 1, by_x, by_x7);
        let low = each!([0 1] AT => xor3(a[AT], by_x[AT], by_x7[AT]));
        let by_x2 = each!([0 1] AT => _mm512_add_epi64(by_x[AT], by_x[AT]));
        let (low, by_x2) = self.go_on(PART + 2, low, by_x2);
        let reduced = each!([0 1] AT => xor3(low[AT], b[AT], by_x2[AT]));
        self.go_on(PART + 3, reduced, reduced).0
    }

    /// Has the caller's values ready for this part of the work, and then does rounds up to the next part.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
    fn go_on(&mut self, part: usize, made: [__m512i; 2], and: [__m512i; 2]) -> ([__m512i; 2], [__m512i; 2]) {
        let made = self.order(made, and);
        self.pairs(part * Self::PAIRS, Self::PAIRS);
        made
    }

    /// The compiler leaves this where it is, and has everything ready before it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
    fn order(&mut self, made: [__m512i; 2], and: [__m512i; 2]) -> ([__m512i; 2], [__m512i; 2]) {
        if cfg!(miri) {
            return (made, and);
        }
        let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] = self.state;
        let ([mut m0, mut m1], [mut m2, mut m3]) = (made, and);
        // SAFETY: no instruction at all.
        unsafe {
            asm!(
                "/* {} {} {} {} {} {} {} {} {} {} {} {} */",
                inout(zmm_reg) s0, inout(zmm_reg) s1, inout(zmm_reg) s2, inout(zmm_reg) s3,
                inout(zmm_reg) s4, inout(zmm_reg) s5, inout(zmm_reg) s6, inout(zmm_reg) s7,
                inout(zmm_reg) m0, inout(zmm_reg) m1, inout(zmm_reg) m2, inout(zmm_reg) m3,
                options(nomem, nostack, preserves_flags)
            );
        }
        self.state = [s0, s1, s2, s3, s4, s5, s6, s7];
        ([m0, m1], [m2, m3])
    }
}

/// A step more for each block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn lanes(ivs: &IvSequence) -> Vector {
    // A step is a power of two.
    let log = _mm_cvtsi64_si128(i64::from(ivs.step.trailing_zeros()));
    _mm512_sll_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), log)
}

/// Masks, A and B of the unit that begins with `tweak`, each by itself: nothing else runs now, so
/// the carry-less multiplication is free, and all wait for this.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn first_masks(keys: &Schedule, tweak: Spread) -> (Masks, Powers) {
    let last = load(&keys.last);
    let swapped = _mm512_shuffle_epi32::<0x4e>(tweak);
    let a = power(tweak, swapped, 0);
    let b = power(tweak, swapped, 4);
    let masks = [
        xor(a, last),
        xor(b, last),
        xor(power(tweak, swapped, 8), last),
        xor(power(tweak, swapped, 12), last),
        xor(power(tweak, swapped, 16), last),
        xor(power(tweak, swapped, 20), last),
        xor(power(tweak, swapped, 24), last),
        xor(power(tweak, swapped, 28), last),
    ];
    (masks, [a, b])
}

/// Each block times x^`first`, x^(`first` + 1) and so on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn power(tweak: __m512i, swapped: __m512i, first: i64) -> __m512i {
    let power = powers_from(first);
    // What leaves a half enters the other one. For the low one that is its product with the 1 of
    // x^7 + x^2 + x + 1.
    let rotated = _mm512_shldv_epi64(tweak, swapped, power);
    let over = _mm512_srlv_epi64(tweak, _mm512_sub_epi64(_mm512_set1_epi64(64), power));
    let reduced = _mm512_clmulepi64_epi128::<0x01>(over, _mm512_set1_epi64(0x86));
    xor(rotated, reduced)
}

/// The halves of each block shifted left by `first`, `first` + 1 and so on, and what leaves them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn shifted(tweak: __m512i, first: i64) -> (__m512i, __m512i) {
    let power = powers_from(first);
    // 64 - 0 shifts everything out.
    let over = _mm512_srlv_epi64(tweak, _mm512_sub_epi64(_mm512_set1_epi64(64), power));
    (_mm512_sllv_epi64(tweak, power), over)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn powers_from(first: i64) -> __m512i {
    let lanes = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
    _mm512_add_epi64(_mm512_set1_epi64(first), lanes)
}

/// The lowest `bytes` bytes of every block.
const fn lowest(bytes: usize) -> [u8; 64] {
    let mut mask = [0; 64];
    let mut at = 0;
    while at < 64 {
        if at % 16 < bytes {
            mask[at] = 0xff;
        }
        at += 1;
    }
    mask
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<XOR3>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vaes,vpclmulqdq")]
fn rotate_bytes<const BYTES: usize>(tweak: __m512i) -> __m512i {
    match BYTES {
        1 => _mm512_alignr_epi8::<15>(tweak, tweak),
        2 => _mm512_alignr_epi8::<14>(tweak, tweak),
        3 => _mm512_alignr_epi8::<13>(tweak, tweak),
        _ => _mm512_alignr_epi8::<12>(tweak, tweak),
    }
}

#[cfg(test)]
#[path = "avx512_tests.rs"]
mod tests;
