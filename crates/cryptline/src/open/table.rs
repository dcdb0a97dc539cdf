//! Volumes that a device-mapper table describes, line by line.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use cryptline_cipher::SectorCipher;
use cryptline_engine::base::Blank;
use cryptline_engine::dispatch::{Dispatch, DispatchMode, PerfFlags};
use cryptline_engine::table::{CryptTarget, ParsedLine, TableKey, TableSpan};

use super::Open;
use super::stack::{SegmentCrypt, StackPart, StackPlan, listed};
use crate::Result;
use crate::base::{Access, Base, BaseDevice, BaseSource};
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::info::VolumeKind;
use crate::keys::{with_keys, with_keys_here};
use crate::table::{TableLine, sectors};
use crate::target::Target;
use crate::volume::Volume;

/// Opens what `table` describes.
pub(super) fn open(open: Open, table: &TableLine) -> Result<Volume> {
    let lines = with_keys(|| without_keys(table.parse()?))?;
    let end = (lines.last()).map_or(0, |(line, _)| line.span().start + line.span().len);
    let mut devices = Devices { access: open.access, size: bytes(end), opened: Vec::new() };
    let mut parts = Vec::with_capacity(lines.len());
    for (number, (line, key_len)) in lines.iter().enumerate() {
        parts.push(match line {
            ParsedLine::Crypt(target) => {
                let base = devices.number_of(&target.device)?;
                let crypt = SegmentCrypt {
                    spec: target.cipher.clone(),
                    cipher: cipher_of(table, number)?,
                    key_len: *key_len,
                    sectors: sectors(target),
                    discards: target.options.allow_discards || open.discards,
                };
                part(base, target.offset, line.span(), Some(crypt))
            }
            ParsedLine::Linear(target) => {
                let base = devices.number_of(&target.device)?;
                part(base, target.offset, target.span, None)
            }
            ParsedLine::Zero(span) => part(devices.blank(Blank::Zeros)?, span.start, *span, None),
            ParsedLine::Error(span) => part(devices.blank(Blank::Errors)?, span.start, *span, None),
        });
    }
    let crypts = lines.iter().filter_map(|(line, _)| match line {
        ParsedLine::Crypt(target) => Some(target.options.perf),
        _ => None,
    });
    // One volume has one way to run its ciphers: what any of its lines asks for.
    let dispatch = match crypts.reduce(PerfFlags::or) {
        Some(flags) => open.dispatch.decide(Stored::Table(flags))?.dispatch,
        None => Dispatch::both(DispatchMode::Inline),
    };
    let named = lines.iter().filter_map(|(line, _)| line.device());
    let plan = StackPlan {
        source: listed(named).unwrap_or_else(|| "no device".to_owned()),
        kind: VolumeKind::Table,
        dispatch,
        parts,
    };
    plan.build(devices.into_bases(), open, Vec::new())
}

/// The lines without their keys, each with the length of its key. A key of zeros is none: programs print tables so that
/// are not to show it.
fn without_keys(lines: Vec<ParsedLine>) -> Result<Vec<(ParsedLine, usize)>> {
    let without_key = |(number, mut line)| {
        let mut key_len = 0;
        if let ParsedLine::Crypt(target) = &mut line {
            let key = target.key.as_bytes();
            if !key.is_empty() && key.iter().all(|&byte| byte == 0) {
                return Err(Problem::MaskedKey(number).into());
            }
            key_len = key.len();
            target.key = TableKey::Empty;
        }
        Ok((line, key_len))
    };
    (1..).zip(lines).map(without_key).collect()
}

/// The cipher of the line with this number. A call for each: what leaves the stack that keys are used on does
/// so by itself, and never in memory that was filled there.
fn cipher_of(table: &TableLine, number: usize) -> Result<SectorCipher> {
    let cipher = with_keys_here(|| match table.parse()?.get(number) {
        Some(ParsedLine::Crypt(target)) => Ok(make(target)),
        _ => Err(Problem::NoTable.into()),
    })?;
    Ok(cipher.map_err(Problem::Cipher)?)
}

fn make(target: &CryptTarget) -> std::result::Result<SectorCipher, cryptline_cipher::CipherError> {
    SectorCipher::new(&target.cipher, target.key.as_bytes(), sectors(target))
}

fn part(base: usize, offset: u64, span: TableSpan, crypt: Option<SegmentCrypt>) -> StackPart {
    StackPart { base, start: bytes(offset), size: Some(bytes(span.len)), crypt }
}

/// The parser has bounded all sums: they end below 2^64 bytes.
fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(512)
}

/// The devices of a table, each opened and locked once.
struct Devices {
    access: Access,
    /// Bytes of the clear disk.
    size: u64,
    opened: Vec<TableDevice>,
}

struct TableDevice {
    name: DeviceName,
    base: Base,
}

/// Identity of a device, by which two lines are about the same one.
enum DeviceName {
    Written {
        text: String,
        /// Of a file or block device.
        identity: Option<DeviceIdentity>,
    },
    Blank(Blank),
}

#[derive(PartialEq, Eq)]
enum DeviceIdentity {
    File { device: u64, inode: u64 },
    BlockDevice(u64),
}

impl Devices {
    /// The number of the device that is written so.
    fn number_of(&mut self, text: &str) -> Result<usize> {
        let target = device_of(text)?;
        let identity = target_identity(&target);
        let is_same = |device: &TableDevice| match &device.name {
            DeviceName::Written { text: known, .. } if known == text => true,
            DeviceName::Written { identity: known, .. } => known.is_some() && *known == identity,
            DeviceName::Blank(_) => false,
        };
        if let Some(number) = self.opened.iter().position(is_same) {
            return Ok(number);
        }
        let base = BaseSource::Target(target).open(self.access)?;
        let text = text.to_owned();
        Ok(self.push(DeviceName::Written { text, identity }, base))
    }

    /// The number of the device that nothing is stored in.
    fn blank(&mut self, what: Blank) -> Result<usize> {
        let is_same = |device: &TableDevice| matches!(device.name, DeviceName::Blank(known) if known == what);
        if let Some(number) = self.opened.iter().position(is_same) {
            return Ok(number);
        }
        let base = BaseDevice::blank(what, self.size, self.access.read_only)?.into();
        Ok(self.push(DeviceName::Blank(what), base))
    }

    fn push(&mut self, name: DeviceName, base: Base) -> usize {
        self.opened.push(TableDevice { name, base });
        self.opened.len() - 1
    }

    fn into_bases(self) -> Vec<Base> {
        self.opened.into_iter().map(|device| device.base).collect()
    }
}

/// Which file or block device a target is, whatever its path; `None` where that cannot be told.
fn target_identity(target: &Target) -> Option<DeviceIdentity> {
    let identity = |metadata: Metadata| {
        if metadata.file_type().is_block_device() {
            DeviceIdentity::BlockDevice(metadata.rdev())
        } else {
            DeviceIdentity::File { device: metadata.dev(), inode: metadata.ino() }
        }
    };
    match target {
        Target::Path(path) => std::fs::metadata(path).map(identity).ok(),
        _ => None,
    }
}

/// The device of a line: `MAJOR:MINOR`, or as any target is named.
fn device_of(device: &str) -> Result<Target> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match device.split_once(':') {
        Some((major, minor)) if number(major) && number(minor) => {
            Ok(Target::Path(Path::new("/dev/block").join(device)))
        }
        _ => device.parse(),
    }
}
