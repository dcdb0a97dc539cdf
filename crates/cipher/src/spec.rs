//! The cipher word of a dm-crypt table, as the kernel reads it.
//!
//! ```text
//!   old form   cipher[:keycount]-chainmode-ivmode[:ivopts]    aes-xts-plain64
//!   new form   capi:chainmode(cipher)-ivmode[:ivopts]         capi:xts(aes)-plain64
//!              capi:essiv(chainmode(cipher),hash)-plain64     as capi:chainmode(cipher)-essiv:hash
//! ```
//!
//! Source: Linux `Documentation/admin-guide/device-mapper/dm-crypt.rst` and the behaviour of
//! `drivers/md/dm-crypt.c` (6.12).

use thiserror::Error;

/// Longest crypto API name, with its terminating zero (`CRYPTO_MAX_ALG_NAME` of the kernel).
const MAX_ALGORITHM_NAME_LEN: usize = 128;

/// Ciphers that the kernel's crypto API knows. A name outside this list cannot be a typing of a
/// cipher that merely is not supported yet.
const KERNEL_CIPHERS: &[&str] = &[
    "aes",
    "anubis",
    "aria",
    "blowfish",
    "camellia",
    "cast5",
    "cast6",
    "cipher_null",
    "des",
    "des3_ede",
    "fcrypt",
    "khazad",
    "seed",
    "serpent",
    "sm4",
    "tea",
    "twofish",
    "xchacha12,aes",
    "xchacha20,aes",
    "xeta",
    "xtea",
];

/// Chaining modes that the kernel's crypto API knows.
const KERNEL_CHAIN_MODES: &[&str] =
    &["adiantum", "cbc", "cfb", "ctr", "ecb", "hctr2", "lrw", "ofb", "pcbc", "xctr", "xts"];

/// Why a cipher word was refused. Where the kernel has a text for the case, the message starts
/// with exactly that text; what follows in parentheses says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The old form contains `(`, or is used together with an `integrity:...:aead` option.
    #[error("Bad cipher specification (write for example aes-xts-plain64 or capi:xts(aes)-plain64)")]
    BadSpecification,
    /// The key count is not a number or not a power of two.
    #[error("Bad cipher key count specification (a power of two is needed, as in aes:64-cbc-lmk)")]
    BadKeyCount,
    /// The chaining mode needs an IV and none was named.
    #[error("IV mechanism required (add one, as in aes-xts-plain64)")]
    IvRequired,
    /// `essiv` without `:hash`.
    #[error("Digest algorithm missing for ESSIV mode (write for example essiv:sha256)")]
    EssivDigestMissing,
    /// An `authenc(...)` specification without its two parts.
    #[error("Invalid AEAD cipher spec (write for example capi:authenc(hmac(sha256),xts(aes))-random)")]
    InvalidAead,
    /// `lmk` together with an `integrity:...:aead` option.
    #[error("AEAD transforms not supported for LMK (choose another IV, for example plain64)")]
    AeadWithLmk,
    /// The crypto API name would be longer than 127 bytes.
    #[error("Cannot allocate cipher string (the cipher name is longer than 127 bytes)")]
    NameTooLong,
    /// No cipher or chaining mode of this name exists.
    #[error("Error allocating crypto tfm (there is no cipher {0:?}; check the spelling)")]
    UnknownCipher(String),
    /// No IV mode of this name exists.
    #[error("Invalid IV mode (there is no {0:?}; check the spelling, plain64 is usual)")]
    InvalidIvMode(String),
    /// The IV is random, and nothing keeps it.
    #[error(
        "Integrity profile not supported. (a random IV is kept in integrity metadata, which is not supported yet; choose plain64)"
    )]
    RandomNeedsIntegrity,
    /// The digest for ESSIV has no size of a key.
    #[error(
        "Error decoding and setting key (the hash of essiv gives no key of this cipher; choose another, as essiv:sha256)"
    )]
    EssivKeySize,
    /// The IV mode does not go with the chaining mode.
    #[error("Error creating IV (eboiv and elephant need a mode of whole blocks, as cbc)")]
    IvNeedsBlocks,
    /// Valid for the kernel, not served here yet.
    #[error("not supported yet: {0}")]
    NotSupportedYet(String),
}

/// How the initialisation vector of a cipher sector is made from its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IvMode {
    /// The cipher takes no IV (`ecb`).
    None,
    /// Low 32 bits of the sector number, little-endian.
    Plain,
    /// 64-bit sector number, little-endian.
    Plain64,
    /// 64-bit sector number, big-endian, in the last 8 bytes.
    Plain64Be,
    /// All zeros.
    Null,
    /// Sector number encrypted under the named hash of the key.
    Essiv(String),
    /// Big-endian count of narrow blocks, from 1 (LRW).
    Benbi,
    /// Encrypted byte offset (BitLocker).
    Eboiv,
    /// Eboiv plus the Elephant diffuser (BitLocker).
    Elephant,
    /// loop-AES multi-key.
    Lmk,
    /// TrueCrypt before 4.1.
    Tcw,
    /// Random, stored in per-sector metadata.
    Random,
    /// 64-bit sector number, little-endian, in the last 8 bytes: how SPDK's crypto device and
    /// ubiblk write it. Not dm-crypt's. They count their own blocks: with blocks of 4096 bytes
    /// the cipher sector must have that size too and `iv_large_sectors` be set.
    Spdk,
}

