//! Serpent against the RustCrypto crate at every width, and its circuits against their tables.

use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use proptest::prelude::*;

use super::*;
use crate::XtsBackend;

/// Appendix A.5 of the proposal.
const TABLES: [[u32; 16]; 8] = [
    [3, 8, 15, 1, 10, 6, 5, 11, 14, 13, 4, 2, 7, 0, 9, 12],
    [15, 12, 2, 7, 9, 0, 5, 10, 1, 11, 14, 8, 6, 13, 3, 4],
    [8, 6, 7, 9, 3, 12, 10, 15, 13, 1, 14, 4, 0, 11, 5, 2],
    [0, 15, 11, 8, 12, 9, 6, 3, 13, 1, 2, 4, 10, 7, 5, 14],
    [1, 15, 8, 3, 12, 0, 11, 6, 2, 5, 4, 10, 9, 14, 7, 13],
    [15, 5, 2, 11, 4, 10, 9, 12, 0, 3, 14, 8, 13, 6, 7, 1],
    [7, 2, 12, 5, 8, 4, 6, 11, 14, 9, 1, 15, 13, 3, 10, 0],
    [1, 13, 15, 0, 14, 8, 2, 11, 7, 4, 12, 10, 9, 3, 5, 6],
];

/// Results of `sbox` for each value, all of them computed side by side in one word.
fn values(sbox: fn([u32; 4]) -> [u32; 4]) -> Vec<u32> {
    let inputs = [0, 1, 2, 3].map(|bit| (0..16).fold(0, |word, at| word | (at >> bit & 1) << at));
    let outputs = sbox(inputs);
    let bit = |at: u32, bit: usize| (outputs[bit] >> at & 1) << bit;
    (0..16).map(|at| (0..4).map(|of| bit(at, of)).sum()).collect()
}

#[test]
fn circuits_are_the_tables_and_their_inverses() {
    let boxes = [boxes::s0, boxes::s1, boxes::s2, boxes::s3, boxes::s4, boxes::s5, boxes::s6, boxes::s7];
    let inverses = [
        super::boxes::i0,
        super::boxes::i1,
        super::boxes::i2,
        super::boxes::i3,
        super::boxes::i4,
        super::boxes::i5,
        super::boxes::i6,
        super::boxes::i7,
    ];
    for (number, table) in TABLES.iter().enumerate() {
        assert_eq!(values(boxes[number]), table, "S{number}");
        let back = values(inverses[number]);
        let there_and_back: Vec<_> = table.iter().map(|&value| back[value as usize]).collect();
        assert_eq!(there_and_back, (0..16).collect::<Vec<_>>(), "inverse of S{number}");
    }
}

#[test]
fn a_key_of_another_size_is_refused() {
    for size in [0, 15, 33] {
        assert!(Serpent::new(&vec![1; size], ProvenWidth::Portable).is_none(), "{size}");
    }
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn blocks_are_those_of_the_crate_at_every_width(
        key in prop::collection::vec(any::<u8>(), 16..=32),
        text in prop::collection::vec(any::<[u8; 16]>(), 0..100),
    ) {
        let theirs = serpent::Serpent::new_from_slice(&key).expect("a key of this size");
        let clear: Vec<Block> = text.into_iter().map(Block::from).collect();
        let (mut encrypted, mut decrypted) = (clear.clone(), clear.clone());
        encrypted.iter_mut().for_each(|block| theirs.encrypt_block(block));
        decrypted.iter_mut().for_each(|block| theirs.decrypt_block(block));
        for backend in XtsBackend::available() {
            let ours = Serpent::new(&key, ProvenWidth::of(backend)).expect("a key of this size");
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
