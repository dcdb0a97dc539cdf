//! Whatever runs the cipher and however slow the medium: what was submitted in order arrives in
//! order, and ends as if each request had been alone.

use std::collections::HashMap;

use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::zoned;
use cryptline_engine::{Fault, Gate, Request, ZoneAction, ZoneCondition};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::{Driver, Fresh, Setup, fill, noise};

use crate::zoned::common::*;

const DEPTH: usize = 24;

/// One zone as it will be when all that was submitted has ended.
#[derive(Clone, Copy, Default)]
struct Expected {
    pointer: u64,
    is_full: bool,
}

/// Random requests many at a time, and what each must end as.
struct Run {
    driver: Driver,
    zones: Vec<Expected>,
    model: ModelDisk,
    /// Result by token; where an append must go.
    due: HashMap<u64, (Result<(), Fault>, Option<u64>)>,
    seed: u64,
    longest: u64,
}

impl Run {
    fn new(gate: &Gate, setup: Setup, longest: u64) -> Self {
        Self {
            driver: Driver::new(gate, setup),
            zones: vec![Expected::default(); ZONES as usize],
            model: ModelDisk::new(gate.geometry().size),
            due: HashMap::new(),
            seed: 0,
            longest,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed += 1;
        noise(self.seed) % below
    }

    fn step(&mut self) {
        let index = CONVENTIONAL + u32::try_from(self.random(u64::from(ZONES - CONVENTIONAL))).unwrap();
        let len = (self.random(self.longest / 4096) + 1) * 4096;
        match self.random(40) {
            0 => self.act(index, ZoneAction::Reset),
            1 => self.act(index, ZoneAction::Finish),
            2 => self.act(index, ZoneAction::Open),
            3 if self.random(4) == 0 => self.act(0, ZoneAction::ResetAll),
            3..=5 => self.write(index, len, true),
            6..=20 => self.append(index, len),
            _ => self.write(index, len, false),
        }
    }

    /// A write at the pointer, or beside it.
    fn write(&mut self, index: u32, len: u64, beside: bool) {
        let zone = self.zones[index as usize];
        let at = if beside { zone.pointer + 4096 } else { zone.pointer };
        if start(index) + at + len > start(index + 1) {
            return;
        }
        let fits = !beside && !zone.is_full && at + len <= CAPACITY;
        let token = self.expect(fits, Fault::WritePointer, None);
        let request = self.driver.write_request(start(index) + at, len, token, token);
        self.submit_write(request, index, start(index) + at, len, fits);
    }

    fn append(&mut self, index: u32, len: u64) {
        let zone = self.zones[index as usize];
        let (at, fits) = (zone.pointer, !zone.is_full && zone.pointer + len <= CAPACITY);
        let place = start(index) + at;
        let token = self.expect(fits, Fault::WritePointer, fits.then_some(place));
        let mut data = self.driver.buffer(len);
        fill(&mut data, place, token);
        let request = Request::zone_append(start(index), data, false, token);
        self.submit_write(request, index, place, len, fits);
    }

    fn submit_write(&mut self, request: Request, index: u32, place: u64, len: u64, fits: bool) {
        if fits {
            if let (true, Some(data)) = (request.op.changes(), &request.data) {
                self.model.write(place, data);
            }
            let zone = &mut self.zones[index as usize];
            zone.pointer += len;
            zone.is_full = zone.pointer == CAPACITY;
        }
        self.driver.submit(request);
    }

    fn act(&mut self, index: u32, action: ZoneAction) {
        let zone = self.zones[index as usize];
        let refused = action == ZoneAction::Open && zone.is_full;
        let token = self.expect(!refused, Fault::ZoneCondition, None);
        match action {
            ZoneAction::Finish => self.zones[index as usize].is_full = true,
            ZoneAction::Reset => self.empty(index),
            ZoneAction::ResetAll => (CONVENTIONAL..ZONES).for_each(|index| self.empty(index)),
            _ => {}
        }
        self.driver.submit(Request::zone(start(index), action, token));
    }

    fn empty(&mut self, index: u32) {
        self.zones[index as usize] = Expected::default();
        self.model.discard(start(index), ZONE);
    }

    fn expect(&mut self, good: bool, fault: Fault, place: Option<u64>) -> u64 {
        let token = self.seed * 64 + 1;
        let result = if good { Ok(()) } else { Err(fault) };
        assert!(self.due.insert(token, (result, place)).is_none());
        token
    }

    fn settle(&mut self, most: usize) {
        while self.due.len() > most {
            let completion = self.driver.next_completion().expect("all come back");
            let token = completion.request.token;
            let (result, place) = self.due.remove(&token).expect("known");
            assert_eq!(completion.result, result, "{:?}", completion.request);
            if let Some(place) = place {
                assert_eq!(completion.request.offset, place, "an append went elsewhere");
            }
        }
    }

    fn verify(&mut self, gate: &Gate) {
        self.settle(0);
        let zones = report(gate);
        for index in CONVENTIONAL..ZONES {
            let (zone, expected) = (zones[index as usize], self.zones[index as usize]);
            let is_full = zone.condition == ZoneCondition::Full;
            assert_eq!(is_full, expected.is_full, "{zone:?}");
            if !is_full {
                assert_eq!(zone.write_pointer - zone.start, expected.pointer, "{zone:?}");
            }
            let written = expected.pointer;
            for at in (0..written).step_by(64 * 1024) {
                let len = (written - at).min(64 * 1024);
                self.driver.verify(&self.model, start(index) + at, len);
            }
        }
    }
}

fn ends_as_if_each_had_been_alone(make: impl Fn() -> Fresh, longest: u64, steps: usize) {
    for setup in [Setup::ALL[0], Setup::ALL[2]] {
        let fresh = make();
        let mut run = Run::new(&fresh.gate, setup, longest);
        for round in 0..3 {
            for _ in 0..steps {
                run.step();
                run.settle(DEPTH);
            }
            println!("round {round} over {setup:?}");
            run.verify(&fresh.gate);
        }
    }
}

/// One test for each way in which bytes can get from a submitter to a zone.
macro_rules! in_order {
    ($($name:ident => $make:expr, $longest:expr, $steps:expr;)+) => { $(
        #[test]
        fn $name() {
            ends_as_if_each_had_been_alone($make, $longest, $steps);
        }
    )+ };
}

in_order! {
    plain_ram_takes_requests_in_order => || ordered(ram(layout())), 32 * K, 1500;
    plain_slow_zones_take_requests_in_order => || ordered(slow(layout())), 32 * K, 600;
    plain_zones_over_a_slow_disk_take_requests_in_order => || ordered(over_slow(layout())), 32 * K, 600;
    plain_file_takes_requests_in_order => || ordered(file()), 32 * K, 1000;
    inline_over_ram_takes_requests_in_order => || encrypted(ram(layout()), DispatchMode::Inline), 64 * K, 1000;
    inline_over_slow_zones_takes_requests_in_order => || encrypted(slow(layout()), DispatchMode::Inline), 64 * K, 600;
    inline_over_a_file_takes_requests_in_order => || encrypted(file(), DispatchMode::Inline), 64 * K, 600;
    auto_over_ram_takes_requests_in_order => || encrypted(ram(layout()), DispatchMode::Auto), 256 * K, 600;
    auto_over_slow_zones_takes_requests_in_order => || encrypted(slow(layout()), DispatchMode::Auto), 256 * K, 600;
    auto_over_a_slow_disk_takes_requests_in_order => || encrypted(over_slow(layout()), DispatchMode::Auto), 256 * K, 600;
    auto_over_a_file_takes_requests_in_order => || encrypted(file(), DispatchMode::Auto), 256 * K, 600;
    queue_over_ram_takes_requests_in_order => || encrypted(ram(layout()), DispatchMode::Queue), 256 * K, 400;
    queue_over_slow_zones_takes_requests_in_order => || encrypted(slow(layout()), DispatchMode::Queue), 256 * K, 400;
}

fn ordered(lower: Fresh) -> Fresh {
    Fresh { gate: zoned::ordered(lower.gate).unwrap(), keep: lower.keep }
}

/// Threads append to the same zones: each append is where its completion says, and nowhere else.
#[test]
fn appends_of_several_threads_each_get_a_place_of_their_own() {
    for make in [|| ram(layout()), || slow(layout()), || over_slow(layout()), file] {
        for mode in [DispatchMode::Inline, DispatchMode::Auto] {
            let fresh = encrypted(make(), mode);
            let places = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3u64)
                    .map(|thread| {
                        let gate = &fresh.gate;
                        scope.spawn(move || append_many(gate, thread))
                    })
                    .collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
            let mut sorted: Vec<u64> = places.iter().map(|(place, _)| *place).collect();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), places.len(), "two appends at one place");
            for (place, seed) in places {
                let mut expected = vec![0; 8192];
                fill(&mut expected, 0, seed);
                assert!(driver.read(place, 8192).unwrap() == expected, "at {place}");
            }
            assert_eq!(report(&fresh.gate)[3].write_pointer, start(3) + 3 * 20 * 8192);
        }
    }
}

