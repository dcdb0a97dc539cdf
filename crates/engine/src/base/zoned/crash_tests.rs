//! Every state in which a crash can leave the data and the state file: each write pointer stands at
//! or behind what was flushed, and before it are the bytes of one life of the zone, all of them.

use std::sync::{Arc, Mutex};

use cryptline_sys::{BackendChoice, Ring};

use super::*;
use crate::zone::journal::{self, StateStore};
use crate::zone::state::{self, BLOCK, Block};
use crate::zone::{ZoneAction, ZoneCondition};
use crate::{Completion, Operation, Request, Submitted};

const K: u64 = 4096;
const ZONE: u64 = 4 * K;
const ZONES: u32 = 5;
/// States looked at for one moment.
const MOST: u64 = 256;

/// What reached a medium, in order. `After` is what a user knew at that moment.
#[derive(Clone)]
enum Event {
    Data(usize, Vec<u8>),
    DataSync,
    State(usize, Vec<u8>),
    StateSync,
    After(Vec<Known>),
}

/// What is promised of a zone, and what may be there.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Life and pointer at least.
    promised: (u64, u64),
    /// Life and pointer at most.
    latest: (u64, u64),
    /// Pointer that the life before had come to.
    before: u64,
}

/// Both media, and what happened to them.
#[derive(Clone)]
struct World(Arc<Mutex<Media>>);

struct Media {
    data: Vec<u8>,
    state: Vec<u8>,
    events: Vec<Event>,
    /// Operations of the state file, or of the disk below, until all of them fail.
    state_left: Option<u64>,
    data_left: Option<u64>,
}

/// Counts an operation; whether it fails.
fn fails(left: &mut Option<u64>) -> bool {
    match left {
        None => false,
        Some(0) => true,
        Some(count) => {
            *count -= 1;
            false
        }
    }
}

impl World {
    fn new(data: Vec<u8>, state: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Media {
            data,
            state,
            events: Vec::new(),
            state_left: None,
            data_left: None,
        })))
    }

    fn fresh() -> Self {
        let layout = layout();
        let len = usize::try_from(state::file_len(&layout)).unwrap();
        let world = Self::new(vec![0; at(layout.size())], vec![0; len]);
        journal::create(&world, &layout).unwrap();
        world.0.lock().unwrap().events.clear();
        world
    }

    fn open(&self) -> Blocking {
        let len = self.0.lock().unwrap().state.len() as u64;
        let loaded = journal::load(self, len).unwrap();
        assert!(loaded.lost.is_empty(), "a crash lost {:?}", loaded.lost);
        let journal = Journal::open(Box::new(self.clone()), &loaded).unwrap();
        let table = ZoneTable::load(loaded.layout, |index| loaded.saved[index as usize]);
        let device = ZonedDevice::new(Gate::new(self.clone()), table, Some(journal)).unwrap();
        Blocking::new(&Gate::new(device), BackendChoice::Syscalls).unwrap()
    }

    fn note(&self, event: Event) {
        self.0.lock().unwrap().events.push(event);
    }
}

impl StateStore for World {
    fn read(&self, offset: u64, block: &mut Block) -> std::io::Result<()> {
        block.copy_from_slice(&self.0.lock().unwrap().state[at(offset)..][..BLOCK]);
        Ok(())
    }

    fn write(&self, offset: u64, block: &Block) -> std::io::Result<()> {
        if fails(&mut self.0.lock().unwrap().state_left) {
            return Err(std::io::Error::other("the state file is gone"));
        }
        self.0.lock().unwrap().state[at(offset)..][..BLOCK].copy_from_slice(block);
        self.note(Event::State(at(offset), block.to_vec()));
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        if fails(&mut self.0.lock().unwrap().state_left) {
            return Err(std::io::Error::other("the state file is gone"));
        }
        self.note(Event::StateSync);
        Ok(())
    }
}

impl Device for World {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: layout().size(),
            logical_block: 512,
            preferred_block: 4096,
            read_only: false,
            rotational: false,
            discard: true,
            write_zeroes: true,
            answers_at_once: true,
            zones: None,
        }
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(self.clone()))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        let (hole, zero) = (false, false);
        Ok(Extent { len, hole, zero })
    }
}

