//! Errors of a header, and the kind of failure that each is.
//!
//! Every message is one line and free of control characters: what came from the disk is quoted
//! by [`quote`].

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use crate::hash::UnknownHash;
use crate::seal::SealError;
use crate::trust::Doubted;

/// Kind of failure, for callers that treat alike what has the same remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller asked for something impossible, or not supported yet.
    Parameters,
    /// There is no key: a wrong passphrase or volume key.
    NoKey,
    /// Memory ran out.
    Memory,
    /// The device is the wrong one, or damaged, or has failed.
    Device,
    /// Already there, or in use by somebody else.
    Busy,
}

/// Treatment of a key slot that is repaired by a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// Counts as in use.
    InUse,
    /// Is made free.
    Free,
}

/// A failure to read, unlock or make a header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something impossible.
    #[error("{0}")]
    Parameters(String),
    /// The header is sound but uses something this program can not do.
    #[error("not supported yet: {0}")]
    NotSupported(String),
    /// No key slot opens with the passphrase. The text is the one cryptsetup prints.
    #[error("No key available with this passphrase.")]
    NoKey,
    /// The volume key does not belong to this header.
    #[error("Volume key does not match the volume.")]
    WrongVolumeKey,
    /// Key derivation needs more memory than there is.
    #[error(
        "out of memory: this key slot needs {needed_kib} KiB to derive its key, and {room}; free memory, allow more, or use another key slot"
    )]
    OutOfMemory {
        /// Memory that the key slot asks for, in KiB.
        needed_kib: u64,
        /// Why that is too much.
        room: String,
    },
    /// Locked memory for a key could not be had.
    #[error("out of memory: no room for a key: {0}")]
    KeyMemory(#[source] io::Error),
    /// There is no LUKS magic, neither at the start nor where a second copy could be.
    #[error("not a LUKS volume: no LUKS header found")]
    NotLuks,
    /// The device ends before something that the header says is there.
    #[error("the device is truncated: {what} needs {needed} bytes, the device has {size}")]
    Truncated {
        /// Part of the volume that lies beyond the end.
        what: String,
        /// The bytes the device must have at least.
        needed: u64,
        /// The bytes it has.
        size: u64,
    },
    /// Neither copy of a LUKS2 header is usable.
    #[error("both LUKS2 header copies are damaged (primary: {primary}; secondary: {secondary})")]
    BothCopiesDamaged {
        /// Damage of the copy at the start.
        primary: String,
        /// Damage of the second copy.
        secondary: String,
    },
    /// The header's version is none that this program knows.
    #[error(
        "this is a LUKS header of version {0}, made by a newer version of cryptsetup; only versions 1 and 2 are known here"
    )]
    NewerVersion(u16),
    /// One copy of a LUKS2 header is left, on a device that holds something else by now.
    #[error(
        "refused: the device holds {what}, and {damage}, so it may be a LUKS volume no longer; read-only, it opens; if it is none, remove the header copy that is left with `wipefs --offset {left:#x}`"
    )]
    OtherContents {
        /// Kind of the contents, with its article.
        what: &'static str,
        /// Damage of the header.
        damage: String,
        /// Where the copy is that is left, in bytes.
        left: u64,
    },
    /// The newest copy of a LUKS2 header says something that is not understood here.
    #[error(
        "refused: the {copy} header copy is whole and not understood here ({reason}), and the {used} copy is no newer, so nothing is written; the volume opens read-only; the program that wrote that copy can change it, and the {used} copy may lack key slots"
    )]
    NotUnderstood {
        /// The copy that is not understood.
        copy: &'static str,
        /// The copy that is.
        used: &'static str,
        /// Reason why it is not understood.
        reason: String,
    },
    /// Something of the header that nobody needs to open the volume is not as the format has it.
    #[error("{odd} does not follow the format, so this header is not changed; {next}")]
    Odd {
        /// The key slot or token, and what is wrong with it.
        odd: String,
        /// Advice on what can be done, and whether the volume opens.
        next: &'static str,
        /// Set if a forced repair takes it out.
        is_removable: bool,
    },
    /// A key slot of a LUKS1 header says what cannot be.
    #[error("{0}, so this header is not changed until it is repaired; other key slots still open the volume")]
    OddSlot(String),
    /// The damage of a header cannot be repaired from the rest of it.
    #[error("the header cannot be repaired: {0}; nothing was written")]
    Repair(String),
    /// The damage can be repaired by a guess only, which nobody has allowed.
    #[error("the header cannot be repaired for certain: {odd}; nothing was written")]
    Guess {
        /// The key slot, and what is left of it.
        odd: String,
        /// Result of a forced repair.
        would: Guess,
    },
    /// A field of the header breaks the format.
    #[error("invalid LUKS header: {0}")]
    Invalid(String),
    /// Deriving keys would take longer than the caller allows.
    #[error(
        "refused: {what} would take about {}, the limit is {}; the header may be hostile",
        time_text(.needed), time_text(.limit)
    )]
    CostLimit {
        /// The costs.
        what: String,
        /// The time that they take here, when nothing else runs.
        needed: Duration,
        /// Limit for all key slots together.
        limit: Duration,
    },
    /// The header says that the data or a key slot is not encrypted at all.
    #[error("refused: {0} uses cipher_null, so it is not encrypted")]
    NullCipher(String),
    /// The header says that the data is encrypted in a way that it may have been given by somebody else.
    #[error("refused: {0}")]
    DoubtedCipher(Doubted),
    /// The header is not as its owner left it, or nothing proves that it is.
    #[error("refused: {0}")]
    Seal(#[from] SealError),
    /// The new volume would be encrypted in a way that hides next to nothing.
    #[error("refused: {} hides too little from whoever can write to the disk; use aes-xts-plain64", quote(.0))]
    BrokenCipher(String),
    /// The volume would have several sectors with one IV, and be read only when it is opened again.
    #[error("refused: beyond 2 TiB the IVs of {} repeat (those of plain64 do not), so the volume would be read-only", quote(.0))]
    RepeatedIvs(String),
    /// The header says that this segment of several is not encrypted at all.
    #[error("refused: segment {0} is of type 'linear', so it is not encrypted")]
    ClearSegment(u32),
    /// The header says that the data starts at byte 0, where the header is.
    #[error("this is a detached header without data")]
    DetachedHeader,
    /// No key slot is in use.
    #[error("invalid LUKS header: all key slots are empty: only the volume key can unlock it")]
    NoKeySlot,
    /// No key slot is tried unless it is named. The numbers of those that there are.
    #[error(
        "every key slot of this volume has the priority \"ignore\", so none is tried unless it is named; there are: {0}"
    )]
    SlotsIgnored(String),
    /// The data is part old key, part new key.
    #[error("reencryption in progress ({0}); finish it with `cryptsetup reencrypt --resume-only` first")]
    ReencryptionInProgress(String),
    /// The header needs an ability that this program does not know.
    #[error("the header requires {}", requirement(.0))]
    UnknownRequirement(String),
    /// There is no room for the header or for any data.
    #[error("device too small: {needed} bytes are needed, it has {size}")]
    TooSmall {
        /// The smallest size that would do, in bytes.
        needed: u64,
        /// The size there is, in bytes.
        size: u64,
    },
    /// The key slot that a new key should go to keeps one.
    #[error("key slot {0} is in use")]
    SlotInUse(u32),
    /// The key slot that is named keeps no key.
    #[error("key slot {0} is not in use")]
    SlotNotInUse(u32),
    /// All key slots keep a key.
    #[error("all {0} key slots are in use")]
    NoFreeSlot(u32),
    /// There is a number, but no place on the disk.
    #[error(
        "the header has no room for another key slot: {needed} bytes in one piece are needed; remove a key slot first"
    )]
    NoRoom {
        /// Bytes of a key slot's area.
        needed: u64,
    },
    /// The number that a new token should have is another one's.
    #[error("token {0} is in use")]
    TokenInUse(u32),
    /// There is no token of this number.
    #[error("token {0} is not in use")]
    TokenNotInUse(u32),
    /// All numbers are in use.
    #[error("all {0} tokens are in use; remove one first")]
    NoFreeToken(u32),
    /// This is no token.
    #[error("this is no token: {0}")]
    InvalidToken(String),
    /// Without this slot, only the volume key itself opens the volume.
    #[error("refused: key slot {0} is the last one, so without it no passphrase opens the volume")]
    LastSlot(u32),
    /// Another program has written the header since it was read.
    #[error("another program has changed the header meanwhile; nothing was written, try again")]
    ChangedMeanwhile,
    /// The JSON that would be written back is not just what was read.
    #[error(
        "the header's JSON has numbers, repeated names or bytes that are no UTF-8, which could not be kept as they are; it is left alone, and opens all the same"
    )]
    JsonNotKept,
    /// The metadata has grown beyond its place.
    #[error("the metadata would need {needed} bytes, the header has room for {room}")]
    MetadataFull {
        /// Bytes of the new metadata.
        needed: u64,
        /// Bytes that there are.
        room: u64,
    },
    /// The header no longer names it, but it may still be on the disk.
    #[error("the header is changed, but old key material at offset {offset} could not be overwritten: {source}")]
    NotWiped {
        /// Where, in bytes.
        offset: u64,
        /// Why not.
        source: Box<Error>,
    },
    /// A file that is no backup of a header.
    #[error("this is no backup of a LUKS header: {0}")]
    NotABackup(String),
    /// A backup of another volume, or of none like the one that is there.
    #[error("refused: {0}")]
    BackupDiffers(String),
    /// The device failed.
    #[error("cannot {action} the header at offset {offset}: {source}")]
    Io {
        /// "read" or "write".
        action: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// The device's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Parameters(_)
            | Self::NotSupported(_)
            | Self::DetachedHeader
            | Self::SlotInUse(_)
            | Self::SlotNotInUse(_)
            | Self::NoFreeSlot(_)
            | Self::TokenInUse(_)
            | Self::TokenNotInUse(_)
            | Self::NoFreeToken(_)
            | Self::InvalidToken(_)
            | Self::NoRoom { .. }
            | Self::LastSlot(_)
            | Self::MetadataFull { .. }
            | Self::NotABackup(_)
            | Self::BackupDiffers(_)
            | Self::NoKeySlot
            | Self::SlotsIgnored(_) => ErrorKind::Parameters,
            Self::ChangedMeanwhile => ErrorKind::Busy,
            Self::NoKey | Self::WrongVolumeKey => ErrorKind::NoKey,
            Self::OutOfMemory { .. } | Self::KeyMemory(_) => ErrorKind::Memory,
            _ => ErrorKind::Device,
        }
    }

    pub(crate) fn unknown_kdf(name: &str) -> Self {
        Self::NotSupported(format!("key derivation function {}", quote(name)))
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }
}

