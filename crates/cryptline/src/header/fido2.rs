//! A key slot that a security key opens, as systemd's tools make it.

use super::{Edited, Header, KeptKey, MadeSlot, UnlockedHeader};
use crate::Result;
use crate::fido2::{Authenticator, NewCredential, new_token};

impl Header {
    /// Adds a key slot for what a security key makes of a random salt, and the token that says so; systemd opens it, too.
    /// The credential has been made before.
    ///
    /// # Errors
    /// A key that does not answer or does not know the credential; a header that must be left alone.
    pub fn bind_fido2(
        self,
        authenticator: &dyn Authenticator,
        credential: &NewCredential,
        slot: Option<u32>,
    ) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            let UnlockedHeader { key, notes: warnings, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            let (secret, token) =
                new_token(&opened.name, authenticator, credential).map_err(|error| error.on(&opened.name))?;
            let (change, slot, token) = opened.on(edit.add_bound(&key, &secret, slot, token))?;
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })
    }
}
