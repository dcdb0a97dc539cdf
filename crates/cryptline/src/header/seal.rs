//! Seals: made, checked, and renewed when the header changes.
//!
//! A seal is renewed in the write that would void it, and only if it held before: `HeaderChange::resealed` verifies it again.

use std::path::PathBuf;

use cryptline_luks::edit::HeaderChange;
use cryptline_luks::seal::{Covers, Seal, SealError, SealKind, key_id};
use cryptline_sys::SecretBuf;

use super::{Edited, Header, KeptKey, OpenedHeader};
use crate::error::Problem;
use crate::keys::{with_keys, with_keys_here};
use crate::rules::side_file::SideFile;
use crate::rules::{HeaderRules, Signed, seal_key};
use crate::{Result, Warning};

/// Parameters of a new seal.
#[derive(Clone, Debug, Default)]
pub struct SealOptions {
    /// Parts that it is of besides.
    pub covers: Covers,
    /// Its counter; `None`: one more than that of the seal in its place under the same key.
    pub counter: Option<u64>,
    /// File with its key. `None`: the volume key.
    pub key: Option<PathBuf>,
    /// File that it is written to. `None`: the header, which only LUKS2 has a place in.
    pub file: Option<PathBuf>,
}

/// A header that was sealed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sealed {
    /// The seal.
    pub seal: Seal,
    /// The header as it is now.
    pub header: cryptline_luks::LuksHeader,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

impl Header {
    /// Seals the header as it is. The volume is unlocked first, so that nobody seals one that is not theirs.
    ///
    /// # Errors
    /// A wrong key, a key file that cannot be used, a header that cannot be sealed or must be left alone.
    pub fn sign(mut self, options: &SealOptions) -> Result<Sealed> {
        let side = options.file.as_deref().map(SideFile::look).transpose()?;
        let opened = self.open(side.is_some())?;
        with_keys(|| {
            let edit = if side.is_some() { opened.look()? } else { opened.load()? };
            let header = edit.header();
            let unlocked = self.unlock(&opened, header, KeptKey::VolumeKey)?;
            let before = side.as_ref().map_or_else(|| header.seal().ok(), |side| side.seal().cloned());
            let rules = self.given.rules();
            let seal = new_seal(options, before, header, unlocked.key).and_then(|seal| {
                rules.check_counter(&seal.key_id, seal.counter)?;
                Ok(seal)
            });
            let seal = seal.map_err(|error| error.on(&opened.name))?;
            let mut edited = match &side {
                Some(side) => {
                    side.write(&seal)?;
                    Edited::of(header.clone(), None)
                }
                None => opened.commit(opened.on(edit.set_seal(&seal))?, None)?,
            };
            edited.warnings.extend(rules.note(&seal.key_id, seal.counter));
            edited.warnings.extend(unlocked.notes);
            edited.warnings.extend(Warning::of_key_memory());
            Ok(Sealed { seal, header: edited.header, warnings: edited.warnings })
        })
    }

    /// Checks the seal and all other rules, and returns the seal. What it is of is the header that is returned. A header
    /// of which one copy is damaged, and one that may only be read, can hold a seal as well.
    ///
    /// # Errors
    /// No seal, or one that does not hold; a wrong key.
    pub fn verify(mut self) -> Result<Sealed> {
        self.given.add_rules(&HeaderRules { signed: Some(Signed::Any), ..HeaderRules::default() });
        let opened = self.open(true)?;
        with_keys(|| {
            let edit = opened.look()?;
            let header = edit.header();
            let key = self.demand(&opened, header)?;
            let seal = self.given.rules().find_seal(header).map_err(|error| error.on(&opened.name))?;
            let seal = seal.ok_or_else(|| Problem::Luks(SealError::Missing.into()).on(&opened.name))?;
            let mut edited = Edited::of(header.clone(), None);
            edited.warnings.extend(key.and_then(|_| Warning::of_key_memory()));
            Ok(Sealed { seal, header: edited.header, warnings: edited.warnings })
        })
    }

    /// Checks what is demanded of a header that nothing else unlocks. The key that this took is returned.
    pub(super) fn demand(
        &self,
        opened: &OpenedHeader,
        header: &cryptline_luks::LuksHeader,
    ) -> Result<Option<SecretBuf>> {
        let mut demanded = self.given.rules().check(header, &opened.name)?;
        let mut key = None;
        if demanded.needs_key() && self.given.has_keys() {
            let unlocked = self.unlock_any(opened, header, KeptKey::VolumeKey)?;
            demanded.prove(header, &unlocked.key, &opened.name)?;
            key = Some(unlocked.key);
        }
        demanded.finish(&opened.name)?;
        Ok(key)
    }

