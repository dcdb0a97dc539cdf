//! Every mode on every cipher it takes: both directions, and what is refused.

use super::*;
use crate::iv::IvLayout;
use crate::{SectorCipher, SectorOptions, unhex};
use proptest::prelude::*;

const CIPHERS: &[&str] = &["aes", "serpent", "twofish", "camellia", "cast6", "sm4"];
const MODES: &[&str] = &[
    "cbc-plain",
    "cbc-plain64",
    "cbc-plain64be",
    "cbc-null",
    "cbc-benbi",
    "cbc-eboiv",
    "ctr-plain64",
    "ctr-benbi",
    "ecb",
    "lrw-benbi",
    "lrw-plain64",
    "xts-plain64",
    "xts-eboiv",
    "xts-spdk",
    "cbc-tcw",
];
const OF_FEW: &[&str] = &[
    "aes-cbc-essiv:sha256",
    "aes-cbc-essiv:wp256",
    "capi:essiv(cbc(aes),sha256)-plain64",
    "aes-xts-essiv:md5",
    "aes-xts-benbi",
    "aes-cbc-elephant",
    "aes:64-cbc-lmk",
    "aes:2-cbc-plain64",
    "aes:4-xts-plain64",
    "aes:2-cbc-tcw",
    "aes:2-lrw-benbi",
    "serpent-cbc-essiv:sha1",
    "cast6-cbc-essiv:sha224",
    "sm4-cbc-essiv:md5",
    "xchacha12,aes-adiantum-plain64",
    "xchacha20,aes-adiantum-plain64",
    "xchacha12,aes-adiantum-plain64be",
    "xchacha20,aes-adiantum-benbi",
    "capi:adiantum(xchacha20,aes)-plain",
    "xchacha12,aes:2-adiantum-plain64",
];

fn combinations() -> Vec<String> {
    let of_all = CIPHERS.iter();
    let of_all = of_all.flat_map(|cipher| MODES.iter().map(move |mode| format!("{cipher}-{mode}")));
    of_all.chain(OF_FEW.iter().map(|word| (*word).to_owned())).collect()
}

fn sizes(spec: &CipherSpec) -> Vec<usize> {
    let sizes = KeySizes::of(spec).expect("a cipher of ours");
    (0..=4096).filter(|&size| sizes.contains(size)).collect()
}

fn cipher(word: &str, sector_size: u32, key_at: usize) -> SectorCipher {
    let spec = CipherSpec::parse(word).expect(word);
    let sizes = sizes(&spec);
    let key: Vec<u8> = (0..=255).cycle().take(sizes[key_at % sizes.len()]).collect();
    let small = matches!(spec.iv_mode(), IvMode::Lmk | IvMode::Tcw);
    let options = SectorOptions {
        sector_size: if small { 512 } else { sector_size },
        iv_offset: 1 << 20,
        iv_large_sectors: false,
    };
    SectorCipher::new(&spec, &key, options).unwrap_or_else(|error| panic!("{word}: {error}"))
}

fn text(len: usize) -> Vec<u8> {
    (0..251).cycle().take(len).collect()
}

/// More than a batch, and not a multiple of one.
#[test]
fn every_mode_goes_there_and_back() {
    let clear = text(75 * 1024);
    for word in combinations() {
        for sector_size in [512, 1024] {
            let cipher = cipher(&word, sector_size, 0);
            let mut data = clear.clone();
            cipher.encrypt_in_place(8, &mut data);
            assert!(data != clear, "{word}");
            cipher.decrypt_in_place(8, &mut data);
            assert!(data == clear, "{word}");
        }
    }
}

#[test]
fn a_sector_alone_is_the_same_as_within_a_request() {
    let clear = text(70 * 4096);
    for word in combinations() {
        let cipher = cipher(&word, 4096, 1);
        let size = cipher.sector_size() as usize;
        let mut all = clear.clone();
        cipher.encrypt_in_place(0, &mut all);
        for (number, sector) in clear.chunks(size).enumerate() {
            let mut alone = sector.to_vec();
            cipher.encrypt_in_place((number * size / 512) as u64, &mut alone);
            assert!(alone == all[number * size..][..size], "{word} {number}");
        }
    }
}

