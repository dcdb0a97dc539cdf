//! Every state in which a crash can leave the data and the state file: each write pointer stands at
//! or behind what was flushed, and before it are the bytes of one life of the zone, all of them.

use super::test_world::{Event, K, Known, World, ZONE, ZONES, at};
use super::*;
use crate::zone::journal;
use crate::zone::state::BLOCK;
use crate::zone::{ZoneAction, ZoneCondition};

/// States looked at for one moment.
const MOST: u64 = 256;

/// Bytes that belong to one life and place of a zone.
fn content(index: u32, life: u64, from: u64, to: u64) -> Vec<u8> {
    (from / 8..to / 8).flat_map(|word| (word | life << 20 | u64::from(index + 1) << 40).to_le_bytes()).collect()
}

/// A user who writes, and knows what was promised.
struct User {
    world: World,
    disk: Blocking,
    known: Vec<Known>,
    failed: bool,
}

impl User {
    fn new(world: &World) -> Self {
        Self { world: world.clone(), disk: world.open(), known: vec![Known::default(); ZONES as usize], failed: false }
    }

    /// Writes `len` bytes at the pointer of a zone.
    fn write(&mut self, index: u32, len: u64, durable: bool) {
        if self.failed {
            return;
        }
        let known = &mut self.known[index as usize];
        let (life, from) = known.latest;
        known.latest.1 = from + len;
        let offset = u64::from(index) * ZONE + from;
        // What may be there, before it is.
        self.tell();
        let bytes = content(index, life, from, from + len);
        let written = self.disk.write_at(offset, &bytes, durable);
        if self.worked(written) && durable {
            self.known[index as usize].promised = (life, from + len);
        }
        self.tell();
    }

    fn flush(&mut self) {
        if self.failed {
            return;
        }
        let flushed = self.disk.flush();
        if self.worked(flushed) {
            for known in &mut self.known {
                known.promised = known.latest;
            }
        }
        self.tell();
    }

    fn reset(&mut self, index: u32) {
        if self.failed {
            return;
        }
        self.live_again(index);
        self.tell();
        let start = u64::from(index) * ZONE;
        let reset = self.disk.zone(start, ZoneAction::Reset);
        if self.worked(reset) {
            self.promise_life(index);
        }
        self.tell();
    }

    fn reset_all(&mut self) {
        if self.failed {
            return;
        }
        (1..ZONES).for_each(|index| self.live_again(index));
        self.tell();
        let reset = self.disk.zone(0, ZoneAction::ResetAll);
        if self.worked(reset) {
            (1..ZONES).for_each(|index| self.promise_life(index));
        }
        self.tell();
    }

    fn finish(&mut self, index: u32) {
        if self.failed {
            return;
        }
        let start = u64::from(index) * ZONE;
        let finished = self.disk.zone(start, ZoneAction::Finish);
        self.worked(finished);
    }

    /// Notes how an operation ended. After the first failure nothing more is done.
    fn worked(&mut self, result: Result<(), Fault>) -> bool {
        let may_fail = {
            let media = self.world.0.lock().unwrap();
            media.state_left.is_some() || media.data_left.is_some()
        };
        assert!(result.is_ok() || may_fail, "{result:?}");
        self.failed |= result.is_err();
        result.is_ok()
    }

    fn live_again(&mut self, index: u32) {
        let known = &mut self.known[index as usize];
        known.before = known.latest.1;
        known.latest = (known.latest.0 + 1, 0);
    }

    fn promise_life(&mut self, index: u32) {
        let known = &mut self.known[index as usize];
        known.promised = (known.latest.0, 0);
    }

    fn tell(&self) {
        self.world.note(Event::After(self.known.clone()));
    }
}

fn history() -> World {
    let world = World::fresh();
    live(&mut User::new(&world));
    world
}

/// A life of writes, flushes, finishes and resets.
fn live(user: &mut User) {
    user.write(1, K, false);
    user.write(2, 512, false);
    user.flush();
    user.write(1, 1024, false);
    user.write(2, 2 * K, true);
    user.write(3, 3 * K, false);
    user.flush();
    user.reset(3);
    user.write(3, 512, false);
    user.write(1, 512, true);
    user.finish(2);
    user.flush();
    user.reset(2);
    user.write(2, K, false);
    user.reset(2);
    user.write(2, 512, false);
    user.write(4, 1024, false);
    user.flush();
    user.reset_all();
    user.write(4, 512, false);
    user.write(1, 512, true);
}

