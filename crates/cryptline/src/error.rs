//! Why something failed: what kind of failure it is, what exactly, on what, and the cause below.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use cryptline_cipher::{CipherError, SpecError};
use cryptline_engine::btt::BttError;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::table::TableError;
use cryptline_engine::zone::LayoutError;
use cryptline_engine::{Fault, OpenError};
pub use cryptline_luks::ErrorKind;

use crate::VolumeKind;
use crate::contents::Contents;
use crate::copy::{CopyError, CopyRemains, ResumeError};
use crate::direction::Direction;
use crate::header::ResizeError;
use crate::partition::PartitionError;
use crate::rules::RulesError;
use crate::size::human;
use crate::steps::smaller_blocks;

/// A failure to open, unlock or create a volume.
///
/// Its text is one line for people. Programs look at [`kind`](Self::kind), then at [`problem`](Self::problem).
#[derive(Debug)]
pub struct Error {
    name: Option<String>,
    problem: Box<Problem>,
}

/// Exact cause of a failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The name of a target makes no sense.
    #[error("{0}")]
    Target(String),
    /// A header could not be read, unlocked or made.
    #[error(transparent)]
    Luks(#[from] cryptline_luks::Error),
    /// A header does not meet what was demanded of it.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A device could not be opened, or a layer does not fit it.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// A block translation table is missing or damaged.
    #[error(transparent)]
    Btt(#[from] BttError),
    /// Zones cannot lie so.
    #[error(transparent)]
    Zones(#[from] LayoutError),
    /// A device-mapper table was refused.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A partition is not there, or cannot be used.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// There is no LUKS header, and something else.
    #[error("not a LUKS volume: this is {0}")]
    NotLuks(Contents),
    /// A plain volume would be opened for writing over something else.
    #[error("this is {0}, which a plain volume would overwrite")]
    PlainOver(Contents),
    /// A range that leaves its target.
    #[error("{length} bytes from byte {offset} on are asked for, it has {size} in all; is the file cut short?")]
    PastEnd {
        /// The first byte that was asked for.
        offset: u64,
        /// How many.
        length: u64,
        /// The bytes there are.
        size: u64,
    },
    /// A table that is no text.
    #[error("this is no table; use `START LEN crypt ...` lines")]
    NoTable,
    /// There is no such cipher here.
    #[error("{word}: {error}")]
    CipherWord {
        /// The cipher as it was asked for.
        word: String,
        /// Why not.
        error: SpecError,
    },
    /// The caller's key, sector size or IV offset does not fit the cipher.
    #[error(transparent)]
    Cipher(CipherError),
    /// The header's do not.
    #[error(transparent)]
    HeaderCipher(CipherError),
    /// The volume is of another version than was asked for.
    #[error("this is {found}, and another version was asked for")]
    Version {
        /// Actual kind.
        found: VolumeKind,
    },
    /// The detached header is the target itself.
    #[error("the header and the target are the same file")]
    HeaderIsTarget,
    /// Memory cannot be shared with others, nor what is mapped.
    #[error("others cannot use it at the same time")]
    NotShareable,
    /// Only NBD servers are connected to again.
    #[error("it is no NBD server, so there is no connection to make again")]
    NoConnection,
    /// There is no page cache to bypass.
    #[error("it is mapped into memory, so there is no page cache to bypass")]
    Mapped,
    /// The page cache is another machine's or program's.
    #[error("its server decides about the page cache")]
    Elsewhere,
    /// Memory that cannot be written would stay empty for ever.
    #[error("it starts empty, so opening it read-only makes no sense")]
    StartsEmpty,
    /// No header, since it starts empty.
    #[error("it starts empty: there is no volume in it")]
    HoldsNothing,
    /// A new random key is in no table.
    #[error("it has a new random key each time, so it has no table; use a file or device")]
    RandomKey,
    /// The smallest I/O that was asked for is impossible.
    #[error(
        "a logical block of {block} bytes is not possible: use a power of two from 512 to the volume's cipher sector, {sector}"
    )]
    LogicalBlock {
        /// Size that was asked for, in bytes.
        block: u32,
        /// The largest, in bytes.
        sector: u32,
    },
    /// Blocks so small would rewrite sectors that others write to.
    #[error(
        "a write of {block} bytes has to read and write {least} here, which cannot be made safe while others write to the target"
    )]
    SharedRewrites {
        /// Size that was asked for, in bytes.
        block: u32,
        /// Bytes that a write has to rewrite.
        least: u32,
    },
    /// A block translation table has larger sectors than the volume is written in.
    #[error(
        "the volume is read and written in units of {unit} bytes, the BTT below it has sectors of {sector}; make a table of 512-byte sectors, or a volume with larger ones"
    )]
    BttSectors {
        /// Bytes in the volume's smallest transfer.
        unit: u32,
        /// Bytes in a sector of the table.
        sector: u32,
    },
    /// The device has larger blocks than the volume would be written in.
    #[error(
        "the volume would be read and written in units of {unit} bytes, the device has blocks of {block}; {}", smaller_blocks(*.block)
    )]
    DeviceBlocks {
        /// Bytes in the volume's smallest transfer.
        unit: u32,
        /// Bytes in a block of the device.
        block: u32,
    },
    /// Two demands on who runs the cipher contradict each other.
    #[error("{flag}{} contradicts {asked} {mode}", if *.stored { " in the table" } else { "" })]
    Dispatch {
        /// The flag's name in a table.
        flag: &'static str,
        /// Set if it is one of the table's.
        stored: bool,
        /// Requests that the mode was asked for.
        asked: Direction,
        /// The mode.
        mode: DispatchMode,
    },
    /// Too little is left for a plain volume.
    #[error("{0} bytes are left behind the start of the data, too few for the volume; is the file cut short?")]
    TooShort(u64),
    /// No key slot tells how long the volume key is.
    #[error("no key slot tells the length of the key; only the volume key itself does")]
    KeyLengthUnknown,
    /// The volume key is shorter than the volume needs.
    #[error("the volume key has {has} bytes, {needs} are needed")]
    KeyTooShort {
        /// Its bytes.
        has: usize,
        /// The bytes that the cipher takes.
        needs: usize,
    },
    /// A passphrase, and nobody said how a plain volume makes its key of it.
    #[error("the hash that makes the key of the passphrase is not known")]
    NoHash,
    /// A table has zeros where a key must be, in this line.
    #[error("the key in line {0} of the table is all zeros, so it was hidden when the table was printed")]
    MaskedKey(usize),
    /// A token has a PIN, and nobody is there to give it.
    #[error("it wants a PIN, and there is nobody to ask for it")]
    NoPin,
    /// Nothing was given to unlock the volume with.
    #[error("no key was given")]
    NoKey,
    /// Only tokens may unlock it, and there is none.
    #[error("{0}")]
    NoSuchToken(String),
    /// Only tokens may unlock it, and none does.
    #[error("no token unlocks it: {0}")]
    NoToken(String),
    /// A tang server cannot be used.
    #[error("the tang server cannot be used: {0}")]
    Tang(String),
    /// Senseless configuration of clevis's pin sss.
    #[error("the configuration of the pins cannot be used: {0}")]
    Pins(String),
    /// A TPM cannot be used.
    #[error("no TPM keeps a key for it: {0}")]
    Tpm(String),
    /// Nothing was given for the new key slot.
    #[error("no new passphrase was given")]
    NoNewKey,
    /// A recovery key is marked by a token.
    #[error("LUKS1 has no recovery keys")]
    NoRecoveryKeys,
    /// Another program keeps the lock of the header.
    #[error("another program is reading or writing the header")]
    HeaderLocked,
    /// The kernel's device for a partition that was named through its disk.
    #[error("the kernel has this partition as {0:?}, a device that is missing here; add it")]
    NoOwnDevice(PathBuf),
    /// Another program keeps the lock of reencryption.
    #[error("another program is reencrypting the volume")]
    Reencrypting,
    /// A volume key, where only a passphrase will do.
    #[error("a passphrase is needed here, not a volume key")]
    NotAPassphrase,
    /// Something was given that this volume takes from elsewhere, or does not have.
    #[error("{volume} has no use for {given}")]
    Useless {
        /// The volume, with its article.
        volume: &'static str,
        /// Item that was given, with its article.
        given: &'static str,
    },
    /// Nothing tells a right key from a wrong one.
    #[error("a volume without a header has nothing to try a key on")]
    NothingToTry,
    /// A new random key would make what is there unreadable.
    #[error("only memory can be opened under a new random key: what else it holds would be lost")]
    NotMemory,
    /// A passphrase or key of no bytes.
    #[error("it is empty")]
    EmptyKey,
    /// Key file that ends before the key does.
    #[error("it has only {has} of the {needs} bytes that are needed")]
    KeyFileTooShort {
        /// The bytes there are.
        has: usize,
        /// The bytes that were asked for.
        needs: usize,
    },
    /// No passphrase is so long.
    #[error("it is longer than 8M, the most that a passphrase can have")]
    PassphraseTooLong,
    /// The volume key that a header proves has so many bytes, and there are only so many.
    #[error("the volume key has {0} bytes, and this holds {1}")]
    VolumeKeyTooShort(usize, usize),
    /// Hexadecimal digits in place of the volume key, so many.
    #[error("the volume key in it is {0} hexadecimal digits, not bytes")]
    VolumeKeyInHex(usize),
    /// No volume key has this length.
    #[error("a volume key has 1 to {most} bytes")]
    VolumeKeyLength {
        /// The most there can be.
        most: usize,
    },
    /// The file exists already.
    #[error("it exists already{}", holds.map_or_else(String::new, |what| format!(" and holds {what}")))]
    Exists {
        /// Its contents, with their article, where they are known.
        holds: Option<&'static str>,
    },
    /// An earlier command was cut off between two names.
    #[error("cut off before it got its name, this header may be all that opens its data; move or remove it")]
    HeaderLeft,
    /// A header that could not get its name when its data had got its own: it keeps this one.
    #[error("the header cannot have this name: {1}; it is whole as {0:?}, and all that opens its data: move it")]
    HeaderKept(PathBuf, #[source] io::Error),
    /// The device holds something.
    #[error("it already holds {what}")]
    Holds {
        /// Contents, with their article.
        what: &'static str,
    },
    /// Something that exists and is no file that could be replaced.
    #[error("it is not a regular file, and nothing else is replaced by one; use the name of a new file")]
    NotAFile,
    /// Cannot be written.
    #[error("it is read-only, so no volume can be made there")]
    ReadOnly,
    /// No volume can be made there.
    #[error(
        "volumes are made in files, on pmem:PATH and btt:PATH, at NBD URIs and in Ceph images (rbd:POOL/IMAGE); for a file of this name use ./{0}"
    )]
    NoPlace(String),
    /// A new file needs a size.
    #[error("a new file needs a size")]
    NoSize,
    /// A device has its size.
    #[error("it has its size already, {}", human(*.0))]
    HasSize(u64),
    /// Nothing can be made in a folder that is not there.
    #[error("cannot create it: the folder {} does not exist", .0.display())]
    NoFolder(PathBuf),
    /// The temporary file of something new could not be made, written or renamed. Nothing was kept.
    #[error("cannot {action} it: {source}; nothing was kept")]
    Draft {
        /// Verb for what was tried.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The result is not what it should be.
    #[error("what was made does not open again ({0}); nothing was kept, is the disk failing?")]
    DoesNotOpen(String),
    /// The same on a device, which is left without what it held before.
    #[error("what was made does not open again ({0}), and what was there before is lost; is the disk failing?")]
    DoesNotOpenInPlace(String),
    /// A copy onto itself.
    #[error("the source and the destination are the same")]
    SameFile,
    /// A header that would be made where its data is.
    #[error("the header would replace the data; give it a file of its own")]
    HeaderOverData,
    /// A source of no bytes.
    #[error("it is empty, so there is nothing to copy")]
    NothingToCopy,
    /// A copy cannot be made so.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Unknown contents of the holes of a device.
    #[error("holes can be kept in a new file only")]
    HolesOfDevice,
    /// A volume that has been written to.
    #[error("something may have been written to this volume already")]
    CopyOver,
    /// A destination that cannot be written.
    #[error("it is read-only, so nothing can be copied to it")]
    CopyReadOnly,
    /// A source that ends within a sector, which cannot be read: bytes behind the last whole one, and up to there.
    #[error("its last {0} bytes are no whole sector and would be missing; length={1} leaves them out")]
    CopyCutsOff(u64, u64),
    /// The destination cannot take all of the source.
    #[error("it has room for {has} bytes, and the source needs {needs}")]
    CopyTooSmall {
        /// The bytes there are.
        has: u64,
        /// The bytes there must be.
        needs: u64,
    },
    /// A stream that does not end where the destination does.
    #[error("it has more bytes than there is room for, {room}; {left}")]
    CopyFull {
        /// The bytes there are.
        room: u64,
        /// Remains of the copy.
        left: CopyRemains,
    },
    /// Something could not be read, written or made durable.
    #[error("cannot {action}{}: {fault}; {left}", offset.map_or_else(|| " it".to_owned(), |at| format!(" at byte {at}")))]
    CopyFault {
        /// Verb for what was tried.
        action: &'static str,
        /// Where.
        offset: Option<u64>,
        /// Why not.
        fault: Fault,
        /// Remains of the copy.
        left: CopyRemains,
    },
    /// The caller wanted no more.
    #[error("stopped; {0}")]
    CopyStopped(CopyRemains),
    /// A source that has one part from before and another from after.
    #[error("the source has changed while it was copied; {0}, copy it when nobody changes it")]
    CopyChanged(CopyRemains),
    /// A copy does not go on.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// The copy is not one.
    #[error("read back, it differs at byte {offset} from the source; {left}, is the disk failing?")]
    CopyDiffers {
        /// The first byte of the chunk.
        offset: u64,
        /// Remains of the copy.
        left: CopyRemains,
    },
    /// The new file has its name, but the folder could not be made durable.
    #[error("it was made and is whole, but a crash of the machine may still undo its name ({0}); sync its folder")]
    NameNotDurable(#[source] io::Error),
    /// No block translation table has such sectors.
    #[error(
        "a table with sectors of {0} bytes cannot be made; use 512 or 4096: sectors with integrity metadata (520, 4104 and so on) are not supported"
    )]
    BttSectorSize(u32),
    /// Too small for a block translation table.
    #[error("{size} bytes are too few for a table; the least is {least} (16 MiB and 4 KiB)")]
    BttTooSmall {
        /// The bytes there are.
        size: u64,
        /// The bytes there must be.
        least: u64,
    },
    /// A block translation table could not be written.
    #[error("cannot write the table: {0}; there is none now")]
    BttWrite(Fault),
    /// A volume keeps its size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The descriptor that a passphrase should come from is not open.
    #[error("cannot read it: {0}")]
    BadDescriptor(#[source] io::Error),
    /// Something could not be read or written.
    #[error("cannot {action}: {source}")]
    Io {
        /// Verb for what was tried.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A zoned device gives no list of its zones.
    #[error("it does not report its zones: {0}")]
    NoReport(Fault),
    /// There are no zones.
    #[error("it has no zones")]
    NoZones,
    /// There is no memory for keys.
    #[error("no memory for keys: {0}; free some")]
    KeyMemory(#[source] io::Error),
    /// Whoever was asked for a key failed.
    #[error("{source}")]
    Keys {
        /// Kind of the failure.
        kind: ErrorKind,
        /// Error that was reported.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// A failure of the caller's own, for [`Keys`](crate::Keys).
    #[must_use]
    pub fn from_keys(kind: ErrorKind, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Problem::Keys { kind, source: source.into() }.into()
    }

    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.problem.kind()
    }

    /// Returns what exactly failed.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// On what: a target or a path.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match (&self.name, &*self.problem) {
            (Some(name), _) => Some(name.into()),
            (None, Problem::Device(error)) => error.path().map(|path| path.to_string_lossy()),
            _ => None,
        }
    }

    /// Where on the device, in bytes, where that is known.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match &*self.problem {
            Problem::Luks(cryptline_luks::Error::Io { offset, .. }) => Some(*offset),
            _ => None,
        }
    }

    /// Returns what was tried, as a verb, where that is known.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        match &*self.problem {
            Problem::Luks(cryptline_luks::Error::Io { action, .. })
            | Problem::Device(OpenError::System { action, .. })
            | Problem::Io { action, .. }
            | Problem::Draft { action, .. } => Some(action),
            _ => None,
        }
    }

    /// The same, on what is called so, unless it says already on what.
    #[must_use]
    pub fn on(self, name: impl fmt::Display) -> Self {
        Self { name: self.name.or_else(|| Some(name.to_string())), ..self }
    }
}

