//! A small table on a recorder, and hands to damage it with. For tests.

use super::layout::ArenaLayout;
use super::recorder::Recorder;
use super::*;

pub const SIZE: usize = (16 << 20) + 4096;
pub const START: u64 = 4096;

pub fn fresh(sector_size: u32) -> Recorder {
    let medium = Recorder::new(SIZE);
    make(&medium, sector_size);
    medium
}

pub fn make(medium: &impl BttMedium, sector_size: u32) {
    let new = NewTable { sector_size, uuid: [7; 16], is_zero: true };
    assert!(new.write(medium, |_| ()).unwrap() > 0);
}

pub fn layout(sector_size: u32) -> ArenaLayout {
    ArenaLayout::new(16 << 20, sector_size).unwrap()
}

pub fn set_map(medium: &Recorder, lba: u32, raw: u32) {
    let offset = START + layout(512).map_offset(lba);
    medium.store32(offset, raw).unwrap();
}

pub fn map(medium: &Recorder, lba: u32) -> u32 {
    medium.load32(START + layout(512).map_offset(lba)).unwrap()
}

/// Writes one slot of a lane as somebody else would.
pub fn set_slot(medium: &Recorder, lane: u32, slot: u64, words: [u32; 4]) {
    let offset = START + layout(512).flog_offset(lane) + slot * 16;
    for (index, word) in (0..).zip(words) {
        medium.store32(offset + index * 4, word).unwrap();
    }
}

pub fn read(table: &Btt<Recorder>, sector: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0xee; 512];
    table.read(0, sector * 512, &mut bytes)?;
    Ok(bytes)
}

pub fn open(medium: &Recorder) -> Btt<Recorder> {
    Btt::open(medium.clone(), false).unwrap()
}

pub fn refusal(medium: &Recorder) -> String {
    match Btt::open(medium.clone(), false) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

pub fn problems(medium: &Recorder) -> Vec<String> {
    let (_, findings) = check(medium, false, |_| ()).unwrap();
    assert_eq!(findings.count, findings.problems.len() as u64);
    findings.problems.iter().map(|problem| problem.what.to_string()).collect()
}
