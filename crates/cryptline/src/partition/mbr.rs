//! Master boot records, and the chains of logical partitions in extended ones.
//!
//! ```text
//! sector 0: four entries      extended partition: ├ link ├ logical 5 ─┤ ├ link ├ logical 6 ─┤
//!                                                    └──── next link ─────▲
//! ```

use std::io;
use std::ops::Range;

use cryptline_luks::ReadSeek;

use super::{Partition, PartitionTable, SECTORS, TableKind, read_at, u32_at};
use crate::bytes::WindowBytes;
use crate::create::look;

/// Bytes of a record, in sectors of any size.
pub(super) const LEN: usize = 512;
/// The number of the first logical partition.
pub(super) const FIRST_LOGICAL: u32 = 5;
/// Links of a chain that are followed at most.
const LINKS_MAX: usize = 128;

const MARK: [u8; 2] = [0x55, 0xaa];
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Where boot sectors of file systems say what they are: they have the same mark.
const FILE_SYSTEMS: [(usize, &[u8]); 7] = [
    (3, b"NTFS    "),
    (3, b"EXFAT   "),
    (3, b"-FVE-FS-"),
    (54, b"FAT12"),
    (54, b"FAT16"),
    (54, b"FAT  "),
    (82, b"FAT32"),
];

/// A first sector that has a table.
pub(super) struct BootRecord {
    entries: [MbrEntry; 4],
    signature: u32,
}

#[derive(Clone, Copy)]
struct MbrEntry {
    kind: u8,
    /// In sectors; of logical partitions, from their link on.
    first: u32,
    count: u32,
}

impl BootRecord {
    /// `None` where this is no table.
    pub fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let is_file_system = |&(at, word): &(usize, &[u8])| bytes[at..].starts_with(word);
        if !bytes.ends_with(&MARK) || FILE_SYSTEMS.iter().any(is_file_system) {
            return None;
        }
        let is_flag = |number: usize| bytes[446 + 16 * number] & 0x7f == 0;
        (0..4).all(is_flag).then(|| Self { entries: entries_of(bytes), signature: u32_at(bytes, 440) })
    }

    /// Tells if it only keeps those off who do not know GPT.
    pub fn is_protective(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.kind == PROTECTIVE && entry.first == 1)
    }

    /// The UUID that Linux gives to a partition.
    fn uuid(&self, number: u32) -> Option<String> {
        let signature = self.signature;
        (signature != 0).then(|| format!("{signature:08x}-{number:02x}"))
    }
}

fn entries_of(bytes: &[u8; LEN]) -> [MbrEntry; 4] {
    std::array::from_fn(|number| {
        let entry = &bytes[446 + 16 * number..][..16];
        MbrEntry { kind: entry[4], first: u32_at(entry, 8), count: u32_at(entry, 12) }
    })
}

impl MbrEntry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.count != 0
    }

    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    /// From `origin` on, in sectors of `sector` bytes. 32 bits of sectors do not overflow.
    fn range(self, origin: u64, sector: u64) -> Range<u64> {
        let start = origin + u64::from(self.first) * sector;
        start..start + u64::from(self.count) * sector
    }
}

/// The table that begins with `boot`, in the sectors that what lies on the disk speaks for.
///
/// ```text
/// under one of 512 and 4096 all lies on the disk ──────────────► that one
/// under one of them the links of logical partitions are whole ─► that one
/// under one of them a partition begins with something known ───► that one
/// otherwise ───────────────────────────────────────────────────► both: nothing is given out
/// ```
pub(super) fn judged(boot: &BootRecord, disk: &mut dyn ReadSeek, size: u64) -> PartitionTable {
    let mut tables = SECTORS.map(|sector| read(boot, disk, size, sector)).to_vec();
    for speaks_for in [PartitionTable::is_on_disk, PartitionTable::has_whole_links] {
        if tables.iter().any(speaks_for) {
            tables.retain(speaks_for);
        }
    }
    if let [one, other] = &tables[..]
        // Nothing is learned from places that cannot be read.
        && let (Ok(one), Ok(other)) = (one.has_begun(disk), other.has_begun(disk))
        && one != other
    {
        tables.remove(usize::from(one));
    }
    let other = tables.get(1).map(|other| other.sector_size);
    let mut table = tables.swap_remove(0);
    table.other_sector_size = other.filter(|_| !table.partitions.is_empty());
    table
}

