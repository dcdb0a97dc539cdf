//! The hashes that turn a volume key into an ESSIV key.

use zeroize::{Zeroize, Zeroizing};

use super::blocks::ServedCipher;

/// A hash whose digest some cipher takes as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EssivHash {
    Blake2b160,
    Blake2b256,
    Md5,
    Ripemd160,
    Sha1,
    Sha224,
    Sha256,
    Sha3_224,
    Sha3_256,
    Sm3,
    Streebog256,
    /// The first half of Whirlpool's digest.
    Whirlpool256,
}

/// The kernel's names.
const NAMES: [(&str, EssivHash); 12] = [
    ("blake2b-160", EssivHash::Blake2b160),
    ("blake2b-256", EssivHash::Blake2b256),
    ("md5", EssivHash::Md5),
    ("rmd160", EssivHash::Ripemd160),
    ("sha1", EssivHash::Sha1),
    ("sha224", EssivHash::Sha224),
    ("sha256", EssivHash::Sha256),
    ("sha3-224", EssivHash::Sha3_224),
    ("sha3-256", EssivHash::Sha3_256),
    ("sm3", EssivHash::Sm3),
    ("streebog256", EssivHash::Streebog256),
    ("wp256", EssivHash::Whirlpool256),
];

/// Hashes of the kernel that are not served, though their digests may be keys.
const NOT_SERVED: &[&str] = &["blake2s-128", "blake2s-160", "blake2s-224", "blake2s-256", "md4"];

/// A digest, at most 32 bytes.
pub(super) type HashDigest = Vec<u8>;

impl EssivHash {
    /// The hash that the kernel calls `name`, among those that can make a key.
    pub(super) fn by_name(name: &str) -> Option<EssivHash> {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map(|&(_, hash)| hash)
    }

    /// Tells if the kernel has `name` and it is not served here.
    pub(super) fn is_for_later(name: &str) -> bool {
        NOT_SERVED.contains(&name)
    }

    /// Tells if the digest is a key of the cipher.
    pub(super) fn fits(self, cipher: &str) -> bool {
        let algorithm = ServedCipher::by_name(cipher);
        algorithm.is_none_or(|algorithm| algorithm.key_sizes().contains(&self.output_len()))
    }

    /// Tells if the digest is longer than the least key of the cipher and shorter than the largest.
    pub(super) fn is_between_keys(self, cipher: &str) -> bool {
        let sizes = ServedCipher::by_name(cipher).map_or(&[][..], ServedCipher::key_sizes);
        let bounds = sizes.first().zip(sizes.last());
        bounds.is_some_and(|(least, most)| (least..=most).contains(&&self.output_len()))
    }

    fn output_len(self) -> usize {
        match self {
            EssivHash::Md5 => 16,
            EssivHash::Blake2b160 | EssivHash::Ripemd160 | EssivHash::Sha1 => 20,
            EssivHash::Sha224 | EssivHash::Sha3_224 => 28,
            EssivHash::Blake2b256
            | EssivHash::Sha256
            | EssivHash::Sha3_256
            | EssivHash::Sm3
            | EssivHash::Streebog256
            | EssivHash::Whirlpool256 => 32,
        }
    }

    pub(super) fn digest(self, key: &[u8]) -> Zeroizing<HashDigest> {
        let len = self.output_len();
        match self {
            EssivHash::Blake2b160 => hashed::<blake2::Blake2b<digest::consts::U20>>(key, len),
            EssivHash::Blake2b256 => hashed::<blake2::Blake2b<digest::consts::U32>>(key, len),
            EssivHash::Md5 => hashed::<md5::Md5>(key, len),
            EssivHash::Ripemd160 => hashed::<ripemd::Ripemd160>(key, len),
            EssivHash::Sha1 => hashed::<sha1::Sha1>(key, len),
            EssivHash::Sha224 => hashed::<sha2::Sha224>(key, len),
            EssivHash::Sha256 => hashed::<sha2::Sha256>(key, len),
            EssivHash::Sha3_224 => hashed::<sha3::Sha3_224>(key, len),
            EssivHash::Sha3_256 => hashed::<sha3::Sha3_256>(key, len),
            EssivHash::Sm3 => hashed::<sm3::Sm3>(key, len),
            EssivHash::Streebog256 => hashed::<streebog::Streebog256>(key, len),
            EssivHash::Whirlpool256 => hashed::<whirlpool::Whirlpool>(key, len),
        }
    }
}

fn hashed<D: digest::Digest>(key: &[u8], len: usize) -> Zeroizing<HashDigest> {
    let mut output = D::digest(key);
    let digest = Zeroizing::new(output[..len].to_vec());
    output.as_mut_slice().zeroize();
    digest
}
