//! Twofish against the RustCrypto crate and the designers' test vectors.

use aes::Block;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use proptest::prelude::*;

use super::*;

fn blocks(bytes: &[u8]) -> Vec<Block> {
    bytes.as_chunks().0.iter().map(|&block| block.into()).collect()
}

#[test]
fn a_key_of_another_size_is_refused() {
    for size in [0, 8, 15, 17, 31, 33, 40] {
        assert!(Twofish::new(&vec![1; size]).is_none(), "{size}");
    }
}

/// The vectors of `ecb_ival.txt`: the key's first bytes, over zeros.
#[test]
fn the_designers_vectors_hold_for_each_key_size() {
    let key = crate::unhex("0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff");
    for (len, text, expected) in [
        (16, "00000000000000000000000000000000", None),
        (24, "00000000000000000000000000000000", Some("cfd1d2e5a9be9cdf501f13b892bd2248")),
        (32, "00000000000000000000000000000000", Some("37527be0052334b89f0cfccae87cfa20")),
    ] {
        let key = if expected.is_none() { vec![0; len] } else { key[..len].to_vec() };
        let expected = crate::unhex(expected.unwrap_or("9f589f5cf6122c32b6bfec2f2ae8c35a"));
        let twofish = Twofish::new(&key).expect("a key of this size");
        let clear = blocks(&crate::unhex(text));
        let mut data = clear.clone();
        twofish.encrypt(&mut data);
        assert_eq!(data, blocks(&expected), "{len}");
        twofish.decrypt(&mut data);
        assert_eq!(data, clear, "{len}");
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn blocks_are_those_of_the_crate(
        key in prop::collection::vec(any::<u8>(), 32),
        size in prop::sample::select(vec![16_usize, 24, 32]),
        text in prop::collection::vec(any::<[u8; 16]>(), 0..9),
    ) {
        let ours = Twofish::new(&key[..size]).expect("a key of this size");
        let theirs = twofish::Twofish::new_from_slice(&key[..size]).expect("the same");
        let clear = blocks(text.as_flattened());
        let (mut data, mut expected) = (clear.clone(), clear.clone());
        ours.encrypt(&mut data);
        expected.iter_mut().for_each(|block| theirs.encrypt_block(block));
        prop_assert_eq!(&data, &expected);
        ours.decrypt(&mut data);
        prop_assert_eq!(&data, &clear);
        ours.decrypt(&mut data);
        expected.clone_from(&clear);
        expected.iter_mut().for_each(|block| theirs.decrypt_block(block));
        prop_assert_eq!(&data, &expected);
    }
}
