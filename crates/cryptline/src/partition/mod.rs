//! Partition tables: GPT, and MBR with its logical partitions.
//!
//! ```text
//! first sector ─┬─ no mark, or a file system's ──► no table
//!               ├─ a partition of type 0xee ─────► GPT: first header, or the backup
//!               └─ anything else ────────────────► MBR: four entries, and chains of logical ones
//! ```
//!
//! A table is whatever Linux takes for one, so that a partition has the same number and place here as there. A table
//! may be hostile: counts and chains are bounded, and a partition is judged before it is used
//! ([`PartitionTable::find`]). Others of the same table may lie; they are listed all the same.
//!
//! A GPT is found by the sectors that it counts in. An MBR does not say how large they are: a device or the user does,
//! or what lies where its partitions would begin. Where that leaves a choice, no partition is given out.
//!
//! The parser is our own: crates for GPT allocate what the header asks for, or assert what it says.

mod gpt;
mod mbr;

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::str::FromStr;

use cryptline_luks::ReadSeek;

use crate::ErrorKind;
use crate::bytes::WindowBytes;
use crate::contents::{self, Contents};
use crate::size::human;
use crate::volume::LEAST_BLOCK;

/// Partitions that a message lists.
const LISTED: usize = 16;
/// Bytes in the sectors of disks.
const SECTORS: [u32; 2] = [512, 4096];
/// Partitions that are looked at for LUKS headers.
const LOOKED_AT: usize = 128;
const LUKS: [u8; 6] = *b"LUKS\xba\xbe";

/// The partitions of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// Kind of the table.
    pub kind: TableKind,
    /// Bytes in a sector, in which the table counts.
    pub sector_size: u32,
    /// The table could as well count in these sectors, in bytes: nothing on the disk speaks for either.
    pub other_sector_size: Option<u32>,
    /// Those in use, in the order of the table.
    pub partitions: Vec<Partition>,
    /// Description of what is wrong with the table, though it can be used.
    pub damage: Option<String>,
    /// Bytes of the disk.
    pub disk_size: u64,
    /// Where the table itself lies.
    reserved: Vec<Range<u64>>,
    /// Extended partitions, which hold others.
    containers: Vec<Partition>,
}

/// The kinds of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// A master boot record.
    Mbr,
}

/// A partition, as the table has it: it may leave the disk, and overlap others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as Linux counts.
    pub number: u32,
    /// Its first byte.
    pub start: u64,
    /// Bytes in it; 0 where it ends before it begins.
    pub size: u64,
    /// Purpose: a GUID, or a byte such as `0x83`.
    pub kind: String,
    /// Its name, which only GPT has.
    pub label: Option<String>,
    /// Its UUID (`PARTUUID` in Linux).
    pub uuid: Option<String>,
    /// Set if it begins with a LUKS header.
    pub is_luks: bool,
    /// Contents that are known otherwise, of the first partitions only.
    pub holds: Option<Contents>,
}

/// Which partition is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionName {
    /// The one with this number.
    Number(u32),
    /// The one with this number in a table that counts in sectors of this many bytes (`2@4096`).
    Counted {
        /// Its number.
        number: u32,
        /// Bytes in a sector.
        sector: u32,
    },
    /// The one with this label or UUID.
    Text(String),
}

/// Why there is no such partition, or it cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// There is no table.
    #[error("it has no partition table")]
    NoTable,
    /// There was one.
    #[error("its partition table is damaged: {0}")]
    Damaged(String),
    /// No partition is called so.
    #[error("there is no partition {name}; {there}")]
    NotThere {
        /// Partition that was asked for.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// More than one partition is called so.
    #[error("partitions {numbers} are all called {name}; use the number of one")]
    Ambiguous {
        /// Partition that was asked for.
        name: String,
        /// The numbers of those.
        numbers: String,
    },
    /// Holder of other partitions.
    #[error("partition {number} is an extended one, which only holds others; {there}")]
    Container {
        /// Its number.
        number: u32,
        /// The partitions that there are.
        there: String,
    },
    /// Nobody knows what its numbers count.
    #[error(
        "its partition table counts in sectors of {one} or of {other} bytes, and nothing on the disk says which; name the partition {number}@{one} or {number}@{other}"
    )]
    Sectors {
        /// Its number.
        number: u32,
        /// Bytes in a sector.
        one: u32,
        /// Bytes in a sector.
        other: u32,
    },
    /// The table says what cannot be.
    #[error("partition {number} {what}; the partition table is damaged, or the disk is cut short")]
    Impossible {
        /// Its number.
        number: u32,
        /// Verb that says what is wrong with it.
        what: String,
    },
    /// The first sector could not be read.
    #[error("cannot read the partition table: {0}")]
    Io(#[from] io::Error),
}

