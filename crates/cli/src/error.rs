//! A failure as the user sees it: one line that says what to do next, and an exit code.
//!
//! The library names no option and no verb in its messages; here they are added.

use std::fmt;
use std::io;

use clap::Command;

pub use cryptline::ErrorKind as Kind;
use cryptline::engine::OpenError;
use cryptline::engine::btt::BttError;
use cryptline::engine::table::TableError;
use cryptline::luks::seal::SealError;
use cryptline::luks::{Error as LuksError, Guess};
use cryptline::partition::PartitionError;
use cryptline::{Contents, CopyError, Problem, ResizeError, ResumeError, RulesError};
use cryptline_cipher::SpecError;
use cryptline_nbd::ProtocolError;
use cryptline_serve::device::AttachError;
use cryptline_serve::nbd::{ClientError, NbdEvent};

use crate::advice::advice_for;

/// A failure with its message, which is always one line.
#[derive(Debug)]
pub struct CliError {
    kind: Kind,
    message: String,
    /// Hint on what to do about it.
    advice: String,
    cause: Cause,
}

/// Causes that other programs look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// None of these.
    #[default]
    Other,
    /// There is no LUKS header.
    NotLuks,
    /// No key slot opens.
    NoKey,
    /// There is no key slot to open.
    NoKeySlot,
    /// This key slot is empty.
    SlotNotInUse(u32),
    /// This key slot is not.
    SlotInUse(u32),
    /// No key slot is.
    NoFreeSlot,
}

impl Cause {
    fn of(problem: &Problem) -> Self {
        match problem {
            Problem::NoKey => Self::NoKey,
            Problem::Luks(LuksError::NotLuks)
            | Problem::NotLuks(Contents::Empty | Contents::Zeros { .. } | Contents::Noise) => Self::NotLuks,
            Problem::Luks(LuksError::NoKey | LuksError::WrongVolumeKey) => Self::NoKey,
            Problem::Luks(LuksError::NoKeySlot) => Self::NoKeySlot,
            Problem::Luks(LuksError::SlotNotInUse(slot)) => Self::SlotNotInUse(*slot),
            Problem::Luks(LuksError::SlotInUse(slot)) => Self::SlotInUse(*slot),
            Problem::Luks(LuksError::NoFreeSlot(_)) => Self::NoFreeSlot,
            _ => Self::Other,
        }
    }
}

impl CliError {
    /// A failure of `kind`. Control characters in `message` (from a path, say) are escaped.
    pub fn new(kind: Kind, message: impl AsRef<str>) -> Self {
        Self { kind, message: on_one_line(message.as_ref()), advice: String::new(), cause: Cause::Other }
    }

    /// The same, with what to do about it: words that go on where the message ends.
    pub fn advised(self, advice: impl Into<String>) -> Self {
        let advice = advice.into();
        Self { advice, ..self }
    }

    /// The same for a user of `verb`, which may not have the options that the advice names.
    pub fn to_user_of(self, verb: &Command) -> Self {
        let advice = advice_for(verb, &self.advice);
        self.advised(advice)
    }

    /// Exit code 1.
    pub fn parameters(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Parameters, message)
    }

    /// Exit code 2.
    pub fn no_key(message: impl AsRef<str>) -> Self {
        Self::new(Kind::NoKey, message)
    }

    /// Exit code 3, where a thread could not be started.
    pub fn no_thread(error: io::Error) -> Self {
        Self::memory(OpenError::Thread(error).to_string())
    }

    /// Exit code 3.
    pub fn memory(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Memory, message)
    }

    /// Exit code 4.
    pub fn device(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Device, message)
    }

    /// Exit code 5.
    pub fn busy(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Busy, message)
    }

    /// The same, said of `name`.
    pub fn of(self, name: &str) -> Self {
        Self::new(self.kind, format!("{name}: {}", self.message)).advised(self.advice)
    }

    /// For the library, when it has asked for a key; [`CliError::from`] takes it out again.
    pub fn into_keys_error(self) -> cryptline::Error {
        cryptline::Error::from_keys(self.kind, self)
    }

    /// Describes what went wrong with a header, or in making one, of `source`.
    pub fn luks(source: &str, error: &LuksError) -> Self {
        Self::new(error.kind(), format!("{source}: {error}")).advised(luks_advice(error))
    }

    /// The same, for whoever looks for its cause.
    fn caused(self, problem: &Problem) -> Self {
        Self { cause: Cause::of(problem), ..self }
    }

    /// Returns the cause, where other programs look for it.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The process exit code. The numbers are cryptsetup's (cryptsetup(8), "RETURN CODES").
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Parameters => 1,
            Kind::NoKey => 2,
            Kind::Memory => 3,
            Kind::Device => 4,
            Kind::Busy => 5,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.message, self.advice)
    }
}

