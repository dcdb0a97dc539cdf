//! Reading both copies of a LUKS2 header and choosing one.
//!
//! ```text
//!   primary   secondary   used
//!   good      good        the one with the higher epoch
//!   good      bad         primary, with a warning
//!   bad       good        secondary, with a warning
//!   bad       bad         none
//! ```
//!
//! The primary says where the secondary is. When it can not be trusted, the secondary is looked
//! for at every legal offset. Reading never repairs: the user may want to look first.
//!
//! Where the copies do not agree, the device may have been put to another use since. So it is looked
//! for other contents then, and nothing is written to it if there are any; whoever only reads gets the header and a
//! warning. So it is with a copy that is newer than the one in use and not understood here: it may know of key slots
//! that the older one does not.
//!
//! A copy that is no older and whole by its checksum is never taken for damaged: `header repair` writes over it only by
//! force, and copies JSON byte for byte. Odd members are taken out only where nothing else is to be repaired and
//! another key slot keeps the volume key: the salt of a slot that is not understood is nowhere else.

use std::io::{Read, Seek};

use super::Luks2Header;
use super::binary::{BINARY_LEN, Binary, COPY_SIZES, CopyDamage, HeaderCopy};
use super::metadata::Metadata;
use super::node::{Reason, parse_area};
use super::validate::{header_end, validate};
use crate::device::{check_end, read_at, to_u64};
use crate::error::Error;
use crate::seal::is_unambiguous;
use crate::signatures;

/// Why nothing may be written to a volume whose header can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    /// The device may be a LUKS volume no longer.
    OtherContents { what: &'static str, damage: String, left: u64 },
    /// The copy in use is not the newest.
    NotUnderstood { copy: HeaderCopy, used: HeaderCopy, reason: String },
}

impl Bar {
    pub(super) fn error(&self) -> Error {
        match self.clone() {
            Self::OtherContents { what, damage, left } => Error::OtherContents { what, damage, left },
            Self::NotUnderstood { copy, used, reason } => {
                Error::NotUnderstood { copy: copy.name(), used: used.name(), reason }
            }
        }
    }
}

/// A copy that is whole and valid.
struct Good {
    binary: Binary,
    metadata: Metadata,
    /// The JSON area that `metadata` is of.
    area: Vec<u8>,
}

type Candidate = Result<Good, CopyDamage>;

/// How one of the two copies was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// Which copy.
    pub copy: HeaderCopy,
    /// Its epoch, if its checksum is right.
    pub epoch: Option<u64>,
    /// Damage of the copy, if there is any.
    pub damage: Option<String>,
}

impl CopyState {
    fn of(copy: HeaderCopy, candidate: &Candidate) -> Self {
        let epoch = match candidate {
            Ok(good) => Some(good.binary.epoch),
            Err(CopyDamage::NotUnderstood { epoch, .. }) => Some(*epoch),
            Err(_) => None,
        };
        Self { copy, epoch, damage: candidate.as_ref().err().map(ToString::to_string) }
    }
}

/// Reads the header of `device`, which has `device_size` bytes, for who only reads: it may be that nothing must be
/// written ([`Luks2Header::check_writable`]).
///
/// # Errors
/// [`Error::NotLuks`] when there is no trace of either copy, [`Error::BothCopiesDamaged`],
/// [`Error::Truncated`], [`Error::Invalid`] or [`Error::Io`].
pub fn look(device: &mut (impl Read + Seek), device_size: u64) -> Result<Luks2Header, Error> {
    let primary = read_copy(device, device_size, HeaderCopy::Primary, 0, None)?;
    let secondary = match &primary {
        Ok(good) => {
            let offset = good.binary.copy_size;
            read_copy(device, device_size, HeaderCopy::Secondary, offset, Some(good))?
        }
        Err(_) => search_secondary(device, device_size)?,
    };
    let mut header = choose(primary, secondary, device_size)?;
    if let Some(damage) = &header.trouble {
        if let Some(what) = signatures::find(device, device_size)? {
            let (damage, left) = (damage.clone(), header.binary.offset(header.copy));
            header.bar = Some(Bar::OtherContents { what, damage, left });
        }
        let warning = warning_of(&header, damage);
        header.warnings.push(warning);
    }
    let odd = header.metadata.odd.iter();
    header
        .warnings
        .extend(odd.map(|odd| format!("{odd} does not follow the format, and the header is not changed around it")));
    let end = header_end(header.binary.copy_size, &header.metadata);
    for (number, slot) in &header.metadata.keyslots {
        let area_end = slot.area.end().unwrap_or(end);
        check_end(|| format!("key slot {number}"), area_end, device_size)?;
    }
    Ok(header)
}