impl PartitionTable {
    /// The table of a disk of `size` bytes; `None` where there is none. `sector` is the size of the disk's sectors in
    /// bytes, where a device or the user has told it.
    ///
    /// # Errors
    /// One that cannot be read, and one of which nothing can be used.
    pub fn read(disk: &mut (impl Read + Seek), size: u64, sector: Option<u32>) -> Result<Option<Self>, PartitionError> {
        let disk: &mut dyn ReadSeek = disk;
        if size < mbr::LEN as u64 {
            return Ok(None);
        }
        let mut first = [0; mbr::LEN];
        read_at(disk, 0, &mut first)?;
        let Some(boot) = mbr::BootRecord::parse(&first) else {
            return Ok(None);
        };
        let mut table = match (boot.is_protective(), sector) {
            (true, sector) => gpt::read(disk, size, sector.unwrap_or(LEAST_BLOCK))?,
            (false, Some(sector)) => mbr::read(&boot, disk, size, sector),
            (false, None) => mbr::judged(&boot, disk, size),
        };
        table.look_for_luks(disk);
        Ok(Some(table))
    }

    // Guard: other bytes than those that are meant would be written.
    /// The partition that `name` means, if it can be used.
    ///
    /// # Errors
    /// None is called so, or several are, or it cannot be: it leaves the disk, overlaps another or the table.
    pub fn find<'a>(&'a self, name: &PartitionName) -> Result<&'a Partition, PartitionError> {
        let found = self.named(name);
        match found[..] {
            [] => Err(self.not_there(name)),
            // In larger sectors it would leave the disk as well.
            [one]
                if one.range().end <= self.disk_size
                    && let Some(other) = self.other_sector_size =>
            {
                Err(PartitionError::Sectors { number: one.number, one: self.sector_size, other })
            }
            [one] => {
                self.judge(one).map(|()| one).map_err(|what| PartitionError::Impossible { number: one.number, what })
            }
            _ => {
                let numbers: Vec<_> = found.iter().map(|one| one.number.to_string()).collect();
                Err(PartitionError::Ambiguous { name: name.to_string(), numbers: numbers.join(", ") })
            }
        }
    }

    /// Only so that it can be told: what cannot be read has none.
    fn look_for_luks(&mut self, disk: &mut dyn ReadSeek) {
        for one in self.partitions.iter_mut().take(LOOKED_AT) {
            let mut start = [0; LUKS.len()];
            one.is_luks = read_at(disk, one.start, &mut start).is_ok() && start == LUKS;
        }
    }

    /// Names what is in the first partitions: as above, only so that it can be told.
    pub(crate) fn look_inside(&mut self, disk: &mut (impl Read + Seek)) {
        let size = self.disk_size;
        for one in self.partitions.iter_mut().take(LISTED).filter(|one| !one.is_luks && one.range().end <= size) {
            let mut inside = WindowBytes::new(&mut *disk, one.range());
            one.holds = contents::inside(&mut inside, one.size).ok().flatten();
        }
    }

    fn named(&self, name: &PartitionName) -> Vec<&Partition> {
        let is_meant = |one: &&Partition| match name {
            PartitionName::Number(number) => one.number == *number,
            PartitionName::Counted { number, sector } => one.number == *number && self.sector_size == *sector,
            PartitionName::Text(text) => {
                let uuid = one.uuid.as_deref();
                one.label.as_deref() == Some(text) || uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(text))
            }
        };
        self.partitions.iter().filter(is_meant).collect()
    }

    fn not_there(&self, name: &PartitionName) -> PartitionError {
        let there = self.there();
        let container = |one: &&Partition| *name == PartitionName::Number(one.number);
        match self.containers.iter().find(container) {
            Some(Partition { number, .. }) => PartitionError::Container { number: *number, there },
            None => PartitionError::NotThere { name: name.to_string(), there },
        }
    }

    /// Verifies that a partition of this table can be what the table says.
    ///
    /// # Errors
    /// Why not, as a verb.
    pub fn judge(&self, one: &Partition) -> Result<(), String> {
        let (range, size) = (one.range(), self.disk_size);
        if one.size == 0 {
            return Err("ends before it begins".to_owned());
        }
        if range.end > size {
            return Err(format!("ends at byte {}, the disk has {size}", range.end));
        }
        if let Some(other) = self.other_sector_size {
            let (number, sector) = (one.number, self.sector_size);
            return Err(format!(
                "is {number}@{sector} or {number}@{other}: the table does not say how large its sectors are"
            ));
        }
        if self.reserved.iter().any(|place| overlap(place, &range)) {
            return Err("lies over the partition table".to_owned());
        }
        let is_in_the_way = |other: &&Partition| other.number != one.number && overlap(&other.range(), &range);
        if let Some(other) = self.partitions.iter().find(is_in_the_way) {
            return Err(format!("overlaps partition {}", other.number));
        }
        let is_inside = |outer: Range<u64>| outer.start <= range.start && range.end <= outer.end;
        let mut containers = self.containers.iter();
        if self.kind == TableKind::Mbr && one.number >= mbr::FIRST_LOGICAL {
            if !containers.any(|container| is_inside(container.range())) {
                return Err("leaves its extended partition".to_owned());
            }
        } else if let Some(container) = containers.find(|it| overlap(&it.range(), &range)) {
            let number = container.number;
            return Err(format!("overlaps the extended partition {number}"));
        }
        Ok(())
    }

    /// The partitions in a line.
    #[must_use]
    pub fn there(&self) -> String {
        if self.partitions.is_empty() {
            return "the partition table is empty".to_owned();
        }
        let mut shown: Vec<_> = self.partitions.iter().take(LISTED).map(ToString::to_string).collect();
        if let Some(more @ 1..) = self.partitions.len().checked_sub(LISTED) {
            shown.push(format!("and {more} more"));
        }
        format!("it has {}", shown.join(", "))
    }
}

