//! Tokens of LUKS2 headers for the library [`cryptline`], which leaves their means to others: servers, chips and programs.
//!
//! ```no_run
//! use cryptline::{Header, Open};
//! use cryptline_tokens::{BindTpm, Pcrs, TpmDevice};
//!
//! let tpm = BindTpm { device: &TpmDevice::default(), pcrs: Pcrs::default(), pin: None };
//! Header::new("disk.img").passphrase("secret").bind(tpm, None)?;
//! let volume = Open::new("disk.img").tokens(cryptline_tokens::all()).open()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! Open::tokens ◄── all(), providers(..)                           the passphrase of a token that is there
//! Header::bind ◄── BindClevis, BindTpm, BindFido2, BindHelper     a new key slot with its token
//! rotate                                                          a new passphrase behind a helper's token
//! ```

#![forbid(unsafe_code)]

mod clevis;
mod exec;
mod fido2;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod tpm;

use std::sync::Arc;

use base64ct::{Base64, Encoding};
use cryptline::{SecretBuf, TokenProvider, Tokens};

pub use clevis::{BindClevis, ClevisTokens, TangKeys};
pub use exec::{BindHelper, ExecTokens, HelperAnswer, HelperCall, Helpers, is_helper_name, rotate};
pub use fido2::{Authenticator, BindFido2, Fido2Tokens, HmacSecretRequest, NewCredential, RELYING_PARTY};
pub use tpm::{BindTpm, Pcrs, TpmDevice, TpmTokens};

/// All tokens that need nothing from the caller: those of Clevis, of this machine's TPM without a PIN, and of the keyring.
#[must_use]
pub fn all() -> Tokens {
    Tokens { providers: providers(TpmDevice::default(), None, None), ..Tokens::default() }
}

/// Providers of all types, with the means that the caller has; those of the others say that they are not used.
#[must_use]
pub fn providers(
    tpm: TpmDevice,
    authenticator: Option<Arc<dyn Authenticator>>,
    helpers: Option<Arc<dyn Helpers>>,
) -> Vec<Arc<dyn TokenProvider>> {
    vec![
        Arc::new(ClevisTokens),
        Arc::new(TpmTokens(tpm)),
        Arc::new(Fido2Tokens(authenticator)),
        Arc::new(ExecTokens(helpers)),
    ]
}

/// A secret as systemd's tokens have it for a passphrase.
fn in_base64(secret: &[u8]) -> std::io::Result<SecretBuf> {
    let mut text = SecretBuf::zeroed(Base64::encoded_len(secret))?;
    Base64::encode(secret, &mut text).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(text)
}