/// Parses and checks the JSON area of a header copy of `copy_size` bytes, without the binary part
/// and its checksum, as for a header that is to be written: the way in for tools and fuzzers.
///
/// # Errors
/// [`Error::Invalid`] with the path of what is wrong.
pub fn parse_metadata(area: &[u8], copy_size: u64) -> Result<Metadata, Error> {
    if !COPY_SIZES.contains(&copy_size) {
        return Err(Error::invalid(format!("header size {copy_size} is not allowed")));
    }
    let metadata = checked_metadata(area, copy_size).map_err(Error::Invalid)?;
    match metadata.odd.first() {
        None => Ok(metadata),
        Some(odd) => Err(Error::Invalid(odd.to_string())),
    }
}

fn checked_metadata(area: &[u8], copy_size: u64) -> Result<Metadata, Reason> {
    let mut metadata = Metadata::parse(parse_area(area)?)?;
    let end = area.iter().position(|&byte| byte == 0).unwrap_or(area.len());
    metadata.is_unambiguous = is_unambiguous(&area[..end]);
    validate(copy_size, &mut metadata)?;
    Ok(metadata)
}

/// The first good secondary copy, or what is wrong with the most promising one.
fn search_secondary(device: &mut (impl Read + Seek), device_size: u64) -> Result<Candidate, Error> {
    let mut best = CopyDamage::Missing;
    for offset in COPY_SIZES {
        match read_copy(device, device_size, HeaderCopy::Secondary, offset, None)? {
            Ok(good) => return Ok(Ok(good)),
            Err(damage) if best == CopyDamage::Missing => best = damage,
            Err(_) => {}
        }
    }
    Ok(Err(best))
}

/// Reads a copy and judges it. One that says the same as `other` byte for byte is not parsed again.
fn read_copy(
    device: &mut (impl Read + Seek),
    device_size: u64,
    copy: HeaderCopy,
    offset: u64,
    other: Option<&Good>,
) -> Result<Candidate, Error> {
    let mut whole = vec![0; BINARY_LEN];
    let binary_end = offset + to_u64(BINARY_LEN);
    if binary_end > device_size {
        return Ok(Err(short(device, device_size, copy, offset)?));
    }
    read_at(device, offset, &mut whole, "the LUKS2 header")?;
    let binary = match Binary::decode(&whole, copy, offset) {
        Ok(binary) => binary,
        Err(damage) => return Ok(Err(damage)),
    };
    let end = offset + binary.copy_size;
    if end > device_size {
        return Ok(Err(CopyDamage::Truncated { needed: end }));
    }
    // At most 4 MiB: the size is one of the legal ones.
    whole.resize(usize::try_from(binary.copy_size).unwrap_or(BINARY_LEN), 0);
    let json_offset = offset + to_u64(BINARY_LEN);
    read_at(device, json_offset, &mut whole[BINARY_LEN..], "the LUKS2 header")?;
    Ok(check_copy(binary, whole, other))
}

/// Tells a copy that the device cuts off from one that is not there.
fn short(
    device: &mut (impl Read + Seek),
    device_size: u64,
    copy: HeaderCopy,
    offset: u64,
) -> Result<CopyDamage, Error> {
    let mut magic = [0; 6];
    if copy == HeaderCopy::Secondary || offset + to_u64(magic.len()) > device_size {
        return Ok(CopyDamage::Missing);
    }
    read_at(device, offset, &mut magic, "the LUKS2 header")?;
    let needed = offset + to_u64(BINARY_LEN);
    Ok(if magic == crate::MAGIC { CopyDamage::Truncated { needed } } else { CopyDamage::Missing })
}

fn check_copy(binary: Binary, mut whole: Vec<u8>, other: Option<&Good>) -> Candidate {
    binary.verify(&whole)?;
    let area = whole.split_off(BINARY_LEN);
    let same = other.filter(|other| other.binary.copy_size == binary.copy_size && other.area == area);
    let metadata = match same {
        Some(other) => Ok(other.metadata.clone()),
        None => checked_metadata(&area, binary.copy_size),
    };
    match metadata {
        Ok(metadata) => Ok(Good { binary, metadata, area }),
        Err(reason) => Err(CopyDamage::NotUnderstood { epoch: binary.epoch, uuid: binary.uuid, reason }),
    }
}