impl From<UnknownHash> for Error {
    fn from(UnknownHash(name): UnknownHash) -> Self {
        Self::NotSupported(format!("hash {}", quote(&name)))
    }
}

/// Describes a requirement, quoted, that is not met, and what meets it.
fn requirement(quoted: &str) -> Cow<'_, str> {
    match quoted.trim_matches('\'') {
        "opal" => "encryption by the drive itself (OPAL), which needs the kernel: use `cryptsetup open` as root".into(),
        "inline-hw-tags" => {
            "integrity tags that the drive keeps, which needs the kernel: use `cryptsetup open` as root".into()
        }
        _ => format!("{quoted}, which this program does not know; use a newer version").into(),
    }
}

/// A time in the unit that people would choose.
#[must_use]
pub fn time_text(time: &Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    let units = [(YEAR, "years"), (DAY, "days"), (HOUR, "hours"), (10 * MINUTE, "minutes")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    match unit {
        Some((_, "minutes")) => format!("{} minutes", seconds.div_ceil(MINUTE)),
        Some((unit, name)) => format!("{} {name}", seconds.div_ceil(unit)),
        None if seconds == 1 => "1 second".into(),
        None => format!("{seconds} seconds"),
    }
}

/// `text` from a disk made fit for a one-line message: quoted, escaped and cut short.
pub(crate) fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 48;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("'{}'", shown.escape_debug())
}

/// `text` from a disk made fit for a terminal: control characters become U+FFFD.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_stays_on_one_short_line() {
        assert_eq!(quote("aes"), "'aes'");
        assert_eq!(Error::from(UnknownHash("md4\n".into())).to_string(), "not supported yet: hash 'md4\\n'");
        assert_eq!(quote("a\nb\u{1b}["), "'a\\nb\\u{1b}['");
        assert!(quote(&"x".repeat(10_000)).len() < 60);
    }

    #[test]
    fn times_are_told_in_units_of_people() {
        for (seconds, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (300, "300 seconds"),
            (1860, "31 minutes"),
            (3 * 3600 + 1, "4 hours"),
            (30 * 86400, "30 days"),
            (u64::MAX, "584942417356 years"),
        ] {
            assert_eq!(time_text(&Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn printable_text_has_no_control_characters() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
