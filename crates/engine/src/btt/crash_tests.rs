//! Every state in which a crash can leave the medium recovers to old or new, never to a mix.

use super::recorder::{Event, Recorder};
use super::*;

const SIZE: usize = (16 << 20) + 4096;
/// States looked at for one persistence point.
const MOST: u64 = 300;

fn fresh(sector_size: u32) -> Recorder {
    let medium = Recorder::new(SIZE);
    let new = NewTable { sector_size, uuid: [7; 16], is_zero: true };
    assert!(new.write(&medium, |_| ()).unwrap() > 0);
    medium.settle();
    medium
}

fn open(medium: &Recorder) -> Btt<Recorder> {
    Btt::open(medium.clone(), false).unwrap()
}

/// Sectors that say in every word what they are: a mix is seen.
fn stamped(sector_size: u32, stamps: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let words = sector_size as usize / 8;
    let sector = |stamp: u64| stamp.to_le_bytes().repeat(words);
    stamps.into_iter().flat_map(sector).collect()
}

/// The one stamp of a sector.
fn stamp_of(sector: &[u8]) -> u64 {
    let words: Vec<[u8; 8]> = sector.chunks(8).map(|word| word.try_into().unwrap()).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn sector");
    u64::from_le_bytes(words[0])
}

fn assert_sound(medium: &Recorder) {
    let (_, findings) = check(medium, false, |_| ()).unwrap();
    assert_eq!(findings.problems, []);
}

/// Writes `count` sectors over stamped ones with every crash on the way; `rounds` earlier writes
/// bring the lanes' sequence numbers to where they are wanted.
fn crash_in_a_write(sector_size: u32, first: u64, count: u64, rounds: u64) {
    let medium = fresh(sector_size);
    let at = |sector: u64| sector * u64::from(sector_size);
    let table = open(&medium);
    for round in 0..=rounds {
        let old = stamped(sector_size, (0..count).map(|index| 1000 * round + index));
        table.write(0, at(first), &old).unwrap();
    }
    drop(table);
    medium.settle();
    let new = stamped(sector_size, (0..count).map(|index| 500_000 + index));
    open(&medium).write(0, at(first), &new).unwrap();
    let states = medium.crashes(MOST);
    assert!(states.len() > 20, "only {} states", states.len());
    let (mut saw_old, mut saw_new) = (false, false);
    for state in states {
        let table = open(&state);
        let mut read = stamped(sector_size, 0..count);
        table.read(0, at(first), &mut read).unwrap();
        for (index, sector) in (0..count).zip(read.chunks(sector_size as usize)) {
            let stamp = stamp_of(sector);
            let (old, new) = (1000 * rounds + index, 500_000 + index);
            assert!(stamp == old || stamp == new, "{stamp} is neither old nor new");
            saw_old |= stamp == old;
            saw_new |= stamp == new;
        }
        assert_sound(&state);
        // What the lanes know is right too: nothing is overwritten by what comes next.
        let later = stamped(sector_size, 900..1000);
        table.write(0, at(2000), &later).unwrap();
        let mut again = read.clone();
        table.read(0, at(first), &mut again).unwrap();
        assert!(again == read);
        assert_sound(&state);
    }
    assert!(saw_old && saw_new);
}

#[test]
fn crash_in_a_write_of_one_sector_leaves_old_or_new() {
    // 0 to 3 rounds before: each sequence number in each slot, with the wrap from 3 to 1.
    for rounds in 0..4 {
        crash_in_a_write(512, 77, 1, rounds);
    }
    crash_in_a_write(4096, 77, 1, 2);
}

#[test]
fn crash_in_a_write_of_several_sectors_leaves_each_old_or_new() {
    crash_in_a_write(512, 13, 2, 1);
    crash_in_a_write(512, 30, 5, 2);
    crash_in_a_write(4096, 15, 3, 3);
}

/// More sectors than one batch has lanes.
#[test]
fn crash_in_a_long_write_leaves_each_sector_old_or_new() {
    crash_in_a_write(512, 100, 70, 0);
}

