//! Hash functions by the names that headers use, and PBKDF2 over them.

use blake2::{Blake2b512, Blake2s256};
use digest::Digest;
use hmac::{Hmac, SimpleHmac};
use zeroize::Zeroize;

/// The longest output of any [`Hash`], in bytes.
pub const HASH_LEN_MAX: usize = 64;

/// Output in bytes below which a hash is not used for new volumes, nor in LUKS1: that of SHA-1.
pub const HASH_LEN_MIN: usize = 20;

/// A name that no hash function has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not supported yet: hash '{}'", .0.escape_debug())]
pub struct UnknownHash(pub String);

/// A hash function a header may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the function it is called after")]
pub enum Hash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Sha512_224,
    Sha512_256,
    Sha3_224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
    Ripemd160,
    Whirlpool,
    Blake2b512,
    Blake2s256,
    Sm3,
    Streebog256,
    Streebog512,
    Md5,
}

/// Every hash with the name that headers use for it.
const NAMES: [(&str, Hash); 19] = [
    ("sha1", Hash::Sha1),
    ("sha224", Hash::Sha224),
    ("sha256", Hash::Sha256),
    ("sha384", Hash::Sha384),
    ("sha512", Hash::Sha512),
    ("sha512-224", Hash::Sha512_224),
    ("sha512-256", Hash::Sha512_256),
    ("sha3-224", Hash::Sha3_224),
    ("sha3-256", Hash::Sha3_256),
    ("sha3-384", Hash::Sha3_384),
    ("sha3-512", Hash::Sha3_512),
    ("ripemd160", Hash::Ripemd160),
    ("whirlpool", Hash::Whirlpool),
    ("blake2b-512", Hash::Blake2b512),
    ("blake2s-256", Hash::Blake2s256),
    ("sm3", Hash::Sm3),
    ("stribog256", Hash::Streebog256),
    ("stribog512", Hash::Streebog512),
    ("md5", Hash::Md5),
];

/// Other names of the same: the kernel's, which cryptsetup takes too.
const ALIASES: [(&str, Hash); 3] =
    [("rmd160", Hash::Ripemd160), ("streebog256", Hash::Streebog256), ("streebog512", Hash::Streebog512)];

/// Runs `$body` with `$digest` bound to the hash's type and `$prf` to its HMAC.
/// SHA-3 and BLAKE2 have no block-level core, so they take the simple HMAC.
macro_rules! with_hash {
    ($hash:expr, $digest:ident, $prf:ident, $body:expr) => {
        with_hash!(@arms $hash, $digest, $prf, $body;
            Sha1 => sha1::Sha1, Hmac;
            Sha224 => sha2::Sha224, Hmac;
            Sha256 => sha2::Sha256, Hmac;
            Sha384 => sha2::Sha384, Hmac;
            Sha512 => sha2::Sha512, Hmac;
            Sha512_224 => sha2::Sha512_224, Hmac;
            Sha512_256 => sha2::Sha512_256, Hmac;
            Sha3_224 => sha3::Sha3_224, SimpleHmac;
            Sha3_256 => sha3::Sha3_256, SimpleHmac;
            Sha3_384 => sha3::Sha3_384, SimpleHmac;
            Sha3_512 => sha3::Sha3_512, SimpleHmac;
            Ripemd160 => ripemd::Ripemd160, Hmac;
            Whirlpool => whirlpool::Whirlpool, Hmac;
            Blake2b512 => Blake2b512, SimpleHmac;
            Blake2s256 => Blake2s256, SimpleHmac;
            Sm3 => sm3::Sm3, Hmac;
            Streebog256 => streebog::Streebog256, SimpleHmac;
            Streebog512 => streebog::Streebog512, SimpleHmac;
            Md5 => md5::Md5, Hmac;
        )
    };
    (@arms $hash:expr, $digest:ident, $prf:ident, $body:expr;
        $($variant:ident => $function:ty, $mac:ident;)*) => {
        match $hash {
            $(Hash::$variant => {
                #[allow(dead_code, reason = "a body uses the digest or its HMAC")]
                type $digest = $function;
                #[allow(dead_code, reason = "a body uses the digest or its HMAC")]
                type $prf = $mac<$function>;
                $body
            })*
        }
    };
}

impl Hash {
    /// How many there are.
    pub const COUNT: usize = NAMES.len();

