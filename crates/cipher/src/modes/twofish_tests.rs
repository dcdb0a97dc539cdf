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
        assert!(Twofish::new(&vec![1; size], XtsBackend::Portable).is_none(), "{size}");
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
        for (backend, count) in XtsBackend::available().into_iter().flat_map(|backend| [(backend, 1), (backend, 40)]) {
            let twofish = Twofish::new(&key, backend).expect("a key of this size");
            let clear = blocks(&crate::unhex(text)).repeat(count);
            let mut data = clear.clone();
            twofish.encrypt(&mut data);
            assert_eq!(data, blocks(&expected).repeat(count), "{len}, {backend}");
            twofish.decrypt(&mut data);
            assert_eq!(data, clear, "{len}, {backend}");
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn blocks_are_those_of_the_crate_on_every_back_end(
        key in prop::collection::vec(any::<u8>(), 32),
        size in prop::sample::select(vec![16_usize, 24, 32]),
        text in prop::collection::vec(any::<[u8; 16]>(), 0..100),
    ) {
        let theirs = twofish::Twofish::new_from_slice(&key[..size]).expect("a key of this size");
        let clear = blocks(text.as_flattened());
        let (mut encrypted, mut decrypted) = (clear.clone(), clear.clone());
        encrypted.iter_mut().for_each(|block| theirs.encrypt_block(block));
        decrypted.iter_mut().for_each(|block| theirs.decrypt_block(block));
        for backend in XtsBackend::available() {
            let ours = Twofish::new(&key[..size], backend).expect("the same");
            let mut data = clear.clone();
            ours.encrypt(&mut data);
            prop_assert_eq!(&data, &encrypted, "{} encrypts", backend);
            ours.decrypt(&mut data);
            prop_assert_eq!(&data, &clear, "{} there and back", backend);
            ours.decrypt(&mut data);
            prop_assert_eq!(&data, &decrypted, "{} decrypts", backend);
        }
    }
}
