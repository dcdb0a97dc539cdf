//! Tokens and recovery keys.

use cryptline_luks::edit::{Edit, HeaderChange, TokenPlace, TokenSlots};
use cryptline_luks::format::LuksVersion;
use cryptline_luks::recovery;
use cryptline_sys::SecretBuf;

use super::{Edited, Header, KeptKey, MadeSlot, UnlockedHeader};
use crate::Result;
use crate::create::Progress;
use crate::error::Problem;
use crate::provider::{TokenMaker, TokenVolume};

impl Header {
    /// Puts a token there, as JSON. Its number is in [`Edited::token`].
    ///
    /// # Errors
    /// Fails for what is no token, a number that is in use, LUKS1, and a header that must be left alone.
    pub fn set_token(self, token: &str, place: TokenPlace, slots: TokenSlots) -> Result<Edited> {
        self.changed_token(|edit| edit.set_token(token, place, slots))
    }

    /// Puts a token there that says: the passphrase is the user key of this description in the kernel's keyring.
    ///
    /// # Errors
    /// As [`set_token`](Self::set_token).
    pub fn set_keyring_token(self, description: &str, place: TokenPlace, slots: TokenSlots) -> Result<Edited> {
        self.changed_token(|edit| edit.set_keyring_token(description, place, slots))
    }

    /// Removes a token. The key slots that it was for stay.
    ///
    /// # Errors
    /// No such token; LUKS1; a header that must be left alone.
    pub fn remove_token(self, id: u32) -> Result<Edited> {
        self.changed_token(|edit| Ok((edit.remove_token(id)?, id)))
    }

    /// Says that a token is not for this key slot any more.
    ///
    /// # Errors
    /// As [`remove_token`](Self::remove_token), and where it was not.
    pub fn unassign_token(self, id: u32, slot: u32) -> Result<Edited> {
        self.changed_token(|edit| Ok((edit.unassign_token(id, slot)?, id)))
    }

    /// Adds a key slot for a new random recovery key, and returns that as text: the passphrase of the slot. It is
    /// marked by a token as systemd's are, so it opens the volume whatever its case, and without its dashes.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); LUKS1.
    pub fn add_recovery_key(self, slot: Option<u32>) -> Result<(Edited, SecretBuf)> {
        let mut text = None;
        let edited = self.with_key_memory(|this, opened, edit| {
            if edit.header().version() == LuksVersion::Luks1 {
                return Err(Problem::NoRecoveryKeys.on(&opened.name));
            }
            let UnlockedHeader { key, notes: warnings, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            this.tell(Progress::Deriving)?;
            let text = text.insert(opened.on(recovery::new_key())?);
            let (change, slot, token) = opened.on(edit.add_recovery(&key, text, slot))?;
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })?;
        Ok((edited, text.expect("it was made for the key slot")))
    }

    /// Adds a key slot for a passphrase that `maker` makes, and the token that yields it.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); what keeps the maker from making one; LUKS1.
    pub fn bind<M: TokenMaker>(self, mut maker: M, slot: Option<u32>) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            let volume = TokenVolume::new(&opened.name, edit.header());
            let prepared = maker.prepare(&volume)?;
            let UnlockedHeader { key, notes, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            let new = maker.make(&volume, prepared)?;
            let (change, slot, token) = opened.on(edit.add_bound(&key, &new.secret, slot, new.json))?;
            let warnings = new.warning.into_iter().chain(notes).collect();
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })
    }

    fn changed_token(
        self,
        change: impl FnOnce(&Edit) -> std::result::Result<(HeaderChange<'_>, u32), cryptline_luks::Error>,
    ) -> Result<Edited> {
        let mut token = None;
        let edited = self.changed(None, |edit| {
            let (change, id) = change(edit)?;
            token = Some(id);
            Ok(change)
        })?;
        Ok(Edited { token, ..edited })
    }
}