/// The work of opening after a crash can itself be interrupted, and is then done again.
#[test]
fn crash_in_the_recovery_is_recovered_from() {
    let medium = fresh(512);
    open(&medium).write(0, 512 * 9, &stamped(512, [1])).unwrap();
    medium.settle();
    open(&medium).write(0, 512 * 9, &stamped(512, [2])).unwrap();
    let mut interrupted = 0;
    for state in medium.crashes(MOST) {
        state.settle();
        let table = open(&state);
        let mut first = vec![0; 512];
        table.read(0, 512 * 9, &mut first).unwrap();
        if state.events().is_empty() {
            continue;
        }
        interrupted += 1;
        for again in state.crashes(MOST) {
            let mut second = vec![0; 512];
            open(&again).read(0, 512 * 9, &mut second).unwrap();
            assert!(first == second, "the write was there and is gone");
            assert_sound(&again);
        }
    }
    assert!(interrupted > 0);
}

/// A table is there whole, or not at all; an old one is never half cleared.
#[test]
fn crash_while_a_table_is_made_leaves_none_or_a_whole_one() {
    for is_zero in [true, false] {
        let medium = Recorder::new(SIZE);
        let new = NewTable { sector_size: 4096, uuid: [1; 16], is_zero };
        if !is_zero {
            new.write(&medium, |_| ()).unwrap();
            open(&medium).write(0, 0, &stamped(4096, [5; 40])).unwrap();
        }
        medium.settle();
        let again = NewTable { uuid: [2; 16], ..new };
        again.write(&medium, |_| ()).unwrap();
        let (mut none, mut whole) = (0, 0);
        for state in medium.crashes(40) {
            match locate(&state) {
                Ok(arenas) if arenas[0].info.uuid == [2; 16] => {
                    whole += 1;
                    let table = open(&state);
                    let mut read = vec![1; 40 * 4096];
                    table.read(0, 0, &mut read).unwrap();
                    assert!(read.iter().all(|&byte| byte == 0), "old data in a new table");
                    let (_, findings) = check(&state, true, |_| ()).unwrap();
                    assert_eq!(findings.problems, []);
                }
                // The old one, before its first info block is hidden.
                Ok(arenas) => {
                    assert_eq!((arenas[0].info.uuid, is_zero), ([1; 16], false));
                    let mut read = vec![1; 40 * 4096];
                    open(&state).read(0, 0, &mut read).unwrap();
                    assert!(read == stamped(4096, [5; 40]));
                }
                Err(_) => none += 1,
            }
        }
        assert!(none > 0 && whole > 0, "{none} without, {whole} with a table");
    }
}

/// The order itself: data, log, commit point and map are each durable before the next.
#[test]
fn write_of_a_sector_is_four_ordered_durable_stores() {
    let medium = fresh(512);
    open(&medium).write(0, 512 * 3, &stamped(512, [1])).unwrap();
    let shape: Vec<usize> = medium
        .events()
        .iter()
        .map(|event| match event {
            Event::Store(_, bytes) => bytes.len(),
            Event::Persist => 0,
        })
        .collect();
    assert_eq!(shape, [512, 0, 8, 0, 8, 0, 4, 0]);
}

/// The enumeration must be able to find a mix: without the first persistence point the map can
/// arrive before the data.
#[test]
fn write_without_its_persistence_points_is_caught() {
    let medium = fresh(512);
    open(&medium).write(0, 512 * 9, &stamped(512, [1])).unwrap();
    medium.settle();
    open(&medium).write(0, 512 * 9, &stamped(512, [2])).unwrap();
    medium.forget_persistence();
    let is_mixed = medium.crashes(5000).iter().any(|state| {
        let Ok(table) = Btt::open(state.clone(), false) else {
            return true;
        };
        let mut read = vec![0; 512];
        table.read(0, 512 * 9, &mut read).is_err() || ![1, 2].contains(&read[0]) || read[0] != read[504]
    });
    assert!(is_mixed);
}