impl IvMode {
    fn parse(name: &str, options: Option<&str>) -> Result<IvMode, SpecError> {
        Ok(match name {
            "plain" => IvMode::Plain,
            "plain64" => IvMode::Plain64,
            "plain64be" => IvMode::Plain64Be,
            "null" => IvMode::Null,
            "essiv" => IvMode::Essiv(options.ok_or(SpecError::EssivDigestMissing)?.to_owned()),
            "benbi" => IvMode::Benbi,
            "eboiv" => IvMode::Eboiv,
            "elephant" => IvMode::Elephant,
            "lmk" => IvMode::Lmk,
            "tcw" => IvMode::Tcw,
            "random" => IvMode::Random,
            "spdk" => IvMode::Spdk,
            other => return Err(SpecError::InvalidIvMode(other.to_owned())),
        })
    }
}

/// A parsed cipher word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CipherSpec {
    text: String,
    /// Name of the block cipher, or the whole crypto API name where it has another shape than
    /// `mode(cipher)`.
    cipher: String,
    /// Empty where `cipher` is a whole crypto API name.
    chain_mode: String,
    iv_mode: IvMode,
    key_count: u32,
}

impl CipherSpec {
    /// Parses a cipher word of either form.
    ///
    /// # Errors
    /// The error that the kernel would give, in the kernel's order. A valid word whose cipher cannot be served yet
    /// parses; [`CipherSpec::check_supported`] refuses it.
    pub fn parse(text: &str) -> Result<CipherSpec, SpecError> {
        Self::parse_with_aead(text, false)
    }

    /// As [`CipherSpec::parse`], for a table line that has (`aead`) an `integrity:...:aead` option.
    ///
    /// # Errors
    /// As [`CipherSpec::parse`].
    pub fn parse_with_aead(text: &str, aead: bool) -> Result<CipherSpec, SpecError> {
        match text.strip_prefix("capi:") {
            Some(rest) => parse_new(text, rest, aead),
            None => parse_old(text, aead),
        }
    }

    /// The cipher word exactly as it was written, as `dmsetup table` prints it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The block cipher's name, for example `aes`.
    #[must_use]
    pub fn cipher_name(&self) -> &str {
        &self.cipher
    }

    /// The chaining mode's name, for example `xts`; empty for a crypto API name of another shape.
    #[must_use]
    pub fn chain_mode(&self) -> &str {
        &self.chain_mode
    }

    /// How IVs are made.
    #[must_use]
    pub fn iv_mode(&self) -> &IvMode {
        &self.iv_mode
    }

    /// Number of cipher keys in the key, 1 except for loop-AES.
    #[must_use]
    pub fn key_count(&self) -> u32 {
        self.key_count
    }

    /// Tells if this is the cipher that encrypts nothing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.cipher == "cipher_null"
    }
}

/// `cipher[:keycount]-chainmode-ivmode[:ivopts]`
fn parse_old(text: &str, aead: bool) -> Result<CipherSpec, SpecError> {
    if text.contains('(') || aead {
        return Err(SpecError::BadSpecification);
    }
    let (head, rest) = split_first(text, '-');
    let (cipher, key_count) = split_first(head, ':');
    let key_count = key_count.map_or(Ok(1), parse_key_count)?;
    let (chain_mode, rest) = rest.map_or((None, None), |rest| {
        let (chain_mode, rest) = split_first(rest, '-');
        (Some(chain_mode), rest)
    });
    let (iv_name, iv_options) = rest.map_or((None, None), |rest| {
        let (name, options) = split_first(rest, ':');
        (Some(name), options)
    });
    // The first dm-crypt had no chaining modes: `aes` and `aes-plain` still mean aes-cbc-plain.
    let (chain_mode, iv_name) = match (chain_mode, iv_name) {
        (None, _) | (Some("plain"), None) => ("cbc", Some("plain")),
        (Some(chain_mode), iv_name) => (chain_mode, iv_name),
    };
    if chain_mode != "ecb" && iv_name.is_none() {
        return Err(SpecError::IvRequired);
    }
    let mut name_len = cipher.len() + chain_mode.len() + "()".len();
    if iv_name == Some("essiv") {
        let digest = iv_options.ok_or(SpecError::EssivDigestMissing)?;
        name_len += digest.len() + "essiv(,)".len();
    }
    check_name_len(name_len)?;
    check_known(cipher, chain_mode)?;
    Ok(CipherSpec {
        text: text.to_owned(),
        cipher: cipher.to_owned(),
        chain_mode: chain_mode.to_owned(),
        iv_mode: parse_iv_mode(chain_mode, iv_name, iv_options)?,
        key_count,
    })
}

