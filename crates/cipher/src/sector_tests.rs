//! Sector ciphers compared with one block at a time, the vectors of IEEE 1619 and the kernel's errors.

use aes::{Aes128, Aes192, Aes256, Block};
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16};
use proptest::prelude::*;
use xts_mode::Xts128;

use super::*;
use crate::unhex;

#[path = "sector_tests/vectors.rs"]
mod vectors;

#[path = "backend_tests.rs"]
mod backends;

#[path = "small_tests.rs"]
mod small;

const PLAIN: SectorOptions = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };

fn cipher(word: &str, key: &[u8], options: SectorOptions) -> Result<SectorCipher, CipherError> {
    SectorCipher::new(&CipherSpec::parse(word).expect("a valid cipher word"), key, options)
}

fn error(word: &str, key: &[u8], options: SectorOptions) -> String {
    cipher(word, key, options).err().expect("refused").to_string()
}

/// A second implementation: one block at a time, from another crate.
fn oracle(key: &[u8], tweak: [u8; 16], sector: &mut [u8], encrypt: bool) {
    fn with<C>(key: &[u8], tweak: [u8; 16], sector: &mut [u8], encrypt: bool)
    where
        C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit,
    {
        let (data, tweak_key) = key.split_at(key.len() / 2);
        let expand = |half| C::new_from_slice(half).unwrap();
        let xts = Xts128::<C>::new(expand(data), expand(tweak_key));
        if encrypt {
            xts.encrypt_sector(sector, Block::from(tweak))
        } else {
            xts.decrypt_sector(sector, Block::from(tweak))
        }
    }
    match key.len() {
        32 => with::<Aes128>(key, tweak, sector, encrypt),
        48 => with::<Aes192>(key, tweak, sector, encrypt),
        _ => with::<Aes256>(key, tweak, sector, encrypt),
    }
}

/// The IV of the cipher sector at `sector`, written out from the definition.
fn oracle_iv(mode: &str, sector: u64, options: SectorOptions) -> [u8; 16] {
    let mut number = sector.wrapping_add(options.iv_offset);
    if options.iv_large_sectors {
        number /= u64::from(options.sector_size / 512);
    }
    let mut iv = [0; 16];
    match mode {
        "plain" => iv[..4].copy_from_slice(&number.to_le_bytes()[..4]),
        "plain64" => iv[..8].copy_from_slice(&number.to_le_bytes()),
        "plain64be" => iv[8..].copy_from_slice(&number.to_be_bytes()),
        _ => {}
    }
    iv
}

#[derive(Debug, Clone)]
struct Case {
    mode: &'static str,
    key: Vec<u8>,
    options: SectorOptions,
    sector: u64,
    data: Vec<u8>,
}

fn cases() -> impl Strategy<Value = Case> {
    let keys =
        prop_oneof![Just(32_usize), Just(48), Just(64)].prop_flat_map(|len| prop::collection::vec(any::<u8>(), len));
    let modes = prop::sample::select(vec!["plain", "plain64", "plain64be", "null"]);
    // Near both ends of the number range and of its low half, where carries and wraps live.
    let number = || {
        prop_oneof![
            any::<u64>(),
            (0..3000_u64).prop_map(|n| n.wrapping_sub(1500)),
            (0..3000_u64).prop_map(|n| (1 << 32) - 1500 + n),
        ]
    };
    let options = (0..4_u32, number(), any::<bool>()).prop_map(|(log, offset, large)| {
        let sector_size = 512 << log;
        SectorOptions { sector_size, iv_offset: offset >> log << log, iv_large_sectors: large }
    });
    let sizes = prop_oneof![4 => 1..10_usize, 1 => 60..150_usize];
    (modes, keys, options, number(), sizes, any::<u8>()).prop_map(|(mode, key, options, sector, count, seed)| {
        let log = options.sector_size.trailing_zeros() - 9;
        let size = usize::try_from(options.sector_size).unwrap();
        let mut state = u32::from(seed) + 1;
        let data = (0..count * size).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        Case { mode, key, options, sector: sector >> log << log, data: data.collect() }
    })
}