impl std::error::Error for CliError {}

impl From<cryptline::Error> for CliError {
    fn from(error: cryptline::Error) -> Self {
        let (message, advice) = words(&error);
        Self::new(error.kind(), message).advised(advice).caused(error.problem())
    }
}

impl CliError {
    /// Why nothing was made. What helps with a header that exists does not help here.
    pub(crate) fn of_create(error: cryptline::Error) -> Self {
        let (message, advice) = match error.problem() {
            Problem::Luks(LuksError::BrokenCipher(_) | LuksError::RepeatedIvs(_)) => words(&error),
            Problem::Luks(_) => (error.to_string(), ""),
            _ => words(&error),
        };
        Self::new(error.kind(), message).advised(advice)
    }
}

impl CliError {
    /// Why nothing was copied, or not all.
    pub(crate) fn of_copy(error: cryptline::Error) -> Self {
        let (message, advice) = match copy_advice(error.problem()) {
            Some(advice) => (error.to_string(), advice),
            None => words(&error),
        };
        Self::new(error.kind(), message).advised(advice)
    }
}

/// Returns what helps where a copy fails, unless it is what helps elsewhere.
fn copy_advice(problem: &Problem) -> Option<&'static str> {
    use cryptline::Fault;
    Some(match problem {
        Problem::Exists { .. } => "; use another name, or --force to replace it and lose its contents",
        Problem::Holds { .. } | Problem::CopyOver => "; --force overwrites it, and its contents are lost",
        Problem::Device(OpenError::Busy { .. }) => "; stop that one first",
        Problem::Device(OpenError::NotWritable { .. }) => "",
        Problem::CopyFault { fault: Fault::NoSpace, .. } => {
            "; free some space, or choose another place (see also ulimit -f)"
        }
        Problem::CopyFault { fault: Fault::Truncated, .. } => "; copy it again when nobody changes it",
        Problem::HolesOfDevice => "; leave out --holes",
        Problem::SameFile | Problem::CopyReadOnly => "; choose another destination",
        Problem::CopyTooSmall { .. } | Problem::CopyFull { .. } => "; choose a larger destination",
        Problem::Copy(CopyError::OneWay) => "; leave out --verify",
        Problem::Copy(CopyError::Zones) => "; copy the block device that `cryptline attach` makes of it",
        Problem::NothingToCopy => "; is the file cut short?",
        Problem::Luks(LuksError::DoubtedCipher(_)) => {
            "; if the volume was made so, use --to-accept-cipher with that cipher"
        }
        Problem::NoPlace(_) | Problem::Copy(CopyError::NoPlace) => "",
        _ => return None,
    })
}

impl CliError {
    /// Why a header was not changed. What helps to serve a volume does not help here.
    pub(crate) fn of_header(error: cryptline::Error) -> Self {
        let advice = match error.problem() {
            Problem::Device(OpenError::Busy { .. }) => "; stop that one first",
            Problem::Device(OpenError::NotWritable { .. }) => "",
            Problem::Exists { .. } => "; use another name",
            Problem::Luks(error) => header_advice(error),
            other => advice(other),
        };
        Self::new(error.kind(), error.to_string()).advised(advice).caused(error.problem())
    }
}

/// Returns what helps where a header is to be changed.
fn header_advice(error: &LuksError) -> &'static str {
    match error {
        LuksError::NotLuks => "",
        LuksError::SlotInUse(_) => "; use another number, or leave it out",
        LuksError::SlotNotInUse(_) => "; `cryptline key list` shows those that are",
        LuksError::TokenInUse(_) => "; use --token-replace to put the new one in its place, or another --token-id",
        LuksError::InvalidToken(_) => "; `cryptline token export` shows what they look like",
        LuksError::TokenNotInUse(_) => "; `cryptline token list` shows those that are",
        LuksError::NoFreeSlot(_) | LuksError::MetadataFull { .. } => "; remove one first with `cryptline key kill`",
        LuksError::LastSlot(_) => "; to do it anyway, repeat with --batch-mode (-q)",
        LuksError::NoKeySlot => "; use --volume-key-file",
        LuksError::BothCopiesDamaged { .. } => "; restore a backup with `cryptline header restore`",
        LuksError::Invalid(_) => "; a backup of the header may help",
        LuksError::JsonNotKept => "; change it with cryptsetup",
        LuksError::Repair(_) => "; restore a backup with `cryptline header restore`",
        LuksError::NotWiped { .. } => "; overwrite it with `cryptline header repair --wipe-unused`",
        LuksError::NotABackup(_) => "; `cryptline header backup` makes one",
        other => luks_advice(other),
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        cryptline::Error::from(error).into()
    }
}

