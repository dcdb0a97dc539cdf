//! Damaged tables: what is used instead, what is refused, what a check finds and repairs.

use super::recorder::Recorder;
use super::test_table::*;
use super::*;

#[test]
fn bad_info_block_is_replaced_by_its_copy_and_repaired_only_when_asked() {
    let medium = fresh(512);
    open(&medium).write(0, 0, &[5; 512]).unwrap();
    for (offset, wanted, repair) in [
        (START, Copies::Second, Repair::FirstInfo(0)),
        (START + layout(512).info_copy, Copies::First, Repair::SecondInfo(0)),
    ] {
        let mut byte = [0];
        medium.read(offset + 60, &mut byte).unwrap();
        medium.store(offset + 60, &[byte[0] ^ 1]).unwrap();
        assert_eq!(locate(&medium).unwrap()[0].copies, wanted);
        let table = open(&medium);
        assert_eq!(table.warnings().len(), 1);
        assert_eq!(read(&table, 0), Ok(vec![5; 512]));
        assert_eq!(problems(&medium).len(), 1);
        assert_eq!(locate(&medium).unwrap()[0].copies, wanted, "repaired unasked");
        let (_, findings) = check(&medium, true, |_| ()).unwrap();
        assert_eq!((findings.count, findings.repaired), (0, vec![repair]));
        assert_eq!(locate(&medium).unwrap()[0].copies, Copies::Both);
    }
}

#[test]
fn two_bad_info_blocks_are_refused() {
    let medium = fresh(512);
    medium.store(START + 200, &[1]).unwrap();
    medium.store(START + layout(512).info_copy + 200, &[1]).unwrap();
    let refused = refusal(&medium);
    assert!(refused.contains("checksum is wrong, and so is its copy"), "{refused}");
    assert!(check(&medium, true, |_| ()).is_err());
    medium.store(START, &[0; 4096]).unwrap();
    assert!(refusal(&medium).contains("no BTT in it"));
}

#[test]
fn image_cut_short_is_refused() {
    let medium = fresh(512);
    let mut bytes = vec![0; SIZE];
    medium.read(0, &mut bytes).unwrap();
    for len in [SIZE - 512, SIZE - 4096, 1 << 20, 8192] {
        let short = Recorder::new(len);
        short.store(0, &bytes[..len]).unwrap();
        let refused = refusal(&short);
        assert!(refused.contains("cut short"), "{len}: {refused}");
    }
    assert!(refusal(&Recorder::new(4096)).contains("no BTT"));
    assert!(refusal(&Recorder::new(0)).contains("no BTT"));
}

#[test]
fn sectors_with_metadata_are_refused_by_name() {
    let medium = fresh(512);
    let mut info = locate(&medium).unwrap()[0].info;
    (info.layout.external_lbasize, info.layout.internal_lbasize) = (520, 576);
    medium.store(START, &info.encode()).unwrap();
    assert!(refusal(&medium).contains("sectors of 520 bytes"));
}

#[test]
fn failed_arena_can_be_read_but_not_written() {
    let medium = fresh(512);
    open(&medium).write(0, 0, &[5; 512]).unwrap();
    let mut info = locate(&medium).unwrap()[0].info;
    info.flags = info::FLAG_ERROR;
    for offset in [START, START + info.layout.info_copy] {
        medium.store(offset, &info.encode()).unwrap();
    }
    assert!(refusal(&medium).contains("marked as failed"));
    let table = Btt::open(medium.clone(), true).unwrap();
    assert_eq!(read(&table, 0), Ok(vec![5; 512]));
    assert_eq!(problems(&medium).len(), 1);
}

/// A read-only table shows interrupted writes as complete and changes nothing.
#[test]
fn interrupted_write_is_seen_through_a_read_only_table() {
    let medium = fresh(512);
    let new = layout(512).external_nlba + 3;
    medium.store(START + layout(512).block_offset(new), &[0x99; 512]).unwrap();
    set_slot(&medium, 3, 1, [40, 40, new, 2]);
    medium.settle();
    let table = Btt::open(medium.clone(), true).unwrap();
    assert_eq!(read(&table, 40), Ok(vec![0x99; 512]));
    assert_eq!(read(&table, 41), Ok(vec![0; 512]));
    assert!(medium.events().is_empty());
    let (_, findings) = check(&medium, true, |_| ()).unwrap();
    assert_eq!(findings.repaired, [Repair::Interrupted { arena: 0, count: 1 }]);
    assert_eq!(map(&medium, 40), new | 0xc000_0000);
}

#[test]
fn shared_lost_and_stray_blocks_are_found() {
    let medium = fresh(512);
    open(&medium).write(0, 0, &[5; 1024]).unwrap();
    set_map(&medium, 1, map(&medium, 0));
    set_map(&medium, 2, 0xffff_ffff);
    let found = problems(&medium);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("sector 1 is in block") && found[0].contains("another"));
    assert!(found[1].contains("sector 2 is in block 1073741823, which is not in the arena"));
    assert!(found[2].contains("2 blocks belong to no sector"));
    // A stray block is an error for reads and writes, and harms nobody else.
    let table = open(&medium);
    assert!(read(&table, 2).is_err());
    assert!(table.write(0, 1024, &[1; 512]).is_err());
    assert!(table.write(0, 4096, &[1; 512]).is_ok());
    assert_eq!(problems(&medium).len(), 3);
}

#[test]
fn shared_free_blocks_and_nonsense_in_the_log_are_found_and_refused() {
    let block = layout(512).external_nlba;
    let cases: [([u32; 4], &str); 4] = [
        ([3, block, block, 1], "is another lane's too"),
        ([3, u32::MAX, block, 1], "not all in the arena"),
        ([u32::MAX, block + 3, block + 3, 1], "not all in the arena"),
        ([3, block + 3, block + 3, 9], "do not follow"),
    ];
    for (words, expected) in cases {
        let medium = fresh(512);
        set_slot(&medium, 3, 0, words);
        let found = problems(&medium);
        assert!(found.iter().any(|problem| problem.contains(expected)), "{found:?}");
        let refused = refusal(&medium);
        assert!(refused.contains("lane 3"), "{refused}");
    }
    let medium = fresh(512);
    set_slot(&medium, 3, 3, [1, 1, 1, 1]);
    assert!(refusal(&medium).contains("different slots"));
    assert_eq!(problems(&medium)[0], "lanes use different slots of their log");
}

/// Every medium is noise to somebody: no bytes make a panic.
#[test]
fn damaged_tables_never_panic() {
    for seed in 0..400u64 {
        let medium = fresh(4096);
        let layout = layout(4096);
        let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        for _ in 0..1 + seed % 5 {
            let place = match next() % 3 {
                0 => next() % 128,
                1 => layout.flog + next() % 16384,
                _ => layout.map + next() % 15000,
            };
            medium.store(START + place, &next().to_le_bytes()[..1 + (seed % 8) as usize]).unwrap();
        }
        if let Ok(arenas) = locate(&medium) {
            // Sealed damage goes further than random damage.
            let info = arenas[0].info;
            medium.store(START, &info.encode()).unwrap();
        }
        let _ = check(&medium, seed % 2 == 0, |_| ());
        if let Ok(table) = Btt::open(medium.clone(), seed % 3 == 0) {
            let mut bytes = vec![0; 4096 * 8];
            for at in [0, 100, 3000] {
                let _ = table.read(0, at * 4096, &mut bytes);
                let _ = table.write(0, at * 4096, &bytes);
            }
        }
    }
}
