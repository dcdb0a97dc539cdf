//! Key slots of tokens: made anew, in the place of old ones.
//!
//! ```text
//! 1  open by the old token      2  new secret, and a token for it that is tried      nothing is written so far
//! 3  write: new slot, new token that says which one it replaces
//! 4  read the header anew, open the new slot by the new token
//! 5  write: old token and its slot go
//! ```
//!
//! A cut before 3 leaves the old one, before 5 both, and then the new one. Another run goes on at 4.

use std::sync::Arc;

use super::{Edited, Header, KeptKey, OpenedHeader, UnlockedHeader};
use crate::keys::with_keys;
use crate::provider::{TokenMaker, TokenProvider, TokenVolume};
use crate::tokens::Tokens;
use crate::{Result, Warning};

/// A token that is to be replaced, or is being replaced.
pub struct Rotation<M> {
    /// Number of the token.
    pub old: u32,
    /// The new one, where an earlier run has made it.
    pub new: Option<u32>,
    /// Maker of the new one, whose JSON says which it replaces: `"replaces": "N"`.
    pub maker: M,
}

impl Header {
    /// Replaces a token and its key slot by new ones, the tokens being those of `provider`; `choose` finds the old token.
    /// Whatever cuts it off, what the header has opens the volume, and another call goes on.
    ///
    /// # Errors
    /// Why there is none to replace; what keeps the tokens from opening the volume, or a new one from being made; no room
    /// for another key slot.
    pub fn rotate<M: TokenMaker>(
        mut self,
        provider: &Arc<dyn TokenProvider>,
        choose: impl FnOnce(&cryptline_luks::LuksHeader) -> Result<Rotation<M>> + Send,
    ) -> Result<Edited> {
        let opened = self.open(false)?;
        with_keys(|| {
            let rotation = choose(opened.load()?.header()).map_err(|error| error.on(&opened.name))?;
            let (old, mut warnings) = (rotation.old, Vec::new());
            let new = match rotation.new {
                Some(new) => new,
                None => {
                    let (new, notes) = self.replacement(&opened, provider, rotation)?;
                    warnings = notes;
                    new
                }
            };
            // Nothing of the old one goes before the new one has opened the volume from what the medium holds.
            let edit = opened.load()?;
            self.given.tokens = Some(only(new, provider));
            let key = self.unlock(&opened, edit.header(), KeptKey::VolumeKey)?.key;
            let change = opened.on(edit.end_replacement(old, new))?;
            let mut edited = self.commit(&opened, change, None, Some(&key))?;
            edited.token = Some(new);
            edited.warnings.extend(warnings);
            edited.warnings.extend(Warning::of_key_memory());
            Ok(edited)
        })
    }

    /// Makes the new token, beside the old one.
    fn replacement<M: TokenMaker>(
        &mut self,
        opened: &OpenedHeader,
        provider: &Arc<dyn TokenProvider>,
        rotation: Rotation<M>,
    ) -> Result<(u32, Vec<Warning>)> {
        let edit = opened.load()?;
        let volume = TokenVolume::new(&opened.name, edit.header());
        let Rotation { old, mut maker, .. } = rotation;
        let prepared = maker.prepare(&volume)?;
        self.given.tokens = Some(only(old, provider));
        let UnlockedHeader { key, notes, .. } = self.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
        let new = maker.make(&volume, prepared)?;
        let (change, _, token) = opened.on(edit.add_bound(&key, &new.secret, None, new.json))?;
        let edited = self.commit(opened, change, None, Some(&key))?;
        Ok((token, edited.warnings.into_iter().chain(new.warning).chain(notes).collect()))
    }
}

fn only(id: u32, provider: &Arc<dyn TokenProvider>) -> Tokens {
    Tokens { id: Some(id), only: true, providers: vec![Arc::clone(provider)], ..Tokens::default() }
}
