//! Key schedules compared with the examples of FIPS 197, and wiped.

use super::*;
use crate::unhex;

/// Of each block in a round key.
const COPIES: usize = ROUND_KEY_BYTES / 16;

/// Key, round keys 1 and 2, and the last one: FIPS 197, appendices A.1 to A.3.
const EXAMPLES: [[&str; 4]; 3] = [
    [
        "2b7e151628aed2a6abf7158809cf4f3c",
        "a0fafe1788542cb123a339392a6c7605",
        "f2c295f27a96b9435935807a7359f67f",
        "d014f9a8c9ee2589e13f0cc8b6630ca6",
    ],
    [
        "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
        "62f8ead2522c6b7bfe0c91f72402f5a5",
        "ec12068e6c827f6b0e7a95b95c56fec2",
        "e98ba06f448c773c8ecc720401002202",
    ],
    [
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "1f352c073b6108d72d9810a30914dff4",
        "9ba354118e6925afa51a8b5f2067fcde",
        "fe4890d1e6188d0b046df344706c631e",
    ],
];

#[test]
fn schedules_are_those_of_fips_197() {
    let Some(cpu) = AesCpu::detect() else {
        return crate::skip("the CPU has no AES instructions");
    };
    for [key, first, second, last] in EXAMPLES.map(|example| example.map(unhex)) {
        let mut schedule = Schedule::EMPTY;
        schedule.expand(cpu, &key);
        assert_eq!(schedule.first[..], key[..16].repeat(COPIES));
        let middle = schedule.middle();
        assert_eq!(middle.len(), key.len() / 4 + 5);
        assert_eq!(middle[0][..], first.repeat(COPIES));
        assert_eq!(middle[1][..], second.repeat(COPIES));
        assert_eq!(schedule.last[..], last.repeat(COPIES));
    }
}

#[test]
fn the_last_key_is_in_the_first_one_for_data_but_not_for_ivs() {
    let Some(cpu) = AesCpu::detect() else {
        return crate::skip("the CPU has no AES instructions");
    };
    let half = unhex(EXAMPLES[0][0]);
    let keys = XtsKeys::new(cpu, &[&half[..], &half].concat());
    let folded: Vec<u8> =
        std::iter::zip(half.repeat(COPIES), keys.tweak.last).map(|(first, last)| first ^ last).collect();
    let half = half.repeat(COPIES);
    assert_eq!(keys.tweak.first[..], half);
    assert_eq!(keys.encrypt.first[..], folded);
    assert_eq!(keys.decrypt.first[..], folded);
    assert_eq!(keys.decrypt.last[..], half);
}

#[test]
fn wiping_leaves_no_byte_of_a_key() {
    let Some(cpu) = AesCpu::detect() else {
        return crate::skip("the CPU has no AES instructions");
    };
    let mut keys = XtsKeys::new(cpu, &[0xa5; 64]);
    keys.zeroize();
    for schedule in [&keys.encrypt, &keys.decrypt, &keys.tweak] {
        assert_eq!(schedule.first, [0; ROUND_KEY_BYTES]);
        assert_eq!(schedule.last, [0; ROUND_KEY_BYTES]);
        assert_eq!(schedule.middle, [[0; ROUND_KEY_BYTES]; ROUND_KEYS_MAX - 2]);
    }
    assert!(keys.encrypt.rounds == 0 && std::mem::needs_drop::<XtsKeys>());
}
