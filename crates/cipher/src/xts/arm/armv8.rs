//! ARMv8's AES: units of 128 bytes, eight registers of one block.
//!
//! ```text
//!   T ──► T·x^0 .. T·x^7        bit shifts, once a sector
//!   each of these ──► times x^8  whole bytes: the next unit's
//! ```

use std::arch::aarch64::{
    uint8x16_t, vaesdq_u8, vaeseq_u8, vaesimcq_u8, vaesmcq_u8, vcombine_u8, vcreate_u8, vdup_n_p8, vdupq_n_u8,
    veorq_u8, vextq_u8, vget_low_u8, vld1q_u8, vmovn_u64, vmull_p8, vqtbl1q_u8, vreinterpret_p8_u8,
    vreinterpret_p8_u32, vreinterpretq_u8_p16, vreinterpretq_u8_u64, vreinterpretq_u64_u8, vshlq_n_u64, vshrq_n_u64,
    vst1q_u8,
};
use std::arch::asm;

use crate::cpu::detection::Armv8;
use crate::iv::IvSequence;
use crate::xts::driver::{Aligned, FIRST_SECTORS, REGISTERS, Tweaked, field_by_field, xts_ivs, xts_kernel};
use crate::xts::keys::{RoundKey, Schedule, XtsKeys, opaque};
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

/// Bytes in a unit.
const UNIT: usize = 128;
type Vector = uint8x16_t;
/// A tweak.
type Spread = uint8x16_t;
/// Excess of a mask over a tweak after its multiplication by x^8: with `m = t ^ k_last` it is
/// `m·x^8 = t·x^8 ^ k_last ^ excess`.
type Powers = uint8x16_t;
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [uint8x16_t; 8];

/// x^128 is x^7 + x^2 + x + 1, as bits.
const REDUCTION: u8 = 0x87;

use load as round_key;
use load as spread;

// AESE adds the round key first, so there is one round more before the last key: the loops have
// all between the first and the last two.
xts_ivs! { "neon,aes", aes_round }

xts_kernel! {
    /// The kernel of CPUs with ARMv8's AES.
    Armv8Xts, Armv8, "neon,aes", "aes-xts (armv8)", [8, 10, 12]
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: &mut Masks,
    excess: &mut Powers,
    start: Option<&[u8; 16]>,
    data: &mut [u8; UNIT],
) {
    let keys = opaque(keys);
    let last = load(&keys.last);
    let mut state = *masks;
    let (source, _) = data.as_chunks::<16>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = xor(*state, load(source));
    }
    round::<ENCRYPT>(&mut state, &keys.first);
    let middle = keys.middle_keys::<MIDDLE>();
    let mut next = *masks;
    // Straight-line code: a loop would not keep all of it in registers.
    match start {
        Some(tweak) => {
            let tweak = load(tweak);
            let swapped = vextq_u8::<8>(tweak, tweak);
            macro_rules! round_and_mask {
                ($($at:literal $rest:literal)*) => {$(
                    round::<ENCRYPT>(&mut state, &middle[$at]);
                    next[$at] = xor(power::<$at, $rest>(tweak, swapped), last);
                    fence(&mut state, &mut next[$at]);
                )*};
            }
            round_and_mask!(0 64 1 63 2 62 3 61 4 60 5 59 6 58 7 57);
        }
        None => {
            macro_rules! round_and_mask {
                ($($at:literal)*) => {$(
                    round::<ENCRYPT>(&mut state, &middle[$at]);
                    next[$at] = xor(times_x8(next[$at]), *excess);
                    fence(&mut state, &mut next[$at]);
                )*};
            }
            round_and_mask!(0 1 2 3 4 5 6 7);
        }
    }
    for key in &middle[8..] {
        round::<ENCRYPT>(&mut state, key);
    }
    let key = load(keys.last_middle_key());
    let (destination, _) = data.as_chunks_mut::<16>();
    for ((state, mask), destination) in state.into_iter().zip(*masks).zip(destination) {
        let out = if ENCRYPT { vaeseq_u8(state, key) } else { vaesdq_u8(state, key) };
        store(destination, xor(out, mask));
    }
    *masks = next;
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn round<const ENCRYPT: bool>(state: &mut [uint8x16_t; 8], key: &RoundKey) {
    let key = load(key);
    for state in state {
        *state = if ENCRYPT { aes_round(*state, key) } else { vaesimcq_u8(vaesdq_u8(*state, key)) };
    }
}

/// A round of encryption that is not the last.
#[inline]
#[target_feature(enable = "neon,aes")]
fn aes_round(state: uint8x16_t, key: uint8x16_t) -> uint8x16_t {
    vaesmcq_u8(vaeseq_u8(state, key))
}

