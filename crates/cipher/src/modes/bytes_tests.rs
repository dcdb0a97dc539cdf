//! Camellia and SM4 against the RustCrypto crates: word by word, and at every width of GFNI.

use proptest::prelude::*;

use super::*;
use crate::XtsBackend;
use crate::modes::blocks::ServedCipher;
use crate::modes::lanes::groups;
use crate::modes::{camellia, sm4};

/// Word by word, what runs as vectors elsewhere.
fn word_by_word<K: CipherRounds<u32, More = ()>>(keys: &K, encrypt: bool, blocks: &mut [Block]) {
    let blocks = Block::cast_slice_to_core_mut(blocks);
    if encrypt {
        groups::<u32, K, true>((), (), keys, blocks);
    } else {
        groups::<u32, K, false>((), (), keys, blocks);
    }
}

/// `cipher` with `key`, as `own` has it word by word and as each back end has it, does what the crate does.
fn agree(
    cipher: ServedCipher,
    key: &[u8],
    own: impl Fn(bool, &mut [Block]),
    clear: &[Block],
) -> Result<(), TestCaseError> {
    let of = |backend| cipher.cipher(key, backend).expect("a key of this size");
    let theirs = of(XtsBackend::Portable);
    let (mut encrypted, mut decrypted) = (clear.to_vec(), clear.to_vec());
    theirs.encrypt(&mut encrypted);
    theirs.decrypt(&mut decrypted);
    for (way, expected) in [(true, &encrypted), (false, &decrypted)] {
        let mut data = clear.to_vec();
        own(way, &mut data);
        prop_assert!(&data == expected, "word by word, encrypts: {way}");
        for backend in XtsBackend::available() {
            let mut data = clear.to_vec();
            let ours = of(backend);
            if way {
                ours.encrypt(&mut data);
            } else {
                ours.decrypt(&mut data);
            }
            prop_assert!(&data == expected, "{backend}, encrypts: {way}");
        }
    }
    Ok(())
}

fn text() -> impl Strategy<Value = Vec<Block>> {
    prop::collection::vec(any::<[u8; 16]>().prop_map(Block::from), 0..100)
}

proptest! {
    #![proptest_config(crate::cases(100))]

    #[test]
    fn camellia_is_that_of_the_crate_at_every_width(
        key in prop::collection::vec(any::<u8>(), 32),
        size in prop::sample::select(vec![16_usize, 24, 32]),
        clear in text(),
    ) {
        let keys = camellia::CamelliaKeys::new(&key[..size]).expect("a key of this size");
        let own = |way, data: &mut [Block]| word_by_word(&*keys, way, data);
        agree(ServedCipher::Camellia, &key[..size], own, &clear)?;
    }

    #[test]
    fn sm4_is_that_of_the_crate_at_every_width(
        key in prop::collection::vec(any::<u8>(), 16),
        clear in text(),
    ) {
        let keys = sm4::Sm4Keys::new(&key).expect("a key of this size");
        let own = |way, data: &mut [Block]| word_by_word(&*keys, way, data);
        agree(ServedCipher::Sm4, &key, own, &clear)?;
    }
}

#[test]
fn a_key_of_another_size_is_refused() {
    for size in [0, 15, 17, 31, 33] {
        assert!(camellia::CamelliaKeys::new(&vec![1; size]).is_none(), "{size}");
        assert!(sm4::Sm4Keys::new(&vec![1; size]).is_none(), "{size}");
    }
}

#[test]
fn every_byte_times_its_inverse_is_one() {
    for byte in 1..=255 {
        assert_eq!(times(byte, inverse(byte)), 1);
    }
    assert_eq!(inverse(0), 0);
}
