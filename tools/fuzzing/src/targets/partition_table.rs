//! Partition tables: GPT with its backup, MBR with chains of logical partitions.
//!
//! Input: one byte of choices, then patches of a sound table: an offset in three bytes, a length in one, the
//! bytes. Patches of a GPT get the right checksums where the choices say so.

use std::io::Cursor;

use crate::each_patch;
use cryptline::partition::{PartitionName, PartitionTable};

const SIZE: usize = 512 << 10;
const ENTRIES: usize = 8;

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((choices, patches)) = data.split_first() else {
        return;
    };
    let sector = if choices & 1 == 0 { 512 } else { 4096 };
    let is_gpt = choices & 2 == 0;
    let mut disk = if is_gpt { gpt(sector) } else { mbr() };
    each_patch(patches, |[a, b, c], bytes| {
        let place = u32::from_be_bytes([0, a, b, c]) as usize % SIZE;
        let end = SIZE.min(place + bytes.len());
        disk[place..end].copy_from_slice(&bytes[..end - place]);
    });
    if is_gpt && choices & 4 != 0 {
        seal(&mut disk, sector, sector, 2 * sector);
        seal(&mut disk, sector, SIZE - sector, SIZE - 2 * sector);
    }
    let told = [Some(512), Some(4096), None, None][usize::from(choices >> 3 & 3)];
    let Ok(Some(table)) = PartitionTable::read(&mut Cursor::new(&disk), SIZE as u64, told) else {
        return;
    };
    assert!(table.partitions.len() <= 1024);
    let _ = table.there();
    for one in &table.partitions {
        let names = [one.label.as_deref(), one.uuid.as_deref()];
        let names = names.into_iter().flatten().filter_map(|name| name.parse().ok());
        for name in names.chain([PartitionName::Number(one.number)]) {
            let Ok(found) = table.find(&name) else { continue };
            let range = found.range();
            assert!(range.start >= 512 && range.start < range.end && range.end <= SIZE as u64);
        }
    }
}

fn gpt(sector: usize) -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    entry(&mut disk, 446, 0xee, 1, u32::MAX);
    let last = SIZE / sector - 1;
    for (lba, other, array) in [(1, last, 2), (last, 1, last - 1)] {
        let entries = &mut disk[array * sector..][..ENTRIES.min(sector / 128) * 128];
        for (number, entry) in entries.chunks_exact_mut(128).take(3).enumerate() {
            entry[..32].fill(number as u8 + 1);
            entry[32] = 16 + 8 * number as u8;
            entry[40] = 23 + 8 * number as u8;
            entry[56] = b'a' + number as u8;
        }
        let header = &mut disk[lba * sector..][..sector];
        header[..8].copy_from_slice(b"EFI PART");
        let words = [(8, 0x1_0000), (12, 92), (24, lba as u32), (32, other as u32)];
        let more = [(72, array as u32), (80, ENTRIES.min(sector / 128) as u32), (84, 128)];
        for (at, word) in words.into_iter().chain(more) {
            header[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    seal(&mut disk, sector, sector, 2 * sector);
    seal(&mut disk, sector, SIZE - sector, SIZE - 2 * sector);
    disk
}

/// Gives the header at `at` the checksums of what it says, where that can be.
fn seal(disk: &mut [u8], sector: usize, at: usize, array: usize) {
    let word = |from: usize| u32::from_le_bytes(disk[at + from..][..4].try_into().unwrap()) as usize;
    let entries = word(80).saturating_mul(word(84)).min(SIZE - array);
    let sum = crc32(&disk[array..array + entries]);
    let len = word(12).min(sector);
    disk[at + 88..at + 92].copy_from_slice(&sum.to_le_bytes());
    disk[at + 16..at + 20].fill(0);
    let sum = crc32(&disk[at..at + len]);
    disk[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
}

fn mbr() -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    disk[440] = 1;
    entry(&mut disk, 446, 0x83, 8, 8);
    entry(&mut disk, 462, 0x05, 100, 300);
    for (at, next) in [(100, 20), (120, 40), (140, 0)] {
        entry(&mut disk, at * 512 + 446, 0x83, 1, 8);
        if next > 0 {
            entry(&mut disk, at * 512 + 462, 0x05, next, 20);
        }
    }
    disk
}

fn entry(disk: &mut [u8], at: usize, kind: u8, first: u32, count: u32) {
    disk[at + 4] = kind;
    disk[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
    disk[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    let sector = at - at % 512;
    disk[sector + 510..sector + 512].copy_from_slice(&[0x55, 0xaa]);
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xedb8_8320))
    })
}
