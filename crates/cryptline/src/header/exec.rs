//! Key slots that a helper opens: made, and replaced.
//!
//! ```text
//! 1  open by the old token      2  new secret, wrapped and unwrapped      nothing is written so far
//! 3  write: new slot, new token that says which one it replaces
//! 4  read the header anew, unwrap, open the new slot
//! 5  write: old token and its slot go
//! ```
//!
//! A cut before 3 leaves the old one, before 5 both, and then the new one. Another run goes on at 4.

use std::sync::Arc;

use cryptline_luks::token::EXEC_TOKEN;
use serde_json::Value;

use super::{Edited, Header, KeptKey, MadeSlot, OpenedHeader, UnlockedHeader};
use crate::error::Problem;
use crate::exec::{Exec, ExecToken, HelperFailure, Helpers, PATIENCE};
use crate::keys::with_keys;
use crate::tokens::Tokens;
use crate::{Result, Warning};

/// A token that is to be replaced, or is being replaced.
struct Rotation {
    old: u32,
    token: ExecToken,
    /// The new one, where an earlier run has made it.
    new: Option<u32>,
}

impl Header {
    /// Adds a key slot for a new random passphrase that the helper of this name wraps, and the token that says so.
    /// `config` is a JSON object, by which the helper finds its key. Where `is_stored`, the helper has the passphrase
    /// already, as a store of secrets does, and only tells it.
    ///
    /// # Errors
    /// As [`add_key`](Self::add_key); a helper that is not to be run or fails; LUKS1.
    pub fn bind_helper(
        self,
        helpers: &Arc<dyn Helpers>,
        helper: &str,
        config: &str,
        is_stored: bool,
        slot: Option<u32>,
    ) -> Result<Edited> {
        let config = serde_json::from_str::<Value>(config).ok().filter(Value::is_object);
        let no_object = "the configuration of a helper is a JSON object, such as {\"key\": \"disk\"}";
        let config = config.ok_or_else(|| problem(no_object.to_owned()))?;
        self.with_key_memory(|this, opened, edit| {
            let exec = helper_for(&**helpers, helper, config, opened, edit.header())?;
            let failed = |failure: HelperFailure| failure.on(&opened.name);
            exec.check().map_err(failed)?;
            let UnlockedHeader { key, notes: warnings, .. } = this.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
            let made = if is_stored { exec.stored_token() } else { exec.new_token(None) };
            let (secret, token) = made.map_err(failed)?;
            let (change, slot, token) = opened.on(edit.add_bound(&key, &secret, slot, token))?;
            Ok(MadeSlot { change, slot, token: Some(token), warnings, key: Some(key) })
        })
    }

    /// Replaces the passphrase of a token whose helper wraps it: the only such token, or the one of this number. Whatever
    /// cuts it off, what the header has opens the volume, and another call goes on.
    ///
    /// # Errors
    /// No such token, or several; one that is not for one key slot; a helper that is not to be run or fails; no room for
    /// another key slot.
    pub fn rotate(mut self, helpers: &Arc<dyn Helpers>, token: Option<u32>) -> Result<Edited> {
        let opened = self.open(false)?;
        with_keys(|| {
            let edit = opened.load()?;
            let rotation = rotation(edit.header(), &**helpers, token).map_err(|why| problem(why).on(&opened.name))?;
            let mut warnings = Vec::new();
            let new = match rotation.new {
                Some(new) => new,
                None => {
                    let (new, notes) = self.replacement(&opened, helpers, &rotation)?;
                    warnings = notes;
                    new
                }
            };
            // Nothing of the old one goes before the new one has opened the volume from what the medium holds.
            let edit = opened.load()?;
            self.given.tokens = Some(only(new, helpers));
            let key = self.unlock(&opened, edit.header(), KeptKey::VolumeKey)?.key;
            let change = opened.on(edit.end_replacement(rotation.old, new))?;
            let mut edited = self.commit(&opened, change, None, Some(&key))?;
            edited.token = Some(new);
            edited.warnings.extend(warnings);
            edited.warnings.extend(Warning::of_key_memory());
            Ok(edited)
        })
    }

