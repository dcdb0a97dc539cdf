//! Tables made by hand, sound and lying. Those of other programs are in the tests of the command line.

use std::io::Cursor;

use super::*;

const SIZE: usize = 4 << 20;

/// A disk with a GPT of 128 entries, of `partitions` from first to last sector.
fn gpt(sector: usize, partitions: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    mbr_entry(&mut disk, 446, 0xee, 1, u32::MAX);
    let mut entries = vec![0; 128 * 128];
    for (number, (first, last, label)) in partitions.iter().enumerate() {
        let entry = &mut entries[number * 128..][..128];
        entry[..16].fill(0x11);
        entry[16..32].fill(u8::try_from(number).unwrap());
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        for (place, unit) in label.encode_utf16().enumerate() {
            entry[56 + 2 * place..][..2].copy_from_slice(&unit.to_le_bytes());
        }
    }
    let last = (SIZE / sector - 1) as u64;
    let array_sectors = (entries.len() / sector) as u64;
    for (lba, other, array) in [(1, last, 2), (last, 1, last - array_sectors)] {
        let start = usize::try_from(array).unwrap() * sector;
        disk[start..start + entries.len()].copy_from_slice(&entries);
        let header = &mut disk[usize::try_from(lba).unwrap() * sector..][..sector];
        header[..8].copy_from_slice(b"EFI PART");
        for (at, word) in [(8, 0x1_0000), (12, 92), (80, 128), (84, 128)] {
            header[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        for (at, word) in [(24, lba), (32, other), (40, 34), (48, last - 33), (72, array)] {
            header[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
        }
        header[88..92].copy_from_slice(&gpt::crc32(&entries).to_le_bytes());
        seal(header);
    }
    disk
}

/// Gives a header the right checksum.
fn seal(header: &mut [u8]) {
    header[16..20].fill(0);
    let sum = gpt::crc32(&header[..92]);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
}

fn mbr_entry(disk: &mut [u8], at: usize, kind: u8, first: u32, count: u32) {
    disk[at + 4] = kind;
    disk[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
    disk[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    let sector = at - at % 512;
    disk[sector + 510..sector + 512].copy_from_slice(&[0x55, 0xaa]);
}

/// A disk with two partitions, and an extended one with two logical ones.
fn mbr() -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    disk[440..444].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
    mbr_entry(&mut disk, 446, 0x83, 64, 100);
    mbr_entry(&mut disk, 462, 0x0c, 200, 100);
    mbr_entry(&mut disk, 478, 0x05, 1000, 2000);
    mbr_entry(&mut disk, 1000 * 512 + 446, 0x83, 1, 100);
    mbr_entry(&mut disk, 1000 * 512 + 462, 0x05, 500, 600);
    mbr_entry(&mut disk, 1500 * 512 + 446, 0x82, 8, 50);
    disk
}

fn read(disk: &[u8]) -> Result<Option<PartitionTable>, PartitionError> {
    PartitionTable::read(&mut Cursor::new(disk), disk.len() as u64, None)
}

fn table(disk: &[u8]) -> PartitionTable {
    read(disk).unwrap().expect("a table")
}

fn found(disk: &[u8], name: &str) -> Range<u64> {
    table(disk).find(&name.parse().unwrap()).unwrap().range()
}

fn refusal(disk: &[u8], name: &str) -> String {
    let table = table(disk);
    table.find(&name.parse().unwrap()).unwrap_err().to_string()
}

#[test]
fn partition_of_a_gpt_is_found_by_number_label_and_uuid() {
    for sector in [512, 4096] {
        let disk = gpt(sector, &[(100, 199, "EFI"), (200, 299, "Größe"), (300, 300, "")]);
        let bytes = |first: u64, last: u64| first * sector as u64..(last + 1) * sector as u64;
        assert_eq!(table(&disk).sector_size as usize, sector);
        assert_eq!(found(&disk, "1"), bytes(100, 199));
        assert_eq!(found(&disk, "EFI"), bytes(100, 199));
        assert_eq!(found(&disk, "Größe"), bytes(200, 299));
        assert_eq!(found(&disk, "02020202-0202-0202-0202-020202020202"), bytes(300, 300));
        assert_eq!(table(&disk).damage, None);
    }
}

#[test]
fn those_that_are_there_are_listed_where_one_is_not() {
    let disk = gpt(512, &[(100, 199, "EFI"), (2048, 4095, "a'\n")]);
    for name in ["3", "efi", "+1", "99999999999999"] {
        let refused = refusal(&disk, name);
        assert!(refused.contains("1 'EFI' (50 KiB), 2 'a\\'\\n' (1 MiB)"), "{refused}");
        assert!(refused.starts_with("there is no partition "), "{refused}");
    }
    let empty = refusal(&gpt(512, &[]), "1");
    assert!(empty.ends_with("the partition table is empty"), "{empty}");
    let many: Vec<_> = (0..20).map(|at| (100 + at, 100 + at, "x")).collect();
    let disk = gpt(512, &many);
    assert!(refusal(&disk, "30").ends_with("16 'x' (512 bytes), and 4 more"));
    assert!(refusal(&disk, "x").contains("use the number"));
}

#[test]
fn backup_is_used_where_the_first_header_is_damaged() {
    for sector in [512, 4096] {
        let whole = gpt(sector, &[(100, 199, "EFI")]);
        for damaged in [sector, sector + 40, 2 * sector + 5] {
            let mut disk = whole.clone();
            disk[damaged] ^= 1;
            assert_eq!(table(&disk).partitions, table(&whole).partitions);
            assert!(table(&disk).damage.is_some());
            // Both headers.
            disk[SIZE - sector + 40] ^= 1;
            let refused = read(&disk).unwrap_err().to_string();
            assert!(refused.contains("no GPT header can be used"), "{refused}");
        }
    }
}

#[test]
fn header_with_the_right_checksum_is_not_believed() {
    for (at, word) in [
        (12, 91_u64 | 1 << 32),
        (12, 513),
        (24, 2),
        (72, 0),
        (72, 1 << 40),
        (72, u64::MAX),
        (80, 1025 | 128 << 32),
        (80, 0xffff_ffff | 128 << 32),
        (80, 128),
        (80, 128 | 64 << 32),
        (80, 128 | 129 << 32),
        (80, 4 | 8192 << 32),
        (80, 0xffff_ffff_ffff_ffff),
    ] {
        let mut disk = gpt(512, &[(100, 199, "EFI")]);
        let header = &mut disk[512..1024];
        header[at..at + 8].copy_from_slice(&word.to_le_bytes());
        seal(header);
        let damage = table(&disk).damage.expect("the backup is used");
        assert!(damage.contains("the first GPT header"), "{damage}");
    }
}

#[test]
fn partition_that_lies_is_refused_and_its_neighbour_is_not() {
    let last = (SIZE / 512 - 1) as u64;
    for (first, end, what) in [
        (300, 298, "ends before it begins"),
        (300, 299, "ends before it begins"),
        (300, last + 1, "ends at byte"),
        (300, u64::MAX, "ends at byte"),
        (u64::MAX, u64::MAX, "ends"),
        (0, 99, "lies over the partition table"),
        (33, 99, "lies over the partition table"),
        (300, last, "lies over the partition table"),
        (199, 250, "overlaps partition 1"),
        (150, 160, "overlaps partition 1"),
        (50, 2000, "overlaps partition 1"),
    ] {
        let disk = gpt(512, &[(100, 199, "a"), (first, end, "b")]);
        let refused = refusal(&disk, "b");
        assert!(refused.contains(what) && refused.starts_with("partition 2 "), "{refused}");
        let neighbour = table(&disk);
        let neighbour = neighbour.find(&PartitionName::Number(1));
        assert_eq!(neighbour.is_err(), what.contains("overlaps"), "{first}..{end}");
    }
}

#[test]
fn without_a_protective_record_there_is_no_gpt() {
    let mut disk = gpt(512, &[(100, 199, "EFI")]);
    disk[446 + 8] = 2;
    assert_eq!(table(&disk).kind, TableKind::Mbr);
    disk[510] = 0;
    assert_eq!(read(&disk).unwrap(), None);
}

#[test]
fn partitions_of_an_mbr_have_the_numbers_that_linux_gives_them() {
    let disk = mbr();
    let sectors = |first: u64, count: u64| first * 512..(first + count) * 512;
    assert_eq!(found(&disk, "1"), sectors(64, 100));
    assert_eq!(found(&disk, "2"), sectors(200, 100));
    assert_eq!(found(&disk, "5"), sectors(1001, 100));
    assert_eq!(found(&disk, "6"), sectors(1508, 50));
    assert_eq!(found(&disk, "DEADBEEF-06"), sectors(1508, 50));
    assert!(refusal(&disk, "3").contains("extended"));
    assert!(refusal(&disk, "4").contains("5 (50 KiB), 6 (25 KiB)"));
    assert_eq!(table(&disk).damage, None);
}

/// A disk of 64 MiB with two partitions, which lie on it in sectors of 512 and of 4096 bytes.
fn either() -> Vec<u8> {
    let mut disk = vec![0; 64 << 20];
    mbr_entry(&mut disk, 446, 0x83, 256, 2000);
    mbr_entry(&mut disk, 462, 0x83, 4096, 8000);
    disk
}

#[test]
fn sectors_of_an_mbr_are_those_under_which_partitions_begin_with_something() {
    for sector in [512, 4096] {
        for (first, at, magic) in [(256, 0, &b"LUKS\xba\xbe"[..]), (4096, 0, b"XFSB"), (4096, 3, b"NTFS    ")] {
            let mut disk = either();
            let start = first * sector + at;
            disk[start..start + magic.len()].copy_from_slice(magic);
            let table = table(&disk);
            assert_eq!((table.sector_size as usize, table.other_sector_size), (sector, None), "{magic:?}");
            let one = table.find(&PartitionName::Number(1)).unwrap();
            assert_eq!(one.start, 256 * sector as u64);
        }
    }
}

#[test]
fn mbr_that_can_be_counted_in_two_ways_gives_nothing_out_until_it_is_said() {
    let mut disk = either();
    let both = [512, 4096].map(|sector| 256 * sector..256 * sector + 6);
    for nothing_known in [false, true] {
        if nothing_known {
            both.clone().into_iter().for_each(|place| disk[place].copy_from_slice(b"LUKS\xba\xbe"));
        }
        disk[440..444].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
        for name in ["1", "deadbeef-01"] {
            let refused = refusal(&disk, name);
            assert!(refused.contains("name the partition 1@512 or 1@4096"), "{refused}");
        }
        assert!(table(&disk).partitions.iter().all(|one| table(&disk).judge(one).is_err()));
        assert!(refusal(&disk, "9").starts_with("there is no partition 9"));
    }
    for sector in [512, 4096] {
        let table = PartitionTable::read(&mut Cursor::new(&disk), disk.len() as u64, Some(sector)).unwrap().unwrap();
        for name in ["1".to_owned(), format!("1@{sector}")] {
            let one = table.find(&name.parse().unwrap()).unwrap();
            assert_eq!((one.start, one.size), (256 * u64::from(sector), 2000 * u64::from(sector)));
        }
        let other = PartitionName::Counted { number: 1, sector: 4608 - sector };
        assert!(table.find(&other).is_err());
    }
    assert_eq!("1@4096".parse(), Ok(PartitionName::Counted { number: 1, sector: 4096 }));
    for label in ["1@1024", "a@512", "1@", "@512", "1@0512"] {
        assert_eq!(label.parse(), Ok(PartitionName::Text(label.to_owned())));
    }
}

#[test]
fn links_of_logical_partitions_tell_the_sectors() {
    for sector in [512_usize, 4096] {
        let mut disk = vec![0; 64 << 20];
        mbr_entry(&mut disk, 446, 0x83, 256, 1000);
        mbr_entry(&mut disk, 462, 0x05, 2048, 8000);
        // Whichever sectors are meant, something lies at the other place.
        disk[2048 * 512 + 510..][..2].copy_from_slice(&[0x55, 0xaa]);
        disk[2048 * 4096 + 510..][..2].copy_from_slice(&[0x55, 0xaa]);
        let wrong = 2048 * (4608 - sector);
        mbr_entry(&mut disk, wrong + 462, 0x05, 9000, 10);
        mbr_entry(&mut disk, 2048 * sector + 446, 0x83, 64, 100);
        let table = table(&disk);
        assert_eq!((table.sector_size as usize, table.other_sector_size), (sector, None));
        assert_eq!(table.find(&PartitionName::Number(5)).unwrap().start, (2048 + 64) * sector as u64);
    }
}

#[test]
fn chain_that_never_ends_or_leaves_its_partition_ends_there() {
    // To itself, to its beginning, outside, and to what is no link.
    for first in [500, 0, 2000, u32::MAX, 700] {
        let mut disk = mbr();
        mbr_entry(&mut disk, 1500 * 512 + 462, 0x05, first, 10);
        let table = table(&disk);
        assert!(table.damage.is_some(), "{first}");
        assert!((4..=130).contains(&table.partitions.len()));
        assert!(table.find(&PartitionName::Number(1)).is_ok());
    }
}

#[test]
fn logical_partition_stays_in_its_extended_one_and_off_the_links() {
    for (first, count, what) in [
        (8, 5000, "leaves its extended partition"),
        (2000, 50, "leaves its extended partition"),
        (0, 50, "lies over the partition table"),
        (8, 0x1000_0000, "ends at byte"),
    ] {
        let mut disk = mbr();
        mbr_entry(&mut disk, 1500 * 512 + 446, 0x82, first, count);
        let refused = refusal(&disk, "6");
        assert!(refused.contains(what), "{refused}");
    }
    let mut disk = mbr();
    mbr_entry(&mut disk, 494, 0x83, 2900, 200);
    assert!(refusal(&disk, "4").contains("overlaps the extended partition 3"));
}

#[test]
fn boot_sector_of_a_file_system_is_no_table() {
    for (at, word) in [(3, &b"NTFS    "[..]), (54, b"FAT16   "), (82, b"FAT32   ")] {
        let mut disk = mbr();
        disk[at..at + word.len()].copy_from_slice(word);
        assert_eq!(read(&disk).unwrap(), None);
    }
    let mut disk = mbr();
    disk[446] = 0x17;
    assert_eq!(read(&disk).unwrap(), None);
    for len in [0, 1, 511, 512, 513, 1024] {
        assert_eq!(read(&vec![0; len]).unwrap(), None);
    }
}

/// Every byte that anybody reads, changed in every bit, under a right checksum and a wrong one: nothing panics,
/// and what is given out is on the disk.
#[test]
fn no_damage_makes_a_partition_that_leaves_the_disk() {
    let mut disk = gpt(512, &[(100, 199, "EFI"), (200, 299, "root")]);
    let last = SIZE - 512;
    for at in [446..512, 512..612, 1024..1280, last..last + 92].into_iter().flatten() {
        for bit in 0..8 {
            let sealed = disk[512..1024].to_vec();
            disk[at] ^= 1 << bit;
            check_all(&disk);
            let sum = gpt::crc32(&disk[1024..1024 + 128 * 128]);
            if at >= 1024 {
                disk[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
            }
            seal(&mut disk[512..1024]);
            check_all(&disk);
            disk[at] ^= 1 << bit;
            disk[512..1024].copy_from_slice(&sealed);
        }
    }
    let mut disk = mbr();
    let links = [446, 1000 * 512 + 446, 1500 * 512 + 446];
    for at in links.into_iter().flat_map(|at| at..at + 66) {
        for bit in 0..8 {
            disk[at] ^= 1 << bit;
            check_all(&disk);
            disk[at] ^= 1 << bit;
        }
    }
}

fn check_all(disk: &[u8]) {
    let Ok(Some(table)) = read(disk) else { return };
    for one in &table.partitions {
        if let Ok(one) = table.find(&PartitionName::Number(one.number)) {
            let Range { start, end } = one.range();
            assert!(start < end && end <= disk.len() as u64 && start >= 512);
        }
    }
}
