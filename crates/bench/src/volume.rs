//! What is measured: a medium, and volumes over it that differ in cipher and dispatch only.
//!
//! All volumes of one bench lie on the same medium, so that none has the better memory.

use cryptline::size;
use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::Gate;
use cryptline_engine::base::RamDevice;
use cryptline_engine::dispatch::{Dispatch, Helpers, Mode};
use cryptline_engine::layer::{CryptDevice, CryptOptions};

use super::machine::{available_memory, cores};
use crate::Error;

/// The cipher that encrypts nothing, as tables name it.
pub const NULL_CIPHER: &str = "cipher_null-ecb";
/// Bytes in a cipher sector: a page, as the volumes that cryptline makes have them.
pub const SECTOR_SIZE: u32 = 4096;
/// Lengths of keys to try for a cipher, the longest of AES-XTS first.
const KEY_LENS: [usize; 5] = [64, 32, 48, 24, 16];

/// So many threads that help with large requests.
pub fn start_helpers(count: usize) -> Result<Option<Helpers>, Error> {
    let helpers = (count > 0).then(|| Helpers::start(count));
    Ok(helpers.transpose()?)
}

/// What `--helpers` says, or one less than there are processors.
pub fn helpers(given: Option<usize>) -> Result<usize, Error> {
    let cores = cores();
    match given.unwrap_or(cores - 1) {
        helpers if helpers > cores => Err(Error::parameters(format!(
            "--helpers {helpers}: this machine has {cores} processors; give at most {cores}"
        ))),
        helpers => Ok(helpers),
    }
}

/// A cipher word that this build has, with a key.
pub struct Cipher {
    word: String,
    spec: CipherSpec,
    key: Vec<u8>,
}

impl Cipher {
    /// Of a cipher word.
    pub fn new(word: &str) -> Result<Self, Error> {
        let refused = |why: String| Error::parameters(format!("--cipher {word}: {why}"));
        let spec = CipherSpec::parse(word).map_err(|error| refused(error.to_string()))?;
        let supported = spec.check_supported();
        supported.map_err(|error| refused(error.to_string()))?;
        let fits = |len: &usize| SectorCipher::check_key_size(&spec, *len).is_ok();
        let len = if spec.is_null() {
            Some(0)
        } else {
            KEY_LENS.into_iter().find(fits)
        };
        let len = len.ok_or_else(|| refused("it takes no key that this bench has".into()))?;
        let cipher = Self {
            word: word.to_owned(),
            spec,
            // Not secret; all bytes differ, for ciphers that refuse weak keys.
            key: (1..=u8::MAX).take(len).collect(),
        };
        cipher.sectors().map(|_| cipher)
    }

    /// The cipher word.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Whether it encrypts nothing.
    pub fn is_null(&self) -> bool {
        self.spec.is_null()
    }

    /// The cipher at work.
    pub fn sectors(&self) -> Result<SectorCipher, Error> {
        let options = SectorOptions {
            sector_size: SECTOR_SIZE,
            iv_offset: 0,
            iv_large_sectors: false,
        };
        SectorCipher::new(&self.spec, &self.key, options)
            .map_err(|error| Error::parameters(format!("--cipher {}: {error}", self.word)))
    }

    /// A volume of this cipher over all of `medium`.
    pub fn over(
        &self,
        medium: &Gate,
        mode: Mode,
        helpers: Option<&Helpers>,
    ) -> Result<Gate, Error> {
        self.with(
            medium,
            CryptOptions {
                dispatch: Dispatch::both(mode),
                helpers: helpers.cloned(),
                ..CryptOptions::default()
            },
        )
    }

    /// The same inline, in blocks of `block` bytes where the cipher can be cut that finely.
    pub fn in_blocks(&self, medium: &Gate, block: u32) -> Result<Gate, Error> {
        self.with(
            medium,
            CryptOptions {
                dispatch: Dispatch::both(Mode::Inline),
                logical_block: Some(block),
                ..CryptOptions::default()
            },
        )
    }

    fn with(&self, medium: &Gate, options: CryptOptions) -> Result<Gate, Error> {
        let device = CryptDevice::new(medium.clone(), self.sectors()?, options)?;
        Ok(Gate::new(device))
    }
}

/// A RAM disk of `bytes`, when the machine has `needed` bytes of memory to spare.
pub fn ram(bytes: u64, needed: u64, what_else: &str) -> Result<Gate, Error> {
    if bytes == 0 || !bytes.is_multiple_of(u64::from(SECTOR_SIZE)) {
        return Err(Error::parameters(format!(
            "--size {bytes}: give a multiple of {SECTOR_SIZE} bytes, and not 0, such as 1G"
        )));
    }
    if let Some(available) = available_memory()
        && needed > available
    {
        return Err(Error::parameters(format!(
            "--size {}: that takes {} of memory{what_else}, and {} are free; give a smaller --size",
            size::human(bytes),
            size::human(needed),
            size::human(available)
        )));
    }
    Ok(Gate::new(RamDevice::new(bytes)?))
}
