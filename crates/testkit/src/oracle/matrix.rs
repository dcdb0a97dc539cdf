//! Ciphers, modes and IVs of dm-crypt beyond plain AES-XTS that are compared with the kernel.
//!
//! SM4 and SM3 are not among them: Debian builds its kernel without both.
//!
//! One list for the golden ciphertexts and for the exchange of whole volumes.

/// One cipher word with all that shapes its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Combination {
    /// The cipher word of the table.
    pub cipher: &'static str,
    /// Bytes of the whole key.
    pub key_bytes: usize,
    /// Bytes of a cipher sector.
    pub sector_bytes: usize,
    /// `iv_large_sectors`.
    pub large_iv: bool,
}

const fn of(cipher: &'static str, key_bytes: usize) -> Combination {
    Combination { cipher, key_bytes, sector_bytes: 512, large_iv: false }
}

impl Combination {
    const fn sectors(self, sector_bytes: usize) -> Self {
        Self { sector_bytes, ..self }
    }

    const fn large(self, sector_bytes: usize) -> Self {
        Self { sector_bytes, large_iv: true, ..self }
    }
}

/// All of them, each kind of key at least once.
pub const COMBINATIONS: &[Combination] = &[
    // The old defaults, and every IV with CBC.
    of("aes-cbc-essiv:sha256", 32),
    of("aes-cbc-essiv:sha256", 16),
    of("aes-cbc-essiv:sha256", 32).sectors(4096),
    of("aes-cbc-essiv:sha256", 24).large(2048),
    of("capi:cbc(aes)-essiv:sha256", 32),
    of("aes", 16),
    of("aes-plain", 32),
    of("aes-cbc-plain", 24),
    of("aes-cbc-plain64", 32),
    of("aes-cbc-plain64", 32).large(4096),
    of("aes-cbc-plain64be", 32),
    of("aes-cbc-null", 32),
    of("aes-cbc-benbi", 16),
    of("aes-cbc-benbi", 32).large(4096),
    of("aes-cbc-eboiv", 32),
    of("aes-cbc-eboiv", 32).large(4096),
    of("aes-cbc-elephant", 32),
    of("aes-cbc-elephant", 64).sectors(1024),
    of("aes-cbc-elephant", 64).large(4096),
    of("aes-cbc-tcw", 64),
    // ESSIV with every hash whose digest is a key.
    of("aes-cbc-essiv:md5", 32),
    of("aes-cbc-essiv:sha3-256", 32),
    of("aes-cbc-essiv:blake2b-256", 32),
    of("aes-cbc-essiv:wp256", 32),
    of("capi:essiv(cbc(aes),sha256)-plain64", 32),
    of("capi:essiv(cbc(aes),sha256)-plain64", 32).large(4096),
    of("serpent-cbc-essiv:sha1", 32),
    of("serpent-cbc-essiv:rmd160", 32),
    of("serpent-cbc-essiv:blake2b-160", 32),
    of("serpent-cbc-essiv:sha224", 24),
    of("cast6-cbc-essiv:sha3-224", 32),
    // AES in the other modes.
    of("aes-xts-essiv:sha256", 64),
    of("aes-xts-benbi", 64),
    of("aes-xts-eboiv", 32),
    of("aes-ecb", 16),
    of("aes-ctr-plain64", 32),
    of("aes-ctr-plain64be", 32).sectors(4096),
    of("aes-ctr-benbi", 16),
    of("capi:ctr(aes)-essiv:sha256", 32),
    of("aes-lrw-benbi", 48),
    of("aes-lrw-benbi", 32).sectors(4096),
    of("aes-lrw-plain64", 40),
    of("aes-lrw-essiv:sha256", 48),
    // Several keys.
    of("aes:2-cbc-plain64", 64),
    of("aes:4-cbc-essiv:sha256", 64),
    of("aes:2-xts-plain64", 128),
    of("aes:2-lrw-benbi", 64),
    of("aes:4-cbc-eboiv", 128),
    of("aes:16-cbc-plain64", 256).large(4096),
    of("aes:64-cbc-lmk", 64 * 16),
    of("aes:64-cbc-lmk", 65 * 16),
    of("aes:64-cbc-lmk", 65 * 32),
    of("capi:cbc(aes)-lmk", 64 * 32),
    of("aes:2-cbc-tcw", 64 + 32),
    // The other ciphers.
    of("serpent-xts-plain64", 64),
    of("serpent-xts-plain64", 32).sectors(4096),
    of("serpent-cbc-plain64", 16),
    of("serpent-cbc-essiv:sha256", 32),
    of("serpent-cbc-tcw", 64),
    of("serpent-ecb", 17),
    of("serpent-ctr-plain64", 32),
    of("serpent-lrw-benbi", 48),
    of("twofish-xts-plain64", 64),
    of("twofish-xts-plain64", 48).large(4096),
    of("twofish-cbc-plain64", 32),
    of("twofish-cbc-essiv:sha256", 32),
    of("twofish-cbc-tcw", 64),
    of("twofish-cbc-eboiv", 24),
    of("twofish-ecb", 16),
    of("twofish-ctr-plain64", 32),
    of("twofish-lrw-benbi", 48),
    of("camellia-xts-plain64", 64),
    of("camellia-cbc-plain64", 24),
    of("camellia-cbc-essiv:sha256", 16),
    of("camellia-ecb", 32),
    of("camellia-ctr-plain64", 32),
    of("camellia-lrw-benbi", 32),
    of("cast6-xts-plain64", 64),
    of("cast6-xts-plain64", 40),
    of("cast6-cbc-plain64", 28),
    of("cast6-cbc-essiv:sha256", 16),
    of("cast6-ecb", 32),
    of("cast6-ctr-plain64", 20),
    of("cast6-lrw-benbi", 48),
    // Whole sectors as one block.
    of("xchacha12,aes-adiantum-plain64", 32),
    of("xchacha12,aes-adiantum-plain64", 32).sectors(4096),
    of("xchacha20,aes-adiantum-plain64", 32).sectors(1024),
    of("xchacha20,aes-adiantum-plain64", 32).large(4096),
    of("xchacha20,aes-adiantum-plain", 32),
    of("xchacha12,aes-adiantum-plain64be", 32).sectors(2048),
    of("xchacha20,aes-adiantum-benbi", 32).sectors(4096),
    of("xchacha12,aes-adiantum-null", 32),
    of("xchacha20,aes:2-adiantum-plain64", 64),
    of("capi:adiantum(xchacha12,aes)-plain64", 32).large(2048),
    // Another hash for ESSIV, behind all others so that these keep their keys.
    of("aes-cbc-essiv:streebog256", 32),
];
