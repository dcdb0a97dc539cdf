//! Where documents and implementations of the format disagree.

use cryptline_sys::SharedMemory;

use super::flog::FlogGroup;
use super::info::InfoBlock;
use super::recorder::Recorder;
use super::test_table::*;
use super::*;

/// Trap: the kernel's document names the two flag bits the wrong way round.
#[test]
fn zero_flag_is_bit_31_and_error_flag_is_bit_30() {
    let medium = fresh(512);
    open(&medium).write(0, 0, &[0x55; 2048]).unwrap();
    let (zero, error) = (map(&medium, 1) & !(1 << 30), map(&medium, 2) & !(1 << 31));
    set_map(&medium, 1, zero);
    set_map(&medium, 2, error);
    let table = open(&medium);
    assert_eq!(read(&table, 1), Ok(vec![0; 512]));
    assert_eq!(read(&table, 2), Err(Fault::Io(rustix::io::Errno::IO)));
    // Their neighbours, and a write over them, are as good as any.
    let mut all = vec![0; 1024];
    table.read(0, 0, &mut all).unwrap();
    assert_eq!((all[0], all[512]), (0x55, 0));
    table.write(0, 512, &[0x66; 1024]).unwrap();
    assert_eq!(read(&table, 2), Ok(vec![0x66; 512]));
    assert_eq!(problems(&medium), [""; 0]);
}

/// Trap: Linux drops the rest of a page after a sector that is zero by its flag.
#[test]
fn zero_sector_in_the_middle_of_a_read_leaves_the_others_alone() {
    let medium = fresh(512);
    open(&medium).write(0, 0, &[0x55; 4096]).unwrap();
    set_map(&medium, 0, map(&medium, 0) & !(1 << 30));
    let mut page = vec![0xee; 4096];
    open(&medium).read(0, 0, &mut page).unwrap();
    assert!(page[..512].iter().all(|&byte| byte == 0));
    assert!(page[512..].iter().all(|&byte| byte == 0x55));
}

/// Trap: for the same reason no zero or error flag is ever written alone.
#[test]
fn only_normal_map_entries_and_unflagged_logs_are_written() {
    let medium = fresh(512);
    let table = open(&medium);
    for round in 0..300u64 {
        table.write(0, round % 7 * 512, &[0; 512 * 9]).unwrap();
    }
    for lba in 0..15 {
        assert_eq!(map(&medium, lba) >> 30, 0b11);
    }
    for lane in 0..64 {
        let mut group = [0; 64];
        medium.read(START + layout(512).flog_offset(lane), &mut group).unwrap();
        for word in [4, 8, 20, 24] {
            assert!(group[word + 3] < 0x40, "a flag in the log of lane {lane}");
        }
    }
}

/// Trap: the kernel's document rolls back; its code, UEFI and PMDK roll forward. And PMDK puts
/// flags on the numbers of its log, Linux does not.
#[test]
fn interrupted_write_of_linux_and_of_pmdk_is_rolled_forward() {
    let spare = layout(512).external_nlba;
    for (flags, old_seq, new_seq) in [(0, 1, 2), (0, 3, 1), (0xc000_0000, 1, 2), (0xc000_0000, 3, 1)] {
        let medium = fresh(512);
        let new = spare + 3;
        let data = START + layout(512).block_offset(new);
        medium.store(data, &[0x99; 512]).unwrap();
        set_slot(&medium, 3, 0, [3, new | flags, new | flags, old_seq]);
        set_slot(&medium, 3, 1, [40, 40 | flags, new | flags, new_seq]);
        let (_, findings) = check(&medium, false, |_| ()).unwrap();
        assert_eq!((findings.count, findings.interrupted_writes), (0, 1));
        let table = open(&medium);
        assert_eq!(read(&table, 40), Ok(vec![0x99; 512]));
        assert_eq!(map(&medium, 40), new | 0xc000_0000);
        assert_eq!(problems(&medium), [""; 0]);
        // The lane's free block is now the old one, which nobody else has.
        for _ in 0..600 {
            table.write(3, 41 * 512, &[0x11; 512]).unwrap();
        }
        assert_eq!(read(&table, 40), Ok(vec![0x99; 512]));
    }
}

