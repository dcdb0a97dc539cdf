//! Rules that a header must keep before its volume is used: a seal, a policy, a measurement.
//!
//! ```text
//!   header, read once ─► policy, measurement ─► key ─► seal ─► cipher ─► counter ─► state file
//!                        before any key slot, token or network is tried
//! ```
//!
//! All of it is about the one copy in memory that the volume is then opened by.
//!
//! `check` comes before any key is tried, `prove` with the volume key, `finish` (counter, state file) when all else is well.
//! Of a header that is about to be written, `expect` looks at the counters, and `note` records its own once it is there: what
//! was refused has changed nothing, and what was changed is no error because of the state file.
//! `ctl add` sends the measurement of what the client has checked, and the server must find the same.

mod error;
mod policy;
pub(crate) mod side_file;
mod state;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cryptline_luks::LuksHeader;
use cryptline_luks::seal::{Covers, MeasureHash, SEAL_KEY_MIN, Seal, SealError, SealKind};
use cryptline_sys::SecretBuf;

pub use error::RulesError;
use policy::HeaderPolicy;

use crate::error::Problem;
use crate::keys::{KeyFile, with_keys_here};
use crate::{Result, Warning};

/// Most bytes of a policy, a seal, or a state file.
const FILE_MAX: u64 = 1 << 20;

/// Demands on a header, without which its volume is not opened or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// A seal must be there and hold. Whatever else says something of a seal wants one, too.
    pub signed: Option<Signed>,
    /// The key of a seal by a key file. With it, no other seal will do unless [`signed`](Self::signed) says so.
    pub seal_key: Option<PathBuf>,
    /// The seal is in this file, not in the header.
    pub seal_file: Option<PathBuf>,
    /// A policy in this file, which the header must follow.
    pub policy: Option<PathBuf>,
    /// The measurement that it must have: of SHA-256, SHA-384 or SHA-512, as its length says.
    pub measure: Option<Vec<u8>>,
    /// The least counter of its seal.
    pub not_older_than: Option<u64>,
    /// File that keeps the highest counter that was seen of each key.
    pub state: Option<PathBuf>,
}

/// Kinds of seals that will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Either.
    Any,
    /// One by this kind of key.
    By(SealKind),
}

impl Signed {
    /// The kind of the word `volume-key` or `file`; of none, either.
    #[must_use]
    pub fn by_word(word: &str) -> Option<Self> {
        if word.is_empty() { Some(Self::Any) } else { SealKind::by_word(word).map(Self::By) }
    }
}

