//! One error of each kind.

use std::path::PathBuf;
use std::time::Duration;

use cryptline::engine::btt::flog::FlogError;
use cryptline::engine::btt::info::InfoError;
use cryptline::engine::zone::LayoutError;
use cryptline::luks::Doubted;
use cryptline::luks::seal::SealKind;
use cryptline::{CopyRemains, Direction, DispatchMode, Fault, VolumeKind};
use cryptline_cipher::{CipherError, Strength};

use super::super::*;
use super::{Samples, said};

fn io() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn text() -> String {
    "[text]".to_owned()
}

fn path() -> PathBuf {
    "[path]".into()
}

pub(super) fn all() -> Vec<Samples> {
    let cryptline = include_str!("../../cryptline/src/error.rs");
    let seals = include_str!("../../luks/src/seal/mod.rs");
    vec![
        Samples::of("Problem", cryptline, problems(), said),
        Samples::of("LuksError", include_str!("../../luks/src/error.rs"), headers(), |it| said(it.into())),
        Samples::of("SealError", seals, of_seals(), |it| said(LuksError::from(it).into())),
        Samples::of("OpenError", include_str!("../../engine/src/error.rs"), devices(), |it| said(it.into())),
        Samples::of("BttError", include_str!("../../engine/src/btt/open.rs"), tables(), |it| said(it.into())),
        Samples::of("PartitionError", include_str!("../../cryptline/src/partition/mod.rs"), partitions(), |it| {
            said(it.into())
        }),
        Samples::of("RulesError", include_str!("../../cryptline/src/rules/error.rs"), rules(), |it| said(it.into())),
        Samples::of("ResizeError", include_str!("../../cryptline/src/header/resize.rs"), resizes(), |it| {
            said(it.into())
        }),
        Samples::of("ResumeError", include_str!("../../cryptline/src/copy/journal.rs"), resumes(), |it| {
            said(it.into())
        }),
        Samples::of("CopyError", include_str!("../../cryptline/src/copy/trouble.rs"), copies(), |it| said(it.into())),
        Samples::of("SpecError", include_str!("../../cipher/src/spec.rs"), ciphers(), |error| {
            said(Problem::CipherWord { word: text(), error })
        }),
        Samples::of("AttachError", include_str!("../../serve/src/device/mod.rs"), attachments(), |it| {
            CliError::from(it).to_string()
        }),
    ]
}

fn problems() -> Vec<Problem> {
    let mut all = nested();
    all.extend(of_destinations());
    all.extend([
        Problem::Target(text()),
        Problem::Zones(LayoutError(text())),
        Problem::NotLuks(Contents::Lvm),
        Problem::PlainOver(Contents::Lvm),
        Problem::PastEnd { offset: 1, length: 1, size: 1 },
        Problem::NoTable,
        Problem::CipherWord { word: text(), error: SpecError::IvRequired },
        Problem::Cipher(CipherError::SectorSize(1)),
        Problem::HeaderCipher(CipherError::SectorSize(1)),
        Problem::Version { found: VolumeKind::Luks1 },
        Problem::HeaderIsTarget,
        Problem::NotShareable,
        Problem::NoConnection,
        Problem::Mapped,
        Problem::Elsewhere,
        Problem::StartsEmpty,
        Problem::HoldsNothing,
        Problem::RandomKey,
        Problem::LogicalBlock { block: 1, sector: 512 },
        Problem::SharedRewrites { block: 1, least: 1 },
        Problem::BttSectors { unit: 1, sector: 1 },
        Problem::DeviceBlocks { unit: 1, block: 8192 },
        Problem::Dispatch { flag: "same_cpu_crypt", stored: false, asked: Direction::Both, mode: DispatchMode::Inline },
        Problem::TooShort(1),
        Problem::KeyLengthUnknown,
        Problem::KeyTooShort { has: 1, needs: 2 },
        Problem::NoHash,
        Problem::MaskedKey(1),
        Problem::NoPin,
        Problem::NoKey,
        Problem::NoSuchToken(text()),
        Problem::NoToken(text()),
        Problem::Tang(text()),
        Problem::Pins(text()),
        Problem::Tpm(text()),
        Problem::NoNewKey,
        Problem::NoRecoveryKeys,
        Problem::HeaderLocked,
        Problem::NoOwnDevice(path()),
        Problem::Reencrypting,
        Problem::NotAPassphrase,
        Problem::Useless { volume: "a table", given: "a key" },
        Problem::NothingToTry,
        Problem::NotMemory,
        Problem::EmptyKey,
        Problem::KeyFileTooShort { has: 1, needs: 2 },
        Problem::PassphraseTooLong,
        Problem::VolumeKeyTooShort(2, 1),
        Problem::VolumeKeyInHex(2),
        Problem::VolumeKeyLength { most: 1 },
        Problem::BttSectorSize(1),
        Problem::BttTooSmall { size: 1, least: 2 },
        Problem::BttWrite(Fault::NotSupported),
        Problem::BadDescriptor(io()),
        Problem::Io { action: "read", source: io() },
        Problem::NoReport(Fault::NotSupported),
        Problem::NoZones,
        Problem::KeyMemory(io()),
        Problem::Keys { kind: Kind::NoKey, source: text().into() },
    ]);
    all
}

