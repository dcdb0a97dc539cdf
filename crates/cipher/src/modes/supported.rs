//! Which cipher words are served here, and what the kernel says to parts that do not go together.

use super::adiantum::AdiantumStream;
use super::blocks::ServedCipher;
use super::hash::EssivHash;
use crate::spec::{CipherSpec, IvMode, SpecError};

impl CipherSpec {
    /// Checks that a [`SectorCipher`](crate::SectorCipher) can be made of it.
    ///
    /// # Errors
    /// [`SpecError::NotSupportedYet`] with the cipher word, and what the kernel says to parts that
    /// do not go together.
    pub fn check_supported(&self) -> Result<(), SpecError> {
        if self.is_null() && self.chain_mode() == "ecb" && self.key_count() == 1 {
            return Ok(());
        }
        if !is_known(self) {
            return Err(not_supported_yet(self));
        }
        match self.iv_mode() {
            IvMode::Random => Err(SpecError::RandomNeedsIntegrity),
            // The kernel asks for a mode that works in whole blocks and whose IV is one.
            IvMode::Eboiv | IvMode::Elephant if ["ctr", "adiantum"].contains(&self.chain_mode()) => {
                Err(SpecError::IvNeedsBlocks)
            }
            IvMode::Essiv(name) => check_essiv_hash(self, name),
            _ => Ok(()),
        }
    }
}

/// Tells if `spec` names a cipher, mode and IV that go together, whatever the key.
fn is_known(spec: &CipherSpec) -> bool {
    if spec.chain_mode() == "adiantum" {
        // IVs of loop-AES and TrueCrypt have 16 bytes, not 32, and SPDK knows AES-XTS alone.
        let iv_fits = !matches!(spec.iv_mode(), IvMode::Lmk | IvMode::Tcw | IvMode::Spdk);
        return AdiantumStream::by_name(spec.cipher_name()).is_some() && iv_fits;
    }
    let iv_fits = match spec.iv_mode() {
        IvMode::None => spec.chain_mode() == "ecb",
        // Made for CBC alone: its IV of the text is undone by XORing the first block.
        IvMode::Lmk => spec.chain_mode() == "cbc",
        _ => true,
    };
    ServedCipher::by_name(spec.cipher_name()).is_some()
        && ["ecb", "cbc", "ctr", "xts", "lrw"].contains(&spec.chain_mode())
        && iv_fits
}

/// The digest must be a key of the cipher.
fn check_essiv_hash(spec: &CipherSpec, name: &str) -> Result<(), SpecError> {
    let (chain_mode, cipher) = (spec.chain_mode(), spec.cipher_name());
    match EssivHash::by_name(name) {
        // The crypto API makes IVs of one cipher block; Adiantum's has two.
        Some(hash) if chain_mode != "adiantum" && hash.fits(cipher) => Ok(()),
        // The kernel compares with the least and the largest key first.
        Some(hash) if hash.is_between_keys(cipher) => Err(SpecError::EssivKeySize),
        None if EssivHash::is_for_later(name) => Err(not_supported_yet(spec)),
        _ => {
            let name = format!("essiv({chain_mode}({cipher}),{name})");
            Err(SpecError::UnknownCipher(name))
        }
    }
}

fn not_supported_yet(spec: &CipherSpec) -> SpecError {
    // Escaped, since the word may come from a hostile header and go to a terminal.
    let word = spec.as_str().escape_debug();
    SpecError::NotSupportedYet(format!("cipher {word}"))
}
