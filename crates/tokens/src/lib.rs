//! Tokens of LUKS2 headers for the library [`cryptline`], which leaves their means to others: servers, chips and programs.
//!
//! ```no_run
//! use cryptline::Open;
//!
//! let volume = Open::new("disk.img").tokens(cryptline_tokens::all()).open()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! Open::tokens ◄── all(), providers(..)            a passphrase of a token that is there
//! Header::bind ◄── BindFido2, BindHelper           a new key slot with its token
//! ```

#![forbid(unsafe_code)]

mod exec;
mod fido2;

use std::sync::Arc;

use base64ct::{Base64, Encoding};
use cryptline::{SecretBuf, TokenProvider, Tokens};

pub use exec::{BindHelper, ExecTokens, HelperAnswer, HelperCall, Helpers, is_helper_name, rotate};
pub use fido2::{Authenticator, BindFido2, Fido2Tokens, HmacSecretRequest, NewCredential, RELYING_PARTY};

/// All tokens that need nothing from the caller.
#[must_use]
pub fn all() -> Tokens {
    Tokens { providers: providers(None, None), ..Tokens::default() }
}

/// Providers of all types, with the means that the caller has; those of the others say that they are not used.
#[must_use]
pub fn providers(
    authenticator: Option<Arc<dyn Authenticator>>,
    helpers: Option<Arc<dyn Helpers>>,
) -> Vec<Arc<dyn TokenProvider>> {
    vec![Arc::new(Fido2Tokens(authenticator)), Arc::new(ExecTokens(helpers))]
}

/// A secret as systemd's tokens have it for a passphrase.
fn in_base64(secret: &[u8]) -> std::io::Result<SecretBuf> {
    let mut text = SecretBuf::zeroed(Base64::encoded_len(secret))?;
    Base64::encode(secret, &mut text).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(text)
}