/// PMDK's initial log has ZERO on its numbers; that is no write.
#[test]
fn initial_log_of_pmdk_is_no_interrupted_write() {
    let medium = fresh(512);
    let block = layout(512).external_nlba;
    set_slot(&medium, 0, 0, [0, block | 1 << 31, block | 1 << 31, 1]);
    let (_, findings) = check(&medium, false, |_| ()).unwrap();
    assert_eq!((findings.count, findings.interrupted_writes), (0, 0));
    open(&medium).write(0, 0, &[1; 512]).unwrap();
    assert_eq!(problems(&medium), [""; 0]);
}

/// A log whose second half never arrived is an older entry, and is ignored.
#[test]
fn log_without_its_second_half_is_ignored() {
    let medium = fresh(512);
    set_slot(&medium, 3, 1, [40, 40, 0, 0]);
    let table = open(&medium);
    assert_eq!(read(&table, 40), Ok(vec![0; 512]));
    assert_eq!((map(&medium, 40), problems(&medium)), (0, vec![]));
}

/// A write that is complete in the map is not done a second time, whatever came after it.
#[test]
fn complete_write_is_not_repeated() {
    let medium = fresh(512);
    let table = open(&medium);
    table.write(0, 0, &[1; 512]).unwrap();
    table.write(1, 0, &[2; 512]).unwrap();
    drop(table);
    assert_eq!(read(&open(&medium), 0), Ok(vec![2; 512]));
}

/// Trap: a fresh sector is read from the block of its number, as Linux does, not as zeros.
#[test]
fn never_written_sector_is_the_block_of_its_number() {
    let medium = fresh(512);
    medium.store(START + layout(512).block_offset(5), &[0x77; 512]).unwrap();
    assert_eq!(read(&open(&medium), 5), Ok(vec![0x77; 512]));
    // So a table over old data clears the blocks.
    let new = NewTable { sector_size: 512, uuid: [8; 16], is_zero: false };
    let mut done = 0;
    new.write(&medium, |bytes| done = bytes).unwrap();
    assert_eq!(done, new.work(medium.size()));
    assert_eq!(read(&open(&medium), 5), Ok(vec![0; 512]));
}

/// Trap: kernels before 4.15 used slots 0 and 2 of a flog group.
#[test]
fn table_of_an_old_kernel_keeps_its_slots() {
    let medium = fresh(512);
    let new = layout(512).external_nlba;
    set_slot(&medium, 0, 2, [9, 9, new, 2]);
    set_map(&medium, 9, new | 0xc000_0000);
    open(&medium).write(0, 0, &vec![3; 512 * 600]).unwrap();
    let mut group = [0; 64];
    for lane in 0..layout(512).nfree {
        medium.read(START + layout(512).flog_offset(lane), &mut group).unwrap();
        assert_eq!(group[16..32], [0; 16], "slot 1 of lane {lane} was written");
    }
    assert_eq!(problems(&medium), [""; 0]);
    assert_eq!(read(&open(&medium), 599), Ok(vec![3; 512]));
}

/// Version 2.0 starts at byte 0 of its medium.
#[test]
fn table_of_version_2_starts_at_byte_0() {
    let medium = fresh(4096);
    let moved = Recorder::new(16 << 20);
    let mut bytes = vec![0; 16 << 20];
    medium.read(START, &mut bytes).unwrap();
    moved.store(0, &bytes).unwrap();
    let mut info = InfoBlock::parse(bytes[..4096].try_into().unwrap()).unwrap();
    // A version 1.1 block is not looked for there.
    assert!(matches!(locate(&moved), Err(BttError::Nothing)));
    info.version = (2, 0);
    for offset in [0, info.layout.info_copy] {
        moved.store(offset, &info.encode()).unwrap();
    }
    assert_eq!(locate(&moved).unwrap()[0].start, 0);
    open(&moved).write(0, 4096 * 7, &[6; 4096]).unwrap();
    assert_eq!(problems(&moved), [""; 0]);
    // From its copy too.
    moved.store(0, &[0; 4096]).unwrap();
    assert_eq!(locate(&moved).unwrap()[0].copies, Copies::Second);
}