impl HeaderRules {
    /// The same, where it says nothing as `others` do.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            signed: self.signed.or(others.signed),
            seal_key: self.seal_key.or_else(|| others.seal_key.clone()),
            seal_file: self.seal_file.or_else(|| others.seal_file.clone()),
            policy: self.policy.or_else(|| others.policy.clone()),
            measure: self.measure.or_else(|| others.measure.clone()),
            not_older_than: self.not_older_than.or(others.not_older_than),
            state: self.state.or_else(|| others.state.clone()),
        }
    }

    /// A policy that just such a header follows, as JSON, with what its seal says where it has one. It has no measurement.
    ///
    /// # Errors
    /// A seal that is malformed.
    pub fn policy_for(&self, header: &LuksHeader) -> Result<String> {
        policy::of_header(header, self.find_seal(header)?.as_ref())
    }

    /// Takes a parameter of a target, if it is one of these.
    pub(crate) fn take(&mut self, key: &str, value: &[u8]) -> std::result::Result<bool, String> {
        let path = || Some(PathBuf::from(OsStr::from_bytes(value)));
        let text = std::str::from_utf8(value).unwrap_or("\u{fffd}");
        match key {
            "require-signed-header" => {
                self.signed =
                    Some(Signed::by_word(text).ok_or_else(|| format!("{key} is volume-key, file, or nothing"))?);
            }
            "seal-key" | "seal-file" | "header-policy" | "header-state" if value.is_empty() => {
                return Err(format!("{key} names no file"));
            }
            "seal-key" => self.seal_key = path(),
            "seal-file" => self.seal_file = path(),
            "header-policy" => self.policy = path(),
            "header-state" => self.state = path(),
            "expect-measure" => self.measure = Some(parse_measure(text)?),
            "header-not-older-than" => {
                self.not_older_than = Some(text.parse().map_err(|_| format!("{key} is no number"))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Tells if nothing is demanded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the policy and the measurement alone, for who asks others before a key is tried.
    pub(crate) fn check_first(&self, header: &LuksHeader, name: &str) -> Result<()> {
        if self.policy.is_none() && self.measure.is_none() {
            return Ok(());
        }
        self.check_contents(header).map(drop).map_err(|error| error.on(name))
    }

    /// Checks all that can be without the volume key.
    pub(crate) fn check(&self, header: &LuksHeader, name: &str) -> Result<PendingDemands> {
        self.checked(header).map_err(|error| error.on(name))
    }

    fn checked(&self, header: &LuksHeader) -> Result<PendingDemands> {
        if self.is_empty() {
            return Ok(PendingDemands::default());
        }
        let policy = self.check_contents(header)?;
        let Some(signed) = self.demanded(policy.as_ref()) else {
            return Ok(PendingDemands::default());
        };
        let seal = self.seal(header).map_err(|error| match error {
            FoundRule::Seal(error) => cryptline_luks::Error::from(error).into(),
            FoundRule::Other(error) => error,
        })?;
        if let Signed::By(wanted) = signed
            && wanted != seal.kind
        {
            let found = seal.kind;
            return Err(cryptline_luks::Error::from(SealError::Kind { found, wanted }).into());
        }
        if let Some(policy) = &policy {
            policy.check_seal(&seal)?;
        }
        let not_older_than = self.not_older_than.max(policy.and_then(|policy| policy.not_older_than()));
        let mut pending =
            PendingDemands { is_proved: false, not_older_than, state: self.state.clone(), seal: Some(seal) };
        if pending.seal.as_ref().is_some_and(|seal| seal.kind == SealKind::File) {
            let path = self.seal_key.as_deref().ok_or(RulesError::NoSealKey)?;
            pending.verify(header, &seal_key(path)?)?;
        }
        Ok(pending)
    }

    /// Checks all that is not about a seal: nothing of it costs time, or reads what can be read once only. Returns the
    /// policy.
    fn check_contents(&self, header: &LuksHeader) -> Result<Option<HeaderPolicy>> {
        // Of what changes under way nothing can be said; nor is there a policy of it.
        let subject = header.subject(Covers::default()).map_err(cryptline_luks::Error::from)?;
        let policy = self.policy.as_deref().map(HeaderPolicy::read).transpose()?;
        if let Some(policy) = &policy {
            policy.check_header(header, &subject)?;
        }
        if let Some(wanted) = &self.measure {
            let found = hash_of_len(wanted.len()).map(|hash| subject.measure(hash));
            if found.as_ref() != Some(wanted) {
                return Err(RulesError::Measure { found: hex(&found.unwrap_or_default()), wanted: hex(wanted) }.into());
            }
        }
        Ok(policy)
    }

    /// The seals that will do, if one is demanded.
    fn demanded(&self, policy: Option<&HeaderPolicy>) -> Option<Signed> {
        let by_policy = policy.and_then(HeaderPolicy::signed);
        let by_file = self.seal_key.is_some().then_some(Signed::By(SealKind::File));
        let says_more = self.seal_file.is_some() || self.not_older_than.is_some() || self.state.is_some();
        let explicit = self.signed.filter(|signed| *signed != Signed::Any);
        explicit
            .or(by_policy.filter(|signed| *signed != Signed::Any))
            .or(by_file)
            .or(by_policy)
            .or(self.signed)
            .or(says_more.then_some(Signed::Any))
    }

    /// Refuses to make a seal that is older than one that was seen, where that is kept.
    pub(crate) fn check_counter(&self, key_id: &str, counter: u64) -> Result<()> {
        self.state.as_deref().map_or(Ok(()), |path| state::check(path, key_id, counter))
    }

    /// Notes that a header with such a seal is there now, where that is kept. It stays there where that fails.
    pub(crate) fn note(&self, key_id: &str, counter: u64) -> Option<Warning> {
        let path = self.state.as_deref()?;
        let error = state::note(path, key_id, counter).err()?;
        let why = match error.problem() {
            Problem::Rules(RulesError::State { why, .. }) => why.clone(),
            _ => error.to_string(),
        };
        Some(Warning::CounterNotNoted { path: path.into(), why })
    }

    /// The seal where it should be.
    fn seal(&self, header: &LuksHeader) -> std::result::Result<Seal, FoundRule> {
        match &self.seal_file {
            None => header.seal().map_err(FoundRule::Seal),
            Some(path) => {
                Seal::parse_text(&read_small(path, "seal").map_err(FoundRule::Other)?).map_err(FoundRule::Seal)
            }
        }
    }

    /// The seal of a header, where it should be; `None` where there is none.
    pub(crate) fn find_seal(&self, header: &LuksHeader) -> Result<Option<Seal>> {
        match self.seal(header) {
            Ok(seal) => Ok(Some(seal)),
            Err(FoundRule::Seal(SealError::Missing)) => Ok(None),
            Err(FoundRule::Seal(error)) => Err(cryptline_luks::Error::from(error).into()),
            Err(FoundRule::Other(error)) => Err(error),
        }
    }
}

enum FoundRule {
    Seal(SealError),
    Other(crate::Error),
}

/// Demands that only a key can meet, and what comes after it.
#[derive(Default)]
pub(crate) struct PendingDemands {
    seal: Option<Seal>,
    is_proved: bool,
    not_older_than: Option<u64>,
    state: Option<PathBuf>,
}

impl PendingDemands {
    /// Tells if the volume key has to be known.
    pub fn needs_key(&self) -> bool {
        self.seal.is_some() && !self.is_proved
    }

    /// Checks a seal by the volume key.
    pub fn prove(&mut self, header: &LuksHeader, volume_key: &[u8], name: &str) -> Result<()> {
        if self.needs_key() { self.verify(header, volume_key).map_err(|error| error.on(name)) } else { Ok(()) }
    }

    fn verify(&mut self, header: &LuksHeader, key: &[u8]) -> Result<()> {
        let Some(seal) = &self.seal else { return Ok(()) };
        // Hashes copy their key.
        with_keys_here(|| Ok(seal.verify(header, key)?))?;
        self.is_proved = true;
        Ok(())
    }

    /// Checks that the header is not older than it may be, and keeps its counter, when all else is well.
    pub fn finish(&self, name: &str) -> Result<()> {
        self.check_age(state::note).map_err(|error| error.on(name))
    }

    /// The same of a header that is not there yet, whose seal is returned: its counter is to be kept once it is.
    pub fn expect(&self, name: &str) -> Result<Option<&Seal>> {
        self.check_age(state::check).map_err(|error| error.on(name))?;
        Ok(self.seal.as_ref())
    }

    fn check_age(&self, by_state: fn(&Path, &str, u64) -> Result<()>) -> Result<()> {
        let Some(seal) = &self.seal else { return Ok(()) };
        // Guard: nothing is believed of a seal that was not proved.
        if !self.is_proved {
            return Err(RulesError::NeedsKey.into());
        }
        let wanted = self.not_older_than.unwrap_or(0);
        if seal.counter < wanted {
            return Err(cryptline_luks::Error::from(SealError::Old { found: seal.counter, wanted }).into());
        }
        self.state.as_deref().map_or(Ok(()), |path| by_state(path, &seal.key_id, seal.counter))
    }
}

/// The key in all of a file.
pub(crate) fn seal_key(path: &Path) -> Result<SecretBuf> {
    let key = KeyFile::new(path)
        .read(false)
        .map_err(|source| RulesError::SealKey { path: path.into(), source: Box::new(source) })?;
    if key.len() < SEAL_KEY_MIN {
        return Err(RulesError::ShortSealKey { path: path.into(), len: key.len() }.into());
    }
    Ok(key)
}

/// All of a file that people write, or this.
pub(crate) fn read_small(path: &Path, what: &'static str) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|source| RulesError::Read { what, path: path.into(), source })?;
    read_open(&file, path, what)
}

/// The same of one that is open.
fn read_open(file: &File, path: &Path, what: &'static str) -> Result<Vec<u8>> {
    let failed = |source| RulesError::Read { what, path: path.into(), source };
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(failed(std::io::Error::other("it has more than 1 MiB")).into());
    }
    Ok(bytes)
}

fn hash_of_len(len: usize) -> Option<MeasureHash> {
    match len {
        32 => Some(MeasureHash::Sha256),
        48 => Some(MeasureHash::Sha384),
        64 => Some(MeasureHash::Sha512),
        _ => None,
    }
}

/// A measurement from its hexadecimal digits.
///
/// # Errors
/// Why it is none.
pub fn parse_measure(text: &str) -> std::result::Result<Vec<u8>, String> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2) && hash_of_len(digits.len() / 2).is_some());
    let digits = digits.ok_or("a measurement has 64, 96 or 128 hexadecimal digits")?;
    Ok(digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap_or(0)).collect())
}

/// Hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