impl From<AttachError> for CliError {
    fn from(error: AttachError) -> Self {
        let kind = match &error {
            AttachError::InUse(_) => Kind::Busy,
            _ => Kind::Device,
        };
        Self::new(kind, error.to_string()).advised(attach_advice(&error))
    }
}

/// Returns what helps where no block device could be made.
fn attach_advice(error: &AttachError) -> &'static str {
    match error {
        AttachError::NoDriver("nbd") => {
            "; load it with `modprobe nbd`, or use `cryptline mount` or `cryptline serve`, which need no driver"
        }
        AttachError::NoDriver("ublk") => {
            "; load it with `modprobe ublk_drv` (Linux 6.5 or later, where it was built: Debian from 6.12), \
             or use --driver nbd, `cryptline mount` or `cryptline serve`"
        }
        AttachError::NoDriver(_) => {
            "; load one with `modprobe ublk_drv` (Linux 6.5 or later, where it was built: Debian from 6.12) or \
             `modprobe nbd`, or use `cryptline mount` or `cryptline serve`, which need no driver"
        }
        AttachError::NoPermission => {
            "; run it as root, have the administrator install the udev rules for ublk (docs/attach.md), \
             or use `cryptline mount` or `cryptline serve`"
        }
        AttachError::NotGiven(_) => {
            ": the administrator installs the udev rules for ublk (docs/attach.md), and reloads the driver to remove \
             what is left (`modprobe -r ublk_drv`)"
        }
        AttachError::TooMany => {
            "; remove some, or have the administrator raise /sys/module/ublk_drv/parameters/ublks_max"
        }
        AttachError::Zoned("nbd") => {
            "; use --driver ublk (`modprobe ublk_drv`; Linux 6.6 or later, where it was built: Debian from 6.12)"
        }
        AttachError::InUse(_) => "; choose another one",
        AttachError::Different(_) => "; name the volume that it was made of",
        AttachError::Hangs => "; use another kernel or --driver nbd",
        AttachError::NoZones => "; it takes Linux 6.6 or later, built with CONFIG_BLK_DEV_ZONED",
        AttachError::Zoned(_) | AttachError::Blocks(_) => "; use the library",
        _ => "",
    }
}

/// Hint on a volume that has zones, which only a block device can have.
pub const ZONED_ADVICE: &str = "; `cryptline attach` makes a zoned block device of it";

/// Hint on what only the kernel can do.
const ELSEWHERE: &str = "; the kernel may have it (cryptsetup, dmsetup), as root";

/// Returns what the library says, and what to do about it here.
fn words(error: &cryptline::Error) -> (String, &'static str) {
    let message = match error.problem() {
        Problem::CipherWord { error: refused @ SpecError::NotSupportedYet(_), .. } => {
            return (refused.to_string(), ELSEWHERE);
        }
        Problem::CipherWord { .. } => format!("--cipher {error}"),
        Problem::Table(TableError::NotSupportedYet(_)) => return (error.to_string(), ELSEWHERE),
        Problem::Table(_) | Problem::NoTable => format!("--table: {error}"),
        Problem::MaskedKey(_) => format!(
            "--table: {error}; print it with its key, by `cryptline table --show-keys` or `dmsetup table --showkeys`"
        ),
        Problem::BttSectorSize(_) => format!("--sector-size: {error}"),
        Problem::LogicalBlock { block, .. } => format!("--logical-block {block}: {error}"),
        Problem::NotLuks(Contents::Image { format, .. }) => format!(
            "{error}; export it with `qemu-nbd -r -t --shared=0 -f {format} -k SOCKET FILE`, then open nbd+unix:///?socket=SOCKET"
        ),
        Problem::NotLuks(Contents::Evidence { program: program @ "aff4imager", .. }) => {
            format!("{error}; write its stream to a raw image first (`{program} --export`), then use that image")
        }
        Problem::NotLuks(Contents::Evidence { program, .. }) => {
            format!("{error}; mount it with `{program} FILE FOLDER`, then use the image in FOLDER")
        }
        Problem::NotLuks(Contents::Compressed { program, .. }) => {
            format!("{error}; decompress it first (`{program}`)")
        }
        Problem::Dispatch { flag, stored, asked, mode } => contradiction(flag, *stored, *asked, *mode),
        _ => return (error.to_string(), advice(error.problem())),
    };
    (message, "")
}

