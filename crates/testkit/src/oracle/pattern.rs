//! Plaintext that both sides can make: reproducible, and different in every eight bytes.
//!
//! Word `n` (eight bytes, little endian) is output `n` of SplitMix64 started with `seed`
//! (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). Any part can be
//! made without what comes before it. Golden files name the pattern by its seed.

/// SplitMix64's increment.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The first `length` bytes of the pattern called `seed`.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(seed, 0, &mut bytes);
    bytes
}

/// Fills `buffer` with the pattern from byte `offset` on.
pub fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    for (position, byte) in (offset..).zip(buffer) {
        let lane = usize::try_from(position % 8).unwrap_or_default();
        *byte = word(seed, position / 8).to_le_bytes()[lane];
    }
}

fn word(seed: u64, index: u64) -> u64 {
    let state = seed.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1)));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_splitmix64() {
        // The reference implementation's first outputs for seed 1234567.
        assert_eq!(word(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(word(1_234_567, 1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_part_equals_that_part_of_the_whole() {
        let whole = bytes(3, 100);
        let mut part = [0; 33];
        fill(3, 13, &mut part);
        assert_eq!(part, whole[13..46]);
        assert_ne!(bytes(4, 100), whole);
    }
}
