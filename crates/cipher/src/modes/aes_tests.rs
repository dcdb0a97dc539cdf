//! AES at every width against the RustCrypto crate, one block at a time.

use proptest::prelude::*;

use super::*;
use crate::modes::blocks::ServedCipher;
use crate::modes::xor;

/// CBC as it is defined, by another implementation.
fn chained(theirs: &dyn BlockCipher, ivs: &[Block], clear: &[Block]) -> Vec<Block> {
    let mut data = clear.to_vec();
    for (iv, sector) in ivs.iter().zip(data.chunks_mut(clear.len() / ivs.len())) {
        let mut before = *iv;
        for block in sector {
            xor(block, &before);
            theirs.encrypt(std::slice::from_mut(block));
            before = *block;
        }
    }
    data
}

fn theirs(key: &[u8]) -> Box<dyn BlockCipher> {
    let theirs = ServedCipher::Aes.cipher(key, XtsBackend::Portable);
    theirs.expect("a key of this size")
}

fn widths(key: &[u8]) -> Vec<(XtsBackend, Box<dyn BlockCipher>)> {
    let all = XtsBackend::available().into_iter();
    all.filter_map(|backend| Some((backend, new(key, backend)?))).collect()
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![16_usize, 24, 32]).prop_flat_map(|size| prop::collection::vec(any::<u8>(), size))
}

/// So many blocks, no two alike.
fn text(seed: u128, blocks: usize) -> Vec<Block> {
    let numbers = (0..).map(|at: u128| (at + 1).wrapping_mul(seed | 1).to_le_bytes());
    numbers.take(blocks).map(Block::from).collect()
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn blocks_are_those_of_the_crate_at_every_width(
        key in keys(),
        seed in any::<u128>(),
        count in 0..100_usize,
    ) {
        let clear = text(seed, count);
        let theirs = theirs(&key);
        let (mut encrypted, mut decrypted) = (clear.clone(), clear.clone());
        encrypted.chunks_mut(1).for_each(|block| theirs.encrypt(block));
        decrypted.chunks_mut(1).for_each(|block| theirs.decrypt(block));
        for (backend, ours) in widths(&key) {
            let mut data = clear.clone();
            ours.encrypt(&mut data);
            prop_assert_eq!(&data, &encrypted, "{} encrypts", backend);
            data.clone_from(&clear);
            ours.decrypt(&mut data);
            prop_assert_eq!(&data, &decrypted, "{} decrypts", backend);
        }
    }

    /// In sectors of lengths that dm-crypt has, and of all others.
    #[test]
    fn cbc_is_that_of_one_block_after_another_at_every_width(
        key in keys(),
        seed in any::<u128>(),
        sectors in 1..70_usize,
        sector_blocks in prop_oneof![Just(32_usize), Just(64), 1..70_usize],
    ) {
        let (ivs, clear) = (text(!seed, sectors), text(seed, sectors * sector_blocks));
        let expected = chained(&*theirs(&key), &ivs, &clear);
        for (backend, ours) in widths(&key) {
            let mut data = clear.clone();
            ours.encrypt_chained(&mut ivs.clone(), &mut data);
            prop_assert!(data == expected, "{} encrypts", backend);
            ours.decrypt_chained(&ivs, &mut data);
            prop_assert!(data == clear, "{} decrypts", backend);
        }
    }
}

/// For Miri, which takes an hour for what is above.
#[test]
fn small_requests_in_cbc_go_there_and_back() {
    let clear = text(7, 3 * 32);
    let ivs = text(9, 3);
    let expected = chained(&*theirs(&[1; 16]), &ivs, &clear);
    for (backend, ours) in widths(&[1; 16]) {
        let mut data = clear.clone();
        ours.encrypt_chained(&mut ivs.clone(), &mut data);
        assert!(data == expected, "{backend} encrypts");
        ours.decrypt_chained(&ivs, &mut data);
        assert!(data == clear, "{backend} decrypts");
    }
}

#[test]
fn every_back_end_of_x86_has_a_width_and_its_name() {
    for backend in XtsBackend::available() {
        assert_eq!(new(&[1; 32], backend).is_some(), name(backend).is_some());
    }
}

#[test]
fn a_key_of_another_size_is_refused() {
    for size in [0, 15, 17, 33] {
        assert!(widths(&vec![1; size]).is_empty(), "{size}");
    }
}