/// The option or verb that helps, if any.
fn advice(problem: &Problem) -> &'static str {
    match problem {
        Problem::Luks(error) => luks_advice(error),
        Problem::Rules(RulesError::NoSealKey) => "; use --seal-key",
        Problem::Rules(RulesError::NeedsKey) => {
            "; use --key-file, or name it in the target, as in 'TARGET?key-file=FILE'"
        }
        Problem::Device(error) => device_advice(error),
        Problem::Btt(error) => btt_advice(error),
        Problem::NotLuks(contents) => contents_advice(contents),
        Problem::PlainOver(_) => "; --force opens it all the same, --read-only changes nothing",
        Problem::Partition(error) => partition_advice(error),
        Problem::Rules(RulesError::Measure { .. } | RulesError::Policy { .. } | RulesError::Older { .. }) => {
            "; compare the header with a backup (`cryptline info`)"
        }
        Problem::HeaderCipher(_) => "; a backup of the header may help",
        Problem::HoldsNothing => "; use a file or device",
        Problem::NoKey => "; use --key-file",
        Problem::NoPin => "; use --pin-file",
        Problem::NoRecoveryKeys => "; convert it with `cryptline header convert`, or add a passphrase",
        Problem::NotAPassphrase => "; use --key-file",
        Problem::Useless { .. } => "; leave it out",
        Problem::NothingToTry => "; serve it and look at what is in it",
        Problem::NotMemory => "; use a passphrase or a volume key",
        Problem::ReadOnly => "; choose another place",
        Problem::NoFolder(_) => "; make it first (mkdir -p)",
        Problem::BttTooSmall { .. } => "; use a larger --size",
        Problem::BttWrite(_) => "; is the medium failing?",
        Problem::Resume(ResumeError::Apart) => "; leave out --header or --resume",
        Problem::Version { .. } => "; leave out --type, or use the one it has",
        Problem::HeaderIsTarget => "; leave out --header",
        Problem::NotShareable => "; leave out --shared",
        Problem::NoConnection => "; leave out --reconnect",
        Problem::Mapped | Problem::Elsewhere => "; leave out --direct on",
        Problem::StartsEmpty => "; leave out --read-only",
        Problem::SharedRewrites { .. } => "; leave out --logical-block or --shared",
        Problem::KeyLengthUnknown => "; use --show-keys and --volume-key-file",
        Problem::KeyTooShort { .. } => " (--key-size)",
        Problem::NoHash => {
            "; use --hash as the plain volume was made (cryptsetup before 2.7: ripemd160; since: sha256), or `--hash plain` for none"
        }
        Problem::EmptyKey => "; put the passphrase in it",
        Problem::BadDescriptor(_) => "; open it for this program, as with 3<FILE and --passphrase-fd 3",
        Problem::Exists { .. } => "; use another name, or --force to replace it and lose its contents",
        Problem::Holds { .. } => "; --force makes a volume there and its contents are lost",
        Problem::NoSize => "; use --size, such as --size 1G",
        Problem::DeviceBlocks { block, .. } if *block <= 4096 => " (--sector-size)",
        Problem::HasSize(_) => "; leave out --size and --preallocate",
        Problem::Draft { source, .. } => match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ", free some space or choose another place",
            io::ErrorKind::FileTooLarge => ", use a smaller --size (see ulimit -f)",
            _ => "",
        },
        Problem::NoSuchToken(_) => "; `cryptline token list` lists them",
        Problem::Resize(error) => resize_advice(error),
        Problem::Resume(ResumeError::Source | ResumeError::Destination) => "; leave out --resume",
        Problem::NoToken(_) => "; leave out --token-only to be asked for a passphrase",
        Problem::NoNewKey => "; use --new-key-file",
        Problem::HeaderLocked => "; try again",
        Problem::Reencrypting => "; wait until that has ended",
        Problem::KeyFileTooShort { .. } => " (--keyfile-size, or the key size of a plain volume)",
        Problem::PassphraseTooLong => "; use --keyfile-size, or the right file",
        Problem::VolumeKeyLength { .. } => "; use the raw key",
        Problem::VolumeKeyTooShort(..) => "; use the right --volume-key-file, or a passphrase",
        Problem::VolumeKeyInHex(_) => "; `xxd -r -p` makes bytes of them",
        Problem::NoZones => "; use a host-managed zoned device, or zoned:PATH for emulated zones",
        _ => "",
    }
}