/// Those about what is made or copied.
fn of_destinations() -> Vec<Problem> {
    let left = || CopyRemains::Nothing;
    vec![
        Problem::Exists { holds: None },
        Problem::HeaderLeft,
        Problem::HeaderKept(path(), io()),
        Problem::Holds { what: "data" },
        Problem::NotAFile,
        Problem::ReadOnly,
        Problem::NoPlace(text()),
        Problem::NoSize,
        Problem::HasSize(1),
        Problem::NoFolder(path()),
        Problem::Draft { action: "write", source: io() },
        Problem::DoesNotOpen(text()),
        Problem::DoesNotOpenInPlace(text()),
        Problem::SameFile,
        Problem::HeaderOverData,
        Problem::NothingToCopy,
        Problem::HolesOfDevice,
        Problem::CopyOver,
        Problem::CopyReadOnly,
        Problem::CopyCutsOff(1, 2),
        Problem::CopyTooSmall { has: 1, needs: 2 },
        Problem::CopyFull { room: 1, left: left() },
        Problem::CopyFault { action: "write", offset: None, fault: Fault::NotSupported, left: left() },
        Problem::CopyStopped(left()),
        Problem::CopyChanged(left()),
        Problem::CopyDiffers { offset: 1, left: left() },
        Problem::NameNotDurable(io()),
    ]
}

/// Those that are about an error of another enum, which is walked through by itself.
fn nested() -> Vec<Problem> {
    vec![
        LuksError::NotLuks.into(),
        RulesError::NoSealKey.into(),
        OpenError::busy("[path]").into(),
        BttError::Nothing.into(),
        TableError::NotSupportedYet(text()).into(),
        PartitionError::NoTable.into(),
        ResizeError::Changed.into(),
        ResumeError::Source.into(),
        CopyError::OneWay.into(),
    ]
}

fn copies() -> Vec<CopyError> {
    vec![CopyError::Zones, CopyError::NoPlace, CopyError::OneWay, CopyError::PassesOn, CopyError::Unread { written: 1 }]
}

fn headers() -> Vec<LuksError> {
    vec![
        LuksError::Parameters(text()),
        LuksError::NotSupported(text()),
        LuksError::NoKey,
        LuksError::WrongVolumeKey,
        LuksError::OutOfMemory { needed_kib: 1, room: text() },
        LuksError::KeyMemory(io()),
        LuksError::NotLuks,
        LuksError::Truncated { what: text(), needed: 2, size: 1 },
        LuksError::BothCopiesDamaged { primary: text(), secondary: text() },
        LuksError::NewerVersion(3),
        LuksError::OtherContents { what: "data", damage: text(), left: 1 },
        LuksError::NotUnderstood { copy: "primary", used: "secondary", reason: text() },
        LuksError::Odd { odd: text(), next: "it opens", is_removable: true },
        LuksError::OddSlot(text()),
        LuksError::Repair(text()),
        LuksError::Guess { odd: text(), would: Guess::InUse },
        LuksError::Invalid(text()),
        LuksError::CostLimit { what: text(), needed: Duration::from_secs(2), limit: Duration::from_secs(1) },
        LuksError::NullCipher(text()),
        LuksError::DoubtedCipher(Doubted { word: text(), strength: Strength::Broken, slot: None }),
        LuksError::Seal(SealError::Missing),
        LuksError::BrokenCipher(text()),
        LuksError::RepeatedIvs(text()),
        LuksError::ClearSegment(1),
        LuksError::DetachedHeader,
        LuksError::NoKeySlot,
        LuksError::SlotsIgnored(text()),
        LuksError::ReencryptionInProgress(text()),
        LuksError::UnknownRequirement(text()),
        LuksError::TooSmall { needed: 2, size: 1 },
        LuksError::SlotInUse(1),
        LuksError::SlotNotInUse(1),
        LuksError::NoFreeSlot(8),
        LuksError::NoRoom { needed: 1 },
        LuksError::TokenInUse(1),
        LuksError::TokenNotInUse(1),
        LuksError::NoFreeToken(32),
        LuksError::InvalidToken(text()),
        LuksError::LastSlot(1),
        LuksError::ChangedMeanwhile,
        LuksError::JsonNotKept,
        LuksError::MetadataFull { needed: 2, room: 1 },
        LuksError::NotWiped { offset: 1, source: Box::new(LuksError::NoKey) },
        LuksError::NotABackup(text()),
        LuksError::BackupDiffers(text()),
        LuksError::Io { action: "read", offset: 1, source: io() },
    ]
}