/// Warning about the copies for whoever opens the volume.
fn warning_of(header: &Luks2Header, damage: &str) -> String {
    let used = header.copy.name();
    match &header.bar {
        None => format!("{damage}; using the {used}; `cryptline header repair` restores it"),
        Some(Bar::OtherContents { what, .. }) => {
            format!("the device holds {what}, and {damage}; using the {used}, only to read")
        }
        Some(Bar::NotUnderstood { .. }) => {
            format!("{damage}, though none is newer; using the {used}, only to read, which may lack key slots")
        }
    }
}

/// The header to use, and what is wrong with the other copy.
fn choose(primary: Candidate, secondary: Candidate, device_size: u64) -> Result<Luks2Header, Error> {
    let copies = [CopyState::of(HeaderCopy::Primary, &primary), CopyState::of(HeaderCopy::Secondary, &secondary)];
    let (good, copy, trouble, bar) = match (primary, secondary) {
        (Ok(primary), Ok(secondary)) => {
            let (good, copy, trouble) = newer(primary, secondary);
            (good, copy, trouble, None)
        }
        (Ok(primary), Err(damage)) => {
            let (trouble, bar) = beside(&primary, HeaderCopy::Primary, HeaderCopy::Secondary, damage);
            (primary, HeaderCopy::Primary, Some(trouble), bar)
        }
        (Err(damage), Ok(secondary)) => {
            let (trouble, bar) = beside(&secondary, HeaderCopy::Secondary, HeaderCopy::Primary, damage);
            (secondary, HeaderCopy::Secondary, Some(trouble), bar)
        }
        (Err(primary), Err(secondary)) => {
            return Err(both_bad(&primary, &secondary, device_size));
        }
    };
    let Good { binary, metadata, .. } = good;
    Ok(Luks2Header { binary, metadata, copy, copies, warnings: Vec::new(), trouble, bar })
}

/// Damage of the copy `other` beside the good one, and whether that one may be out of date.
fn beside(good: &Good, used: HeaderCopy, other: HeaderCopy, damage: CopyDamage) -> (String, Option<Bar>) {
    let name = other.name();
    match damage {
        CopyDamage::NotUnderstood { uuid, .. } if uuid != good.binary.uuid => {
            (format!("the {name} header copy is of another volume"), None)
        }
        CopyDamage::NotUnderstood { epoch, reason, .. } => {
            let trouble = format!("the {name} header copy is not understood ({reason})");
            let bar = Bar::NotUnderstood { copy: other, used, reason };
            (trouble, (epoch >= good.binary.epoch).then_some(bar))
        }
        damage => (format!("the {name} header copy is damaged ({damage})"), None),
    }
}

fn newer(primary: Good, secondary: Good) -> (Good, HeaderCopy, Option<String>) {
    if primary.binary.uuid != secondary.binary.uuid {
        let damage = "the secondary header copy is of another volume";
        return (primary, HeaderCopy::Primary, Some(damage.into()));
    }
    let (first, second) = (primary.binary.epoch, secondary.binary.epoch);
    let damage = |older: HeaderCopy, newer: HeaderCopy| {
        let (older, newer) = (older.name(), newer.name());
        Some(format!("the {older} header copy is older than the {newer}"))
    };
    if second > first {
        let damage = damage(HeaderCopy::Primary, HeaderCopy::Secondary);
        return (secondary, HeaderCopy::Secondary, damage);
    }
    let damage = damage(HeaderCopy::Secondary, HeaderCopy::Primary).filter(|_| second < first);
    (primary, HeaderCopy::Primary, damage)
}

fn both_bad(primary: &CopyDamage, secondary: &CopyDamage, device_size: u64) -> Error {
    match (primary, secondary) {
        (CopyDamage::Missing, CopyDamage::Missing) => Error::NotLuks,
        (_, CopyDamage::Newer(version)) => Error::NewerVersion(*version),
        (CopyDamage::Truncated { needed }, CopyDamage::Missing) => {
            Error::Truncated { what: "the LUKS2 header".into(), needed: *needed, size: device_size }
        }
        // Both whole, both saying the same wrong thing: that is what the user must know.
        (CopyDamage::NotUnderstood { reason, .. }, CopyDamage::NotUnderstood { reason: other, .. })
            if reason == other =>
        {
            Error::Invalid(reason.clone())
        }
        _ => Error::BothCopiesDamaged { primary: primary.to_string(), secondary: secondary.to_string() },
    }
}