    /// Commits a change that needs no key but for what is demanded, and for a seal.
    pub(super) fn commit_sealed(
        &self,
        opened: &OpenedHeader,
        change: HeaderChange<'_>,
        slot: Option<u32>,
    ) -> Result<Edited> {
        let key = self.key_of_seal(opened, &change)?;
        self.commit(opened, change, slot, key.as_ref())
    }

    /// The same as [`demand`](Self::demand), where a change would void a seal by the volume key, which is then needed.
    fn key_of_seal(&self, opened: &OpenedHeader, change: &HeaderChange<'_>) -> Result<Option<SecretBuf>> {
        let header = change.of().header();
        let key = self.demand(opened, header)?;
        let voided = header.seal().ok().filter(|seal| seal.kind == SealKind::VolumeKey && change.voids(seal, false));
        if key.is_some() || voided.is_none() || !self.given.has_keys() {
            return Ok(key);
        }
        Ok(Some(self.unlock_any(opened, header, KeptKey::VolumeKey)?.key))
    }

    /// Commits a change. A seal that holds, and will not for the header as it will be, is renewed with it where its key is
    /// there: the volume key, or that of the rules. What did not hold before is not made to.
    pub(super) fn commit(
        &self,
        opened: &OpenedHeader,
        change: HeaderChange<'_>,
        slot: Option<u32>,
        volume_key: Option<&SecretBuf>,
    ) -> Result<Edited> {
        let (change, renewed) = self.resealed(opened, change, volume_key)?;
        self.noted(opened.commit(change, slot), renewed)
    }

    /// Has a new counter kept, also where only old key material could not be overwritten.
    pub(super) fn noted(&self, edited: Result<Edited>, renewed: Renewed) -> Result<Edited> {
        let is_made = match &edited {
            Ok(_) => true,
            Err(error) => matches!(error.problem(), Problem::Luks(cryptline_luks::Error::NotWiped { .. })),
        };
        let warning = match renewed {
            Renewed::Void => Some(Warning::SealVoid),
            // The old header is an old one from now on.
            Renewed::As { key_id, counter } if is_made => self.given.rules().note(&key_id, counter),
            Renewed::As { .. } | Renewed::No => None,
        };
        let mut edited = edited?;
        edited.warnings.extend(warning);
        Ok(edited)
    }

    pub(super) fn resealed<'a>(
        &self,
        opened: &OpenedHeader,
        change: HeaderChange<'a>,
        volume_key: Option<&SecretBuf>,
    ) -> Result<(HeaderChange<'a>, Renewed)> {
        let rules = self.given.rules();
        let side = rules.seal_file.is_some();
        let header = change.of().header();
        let Ok(Some(seal)) = rules.find_seal(header) else { return Ok((change, Renewed::No)) };
        if !change.voids(&seal, side) {
            return Ok((change, Renewed::No));
        }
        let key = match (seal.kind, &rules.seal_key) {
            _ if side => None,
            (SealKind::VolumeKey, _) => {
                volume_key.map(|key| SecretBuf::copy_of(key)).transpose().map_err(Problem::KeyMemory)?
            }
            (SealKind::File, path) => path.as_deref().map(seal_key).transpose()?,
        };
        let Some(key) = key else { return Ok((change, Renewed::Void)) };
        // Hashes copy their key.
        if with_keys_here(|| Ok(seal.verify(header, &key)))?.is_err() {
            return Ok((change, Renewed::Void));
        }
        let change = with_keys_here(|| Ok(change.resealed(&seal, &key)))?;
        let renewed = Renewed::As { key_id: seal.key_id, counter: seal.counter.saturating_add(1) };
        Ok((opened.on(change)?, renewed))
    }
}

/// Fate of a seal whose header is written.
pub(super) enum Renewed {
    /// None is there, or it holds as before, or did not.
    No,
    Void,
    /// Another one is there.
    As {
        key_id: String,
        counter: u64,
    },
}

fn new_seal(
    options: &SealOptions,
    before: Option<Seal>,
    header: &cryptline_luks::LuksHeader,
    volume_key: SecretBuf,
) -> Result<Seal> {
    let (kind, key) = match &options.key {
        Some(path) => (SealKind::File, seal_key(path)?),
        None => (SealKind::VolumeKey, volume_key),
    };
    let subject = header.subject(options.covers).map_err(cryptline_luks::Error::from)?;
    let counter = match options.counter {
        Some(counter) => counter,
        None => {
            let id = key_id(&key)?;
            let before = before.filter(|seal| seal.key_id == id).map_or(0, |seal| seal.counter);
            before.checked_add(1).ok_or_else(|| cryptline_luks::Error::from(SealError::Counter))?
        }
    };
    Ok(Seal::new(&key, kind, &subject, options.covers, counter)?)
}