fn of_seals() -> Vec<SealError> {
    vec![
        SealError::Missing,
        SealError::Several(2),
        SealError::Malformed(text()),
        SealError::NoCanonicalForm(text()),
        SealError::Reencryption,
        SealError::Kind { found: SealKind::File, wanted: SealKind::VolumeKey },
        SealError::OtherKey(SealKind::File, text()),
        SealError::Changed,
        SealError::Old { found: 1, wanted: 2 },
        SealError::Counter,
    ]
}

fn devices() -> Vec<OpenError> {
    vec![
        OpenError::System { action: "open", path: path(), source: io() },
        OpenError::busy("[path]"),
        OpenError::WrongKind { path: path(), what: "a socket" },
        OpenError::NotWritable { path: path(), source: io() },
        OpenError::NoDirect { path: path(), granularity: 1 },
        OpenError::NeedsDirect { path: path() },
        OpenError::Blocks(text()),
        OpenError::Damaged(text()),
        OpenError::ZonedBlocks,
        OpenError::Geometry(text()),
        OpenError::Remote { uri: text(), why: text() },
        OpenError::Ring(io()),
        OpenError::Thread(io()),
        OpenError::Memory(text()),
    ]
}

fn tables() -> Vec<BttError> {
    vec![
        BttError::Nothing,
        BttError::Info { arena: 0, primary: InfoError::Checksum, copy: InfoError::Checksum },
        BttError::Refused { arena: 0, error: InfoError::Version { major: 3, minor: 0 } },
        BttError::CutShort { arena: 0, end: 2, size: 1 },
        BttError::Stranger { arena: 1, what: "UUID" },
        BttError::TooMany,
        BttError::Lane { arena: 0, lane: 0, why: text() },
        BttError::Flog { arena: 0, error: FlogError::Slots },
        BttError::Failed { arena: 0 },
        BttError::Medium(Fault::NotSupported),
    ]
}

fn partitions() -> Vec<PartitionError> {
    vec![
        PartitionError::NoTable,
        PartitionError::Damaged(text()),
        PartitionError::NotThere { name: text(), there: text() },
        PartitionError::Ambiguous { name: text(), numbers: text() },
        PartitionError::Container { number: 1, there: text() },
        PartitionError::Sectors { number: 1, one: 512, other: 4096 },
        PartitionError::Impossible { number: 1, what: text() },
        PartitionError::Io(io()),
    ]
}

fn rules() -> Vec<RulesError> {
    vec![
        RulesError::Measure { found: text(), wanted: text() },
        RulesError::Policy { path: path(), member: "cipher", found: text(), wanted: text() },
        RulesError::BadPolicy { path: path(), why: text() },
        RulesError::Read { what: "header policy", path: path(), source: io() },
        RulesError::Write { path: path(), source: io() },
        RulesError::NoSealKey,
        RulesError::NeedsKey,
        RulesError::SealKey { path: path(), source: Box::new(Problem::Target(text()).into()) },
        RulesError::ShortSealKey { path: path(), len: 1 },
        RulesError::State { path: path(), action: "read", why: text() },
        RulesError::Older { path: path(), found: 1, seen: 2 },
    ]
}

fn resizes() -> Vec<ResizeError> {
    vec![
        ResizeError::TooSmall { least: 1 },
        ResizeError::Smaller { size: 1 },
        ResizeError::InUse { least: 1 },
        ResizeError::Taken { end: 1 },
        ResizeError::NotAFile { size: 1 },
        ResizeError::Changed,
    ]
}

fn resumes() -> Vec<ResumeError> {
    vec![
        ResumeError::Source,
        ResumeError::Destination,
        ResumeError::Apart,
        ResumeError::Changed { part: path() },
        ResumeError::OtherKey { part: path() },
        ResumeError::OtherCipher { part: path(), found: text() },
        ResumeError::NotOurs { part: path() },
    ]
}

fn ciphers() -> Vec<SpecError> {
    vec![
        SpecError::BadSpecification,
        SpecError::BadKeyCount,
        SpecError::IvRequired,
        SpecError::EssivDigestMissing,
        SpecError::InvalidAead,
        SpecError::AeadWithLmk,
        SpecError::NameTooLong,
        SpecError::UnknownCipher(text()),
        SpecError::InvalidIvMode(text()),
        SpecError::RandomNeedsIntegrity,
        SpecError::EssivKeySize,
        SpecError::IvNeedsBlocks,
        SpecError::NotSupportedYet(text()),
    ]
}

fn attachments() -> Vec<AttachError> {
    vec![
        AttachError::NoDriver("ublk"),
        AttachError::NoPermission,
        AttachError::InUse(path()),
        AttachError::NotGiven(path()),
        AttachError::TooMany,
        AttachError::Zoned("nbd"),
        AttachError::NoZones,
        AttachError::Blocks(1),
        AttachError::Different(path()),
        AttachError::Hangs,
        AttachError::Lane(OpenError::ZonedBlocks),
        AttachError::System { step: "start", error: io() },
    ]
}
