//! Random bytes of a new header: from the kernel, or all from one seed.
//!
//! ```text
//! key    = HMAC-SHA256(seed, "cryptline seed 1" 0 purpose 0 cipher 0 key length 0 label 0 uuid)
//! bytes  = ChaCha20(key, nonce 0, counter 0)          RFC 8439; one stream for each purpose
//! ```
//!
//! The texts are those of the options, and empty where an option is not given. This never changes: the same seed
//! makes the same header in every version, which a test with golden values guards.

use std::fmt;
use std::io;
use std::sync::Arc;

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use cryptline_sys::SecretBuf;
use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::error::Error;
use crate::options::{FormatOptions, parameters};

/// Prefix that separates these streams from all else that a seed may be used for.
const DOMAIN: &str = "cryptline seed 1";
/// Bytes below which a seed can be guessed.
const SEED_LEN_MIN: usize = 16;

/// Source of all random bytes of a new header, the volume key included: whoever has it has the key.
#[derive(Clone)]
pub struct Seed(Arc<SecretBuf>);

impl Seed {
    /// A seed of at least 16 bytes that nobody can guess.
    ///
    /// # Errors
    /// [`Error::Parameters`] for one that is too short.
    pub fn new(bytes: SecretBuf) -> Result<Self, Error> {
        if bytes.len() < SEED_LEN_MIN {
            return Err(parameters(format!(
                "a seed of {} bytes can be guessed; use {SEED_LEN_MIN} random bytes or more",
                bytes.len()
            )));
        }
        Ok(Self(Arc::new(bytes)))
    }
}

/// Tells seeds apart, and nothing else of them.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let random = Random::Seed(self.clone(), String::new());
        let mark = random.bytes("mark", 8).unwrap_or_default();
        write!(f, "Seed({})", base16ct::lower::encode_string(&mark))
    }
}

/// Where the random bytes of a header come from.
pub(crate) enum Random {
    Kernel,
    /// With what tells volumes of one seed apart.
    Seed(Seed, String),
}

/// Random bytes for one purpose, one after the other.
pub(crate) enum RandomStream {
    Kernel,
    ChaCha(Box<ChaCha20>),
}

impl Random {
    /// Returns the source that `options` ask for.
    pub fn of(options: &FormatOptions) -> Self {
        let Some(seed) = &options.seed else {
            return Self::Kernel;
        };
        let FormatOptions { cipher, key_len, label, uuid, .. } = options;
        let uuid = uuid.as_deref().unwrap_or_default();
        let volume = format!("{cipher}\0{key_len}\0{label}\0{uuid}");
        Self::Seed(seed.clone(), volume)
    }

    pub fn stream(&self, purpose: &str) -> RandomStream {
        let Self::Seed(seed, volume) = self else {
            return RandomStream::Kernel;
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(&seed.0).expect("HMAC takes keys of any length");
        mac.update(format!("{DOMAIN}\0{purpose}\0{volume}").as_bytes());
        let mut key = mac.finalize().into_bytes();
        let cipher = Box::new(ChaCha20::new(&key, &[0; 12].into()));
        key.as_mut_slice().zeroize();
        RandomStream::ChaCha(cipher)
    }

    /// Bytes that are no secret and may be many, for the place at `offset`. The kernel gives their key only: its own generator
    /// uses no vectors and is several times slower.
    pub fn filler(&self, offset: u64) -> Result<RandomStream, Error> {
        let Self::Kernel = self else {
            return Ok(self.stream(&format!("filler {offset}")));
        };
        let mut key = [0; 32];
        from_kernel(&mut key).map_err(Error::KeyMemory)?;
        let cipher = Box::new(ChaCha20::new(&key.into(), &[0; 12].into()));
        key.zeroize();
        Ok(RandomStream::ChaCha(cipher))
    }

    /// `len` bytes that are no secret.
    pub fn bytes(&self, purpose: &str, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        self.stream(purpose).fill(&mut bytes)?;
        Ok(bytes)
    }

    /// `len` bytes in key memory.
    pub fn secret(&self, purpose: &str, len: usize) -> Result<SecretBuf, Error> {
        let mut secret = SecretBuf::zeroed(len).map_err(Error::KeyMemory)?;
        self.stream(purpose).fill(&mut secret)?;
        Ok(secret)
    }

    /// A random (version 4) UUID, RFC 9562.
    pub fn uuid(&self, purpose: &str) -> Result<String, Error> {
        let mut bytes = self.bytes(purpose, 16)?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let digits = base16ct::lower::encode_string(&bytes);
        let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
        Ok(format!("{a}-{b}-{c}-{d}-{e}"))
    }
}

impl RandomStream {
    /// The next bytes.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Kernel => from_kernel(out).map_err(Error::KeyMemory),
            Self::ChaCha(cipher) => {
                out.fill(0);
                cipher.apply_keystream(out);
                Ok(())
            }
        }
    }
}