/// `capi:<crypto API name>-ivmode[:ivopts]`; `rest` is what follows `capi:`.
fn parse_new(text: &str, rest: &str, aead: bool) -> Result<CipherSpec, SpecError> {
    // Both from the right: crypto API names and hash names may contain dashes.
    let (rest, iv_options) = split_last(rest, ':');
    let (api_name, iv_name) = split_last(rest, '-');
    if aead {
        check_aead(api_name)?;
        if iv_name == Some("lmk") {
            return Err(SpecError::AeadWithLmk);
        }
    }
    let mut name_len = api_name.len();
    if iv_name == Some("essiv") {
        let digest = iv_options.ok_or(SpecError::EssivDigestMissing)?;
        name_len += digest.len() + "essiv(,)".len();
    }
    check_name_len(name_len)?;
    // ESSIV as the crypto API writes it encrypts the IV that it gets. With plain64 that is essiv.
    let (api_name, iv_name, iv_options) = match (split_essiv(api_name), iv_name) {
        (Some((inner, hash)), Some("plain64")) => (inner, Some("essiv"), Some(hash)),
        _ => (api_name, iv_name, iv_options),
    };
    let (chain_mode, cipher) = split_api_name(api_name).unwrap_or(("", api_name));
    // Authenticated ciphers have names of their own.
    if !chain_mode.is_empty() && !aead {
        check_known(cipher, chain_mode)?;
    }
    // The kernel accepts a missing IV mode here and then encrypts with whatever bytes the IV
    // buffer happens to hold. Nobody can want that.
    if iv_name.is_none() && chain_mode != "ecb" {
        return Err(SpecError::IvRequired);
    }
    Ok(CipherSpec {
        text: text.to_owned(),
        cipher: cipher.to_owned(),
        chain_mode: chain_mode.to_owned(),
        iv_mode: parse_iv_mode(chain_mode, iv_name, iv_options)?,
        key_count: if iv_name == Some("lmk") { 64 } else { 1 },
    })
}

fn parse_iv_mode(chain_mode: &str, name: Option<&str>, options: Option<&str>) -> Result<IvMode, SpecError> {
    match name {
        // The crypto API makes the IV here, so there must be room for one.
        Some("essiv") if chain_mode == "ecb" => Err(SpecError::UnknownCipher("essiv(ecb)".to_owned())),
        // A cipher without IVs drops the IV mode, whatever it is called.
        Some(name) if chain_mode != "ecb" => IvMode::parse(name, options),
        _ => Ok(IvMode::None),
    }
}

fn parse_key_count(text: &str) -> Result<u32, SpecError> {
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(count) if digits_only && count.is_power_of_two() => Ok(count),
        _ => Err(SpecError::BadKeyCount),
    }
}

fn check_name_len(len: usize) -> Result<(), SpecError> {
    if len >= MAX_ALGORITHM_NAME_LEN {
        return Err(SpecError::NameTooLong);
    }
    Ok(())
}

fn check_known(cipher: &str, chain_mode: &str) -> Result<(), SpecError> {
    // Adiantum is made of two ciphers, and nothing else is.
    let is_of_two = cipher.contains(',');
    if KERNEL_CIPHERS.contains(&cipher)
        && KERNEL_CHAIN_MODES.contains(&chain_mode)
        && is_of_two == (chain_mode == "adiantum")
    {
        return Ok(());
    }
    Err(SpecError::UnknownCipher(format!("{chain_mode}({cipher})")))
}

/// `authenc(` must be followed by a MAC and a cipher.
fn check_aead(api_name: &str) -> Result<(), SpecError> {
    let broken = api_name.strip_prefix("authenc(").is_some_and(|parts| !parts.contains(','));
    if broken {
        return Err(SpecError::InvalidAead);
    }
    Ok(())
}

/// `mode(cipher)` → `(mode, cipher)`, for two plain names.
fn split_api_name(api_name: &str) -> Option<(&str, &str)> {
    let (chain_mode, cipher) = api_name.strip_suffix(')')?.split_once('(')?;
    let plain = !chain_mode.is_empty() && !cipher.contains(['(', ')']);
    plain.then_some((chain_mode, cipher))
}

/// `essiv(mode(cipher),hash)` → `(mode(cipher), hash)`.
fn split_essiv(api_name: &str) -> Option<(&str, &str)> {
    let parts = api_name.strip_prefix("essiv(")?.strip_suffix(')')?;
    let (inner, hash) = parts.rsplit_once(',')?;
    split_api_name(inner)?;
    Some((inner, hash))
}

fn split_first(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((head, rest)) => (head, Some(rest)),
        None => (text, None),
    }
}

fn split_last(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.rsplit_once(separator) {
        Some((head, rest)) => (head, Some(rest)),
        None => (text, None),
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
