//! Tokens and recovery keys.

use cryptline_luks::edit::{Change, Edit, TokenPlace, TokenSlots};
use cryptline_luks::recovery;
use cryptline_sys::SecretBuf;

use super::{Edited, Header, Unlocked};
use crate::create::Progress;
use crate::error::Problem;
use crate::keys::with_keys;
use crate::{Result, Warning};

impl Header {
    /// Puts a token there, as JSON. Its number is in [`Edited::token`].
    ///
    /// # Errors
    /// What is no token; a number that is in use; LUKS1; a header that must be left alone.
    pub fn set_token(self, token: &str, place: TokenPlace, slots: TokenSlots) -> Result<Edited> {
        self.changed_token(|edit| edit.set_token(token, place, slots))
    }

    /// Puts a token there that says: the passphrase is the user key of this description in the kernel's keyring.
    ///
    /// # Errors
    /// As [`set_token`](Self::set_token).
    pub fn set_keyring_token(
        self,
        description: &str,
        place: TokenPlace,
        slots: TokenSlots,
    ) -> Result<Edited> {
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
    pub fn add_recovery_key(mut self, slot: Option<u32>) -> Result<(Edited, SecretBuf)> {
        let opened = self.open(false)?;
        with_keys(|| {
            let edit = opened.load()?;
            if let cryptline_luks::Header::V1(_) = edit.header() {
                return Err(Problem::NoRecoveryKeys.on(&opened.name));
            }
            let Unlocked { key, notes, .. } = self.unlock(&opened, edit.header())?;
            self.tell(Progress::Deriving)?;
            let text = opened.on(recovery::new_key())?;
            let (change, slot, token) = opened.on(edit.add_recovery(&key, &text, slot))?;
            let mut edited = opened.commit(change, Some(slot))?;
            edited.token = Some(token);
            edited.warnings.extend(notes);
            edited.warnings.extend(Warning::of_key_memory());
            Ok((edited, text))
        })
    }

    fn changed_token(
        mut self,
        change: impl FnOnce(&Edit) -> std::result::Result<(Change<'_>, u32), cryptline_luks::Error>,
    ) -> Result<Edited> {
        let opened = self.open(false)?;
        let edit = opened.load()?;
        let (change, token) = opened.on(change(&edit))?;
        let edited = opened.commit(change, None)?;
        Ok(Edited {
            token: Some(token),
            ..edited
        })
    }
}