fn append_many(gate: &Gate, thread: u64) -> Vec<(u64, u64)> {
    let mut driver = Driver::new(gate, Setup::ALL[0]);
    for count in 0..40 {
        let token = thread * 1000 + count;
        let mut data = driver.buffer(8192);
        fill(&mut data, 0, token);
        let zone = 3 + u32::try_from(count % 2).unwrap();
        driver.submit(Request::zone_append(start(zone), data, false, token));
    }
    driver
        .drain()
        .iter()
        .map(|completion| {
            completion.result.unwrap();
            (completion.request.offset, completion.request.token)
        })
        .collect()
}

/// Threads that write to one zone in turns, each when the other's write has ended.
#[test]
fn writes_of_two_threads_in_turns_all_arrive() {
    let fresh = encrypted(slow(layout()), DispatchMode::Auto);
    let turn = std::sync::atomic::AtomicU64::new(0);
    let count = 60;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (gate, turn) = (&fresh.gate, &turn);
            scope.spawn(move || {
                use std::sync::atomic::Ordering;
                let mut driver = Driver::new(gate, Setup::ALL[0]);
                for mine in (thread..count).step_by(2) {
                    while turn.load(Ordering::Acquire) != mine {
                        std::thread::yield_now();
                    }
                    let offset = start(4) + mine * 4096;
                    driver.submit(driver.write_request(offset, 4096, mine, mine));
                    // The other may go on before this one has ended: it waits below.
                    turn.store(mine + 1, Ordering::Release);
                }
                driver.drain().iter().for_each(|it| it.result.unwrap());
            });
        }
    });
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    for mine in 0..count {
        let offset = start(4) + mine * 4096;
        let mut expected = vec![0; 4096];
        fill(&mut expected, offset, mine);
        assert!(driver.read(offset, 4096).unwrap() == expected);
    }
}

#[test]
fn what_is_written_is_what_the_cipher_makes_of_its_place() {
    let lower = ram(layout());
    let below = lower.gate.clone();
    let fresh = encrypted(lower, DispatchMode::Inline);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    let mut data = driver.buffer(8192);
    data.fill(7);
    driver.submit(driver.write_request(start(5), 4096 * 3, 1, 1));
    driver.submit(Request::zone_append(start(5), data, false, 2));
    let done = driver.drain();
    done.iter().for_each(|it| it.result.unwrap());
    let append = &done.iter().find(|it| it.request.token == 2).unwrap().request;
    assert_eq!(append.offset, start(5) + 4096 * 3);
    assert!(append.op.is_append());
    let mut medium = Driver::new(&below, Setup::ALL[0]);
    let place = start(5) + 4096 * 3;
    let mut expected = vec![7; 8192];
    let cipher = cryptline_testkit::suite::devices::cipher(&AES);
    cipher.encrypt_in_place(place / 512, &mut expected);
    assert!(medium.read(place, 8192).unwrap() == expected);
}