    /// Makes the new token, beside the old one.
    fn replacement(
        &mut self,
        opened: &OpenedHeader,
        helpers: &Arc<dyn Helpers>,
        rotation: &Rotation,
    ) -> Result<(u32, Vec<Warning>)> {
        let edit = opened.load()?;
        let ExecToken { helper, config, .. } = rotation.token.clone();
        let exec = helper_for(&**helpers, &helper, config, opened, edit.header())?;
        self.given.tokens = Some(only(rotation.old, helpers));
        let UnlockedHeader { key, notes, .. } = self.unlock(opened, edit.header(), KeptKey::VolumeKey)?;
        let (secret, token) = exec.new_token(Some(rotation.old)).map_err(|failure| failure.on(&opened.name))?;
        let (change, _, token) = opened.on(edit.add_bound(&key, &secret, None, token))?;
        let edited = self.commit(opened, change, None, Some(&key))?;
        Ok((token, edited.warnings.into_iter().chain(notes).collect()))
    }
}

fn helper_for<'a>(
    helpers: &'a dyn Helpers,
    helper: &str,
    config: Value,
    opened: &OpenedHeader,
    header: &'a cryptline_luks::LuksHeader,
) -> Result<Exec<'a>> {
    if let cryptline_luks::LuksHeader::V1(_) = header {
        return Err(problem("LUKS1 has no tokens".to_owned()).on(&opened.name));
    }
    let exec = Exec::new(helpers, helper, config, header.uuid(), PATIENCE);
    exec.map_err(|refusal| problem(refusal.why()).on(&opened.name))
}

fn only(id: u32, helpers: &Arc<dyn Helpers>) -> Tokens {
    Tokens { id: Some(id), only: true, helpers: Some(Arc::clone(helpers)), ..Tokens::default() }
}

fn problem(why: String) -> Problem {
    Problem::Target(why)
}

/// Finds the token to replace among those whose helper is to be run.
fn rotation(
    header: &cryptline_luks::LuksHeader,
    helpers: &dyn Helpers,
    wanted: Option<u32>,
) -> std::result::Result<Rotation, String> {
    let tokens = header.info().tokens;
    let parsed = |id: u32| ExecToken::parse(&header.token_json(id).unwrap_or_default());
    let known: Vec<_> = tokens.iter().filter(|token| token.kind == EXEC_TOKEN).collect();
    let known = known.into_iter().filter_map(|token| Some((token.id, parsed(token.id).ok()?, token.keyslots.len())));
    let known: Vec<_> = known.filter(|(_, token, _)| helpers.operator(&token.helper).is_some()).collect();
    let is_wanted = |id: u32| wanted.is_none_or(|wanted| wanted == id);
    // One that a cut has left behind.
    for (new, token, _) in &known {
        let Some(old) = token.replaces.filter(|&old| is_wanted(old) || is_wanted(*new)) else {
            continue;
        };
        let replaced = known.iter().find(|(id, other, _)| *id == old && other.helper == token.helper && id != new);
        let Some((_, replaced, _)) = replaced else {
            return Err(format!(
                "token {new} says that it replaces token {old}, which is not of the same helper; import it without that"
            ));
        };
        return Ok(Rotation { old, token: replaced.clone(), new: Some(*new) });
    }
    let mut fitting = known.into_iter().filter(|(id, ..)| is_wanted(*id));
    match (fitting.next(), fitting.next()) {
        (Some((_, ExecToken { wrapped: None, .. }, _)), None) => {
            Err("the passphrase of this token is kept elsewhere, so it cannot be replaced from here".to_owned())
        }
        (Some((old, token, 1)), None) => Ok(Rotation { old, token, new: None }),
        (Some((old, ..)), None) => Err(format!("token {old} is not for one key slot, so nothing can replace it")),
        (None, _) => Err("it has no such token of a helper that is to be run".to_owned()),
        (Some(_), Some(_)) => Err("several of its tokens have such a helper; say which one to replace".to_owned()),
    }
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