#[test]
fn the_grain_is_the_whole_sector_and_a_range_is_some() {
    for word in ["aes-cbc-plain64", "serpent-xts-plain64"] {
        let cipher = cipher(word, 1024, 0);
        assert_eq!(cipher.granularity(), 1024);
        let [mut whole, mut range] = [text(1024), text(1024)];
        cipher.encrypt_in_place(2, &mut whole);
        cipher.encrypt_range_in_place(1024, &mut range);
        assert_eq!(whole, range);
        cipher.decrypt_range_in_place(1024, &mut []);
        cipher.decrypt_range_in_place(1024, &mut range);
        assert_eq!(range, text(1024));
    }
}

/// The same cipher through both modules.
#[test]
fn masks_of_a_library_cipher_are_those_of_aes_xts() {
    let spec = CipherSpec::parse("aes-xts-plain64").expect("a cipher");
    let key: Vec<u8> = (0..64).collect();
    let modes = Modes::new(&spec, &key, 512, XtsBackend::Portable).expect("modes");
    let xts = cipher("aes-xts-plain64", 512, 2);
    let (mut ours, mut theirs) = (text(8192), text(8192));
    let sectors = IvSequence { layout: IvLayout::Plain64, next: 1 << 20, step: 1, shift: 0 };
    modes.encrypt(sectors, 512, &mut ours);
    xts.encrypt_in_place(0, &mut theirs);
    assert!(ours == theirs);
}

