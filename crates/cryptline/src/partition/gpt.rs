//! GUID partition tables.
//!
//! ```text
//! sector 0    1         2 ...                       ... last sector
//!        MBR  header    array of entries    (array)     backup header
//! ```
//!
//! A header is good if its checksum is, if it lies where it says, and if the array that it names is whole. The
//! backup is used where the first header is not good, as Linux does.

use std::fmt::Write as _;
use std::ops::Range;

use cryptline_luks::ReadSeek;

use super::{Partition, PartitionError, PartitionTable, SECTORS, TableKind, read_at, u32_at, u64_at};

const SIGNATURE: &[u8] = b"EFI PART";
/// Fields of a header that are defined.
const HEADER_LEN: usize = 92;
const SECTOR_MAX: u32 = 4096;
/// Entries that are read at most; tables have 128.
const ENTRIES_MAX: u32 = 1024;
/// Bytes in an entry: the least, which all tables have, and the most.
const ENTRY: Range<u32> = 128..4097;

/// The table of a disk that says it has one.
pub(super) fn read(disk: &mut dyn ReadSeek, size: u64, block: u32) -> Result<PartitionTable, PartitionError> {
    let mut sectors = vec![block];
    sectors.retain(|block| block.is_power_of_two() && (512..=SECTOR_MAX).contains(block));
    sectors.extend(SECTORS.into_iter().filter(|&sector| sector != block));
    let mut damage = None;
    for &sector in &sectors {
        match header_at(disk, size, sector, 1) {
            Ok(Some(header)) => return Ok(header.table(size, None)),
            Ok(None) => {}
            Err(why) => damage = damage.or(Some(why)),
        }
    }
    let first = damage.unwrap_or_else(|| "there is none".to_owned());
    let mut damage = None;
    for sector in sectors {
        let last = (size / u64::from(sector)).saturating_sub(1);
        match header_at(disk, size, sector, last) {
            Ok(Some(header)) => {
                let damage = format!("the first GPT header cannot be used: {first}");
                return Ok(header.table(size, Some(damage)));
            }
            Ok(None) => {}
            Err(why) => damage = damage.or(Some(why)),
        }
    }
    let backup = damage.unwrap_or_else(|| "there is none at the end of the disk".to_owned());
    Err(PartitionError::Damaged(format!("no GPT header can be used (first: {first}; backup: {backup})")))
}

/// A good header with its entries.
struct GptHeader {
    sector: u32,
    lba: u64,
    /// Where the other header is.
    other: u64,
    /// Where the entries are, in bytes.
    array: Range<u64>,
    entry_len: usize,
    entries: Vec<u8>,
}

/// The header in sector `lba`; `None` where there is none, and why not where it is not good.
fn header_at(disk: &mut dyn ReadSeek, size: u64, sector: u32, lba: u64) -> Result<Option<GptHeader>, String> {
    let bytes_in = u64::from(sector);
    let Some(start) = lba.checked_mul(bytes_in) else {
        return Ok(None);
    };
    if lba == 0 || start.checked_add(bytes_in).is_none_or(|end| end > size) {
        return Ok(None);
    }
    let mut bytes = vec![0; sector as usize];
    read_at(disk, start, &mut bytes).map_err(|error| error.to_string())?;
    if !bytes.starts_with(SIGNATURE) {
        return Ok(None);
    }
    check(&mut bytes, lba)?;
    let (count, entry_len) = (u32_at(&bytes, 80), u32_at(&bytes, 84));
    if count > ENTRIES_MAX || !entry_len.is_power_of_two() || !ENTRY.contains(&entry_len) {
        return Err(format!("it has {count} entries of {entry_len} bytes"));
    }
    let array = u64_at(&bytes, 72).checked_mul(bytes_in);
    let len = u64::from(count) * u64::from(entry_len);
    let array = array.and_then(|start| Some(start..start.checked_add(len)?));
    let array = array.filter(|array| array.start >= bytes_in && array.end <= size);
    let array = array.ok_or("its entries are not on the disk")?;
    let mut entries = vec![0; usize::try_from(len).map_err(|error| error.to_string())?];
    read_at(disk, array.start, &mut entries).map_err(|error| error.to_string())?;
    if crc32(&entries) != u32_at(&bytes, 88) {
        return Err("the checksum of its entries is wrong".to_owned());
    }
    Ok(Some(GptHeader { sector, lba, other: u64_at(&bytes, 32), array, entry_len: entry_len as usize, entries }))
}

/// Verifies that the header in `bytes` is whole and lies in its own place.
fn check(bytes: &mut [u8], lba: u64) -> Result<(), String> {
    let (len, sum) = (u32_at(bytes, 12) as usize, u32_at(bytes, 16));
    if !(HEADER_LEN..=bytes.len()).contains(&len) {
        return Err(format!("it says that it has {len} bytes"));
    }
    // Counted without itself.
    bytes[16..20].fill(0);
    if crc32(&bytes[..len]) != sum {
        return Err("its checksum is wrong".to_owned());
    }
    match u64_at(bytes, 24) {
        at if at == lba => Ok(()),
        other => Err(format!("it says that it is in sector {other}")),
    }
}

impl GptHeader {
    fn table(&self, disk_size: u64, damage: Option<String>) -> PartitionTable {
        let bytes = |lba: u64| lba.saturating_mul(u64::from(self.sector));
        let place = |lba: u64| bytes(lba)..bytes(lba.saturating_add(1));
        let numbers = 1..;
        let entries = self.entries.chunks_exact(self.entry_len).zip(numbers);
        let used = entries.filter(|(entry, _)| entry[..16] != [0; 16]);
        let partitions = used.map(|(entry, number)| {
            let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
            let start = bytes(first);
            Partition {
                number,
                start,
                size: bytes(last.saturating_add(1)).saturating_sub(start),
                kind: guid(&entry[..16]),
                label: label(&entry[56..128]),
                uuid: Some(guid(&entry[16..32])),
                is_luks: false,
                holds: None,
            }
        });
        PartitionTable {
            kind: TableKind::Gpt,
            sector_size: self.sector,
            other_sector_size: None,
            partitions: partitions.collect(),
            damage,
            disk_size,
            reserved: vec![place(0), place(self.lba), place(self.other), self.array.clone()],
            containers: Vec::new(),
        }
    }
}

/// As it is written: the first three groups have their bytes reversed.
fn guid(bytes: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::with_capacity(36);
    for (place, from) in ORDER.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{:02x}", bytes[from]);
    }
    text
}

/// UTF-16 that ends with a zero; `None` for no text.
fn label(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<_> = units.take_while(|&unit| unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

/// CRC-32 of ISO 3309, as in Ethernet and gzip.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        let [low, ..] = sum.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (sum >> 8)
    })
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut sum = byte;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ ((sum & 1) * 0xedb8_8320);
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn guid_is_written_as_everybody_writes_it() {
        let bytes: Vec<_> = (0..16).collect();
        assert_eq!(guid(&bytes), "03020100-0504-0706-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn label_ends_at_its_zero_and_may_be_no_text() {
        assert_eq!(label(&[0; 72]), None);
        assert_eq!(label(b"E\0F\0I\0\0\0x\0").as_deref(), Some("EFI"));
        assert_eq!(label(b"\0\xd8a\0").as_deref(), Some("\u{fffd}a"));
    }
}