/// Trap: lanes are not processors. Many threads, each interrupted anywhere, share none.
#[test]
fn sectors_are_never_torn_by_threads() {
    let memory = SharedMemory::new(SIZE).unwrap();
    make(&memory, 512);
    let table = &Btt::open(memory, false).unwrap();
    let sectors = 40u64;
    table.write(0, 0, &vec![0; 512 * 40]).unwrap();
    std::thread::scope(|scope| {
        for home in 0..4u8 {
            scope.spawn(move || {
                for round in 0..3000u64 {
                    let stamp = [round.to_le_bytes()[0] ^ home << 6; 512 * 3];
                    let at = (round * 7 + u64::from(home) * 13) % (sectors - 3);
                    table.write(usize::from(home), at * 512, &stamp).unwrap();
                }
            });
            scope.spawn(move || {
                let mut bytes = vec![0; 512 * 40];
                for _ in 0..1500 {
                    table.read(usize::from(home), 0, &mut bytes).unwrap();
                    for (number, sector) in bytes.chunks(512).enumerate() {
                        let whole = sector.iter().all(|&byte| byte == sector[0]);
                        assert!(whole, "sector {number} is torn");
                    }
                }
            });
        }
    });
    let (_, findings) = check(&table.medium, false, |_| ()).unwrap();
    assert_eq!(findings.problems, []);
}

/// Several arenas, as a medium of more than 512 GiB has them.
#[test]
fn sectors_of_all_arenas_follow_one_another() {
    let most = 16 << 20;
    let size = START + 2 * most + (17 << 20);
    let medium = Recorder::new(usize::try_from(size).unwrap());
    let new = NewTable { sector_size: 512, uuid: [7; 16], is_zero: true };
    let sectors = new.write_arenas(most, &medium, |_| ()).unwrap();
    let arenas = locate(&medium).unwrap();
    let starts: Vec<u64> = arenas.iter().map(|arena| arena.start).collect();
    assert_eq!(starts, [START, START + most, START + 2 * most]);
    assert_eq!(arenas[2].info.next, 0);
    let table = open(&medium);
    assert_eq!(table.size(), sectors * 512);
    let border = arenas[0].info.layout.external_size();
    let data: Vec<u8> = (1..=200).flat_map(|number| [number; 512]).collect();
    table.write(0, border - 512 * 100, &data).unwrap();
    table.write(0, table.size() - 512, &[0xaa; 512]).unwrap();
    let mut again = vec![0; data.len()];
    open(&medium).read(0, border - 512 * 100, &mut again).unwrap();
    assert!(again == data);
    assert_eq!(problems(&medium), [""; 0]);
    // The second arena is another table's.
    let mut info = arenas[1].info;
    info.uuid = [9; 16];
    medium.store(START + most, &info.encode()).unwrap();
    assert!(refusal(&medium).contains("arena 1 belongs to another table"));
    info.next = !4095;
    info.uuid = [7; 16];
    medium.store(START + most, &info.encode()).unwrap();
    assert!(refusal(&medium).contains("arena 2"));
}

#[test]
fn new_group_is_the_initial_state() {
    let medium = fresh(512);
    let mut group = [0; 64];
    medium.read(START + layout(512).flog_offset(9), &mut group).unwrap();
    assert_eq!(group, FlogGroup::initial(9, layout(512).external_nlba + 9));
}