    /// The hash called `name` (case does not matter).
    ///
    /// # Errors
    /// None has that name.
    pub fn by_name(name: &str) -> Result<Self, UnknownHash> {
        let mut names = NAMES.iter().chain(&ALIASES);
        let found = names.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, hash)| hash).ok_or_else(|| UnknownHash(name.to_owned()))
    }

    /// The name headers use.
    #[must_use]
    pub fn name(self) -> &'static str {
        let entry = NAMES.iter().find(|&&(_, hash)| hash == self);
        entry.map_or("", |&(name, _)| name)
    }

    /// The length of the output in bytes, at most 64.
    #[must_use]
    pub fn output_len(self) -> usize {
        with_hash!(self, D, P, <D as Digest>::output_size())
    }

    /// Hashes the concatenation of `parts` into the first `out.len()` bytes of the output.
    ///
    /// # Panics
    /// When `out` is longer than [`Hash::output_len`].
    pub fn digest(self, parts: &[&[u8]], out: &mut [u8]) {
        with_hash!(self, D, P, {
            let mut hasher = D::new();
            for part in parts {
                Digest::update(&mut hasher, part);
            }
            let mut full = hasher.finalize();
            out.copy_from_slice(&full[..out.len()]);
            full.as_mut_slice().zeroize();
        });
    }

    /// PBKDF2-HMAC (RFC 8018) with this hash.
    ///
    /// # Panics
    /// Never: HMAC takes keys of any length.
    pub fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
        with_hash!(self, D, P, pbkdf2::pbkdf2::<P>(password, salt, iterations, out))
            .expect("HMAC takes keys of any length");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base16ct::lower::encode_string as hex;

    #[test]
    fn names_find_their_hash_whatever_the_case() {
        for (name, hash) in NAMES {
            assert_eq!(Hash::by_name(name).unwrap(), hash);
            assert_eq!(Hash::by_name(&name.to_uppercase()).unwrap(), hash);
            assert_eq!(hash.name(), name);
            assert!(hash.output_len() <= HASH_LEN_MAX);
        }
    }

    #[test]
    fn aliases_find_the_hash_by_its_own_name() {
        for (name, hash) in ALIASES {
            assert_eq!(Hash::by_name(name).unwrap(), hash);
            assert!(hash.name() != name && !hash.name().is_empty());
        }
    }

    #[test]
    fn unknown_hash_is_refused_by_name() {
        assert_eq!(Hash::by_name("md4"), Err(UnknownHash("md4".to_owned())));
    }

    /// RFC 6070, case 3.
    #[test]
    fn pbkdf2_sha1_matches_rfc_6070() {
        let mut out = [0; 20];
        Hash::Sha1.pbkdf2(b"password", b"salt", 4096, &mut out);
        assert_eq!(hex(&out), "4b007901b765489abead49d926f721d065a429c1");
    }

    /// Answers of libgcrypt 1.10.1, on which cryptsetup can be built.
    #[test]
    fn pbkdf2_streebog_and_md5_match_libgcrypt() {
        for (hash, answer) in [
            (Hash::Streebog256, "d744dc35ddfe10c7679af205ceb6492fb3680f861db598ee8110b30e3a0f3cb4"),
            (Hash::Streebog512, "e52deb9a2d2aaff4e2ac9d47a41f34c20376591c67807f0477e32549dc341bc7"),
            (Hash::Md5, "15001f89b9c29ee6998c520d1a0629e893cc3f996a08d27060e4c33305bf0fb2"),
        ] {
            let mut out = [0; 32];
            hash.pbkdf2(b"password", b"salt", 4096, &mut out);
            assert_eq!(hex(&out), answer, "{}", hash.name());
        }
    }

    /// FIPS 180 and ISO/IEC 10118-3 answers for "abc", cut short.
    #[test]
    fn digests_match_published_answers() {
        for (hash, answer) in [
            (Hash::Sha1, "a9993e364706816a"),
            (Hash::Sha256, "ba7816bf8f01cfea"),
            (Hash::Sha512, "ddaf35a193617aba"),
            (Hash::Sha3_256, "3a985da74fe225b2"),
            (Hash::Ripemd160, "8eb208f7e05d987a"),
            (Hash::Whirlpool, "4e2448a4c6f486bb"),
            (Hash::Blake2b512, "ba80a53f981c4d0d"),
            (Hash::Blake2s256, "508c5e8c327c14e2"),
            (Hash::Sm3, "66c7f0f462eeedd9"),
            (Hash::Md5, "900150983cd24fb0"),
        ] {
            let mut out = [0; 8];
            hash.digest(&[b"a", b"bc"], &mut out);
            assert_eq!(hex(&out), answer, "{}", hash.name());
        }
    }
}
