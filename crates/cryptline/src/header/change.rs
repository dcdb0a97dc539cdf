//! A key slot made anew: under another passphrase, or with other costs.

use cryptline_luks::Error as LuksError;
use cryptline_luks::edit::{Edit, HeaderChange, NewSlot};

use super::{Edited, Header, KeptKey, OpenedHeader};
use crate::Result;
use crate::create::Progress;
use crate::error::Problem;
use crate::setters::setters;

/// Callback that decides if a key slot may be overwritten in place.
pub(super) type ConfirmFn = dyn Fn(&Overwrite<'_>) -> Result<()> + Send + Sync;

/// A key slot that would be overwritten in place, since there is no room for another one. Until that is done, it opens
/// with neither passphrase.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Overwrite<'a> {
    /// The volume, for a question.
    pub name: &'a str,
    /// The number of the key slot.
    pub slot: u32,
    /// No other one keeps the volume key: if the work is cut off, no passphrase opens the volume any more.
    pub is_last: bool,
}

impl Header {
    setters! {
        /// Asked before a key slot is overwritten, which is done only where there is no room for another one. An error from
        /// it leaves everything as it is. Without it, changing a key ends with [`NoRoom`](LuksError::NoRoom) or
        /// [`NoFreeSlot`](LuksError::NoFreeSlot) there.
        fn may_overwrite(confirm: impl Fn(&Overwrite<'_>) -> Result<()> + Send + Sync + 'static) {
            overwrite = Some(Box::new(confirm))
        }
    }

    /// Puts a new passphrase in the place of the one that is given. The key slot keeps its number, in LUKS1 only if all
    /// are in use.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key).
    pub fn change_key(self, new: &NewSlot) -> Result<Edited> {
        self.with_unlocked(KeptKey::AnyKey, |this, opened, edit, key, old| {
            let old = old.ok_or_else(|| Problem::NotAPassphrase.on(&opened.name))?;
            let passphrase = this.new_passphrase_for(&opened.name)?;
            this.tell(Progress::Deriving)?;
            this.replaced(opened, edit, old.slot, key, &passphrase, new)
        })
    }

    /// Makes the key slot of the passphrase anew, under the same passphrase and with other costs.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key).
    pub fn convert_key(self, new: &NewSlot) -> Result<Edited> {
        self.with_unlocked(KeptKey::AnyKey, |this, opened, edit, key, old| {
            let old = old.ok_or_else(|| Problem::NotAPassphrase.on(&opened.name))?;
            this.tell(Progress::Deriving)?;
            this.replaced(opened, edit, old.slot, key, &old.passphrase, new)
        })
    }

    fn replaced<'a>(
        &self,
        opened: &OpenedHeader,
        edit: &'a Edit,
        slot: u32,
        key: &[u8],
        passphrase: &[u8],
        new: &NewSlot,
    ) -> Result<(HeaderChange<'a>, u32)> {
        let replaced = edit.replace(slot, key, passphrase, new);
        match (replaced, &self.overwrite) {
            (Err(LuksError::NoRoom { .. } | LuksError::NoFreeSlot(_)), Some(confirm)) => {
                confirm(&Overwrite { name: &opened.name, slot, is_last: edit.is_last(slot) })?;
                let change = edit.replace_in_place(slot, key, passphrase, new);
                Ok((opened.on(change)?, slot))
            }
            (replaced, _) => opened.on(replaced),
        }
    }
}
