//! Next steps in words that every caller understands, whatever its options are called.

use cryptline_engine::OpenError;
use cryptline_engine::btt::BttError;
use cryptline_luks::Error as LuksError;
use cryptline_luks::seal::SealError;

use crate::Contents;
use crate::error::{Error, Problem};
use crate::header::ResizeError;
use crate::partition::PartitionError;
use crate::rules::RulesError;

impl Error {
    /// Returns the text, and what to do next, for a person who has no options of a program to name.
    #[must_use]
    pub fn with_next_step(&self) -> String {
        format!("{self}{}", self.next_step().unwrap_or_default())
    }

    /// Returns what to do next, where the text itself does not say it: words that go on where that ends.
    fn next_step(&self) -> Option<&'static str> {
        Some(match self.problem() {
            Problem::Luks(error) => return of_header(error),
            Problem::Device(error) => return of_device(error),
            Problem::NotLuks(Contents::Partitioned(_)) => "; name a partition of it",
            Problem::NotLuks(_) => "; open it as a plain volume if it is one",
            Problem::PlainOver(_) => "; open it read-only",
            Problem::Partition(PartitionError::NoTable) => "; leave the partition out",
            Problem::Rules(RulesError::NoSealKey | RulesError::NeedsKey) | Problem::NoKey => "; pass a key",
            Problem::Btt(BttError::Nothing) => "; make one first",
            Problem::Btt(BttError::Failed { .. }) => "; open it read-only",
            Problem::Version { .. } => "; ask for that one, or for any",
            Problem::HeaderIsTarget => "; leave the header out",
            Problem::NotShareable => "; open it for one process only",
            Problem::Mapped | Problem::Elsewhere => "; leave direct I/O to the library",
            Problem::StartsEmpty => "; open it for writing",
            Problem::HoldsNothing => "; use a file or device",
            Problem::KeyTooShort { .. } | Problem::VolumeKeyTooShort(..) => "; pass the right key, or a passphrase",
            Problem::VolumeKeyInHex(_) => "; decode it first",
            Problem::VolumeKeyLength { .. } => "; pass the raw key",
            Problem::NotAPassphrase => "; pass a passphrase",
            Problem::Useless { .. } => "; leave it out",
            Problem::EmptyKey => "; put the passphrase in it",
            Problem::Exists { .. } => "; use another name, or replace it and lose its contents",
            Problem::Holds { .. } | Problem::CopyOver => "; replace it and lose its contents, or use another place",
            Problem::ReadOnly | Problem::CopyReadOnly | Problem::SameFile => "; choose another place",
            Problem::NoFolder(_) => "; make it first",
            Problem::NoSize => "; pass one",
            Problem::HasSize(_) => "; leave the size out",
            Problem::CopyTooSmall { .. } | Problem::CopyFull { .. } => "; choose a larger destination",
            Problem::NothingToCopy => "; is the file cut short?",
            Problem::HeaderLocked => "; try again",
            Problem::Reencrypting => "; wait until that has ended",
            Problem::NoNewKey => "; pass one",
            Problem::Resize(ResizeError::Smaller { .. }) => "; allow it to become smaller (data beyond is lost)",
            _ => return None,
        })
    }
}

fn of_header(error: &LuksError) -> Option<&'static str> {
    Some(match error {
        LuksError::NoKey => " Try another passphrase, or name a key slot.",
        LuksError::WrongVolumeKey => " Use the right volume key, or a passphrase.",
        LuksError::NotLuks => "; open it as a plain volume if it is one",
        LuksError::NotSupported(_) => "; the kernel may open it (cryptsetup), as root",
        LuksError::NewerVersion(_) => "; use a newer version of this library, or cryptsetup",
        LuksError::Truncated { .. } | LuksError::TooSmall { .. } => "; is the file cut short?",
        LuksError::KeyMemory(_) => "; free some",
        LuksError::BothCopiesDamaged { .. } | LuksError::Invalid(_) | LuksError::Repair(_) => {
            "; restore a backup of the header"
        }
        LuksError::Guess { .. } => "; restore a backup of the header, or allow the guess",
        LuksError::OddSlot(_) => "; a repair of the header restores what follows from the rest",
        LuksError::Odd { is_removable: true, .. } => "; a forced repair of the header takes it out",
        LuksError::CostLimit { .. } => "; if it is as it should be, allow more time, or name another key slot",
        LuksError::SlotsIgnored(_) => "; name a key slot",
        LuksError::DoubtedCipher(_) => "; if the volume was made so, accept that cipher",
        LuksError::BrokenCipher(_) | LuksError::RepeatedIvs(_) => "; to use it all the same, accept that cipher",
        LuksError::DetachedHeader => "; use the data device as target and this as its header",
        LuksError::NoKeySlot => "; pass the volume key",
        LuksError::SlotInUse(_) => "; use another number, or none",
        LuksError::SlotNotInUse(_) | LuksError::TokenNotInUse(_) => {
            "; the information of the header lists those that are"
        }
        LuksError::NoFreeSlot(_) | LuksError::MetadataFull { .. } => "; remove one first",
        LuksError::Seal(SealError::Missing) => "; seal the header first",
        _ => return None,
    })
}

fn of_device(error: &OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::Busy { .. } => "; stop that one, or open it read-only if it only reads",
        OpenError::NotWritable { .. } | OpenError::Damaged(_) => "; open it read-only",
        OpenError::NoDirect { .. } | OpenError::Blocks(_) => "; leave direct I/O to the library",
        OpenError::Memory(_) => "; free some",
        _ => return None,
    })
}

/// Returns what helps against blocks of `block` bytes.
pub(crate) fn smaller_blocks(block: u32) -> &'static str {
    if block <= 4096 {
        "make a LUKS2 volume with sectors of that size"
    } else {
        "no volume has sectors of that size, so let its server take smaller blocks"
    }
}