/// NIST SP 800-38A, F.2.5 and F.5.5.
#[test]
fn cbc_and_ctr_match_nist_sp_800_38a() {
    let key = unhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    let clear = unhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
    for (mode, iv, answer) in [
        ("cbc", "000102030405060708090a0b0c0d0e0f", "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d"),
        ("ctr", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"),
    ] {
        for backend in XtsBackend::available() {
            let chain = chain(mode, ServedCipher::Aes, &key, backend).expect("a mode");
            let iv: [u8; 16] = unhex(iv).try_into().expect("a block");
            let mut blocks: Vec<Block> =
                clear.chunks(16).map(|block| Block::try_from(block).expect("a block")).collect();
            chain.encrypt(&[iv.into()], &mut blocks);
            assert_eq!(Block::cast_slice_to_core(&blocks).as_flattened(), unhex(answer));
        }
    }
}

/// GB/T 32907-2016, A.1, through every step from the cipher word. The kernels that judge all other
/// ciphers are built without SM4.
#[test]
fn sm4_matches_gb_t_32907() {
    let key = unhex("0123456789abcdeffedcba9876543210");
    let spec = CipherSpec::parse("sm4-ecb").expect("a cipher");
    let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let cipher = SectorCipher::new(&spec, &key, options).expect("a cipher");
    let mut data = key.repeat(32);
    cipher.encrypt_in_place(0, &mut data);
    assert_eq!(data, unhex("681edf34d206965e86b3e94f536e4246").repeat(32));
}

/// The address in bytes 8 to 15 of the IV, where a big-endian one is on its head in plain64be.
#[test]
fn spdk_has_the_address_little_endian_in_the_last_eight_bytes() {
    let key: Vec<u8> = (0..64).collect();
    let encrypted = |word: &str, sector: u64| {
        let spec = CipherSpec::parse(word).expect(word);
        let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
        let mut data = text(512);
        let cipher = SectorCipher::new(&spec, &key, options).expect(word);
        cipher.encrypt_in_place(sector, &mut data);
        data
    };
    for (ours, theirs) in [(0x0102_0304, 0x0403_0201_0000_0000), (7, 7 << 56)] {
        for cipher in ["aes", "serpent"] {
            let word = |iv| format!("{cipher}-xts-{iv}");
            assert!(encrypted(&word("spdk"), ours) == encrypted(&word("plain64be"), theirs));
            assert!(encrypted(&word("spdk"), ours) != encrypted(&word("plain64"), ours));
        }
    }
}

#[test]
fn a_key_of_another_size_is_told_what_is_needed() {
    for (word, size, expected) in [
        ("aes-cbc-essiv:sha256", 33, "16, 24 or 32 bytes"),
        ("aes-xts-benbi", 16, "32, 48 or 64 bytes"),
        ("sm4-xts-plain64", 64, "32 bytes"),
        ("aes-lrw-benbi", 64, "32, 40 or 48 bytes"),
        ("aes:64-cbc-lmk", 64, "1024, 1040, 1536, 1560, 2048 or 2080 bytes"),
        ("aes-cbc-tcw", 32, "48, 56 or 64 bytes"),
        ("aes-cbc-elephant", 16, "32, 48 or 64 bytes"),
        ("serpent-cbc-plain64", 33, "16 to 32 bytes"),
        ("xchacha12,aes-adiantum-plain64", 64, "(xchacha12,aes-adiantum-plain64 takes 32 bytes"),
    ] {
        let spec = CipherSpec::parse(word).expect(word);
        let message = SectorCipher::check_key_size(&spec, size).expect_err(word).to_string();
        assert!(message.starts_with("Error decoding and setting key ("), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

/// By OpenSSL: Whirlpool of the key, half of it as an AES-256 key over the sector's number.
#[test]
fn essiv_with_half_of_whirlpool_matches_openssl() {
    let key: Vec<u8> = (0..32).collect();
    let spec = CipherSpec::parse("aes-cbc-essiv:wp256").expect("a cipher of ours");
    let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let cipher = SectorCipher::new(&spec, &key, options).expect("a key that fits");
    let mut data = vec![0; 512];
    cipher.encrypt_in_place(5, &mut data);
    let start = unhex("5b03d506b6b7e20db93736c2dc4436506b4187bcab7818f95fad33fe5329c890");
    assert_eq!(data[..32], start);
    assert_eq!(data[496..], unhex("a5f20fb90fc90cb521d340a71cc9531d"));
}

#[test]
fn essiv_of_the_crypto_api_is_that_of_dm_crypt() {
    for sector_size in [512, 4096] {
        let encrypted = |word| {
            let mut data = text(8 * 4096);
            cipher(word, sector_size, 2).encrypt_in_place(1 << 33, &mut data);
            data
        };
        let old = encrypted("aes-cbc-essiv:sha256");
        assert!(encrypted("capi:essiv(cbc(aes),sha256)-plain64") == old);
        assert!(encrypted("aes-cbc-plain64") != old);
    }
}

#[test]
fn loop_aes_and_truecrypt_know_small_sectors_only() {
    for word in ["aes:64-cbc-lmk", "aes-cbc-tcw"] {
        let spec = CipherSpec::parse(word).expect(word);
        let key = vec![1; sizes(&spec)[0]];
        let options = SectorOptions { sector_size: 4096, iv_offset: 0, iv_large_sectors: false };
        let error = SectorCipher::new(&spec, &key, options).err().expect(word);
        assert!(error.to_string().starts_with("Error creating IV"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_was_encrypted_in_any_pieces_is_decrypted_in_any_other(
        which in any::<prop::sample::Index>(),
        key in 0_usize..20,
        sectors in 1_usize..150,
        cut in any::<prop::sample::Index>(),
        start in 0_u64..1 << 40,
    ) {
        let all = combinations();
        let cipher = cipher(&all[which.index(all.len())], 512, key);
        let clear = text(sectors * 512);
        let mut data = clear.clone();
        let cut = cut.index(sectors);
        let (low, high) = data.split_at_mut(cut * 512);
        cipher.encrypt_in_place(start, low);
        cipher.encrypt_in_place(start + cut as u64, high);
        cipher.decrypt_in_place(start, &mut data);
        prop_assert!(data == clear);
    }
}