fn expected(case: &Case, encrypt: bool) -> Vec<u8> {
    let mut out = case.data.clone();
    let step = u64::from(case.options.sector_size / 512);
    let size = usize::try_from(case.options.sector_size).unwrap();
    let mut sector = case.sector;
    for data in out.chunks_exact_mut(size) {
        oracle(&case.key, oracle_iv(case.mode, sector, case.options), data, encrypt);
        sector = sector.wrapping_add(step);
    }
    out
}

proptest! {
    #![proptest_config(crate::cases(400))]

    #[test]
    fn every_request_is_what_one_block_at_a_time_gives(case in cases()) {
        let cipher = cipher(&format!("aes-xts-{}", case.mode), &case.key, case.options).unwrap();
        let (encrypted, decrypted) = (expected(&case, true), expected(&case, false));

        let mut data = case.data.clone();
        cipher.encrypt_in_place(case.sector, &mut data);
        prop_assert!(data == encrypted, "encrypt_in_place");
        cipher.decrypt_in_place(case.sector, &mut data);
        prop_assert!(data == case.data, "there and back");
        cipher.decrypt_in_place(case.sector, &mut data);
        prop_assert!(data == decrypted, "decrypt_in_place");
    }

    #[test]
    fn a_request_in_pieces_gives_the_same_bytes(case in cases(), at in any::<prop::sample::Index>()) {
        let cipher = cipher(&format!("aes-xts-{}", case.mode), &case.key, case.options).unwrap();
        let size = usize::try_from(case.options.sector_size).unwrap();
        let count = at.index(case.data.len() / size + 1);
        let mut whole = case.data.clone();
        cipher.encrypt_in_place(case.sector, &mut whole);

        let mut pieces = case.data.clone();
        let (head, tail) = pieces.split_at_mut(count * size);
        cipher.encrypt_in_place(case.sector, head);
        let sectors = u64::try_from(count * size / 512).unwrap();
        cipher.encrypt_in_place(case.sector.wrapping_add(sectors), tail);
        prop_assert!(whole == pieces);
    }
}

#[test]
fn ieee_1619_vectors_come_out_in_both_directions() {
    for vector in vectors::VECTORS {
        let key = unhex(vector.key);
        let (plain, encrypted) = (unhex(vector.plain), unhex(vector.cipher));
        let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
        for backend in XtsBackend::available() {
            let name = format!("{} on {backend}", vector.name);
            let cipher = SectorCipher::with_backend(&spec, &key, PLAIN, backend).unwrap();
            // Some vectors have a data unit of two blocks: the start of a sector, since no block
            // depends on another one.
            let len = plain.len();
            let mut data = vec![0; 512];
            data[..len].copy_from_slice(&plain);
            cipher.encrypt_in_place(vector.sector, &mut data);
            assert_eq!(data[..len], encrypted, "{name}");
            cipher.decrypt_in_place(vector.sector, &mut data);
            assert_eq!(data[..len], plain, "{name}");
            assert!(data[len..].iter().all(|&byte| byte == 0), "{name}");
        }
    }
}

#[test]
fn large_sectors_step_the_iv_by_their_512_byte_sectors_unless_iv_large_sectors() {
    let key: Vec<u8> = (0..64).collect();
    let first_of_each = |options: SectorOptions| {
        let cipher = cipher("aes-xts-plain64", &key, options).unwrap();
        let mut data = vec![0; 8192];
        cipher.encrypt_in_place(16, &mut data);
        [data[..512].to_vec(), data[4096..4608].to_vec()]
    };
    let sector_of = |number: u64| {
        let mut data = vec![0; 512];
        cipher("aes-xts-plain64", &key, PLAIN).unwrap().encrypt_in_place(number, &mut data);
        data
    };
    let options = SectorOptions { sector_size: 4096, iv_offset: 8, iv_large_sectors: false };
    assert_eq!(first_of_each(options), [sector_of(24), sector_of(32)]);
    let options = SectorOptions { iv_large_sectors: true, ..options };
    assert_eq!(first_of_each(options), [sector_of(3), sector_of(4)]);
}

