//! AES-XTS where implementations go wrong: every entry of `tests/data/xts-edges.txt`, both ways, on every
//! back end of this CPU. Counts of sectors around the groups that kernels
//! encrypt IVs in, numbers that wrap, tweaks that carry, equal key halves, every part of a sector.
//!
//! The file's own head describes it, and `tests/data/xts_edges.py` made it.

use crate::{CipherSpec, SectorCipher, SectorOptions, XtsBackend};
use sha2::{Digest, Sha256};

const EDGES: &str = include_str!("../../tests/data/xts-edges.txt");
/// Entries of each kind: fewer would mean that this test reads less than there is.
const KINDS: [(&str, usize); 3] = [("request", 160), ("sector", 9), ("ieee", 3)];
/// Bytes of the longest request.
const LENGTH: usize = 256 * 1024;

#[test]
fn whole_requests_are_encrypted_and_decrypted() {
    let plaintext = plaintext();
    for [key, size, first, sectors, sha256] in entries("request") {
        let (size, first): (u32, u64) = (size.parse().unwrap(), first.parse().unwrap());
        let len = usize::try_from(size).unwrap() * sectors.parse::<usize>().unwrap();
        let plaintext = &plaintext[..len];
        for (backend, cipher) in ciphers(key, size) {
            let entry = format!("{backend}: {key} {size} {first} {sectors}");
            let mut data = plaintext.to_vec();
            cipher.encrypt_in_place(first, &mut data);
            let sum = Sha256::digest(&data);
            assert!(sum[..] == bytes(sha256), "{entry}");
            cipher.decrypt_in_place(first, &mut data);
            assert!(data == plaintext, "{entry}, there and back");
        }
    }
}

#[test]
fn every_part_of_a_sector_is_that_of_the_whole() {
    let plaintext = &plaintext()[..4096];
    for [key, first, expected] in entries("sector") {
        let (first, expected): (u64, _) = (first.parse().unwrap(), bytes(expected));
        for (backend, cipher) in ciphers(key, 4096) {
            for (start, end) in parts() {
                let offset = first * 512 + u64::try_from(start).unwrap();
                let mut part = plaintext[start..end].to_vec();
                cipher.encrypt_range_in_place(offset, &mut part);
                assert!(part == expected[start..end], "{backend} {key} {first} {start}..{end}");
                cipher.decrypt_range_in_place(offset, &mut part);
                assert!(part == plaintext[start..end], "{backend} {key} {first} {start}..{end}");
            }
        }
    }
}

#[test]
fn the_vectors_of_ieee_1619_are_met() {
    for [key, first, plaintext, ciphertext] in entries("ieee") {
        let (first, plaintext): (u64, _) = (first.parse().unwrap(), bytes(plaintext));
        // The standard counts data units, which are sectors here.
        for (backend, cipher) in ciphers(key, 512) {
            let mut data = plaintext.clone();
            cipher.encrypt_range_in_place(first * 512, &mut data);
            assert_eq!(data, bytes(ciphertext), "{backend} {key}");
            cipher.decrypt_range_in_place(first * 512, &mut data);
            assert_eq!(data, plaintext, "{backend} {key}");
        }
    }
}

/// Every length from the beginning and to the end, and every single block.
fn parts() -> impl Iterator<Item = (usize, usize)> {
    let blocks = || (0..256).map(|block| block * 16);
    let heads = blocks().map(|at| (0, at + 16));
    let tails = blocks().map(|at| (at, 4096));
    let single = blocks().map(|at| (at, at + 16));
    heads.chain(tails).chain(single)
}

fn entries<const FIELDS: usize>(kind: &str) -> Vec<[&'static str; FIELDS]> {
    let fields = EDGES.lines().map(|line| line.split(' '));
    let found: Vec<_> = fields
        .filter_map(|mut fields| {
            let rest = (fields.next() == Some(kind)).then(|| fields.collect::<Vec<_>>());
            rest.map(|rest| rest.try_into().expect("an entry has its fields"))
        })
        .collect();
    let (_, count) = KINDS.iter().find(|(name, _)| *name == kind).unwrap();
    assert_eq!(found.len(), *count);
    found
}

fn ciphers(key: &str, sector_size: u32) -> Vec<(XtsBackend, SectorCipher)> {
    let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
    let spec = CipherSpec::parse("aes-xts-plain64").unwrap();
    let make = |backend| SectorCipher::with_backend(&spec, &bytes(key), options, backend);
    let available = XtsBackend::available().into_iter();
    available.map(|backend| (backend, make(backend).unwrap())).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    base16ct::mixed::decode_vec(hex).unwrap()
}

/// The SplitMix64 outputs for seed 1.
fn plaintext() -> Vec<u8> {
    let mut state: u64 = 1;
    let words = (0..LENGTH / 8).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    });
    words.collect()
}