/// Returns what helps where a volume keeps its size.
fn resize_advice(error: &ResizeError) -> &'static str {
    match error {
        ResizeError::Smaller { .. } => "; use --shrink to make it smaller (data beyond is lost)",
        ResizeError::InUse { .. } | ResizeError::Taken { .. } => "; --force loses what is there",
        ResizeError::TooSmall { .. } => "; choose a larger size",
        ResizeError::NotAFile { .. } => "; resize what it lies on first",
        _ => "",
    }
}

/// Returns what helps where a partition cannot be had.
fn partition_advice(error: &PartitionError) -> &'static str {
    match error {
        PartitionError::NoTable => "; leave the partition out",
        PartitionError::Damaged(_) | PartitionError::Impossible { .. } => {
            "; name its place instead, as in 'TARGET?offset=SIZE&length=SIZE'"
        }
        _ => "",
    }
}

/// Returns what helps with what is no LUKS volume.
fn contents_advice(contents: &Contents) -> &'static str {
    match contents {
        Contents::Partitioned(_) => "; name a partition, as in 'TARGET?partition=1'",
        Contents::BitLocker => "; `cryptsetup open --type bitlk` opens those",
        Contents::Lvm => "; activate it with `vgchange -ay`, then use the logical volume that is encrypted",
        Contents::EncryptedQcow2 => {
            "; let QEMU decrypt it: `qemu-nbd -r -t --shared=0 --object secret,id=key,file=KEYFILE -k SOCKET --image-opts driver=qcow2,encrypt.key-secret=key,file.filename=FILE`, then use nbd+unix:///?socket=SOCKET"
        }
        Contents::Empty => "; is the file cut short?",
        Contents::Zeros { .. } => luks_advice(&LuksError::NotLuks),
        Contents::Noise => {
            "; as root, `cryptsetup open --type tcrypt DEVICE NAME` tries VeraCrypt and TrueCrypt (for plain dm-crypt use --type plain, for a header that is kept elsewhere --header)"
        }
        _ => "; it is either unencrypted or a plain volume without a header (--type plain or --table)",
    }
}

/// Returns what helps with a header.
pub(crate) fn luks_advice(error: &LuksError) -> &'static str {
    match error {
        LuksError::NotLuks => "; for a volume without a header use --type plain or --table",
        LuksError::NotSupported(_) => "; `cryptsetup open` may open it, as root",
        LuksError::NewerVersion(_) => "; use a newer version of cryptline, or cryptsetup",
        LuksError::KeyMemory(_) => "; free some, or raise `ulimit -l`",
        LuksError::NoKey => " Try another one, or --key-file or --key-slot.",
        LuksError::WrongVolumeKey => " Use the right --volume-key-file, or a passphrase.",
        LuksError::Truncated { .. } | LuksError::TooSmall { .. } => "; is the file cut short?",
        LuksError::OutOfMemory { .. } | LuksError::SlotsIgnored(_) => " (--key-slot)",
        LuksError::CostLimit { .. } => {
            "; if it is as it should be, use --kdf-time-limit SECONDS, or another slot with --key-slot"
        }
        LuksError::NullCipher(_) | LuksError::ClearSegment(_) => "; to open it anyway, add --allow-null-cipher",
        LuksError::DoubtedCipher(_) => "; if the volume was made so, use --accept-cipher with that cipher",
        LuksError::Seal(SealError::Missing) => "; seal it with `cryptline header sign`",
        LuksError::Seal(SealError::Kind { .. }) => "; use the other kind of key, or seal it again",
        LuksError::Seal(SealError::Old { .. }) => "; restore the newer header from a backup",
        LuksError::BrokenCipher(_) | LuksError::RepeatedIvs(_) => {
            "; to use it all the same, add --accept-cipher with that cipher"
        }
        LuksError::OtherContents { .. } => {
            "; only to have the LUKS volume back, at the cost of what is there now, run `cryptline header repair --force` (--read-only)"
        }
        LuksError::NotUnderstood { .. } => {
            "; to go back to the older copy all the same, run `cryptline header repair --force` (--read-only)"
        }
        LuksError::Odd { is_removable: true, .. } => "; `cryptline header repair --force` takes it out",
        LuksError::OddSlot(_) => "; `cryptline header repair` restores what follows from the rest",
        LuksError::Guess { would: Guess::InUse, .. } => {
            "; with --force it counts as in use, so try that passphrase before another one is removed"
        }
        LuksError::Guess { would: Guess::Free, .. } => "; with --force it is made free",
        LuksError::DetachedHeader => "; use the data device as target and this with --header",
        LuksError::NoKeySlot => "; use --volume-key-file",
        LuksError::BothCopiesDamaged { .. } => "; restore a backup with `cryptline header restore`",
        LuksError::Invalid(_) => "; `cryptline header repair` or a header backup may help",
        _ => "",
    }
}