/// Calls `found` with each crash, and what was known when it happened.
fn crashes(events: &[Event], mut found: impl FnMut(World, &[Known])) {
    let fresh = World::fresh();
    let (mut data, mut state) = {
        let media = fresh.0.lock().unwrap();
        (media.data.clone(), media.state.clone())
    };
    let mut known = vec![Known::default(); ZONES as usize];
    // What a crash may lose, in parts: which medium, where, what.
    let mut loose: Vec<(bool, usize, Vec<u8>)> = Vec::new();
    for event in events {
        match event {
            Event::After(now) => known.clone_from(now),
            Event::Data(start, bytes) => {
                parts(*start, bytes).for_each(|(start, part)| loose.push((false, start, part)))
            }
            Event::State(start, bytes) => {
                parts(*start, bytes).for_each(|(start, part)| loose.push((true, start, part)))
            }
            Event::DataSync | Event::StateSync => {
                let is_state = matches!(event, Event::StateSync);
                for (_, start, part) in loose.extract_if(.., |part| part.0 == is_state) {
                    let medium = if is_state { &mut state } else { &mut data };
                    medium[start..][..part.len()].copy_from_slice(&part);
                }
            }
        }
        let all = 1u64 << loose.len().min(20);
        for pick in 0..all.min(MOST) {
            let arrives = |part: usize| {
                if all <= MOST { pick >> part & 1 != 0 } else { chance(pick, part, loose.len()) }
            };
            let (mut data, mut state) = (data.clone(), state.clone());
            for (_, (is_state, start, part)) in loose.iter().enumerate().filter(|(part, _)| arrives(*part)) {
                let medium = if *is_state { &mut state } else { &mut data };
                medium[*start..][..part.len()].copy_from_slice(part);
            }
            found(World::new(data, state), &known);
        }
    }
}

/// Parts of a write that can arrive without the rest: its sectors.
fn parts(start: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (start..).step_by(512).zip(bytes.chunks(512).map(<[u8]>::to_vec))
}

/// All or nothing at first, then prefixes, then at random.
fn chance(pick: u64, part: usize, parts: usize) -> bool {
    match pick {
        0 | 1 => pick == 1,
        _ if pick.is_multiple_of(3) => part < at(pick) % parts,
        _ => {
            let mut word = pick << 32 | part as u64;
            for _ in 0..3 {
                word = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            }
            word >> 40 & 1 == 0
        }
    }
}

/// Checks a disk after a crash, and says what is wrong.
fn judge(crashed: &World, known: &[Known]) -> Result<(), String> {
    let len = crashed.0.lock().unwrap().state.len() as u64;
    let loaded = journal::load(crashed, len).map_err(|error| error.to_string())?;
    if !loaded.lost.is_empty() {
        return Err(format!("records of {:?} are lost", loaded.lost));
    }
    let data = crashed.0.lock().unwrap().data.clone();
    for index in 1..ZONES {
        let (saved, known) = (loaded.saved[index as usize], known[index as usize]);
        let start = at(u64::from(index) * ZONE);
        let there = &data[start..][..at(saved.written)];
        let is_of = |life: u64, most: u64| saved.written <= most && there == content(index, life, 0, saved.written);
        let (life, promised) = known.promised;
        let fits = if known.latest.0 == life {
            saved.written >= promised && is_of(life, known.latest.1)
        } else {
            // A reset was under way: before it, or after.
            (saved.written >= promised && is_of(life, known.before))
                || (known.latest.0 == life + 1 && is_of(life + 1, known.latest.1))
        };
        if !fits {
            return Err(format!("zone {index}: {saved:?}, of which {promised} bytes of life {life} were promised"));
        }
    }
    Ok(())
}

#[test]
fn crash_leaves_every_write_pointer_consistent_with_its_data() {
    let events = history().0.lock().unwrap().events.clone();
    let mut count = 0;
    crashes(&events, |crashed, known| {
        count += 1;
        judge(&crashed, known).unwrap();
        // And it goes on from there: what is written next is there after the next flush.
        if count % 16 == 0 {
            goes_on(&crashed);
        }
    });
    assert!(count > 5000, "only {count} states");
}

fn goes_on(crashed: &World) {
    let mut disk = crashed.open();
    disk.zone(4 * ZONE, ZoneAction::Reset).unwrap();
    disk.write_at(4 * ZONE, &content(4, 99, 0, 2 * K), false).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let mut read = vec![0; at(ZONE)];
    crashed.open().read_at(4 * ZONE, &mut read).unwrap();
    let (written, rest) = read.split_at(at(2 * K));
    assert_eq!(written, content(4, 99, 0, 2 * K));
    assert!(rest.iter().all(|byte| *byte == 0), "old data are seen");
}