impl PartitionTable {
    fn is_on_disk(&self) -> bool {
        let mut all = self.partitions.iter().chain(&self.containers);
        all.all(|one| one.range().end <= self.disk_size)
    }

    /// Tells if there are links wherever there are logical partitions.
    fn has_whole_links(&self) -> bool {
        let has_logical = self.partitions.iter().any(|one| one.number >= FIRST_LOGICAL);
        self.damage.is_none() && (self.containers.is_empty() || has_logical)
    }

    /// Tells if a partition begins with something known: a LUKS header, a file system.
    fn has_begun(&self, disk: &mut dyn ReadSeek) -> io::Result<bool> {
        for one in &self.partitions {
            let range = one.range().start..one.range().end.min(self.disk_size);
            if range.is_empty() {
                continue;
            }
            match look::name(&mut WindowBytes::new(&mut *disk, range))? {
                // Two bytes, which anything may have there.
                None | Some("a boot sector") => {}
                Some(_) => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// The table that begins with `boot`, in sectors of this many bytes.
pub(super) fn read(boot: &BootRecord, disk: &mut dyn ReadSeek, size: u64, sector: u32) -> PartitionTable {
    let sector = sector.clamp(512, 4096);
    let mut table = PartitionTable {
        kind: TableKind::Mbr,
        sector_size: sector,
        other_sector_size: None,
        partitions: Vec::new(),
        damage: None,
        disk_size: size,
        reserved: std::iter::once(0..u64::from(sector)).collect(),
        containers: Vec::new(),
    };
    for (entry, number) in boot.entries.into_iter().zip(1..) {
        if !entry.is_used() {
            continue;
        }
        let range = entry.range(0, u64::from(sector));
        let partition = partition(boot, number, entry, &range);
        if entry.is_extended() {
            table.containers.push(partition);
        } else {
            table.partitions.push(partition);
        }
    }
    let mut number = FIRST_LOGICAL;
    for container in table.containers.clone() {
        let followed = follow(boot, disk, &container.range(), &mut number, &mut table);
        if let Err(why) = followed {
            let outer = container.number;
            table.damage = Some(format!("in the extended partition {outer}, {why}"));
            break;
        }
    }
    table
}

/// Follows the chain of logical partitions in `container`.
fn follow(
    boot: &BootRecord,
    disk: &mut dyn ReadSeek,
    container: &Range<u64>,
    number: &mut u32,
    table: &mut PartitionTable,
) -> Result<(), String> {
    let sector = u64::from(table.sector_size);
    let mut at = container.start;
    for _ in 0..LINKS_MAX {
        if !container.contains(&at) || at + sector > table.disk_size {
            return Err(format!("a link leads outside, to byte {at}"));
        }
        let mut bytes = [0; LEN];
        read_at(disk, at, &mut bytes).map_err(|error| format!("byte {at}: {error}"))?;
        if !bytes.ends_with(&MARK) {
            // Nothing was ever made in there.
            return if at == container.start { Ok(()) } else { Err(format!("byte {at} is no link")) };
        }
        table.reserved.push(at..at + sector);
        let used = || entries_of(&bytes).into_iter().filter(|it| it.is_used());
        if let Some(logical) = used().find(|entry| !entry.is_extended()) {
            let range = logical.range(at, sector);
            table.partitions.push(partition(boot, *number, logical, &range));
            *number += 1;
        }
        let Some(link) = used().find(|entry| entry.is_extended()) else {
            return Ok(());
        };
        at = link.range(container.start, sector).start;
    }
    Err(format!("the chain of links has more than {LINKS_MAX}"))
}

fn partition(boot: &BootRecord, number: u32, entry: MbrEntry, range: &Range<u64>) -> Partition {
    Partition {
        number,
        start: range.start,
        size: range.end - range.start,
        kind: format!("{:#04x}", entry.kind),
        label: None,
        uuid: boot.uuid(number),
        is_luks: false,
        holds: None,
    }
}