fn device_advice(error: &OpenError) -> &'static str {
    match error {
        OpenError::Busy { .. } => "; stop that one, or use --read-only if it only reads",
        OpenError::NotWritable { .. } => "; use --read-only to serve it read-only",
        OpenError::NoDirect { .. } => "; use --direct=auto",
        OpenError::NeedsDirect { .. } => "; leave out --direct=off",
        OpenError::Blocks(_) => "; use --direct=off",
        OpenError::Damaged(_) => " (--read-only)",
        OpenError::ZonedBlocks => "; leave out --logical-block",
        OpenError::Ring(_) => "; use --io preadv",
        OpenError::Memory(_) => "; free some",
        _ => "",
    }
}

pub(crate) fn btt_advice(error: &BttError) -> &'static str {
    match error {
        BttError::Nothing => " `cryptline btt create` makes one",
        BttError::Lane { .. } | BttError::Flog { .. } => "; `cryptline btt check` tells more",
        BttError::Failed { .. } => " (--read-only)",
        BttError::Stranger { .. } => "; restore the image from a backup",
        _ => "",
    }
}

/// Two options about who runs the cipher that contradict each other.
fn contradiction(flag: &str, stored: bool, asked: cryptline::Direction, mode: cryptline::DispatchMode) -> String {
    use cryptline::Direction;
    let option = match asked {
        Direction::Both => "--dispatch",
        Direction::Read => "--read-dispatch",
        Direction::Write => "--write-dispatch",
    };
    let says = match (flag, stored) {
        (_, true) => format!("{flag} in the table is about the queue"),
        ("no_read_workqueue", _) => format!("--perf-{flag} decrypts reads inline"),
        ("no_write_workqueue", _) => format!("--perf-{flag} encrypts writes inline"),
        _ => format!("--perf-{flag} is about the queue"),
    };
    format!("{says}, but {option} says {mode}; leave one of them out")
}

/// A warning of the library's, with the option or verb that it is about.
pub(crate) fn warning(warning: &cryptline::Warning) -> String {
    use cryptline::Warning;
    match warning {
        Warning::SharedPageCache => {
            format!("--shared: {warning}; use --direct=on where the file system supports it")
        }
        Warning::ZonedQueue | Warning::OneConnection => format!("--dispatch=queue: {warning}"),
        Warning::Btt(_) => format!("{warning}; `cryptline btt check --repair` writes it again"),
        Warning::FewerHelpers { wanted, .. } => format!("--helpers {wanted}: {warning}"),
        Warning::Doubted(_) => format!("{warning} (--accept-cipher)"),
        Warning::DiscardsNotAsked => format!("{warning}; --allow-discards has them passed down"),
        Warning::SealVoid => format!("{warning}; seal it again with `cryptline header sign`"),
        Warning::CounterNotNoted { .. } => {
            format!("{warning}; `cryptline header verify` with the same --header-state notes it")
        }
        Warning::KeysNotLocked => format!("{warning} (ulimit -l)"),
        other => other.to_string(),
    }
}

/// Returns what a server tells of its clients, with what can be done about it here.
pub(crate) fn event(event: &NbdEvent) -> String {
    match event {
        NbdEvent::Ended { why: Some(ClientError::Protocol(ProtocolError::BlockSizeRequired)), .. } => {
            format!("{event}, or serve the volume with --logical-block 512")
        }
        _ => event.to_string(),
    }
}

/// `text` without anything that ends a line or moves the cursor of a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
#[path = "error_steps_tests.rs"]
mod steps_tests;
#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
