//! Why a header does not keep the rules.

use std::io;
use std::path::PathBuf;

use crate::ErrorKind;

/// A rule that a header breaks, or one that cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The header has another measurement.
    #[error("refused: the header measures {found}, and {wanted} is wanted; it is not the one that was measured")]
    Measure {
        /// Of this header.
        found: String,
        /// Of the one that was meant.
        wanted: String,
    },
    /// The policy has something else.
    #[error("refused: the header policy {path:?} wants {member} {wanted}, and the header has {found}")]
    Policy {
        /// The policy.
        path: PathBuf,
        /// Member of the policy.
        member: &'static str,
        /// As the header has it.
        found: String,
        /// As the policy has it.
        wanted: String,
    },
    /// This is no policy.
    #[error("the header policy {path:?} cannot be used: {why}")]
    BadPolicy {
        /// The file.
        path: PathBuf,
        /// Defect.
        why: String,
    },
    /// A policy or a seal cannot be read.
    #[error("the {what} {path:?} cannot be read: {source}")]
    Read {
        /// Kind of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A seal cannot be written.
    #[error("the seal {path:?} cannot be written: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A seal by a key file, and no key.
    #[error("refused: the header is sealed by a key file, and none was named, so the seal cannot be checked")]
    NoSealKey,
    /// A seal by the volume key, and no key.
    #[error("refused: the header is sealed by the volume key, and no key was named, so the seal cannot be checked")]
    NeedsKey,
    /// The key of a seal cannot be read.
    #[error("the key of seals {path:?} cannot be used: {source}")]
    SealKey {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Box<crate::Error>,
    },
    /// The key of a seal is too easy to guess.
    #[error("the key of seals {path:?} has {len} bytes, at least 32 are needed; use random ones")]
    ShortSealKey {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        len: usize,
    },
    /// The file of counters cannot be used.
    #[error("refused: the state file {path:?} cannot be {action}: {why}; nothing was opened")]
    State {
        /// The file.
        path: PathBuf,
        /// "read" or "written".
        action: &'static str,
        /// Why not.
        why: String,
    },
    /// The file of counters has seen a newer header.
    #[error(
        "refused: the header is older than one that was seen before: its seal has the counter {found}, the state file {path:?} has {seen}; an old header may have been put back"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Counter of the seal.
        found: u64,
        /// Highest that was seen.
        seen: u64,
    },
}

impl RulesError {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSealKey | Self::NeedsKey | Self::SealKey { .. } | Self::ShortSealKey { .. } => ErrorKind::NoKey,
            _ => ErrorKind::Device,
        }
    }
}