impl Problem {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Luks(error) => error.kind(),
            Self::Device(OpenError::Memory(_) | OpenError::Thread(_)) | Self::KeyMemory(_) => ErrorKind::Memory,
            Self::Device(error) if error.is_busy() => ErrorKind::Busy,
            Self::Exists { .. }
            | Self::HeaderLeft
            | Self::Holds { .. }
            | Self::PlainOver(_)
            | Self::HeaderLocked
            | Self::Reencrypting
            | Self::CopyOver => ErrorKind::Busy,
            Self::HeaderKept(_, error) if error.kind() == io::ErrorKind::AlreadyExists => ErrorKind::Busy,
            Self::Keys { kind, .. } => *kind,
            Self::NoToken(_) | Self::VolumeKeyTooShort(..) | Self::VolumeKeyInHex(_) => ErrorKind::NoKey,
            Self::Partition(error) => error.kind(),
            Self::Resize(error) => error.kind(),
            Self::Resume(error) => error.kind(),
            Self::Copy(error) => error.kind(),
            Self::Rules(error) => error.kind(),
            Self::Device(_)
            | Self::Tang(_)
            | Self::Tpm(_)
            | Self::Btt(_)
            | Self::Zones(_)
            | Self::HeaderCipher(_)
            | Self::NoOwnDevice(_)
            | Self::Version { .. }
            | Self::BttSectors { .. }
            | Self::DeviceBlocks { .. }
            | Self::TooShort(_)
            | Self::PastEnd { .. }
            | Self::NotLuks(_)
            | Self::KeyLengthUnknown
            | Self::NoReport(_)
            | Self::NotAFile
            | Self::ReadOnly
            | Self::NoFolder(_)
            | Self::Draft { .. }
            | Self::DoesNotOpen(_)
            | Self::DoesNotOpenInPlace(_)
            | Self::HeaderKept(..)
            | Self::NameNotDurable(_)
            | Self::BttWrite(_)
            | Self::NothingToCopy
            | Self::CopyReadOnly
            | Self::CopyCutsOff(..)
            | Self::CopyTooSmall { .. }
            | Self::CopyFull { .. }
            | Self::CopyFault { .. }
            | Self::CopyStopped(_)
            | Self::CopyChanged(_)
            | Self::CopyDiffers { .. }
            | Self::Io { .. } => ErrorKind::Device,
            _ => ErrorKind::Parameters,
        }
    }

    /// The same, on what is called so.
    #[must_use]
    pub fn on(self, name: impl fmt::Display) -> Error {
        Error::from(self).on(name)
    }
}

impl<P: Into<Problem>> From<P> for Error {
    fn from(problem: P) -> Self {
        Self { name: None, problem: Box::new(problem.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.problem.source()
    }
}
