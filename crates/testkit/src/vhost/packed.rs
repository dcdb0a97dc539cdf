//! The driver's side of a packed ring, place by place.
//!
//! Requests whose table is short lie in the ring itself where there is room, so that they take one place or several.

use std::sync::atomic::{Ordering, fence};

use super::{AVAILABLE, DESCRIPTORS, GUEST, IS_INDIRECT, Machine, NEXT, USED};

const AVAILABLE_MARK: u16 = 1 << 7;
const USED_MARK: u16 = 1 << 15;
const DISABLE: u16 = 1;
const AT_PLACE: u16 = 2;
/// Descriptors of a request that lies in the ring itself.
const SHORT: u16 = 5;

/// A place in the ring, and the wrap counter of the lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which place.
    pub index: u16,
    /// Changes with each lap.
    pub wrap: bool,
}

impl Turn {
    /// The same as the ring and the protocol have it.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.index | u16::from(self.wrap) << 15
    }
}

/// Where both sides begin.
pub const START: Turn = Turn { index: 0, wrap: true };

/// The driver's side of a packed ring.
pub struct Packed {
    /// Where the next request goes.
    pub available: Turn,
    /// Where the next used element comes.
    pub used: Turn,
    /// Up to where the device has been told.
    kicked: Turn,
    /// Place and word that make the first request since visible.
    held: Option<(u64, u64)>,
    free: u16,
    /// For each head: the descriptors in its table, and its places in the ring.
    tables: Vec<(u16, u16)>,
    size: u16,
    place: u64,
}

impl Packed {
    /// A ring of `size` places at `place` in the machine's memory.
    #[must_use]
    pub fn new(size: u16, place: u64) -> Self {
        Self {
            available: START,
            used: START,
            kicked: START,
            held: None,
            free: size,
            tables: vec![(0, 0); size.into()],
            size,
            place,
        }
    }

    fn plus(&self, turn: Turn, count: u16) -> Turn {
        let index = turn.index + count;
        Turn { index: index % self.size, wrap: turn.wrap ^ (index >= self.size) }
    }

    /// How many places `turn` is behind `earlier`.
    fn since(&self, turn: Turn, earlier: Turn) -> u16 {
        let along = |turn: Turn| turn.index + if turn.wrap { 0 } else { self.size };
        (along(turn) + 2 * self.size - along(earlier)) % (2 * self.size)
    }

    fn at(&self, turn: Turn) -> u64 {
        self.place + DESCRIPTORS + 16 * u64::from(turn.index)
    }

    /// The place of the next request, as the protocol has it for a ring at rest.
    pub fn base(&self) -> u32 {
        let bits = u32::from(self.available.bits());
        bits | bits << 16
    }

    /// How many descriptors the table of a head has.
    pub fn set_table(&mut self, head: u16, count: u16) {
        self.tables[usize::from(head)].0 = count;
    }

    /// Puts a request with its table at `table` into the ring, which the device does not know yet. `heads` are left.
    pub fn offer(&mut self, machine: &Machine, head: u16, table: u64, heads: usize) {
        let (descriptors, _) = self.tables[usize::from(head)];
        // Each of the other heads must find a place.
        let is_room = usize::from(self.free) > heads + usize::from(SHORT);
        let is_direct = descriptors <= SHORT && is_room;
        let count = if is_direct { descriptors } else { 1 };
        for step in 0..count {
            let turn = self.plus(self.available, step);
            let marks = if turn.wrap { AVAILABLE_MARK } else { USED_MARK };
            let (address, rest) = if is_direct {
                let mut piece = [0; 16];
                machine.read(table + 16 * u64::from(step), &mut piece);
                let [address, rest] = halves(piece);
                let next = if step + 1 < count { NEXT } else { 0 };
                let flags = u16::from(piece[14]) | next | marks;
                (address, rest & 0xffff_ffff | word(head, flags))
            } else {
                let len = 16 * u64::from(descriptors);
                (GUEST + table, len | word(head, IS_INDIRECT | marks))
            };
            machine.write(self.at(turn), &address.to_le_bytes());
            if self.held.is_none() {
                self.held = Some((self.at(turn) + 8, rest));
            } else {
                machine.store64(self.at(turn) + 8, rest);
            }
        }
        self.available = self.plus(self.available, count);
        self.free -= count;
        self.tables[usize::from(head)].1 = count;
    }

    /// Lets the device know of all that was put there; whether it wants a kick.
    pub fn show(&mut self, machine: &Machine, event_idx: bool) -> bool {
        let old = std::mem::replace(&mut self.kicked, self.available);
        let Some((at, word)) = self.held.take() else {
            return false;
        };
        machine.store64(at, word);
        fence(Ordering::SeqCst);
        let flags = machine.load(self.place + USED + 2);
        if !event_idx || flags != AT_PLACE {
            return flags != DISABLE;
        }
        let bits = machine.load(self.place + USED);
        let wanted = Turn { index: bits & 0x7fff, wrap: bits & 0x8000 != 0 };
        self.since(wanted, old) < self.since(self.available, old)
    }

    /// Asks for an interrupt with the next used element.
    pub fn ask(&self, machine: &Machine, event_idx: bool) {
        machine.store(self.place + AVAILABLE, self.used.bits());
        machine.store(self.place + AVAILABLE + 2, if event_idx { AT_PLACE } else { 0 });
        fence(Ordering::SeqCst);
    }

    /// Tells if there is a used element.
    pub fn has_used(&self, machine: &Machine) -> bool {
        let flags = machine.load(self.at(self.used) + 14);
        let marks = [AVAILABLE_MARK, USED_MARK].map(|mark| flags & mark != 0);
        marks == [self.used.wrap; 2]
    }

    /// The next used element's head and length; there is one.
    pub fn take(&mut self, machine: &Machine) -> (u16, u32) {
        let [a, b, c, d, e, f, ..] = machine.load64(self.at(self.used) + 8).to_le_bytes();
        let head = u16::from_le_bytes([e, f]);
        let (_, count) = self.tables[usize::from(head)];
        self.used = self.plus(self.used, count);
        self.free += count;
        (head, u32::from_le_bytes([a, b, c, d]))
    }
}

fn word(id: u16, flags: u16) -> u64 {
    u64::from(id) << 32 | u64::from(flags) << 48
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let (low, high) = bytes.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("eight")))
}