fn from_kernel(out: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        match getrandom(&mut out[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Tells if `text` is a UUID in its usual form.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let digits = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths == [8, 4, 4, 4, 12] && groups.iter().all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_uuids_are_uuids_and_differ() {
        let uuid = || Random::Kernel.uuid("uuid").unwrap();
        let one = uuid();
        assert!(is_uuid(&one), "{one}");
        assert_eq!(&one[14..15], "4");
        assert_ne!(one, uuid());
    }

    fn seeded(change: impl FnOnce(&mut FormatOptions)) -> Random {
        let seed = SecretBuf::copy_of(b"0123456789abcdef").unwrap();
        let mut options = FormatOptions { seed: Some(Seed::new(seed).unwrap()), ..FormatOptions::default() };
        change(&mut options);
        Random::of(&options)
    }

    /// Of OpenSSL 3:
    ///
    /// ```text
    /// printf 'cryptline seed 1\0uuid\0aes-xts-plain64\00064\0\0' |
    ///     openssl dgst -sha256 -mac HMAC -macopt key:0123456789abcdef
    /// head -c 16 /dev/zero | openssl enc -chacha20 -K KEY -iv 00000000000000000000000000000000
    /// ```
    #[test]
    fn seeds_make_the_bytes_that_they_always_made() {
        let made = |purpose, random: Random| {
            let bytes = random.bytes(purpose, 16).unwrap();
            base16ct::lower::encode_string(&bytes)
        };
        assert_eq!(made("uuid", seeded(|_| ())), "f31d25213783b424cc89eeada7903674");
        let named = seeded(|options| {
            options.label = "site".into();
            options.uuid = Some("970e17de-0750-443f-b6ca-2a739c5ff999".into());
        });
        assert_eq!(made("volume key", named), "e32d76ed9d17082e7ba0c29eb12303c7");
    }

    #[test]
    fn streams_of_a_seed_go_on_and_differ_by_what_they_are_for() {
        let random = seeded(|_| ());
        let whole = random.bytes("filler", 100).unwrap();
        let mut pieces = [0; 100];
        let mut stream = random.stream("filler");
        for piece in pieces.chunks_mut(7) {
            stream.fill(piece).unwrap();
        }
        assert_eq!(whole, pieces);
        assert_ne!(whole, random.bytes("stripes", 100).unwrap());
        for change in [
            |options: &mut FormatOptions| options.label = "x".into(),
            |options: &mut FormatOptions| options.cipher = "aes-cbc-essiv:sha256".into(),
            |options: &mut FormatOptions| options.key_len = 32,
        ] {
            assert_ne!(whole, seeded(change).bytes("filler", 100).unwrap());
        }
    }

    #[test]
    fn filler_of_the_kernel_never_comes_twice() {
        let mut filled = [[0; 64]; 2];
        for bytes in &mut filled {
            Random::Kernel.filler(4096).unwrap().fill(bytes).unwrap();
        }
        assert_ne!(filled[0], filled[1]);
        assert!(filled.iter().all(|bytes| bytes.iter().any(|byte| *byte != 0)));
    }

    #[test]
    fn seeds_that_can_be_guessed_are_refused_and_none_is_shown() {
        let short = Seed::new(SecretBuf::copy_of(b"0123456789abcde").unwrap());
        let error = short.unwrap_err().to_string();
        assert!(error.contains("15 bytes can be guessed"), "{error}");
        let debug = |bytes: &[u8]| {
            let seed = Seed::new(SecretBuf::copy_of(bytes).unwrap()).unwrap();
            format!("{seed:?}")
        };
        let shown = debug(b"0123456789abcdef");
        assert_eq!(shown.len(), "Seed(0123456789abcdef)".len());
        assert!(!shown.contains("30313233"), "{shown}");
        assert_ne!(shown, debug(b"0123456789abcdeg"));
    }

    #[test]
    fn other_texts_are_no_uuids() {
        assert!(!is_uuid(""));
        assert!(!is_uuid("970e17de-0750-443f-b6ca-2a739c5ff99z"));
        assert!(!is_uuid("970e17de0750443fb6ca2a739c5ff999"));
    }
}