/// The same history without one kind of sync, to see that the judge notices.
fn is_noticed_without(forgotten: fn(&Event) -> bool) -> bool {
    let mut events = history().0.lock().unwrap().events.clone();
    events.retain(|event| !forgotten(event));
    let mut noticed = false;
    crashes(&events, |crashed, known| noticed |= judge(&crashed, known).is_err());
    noticed
}

#[test]
fn missing_sync_of_data_or_state_would_be_noticed() {
    assert!(is_noticed_without(|event| matches!(event, Event::DataSync)));
    assert!(is_noticed_without(|event| matches!(event, Event::StateSync)));
}

/// The same life on media that stop working, at each operation: what was promised before is
/// there, and nothing that failed is told to have worked.
#[test]
fn failure_of_either_medium_at_any_moment_breaks_no_promise() {
    for is_state in [true, false] {
        let mut failed = 0;
        for left in 0.. {
            let world = World::fresh();
            let mut user = User::new(&world);
            {
                let mut media = world.0.lock().unwrap();
                if is_state { media.state_left = Some(left) } else { media.data_left = Some(left) }
            }
            live(&mut user);
            let known = user.known.clone();
            let is_over = !user.failed;
            if user.failed {
                failed += 1;
                // Nothing can be promised any more.
                assert!(user.disk.flush().is_err());
                if is_state {
                    let refused = user.disk.write_at(4 * ZONE, &[0; 512], false);
                    assert!(refused.is_err(), "written without a state");
                }
            }
            drop(user);
            // Nothing was lost in a crash: only what failed is missing.
            let media = world.0.lock().unwrap();
            let after = World::new(media.data.clone(), media.state.clone());
            drop(media);
            judge(&after, &known).unwrap_or_else(|error| panic!("{left}: {error}"));
            if is_over {
                break;
            }
        }
        assert!(failed > 20, "only {failed} failures");
    }
}

#[test]
fn disk_that_is_closed_in_good_order_keeps_what_was_not_flushed() {
    let world = World::fresh();
    let mut user = User::new(&world);
    user.write(1, 2 * K, false);
    user.finish(2);
    drop(user);
    let events = world.0.lock().unwrap().events.clone();
    let ends = |event: &Event| matches!(event, Event::StateSync);
    assert!(events.last().is_some_and(ends));
    let mut zones = [Zone::default(); ZONES as usize];
    let len = world.0.lock().unwrap().state.len() as u64;
    let loaded = journal::load(&world, len).unwrap();
    let table = ZoneTable::load(loaded.layout, |index| loaded.saved[index as usize]);
    for (index, zone) in (0..).zip(&mut zones) {
        *zone = table.report(index);
    }
    assert_eq!(zones[1].write_pointer, ZONE + 2 * K);
    assert_eq!(zones[1].condition, ZoneCondition::Closed);
    assert_eq!(zones[2].condition, ZoneCondition::Full);
}

#[test]
fn one_damaged_copy_is_repaired_and_two_are_refused() {
    let world = World::fresh();
    let mut user = User::new(&world);
    user.write(1, K, true);
    drop(user);
    let whole = world.0.lock().unwrap().state.clone();
    let len = whole.len() as u64;
    for byte in (0..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x41;
        let crashed = World::new(world.0.lock().unwrap().data.clone(), damaged);
        let loaded = journal::load(&crashed, len).unwrap();
        assert_eq!((loaded.lost.len(), loaded.to_repair), (0, 1), "byte {byte}");
        assert_eq!(loaded.saved[1].pointer, K);
        ZoneJournal::open(Box::new(crashed.clone()), &loaded).unwrap();
        assert!(crashed.0.lock().unwrap().state == whole, "not repaired");
    }
    let damage = |places: [usize; 2]| {
        let mut damaged = whole.clone();
        places.iter().for_each(|place| damaged[*place] ^= 1);
        journal::load(&World::new(Vec::new(), damaged), len)
    };
    let half = whole.len() / 2;
    assert!(damage([30, half + 30]).is_err());
    let loaded = damage([BLOCK + 50, half + BLOCK + 700]).unwrap();
    assert_eq!(loaded.lost.len(), 1);
    assert_eq!(loaded.lost[0], 0..ZONES);
    assert_eq!(loaded.saved[1].condition, ZoneCondition::ReadOnly);
}
