//! The same bytes as Linux dm-crypt: every vector of `tests/data/kernel-golden.txt`, both ways, on every
//! back end of this CPU.
//!
//! ```text
//! table 0 LENGTH crypt CIPHER KEY IV_OFFSET DEVICE OFFSET [OPTIONS] ─► SectorCipher ─┐
//! plaintext (SplitMix64, seed 1) ────────────────────────────────────────────────┴─► ciphertext
//!                                                     sha256 of all, first 32 bytes of each sector
//! ```
//!
//! The file's own head describes it. The plaintext is made here once more, since the kernel's sums
//! would not match any other.

use crate::{CipherSpec, SectorCipher, SectorOptions, XtsBackend};
use base16ct::lower::encode_string as hex;
use sha2::{Digest, Sha256};

const GOLDEN: &str = include_str!("../../tests/data/kernel-golden.txt");
/// Bytes of the longest vector.
const LENGTH: usize = 16 * 1024;
/// Vectors in the file: fewer would mean that this test reads less than the kernel wrote.
const VECTORS: usize = 34 + 95;

/// One `table` with the kernel's answer.
struct Vector {
    table: &'static str,
    cipher: SectorCipher,
    /// In bytes.
    length: usize,
    sha256: &'static str,
    /// Number of a 512-byte sector and its first 32 bytes.
    sectors: Vec<(usize, &'static str)>,
}

#[test]
fn every_sector_is_encrypted_as_the_kernel_did_and_decrypted_again() {
    let plaintext = plaintext();
    for vector in on_every_back_end() {
        let plaintext = &plaintext[..vector.length];
        let mut data = plaintext.to_vec();
        vector.cipher.encrypt_in_place(0, &mut data);
        // From here on these are known to be the kernel's bytes.
        vector.check(&data);
        vector.cipher.decrypt_in_place(0, &mut data);
        assert!(data == plaintext, "{}", vector.table);
    }
}

/// Each sector alone: the kernel may get requests that start anywhere.
#[test]
fn a_sector_alone_is_the_same_as_within_a_large_request() {
    let plaintext = plaintext();
    for vector in on_every_back_end() {
        let size = usize::try_from(vector.cipher.sector_size()).expect("at most 4096");
        for (number, expected) in &vector.sectors {
            let mut sector = plaintext[number * 512..][..size].to_vec();
            let place = u64::try_from(*number).expect("a small number");
            vector.cipher.encrypt_in_place(place, &mut sector);
            assert_eq!(&hex(&sector[..32]), expected, "{} {number}", vector.table);
        }
    }
}

impl Vector {
    fn check(&self, ciphertext: &[u8]) {
        let table = self.table;
        for (number, expected) in &self.sectors {
            let start = &ciphertext[number * 512..][..32];
            assert_eq!(&hex(start), expected, "sector {number} of {table}");
        }
        assert_eq!(hex(&Sha256::digest(ciphertext)), self.sha256, "{table}");
    }
}

/// The SplitMix64 outputs for seed 1 as little-endian words.
fn plaintext() -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(LENGTH);
    while bytes.len() < LENGTH {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((mixed ^ (mixed >> 31)).to_le_bytes());
    }
    bytes
}

/// The vectors with each back end of this CPU in turn.
fn on_every_back_end() -> Vec<Vector> {
    XtsBackend::available().into_iter().flat_map(vectors).collect()
}

fn vectors(backend: XtsBackend) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let lines = GOLDEN.lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').expect("a word and more");
        match (word, vectors.last_mut()) {
            ("table", _) => vectors.push(Vector {
                table: rest,
                cipher: cipher(rest, backend),
                length: length(rest),
                sha256: "",
                sectors: Vec::new(),
            }),
            ("sha256", Some(vector)) => vector.sha256 = rest,
            ("sector", Some(vector)) => {
                let (number, start) = rest.split_once(' ').expect("a number and bytes");
                vector.sectors.push((number.parse().expect("a number"), start));
            }
            _ => panic!("not a line of this format: {line}"),
        }
    }
    assert_eq!(vectors.len(), VECTORS);
    for vector in &vectors {
        let sectors = vector.sectors.len() * usize::try_from(vector.cipher.sector_size()).unwrap_or(0);
        assert_eq!(sectors, vector.length, "sectors of {}", vector.table);
    }
    vectors
}

/// The length of `START LENGTH crypt ...`, in bytes.
fn length(table: &str) -> usize {
    let sectors = table.split(' ').nth(1).and_then(|word| word.parse().ok());
    let sectors: usize = sectors.expect("a number of sectors");
    assert!(sectors * 512 <= LENGTH, "{table}");
    sectors * 512
}

/// The cipher of `START LENGTH crypt CIPHER KEY IV_OFFSET DEVICE OFFSET [COUNT OPTION...]`.
fn cipher(table: &str, backend: XtsBackend) -> SectorCipher {
    let words: Vec<&str> = table.split(' ').collect();
    let ["0", _, "crypt", cipher, key, iv_offset, "DEVICE", "0", options @ ..] = &words[..] else {
        panic!("not a table of this file: {table}");
    };
    let mut sectors =
        SectorOptions { sector_size: 512, iv_offset: iv_offset.parse().expect("a number"), iv_large_sectors: false };
    for option in options.iter().skip(1) {
        match option.strip_prefix("sector_size:") {
            Some(size) => sectors.sector_size = size.parse().expect("a number"),
            None if *option == "iv_large_sectors" => sectors.iv_large_sectors = true,
            None => panic!("unknown option {option} in {table}"),
        }
    }
    let spec = CipherSpec::parse(cipher).expect("a cipher word");
    let key = base16ct::mixed::decode_vec(key).expect("hexadecimal digits");
    SectorCipher::with_backend(&spec, &key, sectors, backend).expect("the kernel took it")
}