#[test]
fn the_sector_number_wraps_before_it_is_divided() {
    let key = [7; 32];
    let options = SectorOptions { sector_size: 4096, iv_offset: u64::MAX - 7, iv_large_sectors: true };
    let mut data = vec![0; 8192];
    cipher("aes-xts-plain64", &key, options).unwrap().encrypt_in_place(0, &mut data);
    let options = SectorOptions { iv_offset: 0, ..options };
    let mut second = vec![0; 4096];
    cipher("aes-xts-plain64", &key, options).unwrap().encrypt_in_place(0, &mut second);
    assert_eq!(data[4096..], second);
}

#[test]
fn the_capi_form_names_the_same_cipher() {
    let key: Vec<u8> = (0..32).collect();
    let mut data = [vec![1; 1024], vec![1; 1024]];
    for (word, data) in ["aes-xts-plain64", "capi:xts(aes)-plain64"].iter().zip(&mut data) {
        cipher(word, &key, PLAIN).unwrap().encrypt_in_place(5, data);
    }
    assert_eq!(data[0], data[1]);
}

#[test]
fn the_null_cipher_changes_nothing() {
    let cipher = cipher("cipher_null-ecb", &[], PLAIN).unwrap();
    let clear: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let mut data = clear.clone();
    cipher.encrypt_in_place(3, &mut data);
    assert_eq!(data, clear);
    cipher.decrypt_in_place(3, &mut data);
    assert_eq!(data, clear);
    cipher.encrypt_range_in_place(7, &mut data[..3]);
    cipher.decrypt_range_in_place(509, &mut data[..900]);
    assert_eq!(data, clear);
    assert!(cipher.is_null());
    assert_eq!((cipher.backend_name(), cipher.granularity()), ("null", 1));
}

#[test]
fn an_empty_request_is_nothing() {
    cipher("aes-xts-plain64", &[1; 32], PLAIN).unwrap().encrypt_in_place(0, &mut []);
}

#[test]
fn keys_of_other_sizes_are_refused_with_the_kernels_words() {
    for len in [0, 1, 16, 31, 33, 40, 63, 65, 128] {
        let message = error("aes-xts-plain64", &vec![1; len], PLAIN);
        assert!(message.starts_with("Error decoding and setting key"), "{len}: {message}");
    }
    let message = error("cipher_null-ecb", &[1], PLAIN);
    assert!(message.starts_with("Error decoding and setting key"), "{message}");
}

#[test]
fn impossible_sector_sizes_and_iv_offsets_are_refused() {
    for sector_size in [0, 1, 256, 511, 513, 1536, 8192, u32::MAX] {
        let message = error("aes-xts-plain64", &[1; 32], SectorOptions { sector_size, ..PLAIN });
        assert!(message.starts_with("Invalid feature value for sector_size"), "{message}");
    }
    let options = SectorOptions { sector_size: 4096, iv_offset: 4, iv_large_sectors: false };
    let message = error("aes-xts-plain64", &[1; 32], options);
    assert!(message.starts_with("Invalid iv_offset sector"), "{message}");
}

#[test]
fn other_ciphers_are_not_supported_yet_by_name() {
    let message = error("anubis-cbc-plain64", &[1; 32], PLAIN);
    assert_eq!(message, "not supported yet: cipher anubis-cbc-plain64");
}

#[test]
#[should_panic(expected = "not whole cipher sectors")]
fn a_part_of_a_cipher_sector_is_the_callers_error() {
    let options = SectorOptions { sector_size: 4096, ..PLAIN };
    cipher("aes-xts-plain64", &[1; 32], options).unwrap().encrypt_in_place(0, &mut [0; 512]);
}

#[test]
#[should_panic(expected = "inside a cipher sector")]
fn a_start_inside_a_cipher_sector_is_the_callers_error() {
    let options = SectorOptions { sector_size: 4096, ..PLAIN };
    cipher("aes-xts-plain64", &[1; 32], options).unwrap().encrypt_in_place(1, &mut [0; 4096]);
}

#[test]
fn a_cipher_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<SectorCipher>();
}