impl Queue for World {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        let start = at(request.offset);
        let mut media = self.0.lock().unwrap();
        let is_read = matches!(request.operation, Operation::Read(_));
        if !is_read && fails(&mut media.data_left) {
            drop(media);
            return Submitted::Done(request.complete(Err(Fault::Io(rustix::io::Errno::IO))));
        }
        let event = match &mut request.operation {
            Operation::Read(buffer) => {
                let len = buffer.len();
                buffer.copy_from_slice(&media.data[start..][..len]);
                None
            }
            Operation::Write { data, durable } => {
                assert!(!*durable, "durable is more than the data");
                Some(Event::Data(start, data.to_vec()))
            }
            Operation::Discard { len } => Some(Event::Data(start, vec![0; at(*len)])),
            Operation::Flush => Some(Event::DataSync),
            other => panic!("{other:?} below"),
        };
        if let Some(Event::Data(start, bytes)) = &event {
            media.data[*start..][..bytes.len()].copy_from_slice(bytes);
        }
        media.events.extend(event);
        drop(media);
        Submitted::Done(request.complete(Ok(())))
    }

    fn poll(&mut self, _ring: &mut Ring, _done: &mut Vec<Completion>) {}

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}

fn layout() -> ZoneLayout {
    let mut layout = ZoneLayout::new(u64::from(ZONES) * ZONE, ZONE).unwrap();
    layout.capacity = 3 * K;
    layout.conventional = 1;
    layout.write_granularity = 512;
    layout.check().unwrap()
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Bytes that belong to one life and place of a zone.
fn content(index: u32, life: u64, from: u64, to: u64) -> Vec<u8> {
    (from / 8..to / 8)
        .flat_map(|word| (word | life << 20 | u64::from(index + 1) << 40).to_le_bytes())
        .collect()
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
        Self {
            world: world.clone(),
            disk: world.open(),
            known: vec![Known::default(); ZONES as usize],
            failed: false,
        }
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
            let arrives = |part: usize| match all <= MOST {
                true => pick >> part & 1 != 0,
                false => chance(pick, part, loose.len()),
            };
            let (mut data, mut state) = (data.clone(), state.clone());
            for (_, (is_state, start, part)) in
                loose.iter().enumerate().filter(|(part, _)| arrives(*part))
            {
                let medium = if *is_state { &mut state } else { &mut data };
                medium[*start..][..part.len()].copy_from_slice(part);
            }
            found(World::new(data, state), &known);
        }
    }
}

/// What of a write can arrive without the rest: its sectors.
fn parts(start: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (start..)
        .step_by(512)
        .zip(bytes.chunks(512).map(<[u8]>::to_vec))
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

/// What is wrong after a crash.
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
        let is_of = |life: u64, most: u64| {
            saved.written <= most && there == content(index, life, 0, saved.written)
        };
        let (life, promised) = known.promised;
        let fits = match known.latest.0 == life {
            true => saved.written >= promised && is_of(life, known.latest.1),
            // A reset was under way: before it, or after.
            false => {
                (saved.written >= promised && is_of(life, known.before))
                    || (known.latest.0 == life + 1 && is_of(life + 1, known.latest.1))
            }
        };
        if !fits {
            return Err(format!(
                "zone {index}: {saved:?}, of which {promised} bytes of life {life} were promised"
            ));
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
    disk.write_at(4 * ZONE, &content(4, 99, 0, 2 * K), false)
        .unwrap();
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
    crashes(&events, |crashed, known| {
        noticed |= judge(&crashed, known).is_err()
    });
    noticed
}

#[test]
fn missing_sync_of_data_or_state_would_be_noticed() {
    assert!(is_noticed_without(|event| matches!(event, Event::DataSync)));
    assert!(is_noticed_without(|event| matches!(
        event,
        Event::StateSync
    )));
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
                match is_state {
                    true => media.state_left = Some(left),
                    false => media.data_left = Some(left),
                }
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
        Journal::open(Box::new(crashed.clone()), &loaded).unwrap();
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