impl PartitionError {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotThere { .. } | Self::Ambiguous { .. } | Self::Container { .. } | Self::Sectors { .. } => {
                ErrorKind::Parameters
            }
            _ => ErrorKind::Device,
        }
    }
}

impl Partition {
    /// Its bytes on the disk.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.size)
    }
}

/// Its number, label and size, and whether it is a LUKS volume.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        if let Some(label) = &self.label {
            write!(f, " '{}'", label.escape_debug())?;
        }
        let luks = if self.is_luks { ", LUKS" } else { "" };
        write!(f, " ({}{luks})", human(self.size))
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

impl PartitionName {
    /// Bytes in the sectors that the table counts in, if the name says so.
    #[must_use]
    pub fn sector(&self) -> Option<u32> {
        match self {
            Self::Counted { sector, .. } => Some(*sector),
            Self::Number(_) | Self::Text(_) => None,
        }
    }
}

impl FromStr for PartitionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((number, sector)) = text.split_once('@')
            && let (Ok(number), Some(&sector)) = (number.parse(), SECTORS.iter().find(|one| one.to_string() == sector))
        {
            return Ok(Self::Counted { number, sector });
        }
        match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Self::Number(number)),
            _ if text.is_empty() => Err("no partition is named; use its number, label or UUID".to_owned()),
            _ => Ok(Self::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Counted { number, sector } => write!(f, "{number}@{sector}"),
            Self::Text(text) => write!(f, "'{}'", text.escape_debug()),
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

fn read_at(disk: &mut dyn ReadSeek, offset: u64, target: &mut [u8]) -> io::Result<()> {
    disk.seek(SeekFrom::Start(offset))?;
    disk.read_exact(target)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
