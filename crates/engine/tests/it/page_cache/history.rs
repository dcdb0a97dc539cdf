//! Histories: what happens to a device and its file, drawn from a seed, and made short.

use std::fmt;

use cryptline_testkit::cache::{Chance, Temper};
use rustix::io::Errno;

/// Clients that a history has at a time, each with a ring and a queue.
pub const CLIENTS: usize = 3;

/// One thing that happens. Places and sizes are in blocks of the device.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Open(usize),
    /// The client goes away, whatever it has in flight.
    Close(usize),
    Write(usize, Place, bool),
    Read(usize, Place),
    Flush(usize),
    Discard(usize, Place),
    Zero(usize, Place),
    /// The client looks what has ended.
    Poll(usize),
    /// The client waits for all it has in flight.
    Settle(usize),
    /// The kernel writes back; all goes well, or an error.
    WriteBack(Place, Option<Errno>),
    /// The kernel drops clean pages.
    Evict(Place),
    ForeignOpen,
    ForeignSync,
    ForeignRead(Place),
    ForeignClose,
    /// Somebody cuts the file short; a client reads there; the file grows again.
    Cut(usize, Place),
}

#[derive(Clone, Copy)]
pub struct Place {
    pub at: usize,
    pub blocks: usize,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.at, self.at + self.blocks)
    }
}

/// A step, and what is left to chance in it; nothing where there is no seed.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub step: Step,
    pub seed: Option<u64>,
}

/// Actions of the clients and others, beside writes, reads and flushes.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Clients wait for no answer.
    pub hasty: bool,
    /// They write durably too.
    pub durable: bool,
    /// They come and go.
    pub restless: bool,
    /// Another program uses the file.
    pub foreign: bool,
}

impl Habits {
    /// All of them.
    pub const ALL: Self = Self { hasty: true, durable: true, restless: true, foreign: true };

    /// One client that waits for each answer.
    pub const QUIET: Self = Self { hasty: false, durable: false, restless: false, foreign: false };
}

/// Range of the things that can happen to a device.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Blocks of the device.
    pub blocks: usize,
    pub discard: bool,
    pub zeroes: bool,
    /// Set if it lies in a mapping, whose file can be cut short.
    pub mapped: bool,
    pub habits: Habits,
}

/// A history before it has happened.
#[derive(Clone, Debug)]
pub struct History {
    pub temper: Temper,
    pub moves: Vec<Move>,
    /// In the middle of which `msync` the power fails too, in a copy of the world.
    pub outage: Option<u32>,
    /// For what a crash leaves.
    pub seed: u64,
}

impl History {
    /// The history of a seed.
    pub fn draw(seed: u64, scope: &Scope) -> Self {
        let mut chance = Chance::default();
        chance.restart(Some(seed));
        let temper = temper(&mut chance);
        // Some histories have one client, that waits for each answer; some have all at once.
        let (some, often) = (1 + chance.below(CLIENTS), [1, 2, 8][chance.below(3)]);
        let clients = if scope.habits.restless { some } else { 1 };
        let settles = if scope.habits.hasty { often } else { 1 };
        let count = 4 + chance.below(36);
        let mut moves = Vec::with_capacity(2 * count + 1);
        let mut push = |step, chance: &mut Chance| {
            let seed = Some(chance.draw());
            moves.push(Move { step, seed });
        };
        push(Step::Open(0), &mut chance);
        for _ in 0..count {
            let client = chance.below(clients);
            push(draw_step(&mut chance, client, scope), &mut chance);
            if chance.one_in(settles) {
                push(Step::Settle(client), &mut chance);
            }
        }
        let outage = scope.mapped.then(|| chance.below(60));
        Self { temper, moves, outage: outage.and_then(|count| u32::try_from(count).ok()), seed: chance.draw() }
    }

    /// The shortest history in which `fails` still holds: steps are left out, and what is left to
    /// chance goes well, as long as it fails.
    pub fn shorten(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut chunk = self.moves.len().div_ceil(2);
        while chunk > 0 {
            let before = self.moves.len();
            let mut at = 0;
            while at < self.moves.len() {
                let mut shorter = self.clone();
                let end = (at + chunk).min(shorter.moves.len());
                shorter.moves.drain(at..end);
                if fails(&shorter) { self = shorter } else { at += chunk }
            }
            if chunk > 1 || self.moves.len() == before {
                chunk /= 2;
            }
        }
        for at in 0..self.moves.len() {
            let mut simpler = self.clone();
            simpler.moves[at].seed = None;
            if fails(&simpler) {
                self = simpler;
            }
        }
        self
    }
}

fn temper(chance: &mut Chance) -> Temper {
    let mut rate = |rates: [u32; 4]| rates[chance.below(4)];
    Temper {
        short: rate([0, 0, 8, 3]),
        interrupted: rate([0, 0, 10, 4]),
        writeback: rate([0, 0, 20, 6]),
        flush: rate([0, 0, 0, 12]),
        direct: rate([0, 0, 0, 15]),
        refused: rate([0, 0, 1, 3]),
        unsynced: rate([0, 0, 0, 12]),
    }
}

fn draw_step(chance: &mut Chance, client: usize, scope: &Scope) -> Step {
    let place = place(chance, scope.blocks);
    match chance.below(100) {
        0..28 => {
            let durable = chance.one_in(5);
            Step::Write(client, place, durable && scope.habits.durable)
        }
        28..34 => Step::Read(client, place),
        34..52 => Step::Flush(client),
        52..55 if scope.discard => Step::Discard(client, place),
        55..58 if scope.zeroes => Step::Zero(client, place),
        58..62 => Step::Poll(client),
        62..74 => Step::WriteBack(wide(place, scope), fault(chance)),
        74..78 => Step::Evict(wide(place, scope)),
        78..81 if scope.habits.foreign => Step::ForeignOpen,
        81..86 if scope.habits.foreign => Step::ForeignSync,
        86..88 if scope.habits.foreign => Step::ForeignClose,
        88..90 if scope.habits.foreign => Step::ForeignRead(place),
        90..95 if scope.habits.restless => Step::Close(client),
        95..96 if scope.mapped => Step::Cut(client, place),
        _ => Step::Open(client),
    }
}

/// Few writebacks fail: once a flush has said so there is not much left to see.
fn fault(chance: &mut Chance) -> Option<Errno> {
    match chance.below(10) {
        0..2 => Some(Errno::NOSPC),
        2 => Some(Errno::IO),
        3 => Some(Errno::INTR),
        _ => None,
    }
}

fn place(chance: &mut Chance, blocks: usize) -> Place {
    let most = match chance.below(4) {
        0 => blocks,
        _ => 3.min(blocks),
    };
    let count = 1 + chance.below(most);
    Place { at: chance.below(blocks - count + 1), blocks: count }
}

/// All of the device, or what `place` says.
fn wide(place: Place, scope: &Scope) -> Place {
    match place.at % 2 {
        0 => Place { at: 0, blocks: scope.blocks },
        _ => place,
    }
}
