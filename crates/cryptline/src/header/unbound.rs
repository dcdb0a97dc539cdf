//! Key slots that keep another key than that of the volume.

use cryptline_luks::edit::NewSlot;
use cryptline_sys::SecretBuf;

use super::{Edited, Header, MadeSlot};
use crate::Result;
use crate::error::Problem;
use crate::keys::{Key, KeyRequest};

impl Header {
    /// Adds a passphrase that opens a key of `len` bytes, which is not that of the volume: the one that the keys of this
    /// have, or a random one where there are none. LUKS2 only.
    ///
    /// # Errors
    /// A key of another length, no free slot or room, a header that must be left alone.
    pub fn add_unbound_key(self, len: u32, new: &NewSlot) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            this.demand(opened, edit.header())?;
            let key = this.unbound_key(&opened.name, len as usize)?;
            let passphrase = this.new_passphrase_for(&opened.name)?;
            let (change, slot) = opened.on(edit.add_unbound(&key, &passphrase, new))?;
            Ok(MadeSlot { change, slot, token: None, warnings: Vec::new(), key: None })
        })
    }

    fn unbound_key(&self, name: &str, len: usize) -> Result<SecretBuf> {
        if !self.given.has_keys() {
            return Ok(SecretBuf::random(len).map_err(Problem::KeyMemory)?);
        }
        let keys = self.given.keys().map_err(|error| error.on(name))?;
        match keys.key(&KeyRequest::of_volume_key(name, len))? {
            Some(Key::Volume(key)) if key.len() == len => Ok(key),
            Some(Key::Volume(_)) => Err(Problem::VolumeKeyLength { most: len }.on(name)),
            _ => Err(Problem::NoKey.on(name)),
        }
    }
}