/// Keeps the compiler from moving work between rounds: everything before is done before, and
/// what comes after waits. The AES units need work that depends on nothing near it at all times.
#[inline]
#[target_feature(enable = "neon,aes")]
fn fence(state: &mut [uint8x16_t; 8], made: &mut uint8x16_t) {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    // SAFETY: no instruction at all.
    unsafe {
        asm!(
            "/* {:v} {:v} {:v} {:v} {:v} {:v} {:v} {:v} {:v} */",
            inout(vreg) * s0,
            inout(vreg) * s1,
            inout(vreg) * s2,
            inout(vreg) * s3,
            inout(vreg) * s4,
            inout(vreg) * s5,
            inout(vreg) * s6,
            inout(vreg) * s7,
            inout(vreg) * made,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
}

/// The masks of the unit that begins with this tweak.
#[inline]
#[target_feature(enable = "neon,aes")]
fn first_masks(keys: &Schedule, tweak: Spread) -> (Masks, Powers) {
    let last = load(&keys.last);
    let swapped = vextq_u8::<8>(tweak, tweak);
    let powers = [
        tweak,
        power::<1, 63>(tweak, swapped),
        power::<2, 62>(tweak, swapped),
        power::<3, 61>(tweak, swapped),
        power::<4, 60>(tweak, swapped),
        power::<5, 59>(tweak, swapped),
        power::<6, 58>(tweak, swapped),
        power::<7, 57>(tweak, swapped),
    ];
    (powers.map(|power| xor(power, last)), xor(times_x8(last), last))
}

/// Times x^`LEFT`, at most 7. `swapped` is the tweak with its halves exchanged, and `RIGHT` is
/// 64 - `LEFT`.
#[inline]
#[target_feature(enable = "neon,aes")]
fn power<const LEFT: i32, const RIGHT: i32>(tweak: uint8x16_t, swapped: uint8x16_t) -> uint8x16_t {
    const { assert!(LEFT + RIGHT == 64 && LEFT < 8) };
    let shifted = vshlq_n_u64::<LEFT>(vreinterpretq_u64_u8(tweak));
    // What leaves the high half is reduced into the low one; what leaves the low one enters the
    // high one. Both fit a byte, which is multiplied by 0x87 in the one place and by 1 in the other.
    let over = vmovn_u64(vshrq_n_u64::<RIGHT>(vreinterpretq_u64_u8(swapped)));
    let factors = vreinterpret_p8_u8(vcreate_u8(1 << 32 | u64::from(REDUCTION)));
    let carried = vmull_p8(vreinterpret_p8_u32(over), factors);
    xor(vreinterpretq_u8_u64(shifted), vreinterpretq_u8_p16(carried))
}

/// Times x^8.
#[inline]
#[target_feature(enable = "neon,aes")]
fn times_x8(block: uint8x16_t) -> uint8x16_t {
    let zero = vdupq_n_u8(0);
    let over = vget_low_u8(vextq_u8::<15>(block, zero));
    let reduced = vmull_p8(vreinterpret_p8_u8(over), vdup_n_p8(REDUCTION));
    xor(vextq_u8::<15>(zero, block), vreinterpretq_u8_p16(reduced))
}

/// The tweak of the first sector alone.
#[inline]
#[target_feature(enable = "neon,aes")]
fn first_iv<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> Spread {
    let [first] = encrypt_ivs::<MIDDLE, 1>(keys, ivs);
    first
}

/// The tweaks of the next sectors, and the first one's.
#[inline]
#[target_feature(enable = "neon,aes")]
fn first_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> ([Vector; FIRST], Spread) {
    let state = encrypt_ivs::<MIDDLE, FIRST>(keys, ivs);
    (state, state[0])
}

/// The next IVs after their first round.
#[inline]
#[target_feature(enable = "neon,aes")]
fn whitened_ivs<const N: usize>(keys: &Schedule, ivs: &mut IvSequence) -> [Vector; N] {
    let places = load(ivs.layout.byte_places());
    let state = [(); N].map(|()| {
        let number = vcombine_u8(vcreate_u8(ivs.next >> ivs.shift), vcreate_u8(0));
        ivs.next = ivs.after(1);
        vqtbl1q_u8(number, places)
    });
    iv_round(state, &keys.first)
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn end_ivs<const N: usize>(keys: &Schedule, state: [Vector; N]) -> [Vector; N] {
    let (key, last) = (load(keys.last_middle_key()), load(&keys.last));
    state.map(|state| xor(vaeseq_u8(state, key), last))
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn load(source: &[u8; 16]) -> uint8x16_t {
    // SAFETY: `source` is 16 bytes to read; this load needs no alignment.
    unsafe { vld1q_u8(source.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn store(destination: &mut [u8; 16], value: uint8x16_t) {
    // SAFETY: `destination` is 16 bytes to write, borrowed by nobody else; this store needs no
    // alignment.
    unsafe { vst1q_u8(destination.as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn xor(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    veorq_u8(a, b)
}
