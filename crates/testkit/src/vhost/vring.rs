//! The driver's side of one queue, split or packed.

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use super::pieces::Pieces;
use super::{
    AVAILABLE, DESCRIPTORS, EVENT_IDX, GUEST, IS_INDIRECT, Machine, NEXT, Packed, Piece, RING_PACKED, SLOT, SLOTS,
    STATUS, TABLE, USED, USER, WRITE, event,
};

/// A queue whose rings, headers and tables lie at one place of the machine's memory.
pub struct Vring {
    /// Tells the device of requests.
    pub kick: OwnedFd,
    /// Tells the driver of what is used.
    pub call: OwnedFd,
    /// Requests that were made available in a split ring.
    pub available: u16,
    /// Used elements that were taken from a split ring.
    pub used: u16,
    /// In place of the two indices above.
    pub packed: Option<Packed>,
    size: u16,
    place: u64,
    event_idx: bool,
    free: Vec<u16>,
    /// Which way bytes are cut next.
    cut: u32,
}

/// Where the bytes of a request lie.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Number of its slot, by which it is known when it is over.
    pub head: u16,
    /// Its data.
    pub data: u64,
}

impl Vring {
    /// A queue of `size` places at `place`, for a driver of these features.
    #[must_use]
    pub fn new(features: u64, size: u16, place: u64) -> Self {
        Self {
            kick: event(),
            call: event(),
            available: 0,
            used: 0,
            packed: (features & RING_PACKED != 0).then(|| Packed::new(size, place)),
            size,
            place,
            event_idx: features & EVENT_IDX != 0,
            free: (0..size).rev().collect(),
            cut: 0,
        }
    }

    /// Places in the ring.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Where its descriptors, used ring and available ring lie, as the front-end has it.
    #[must_use]
    pub fn addresses(&self) -> [u64; 3] {
        [DESCRIPTORS, USED, AVAILABLE].map(|at| USER + self.place + at)
    }

    /// Where a device goes on with what it has not taken, while it has nothing.
    #[must_use]
    pub fn base(&self) -> u32 {
        self.packed.as_ref().map_or(0, Packed::base)
    }

    /// Tells if nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.free.len() == usize::from(self.size)
    }

    /// Tells if one more request finds a place.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The head that the next request will have; some other where there is no room.
    #[must_use]
    pub fn next_head(&self) -> u16 {
        self.free.last().copied().unwrap_or_default()
    }

    /// The index of a split ring's used elements, as the device has it.
    #[must_use]
    pub fn used_index(&self, machine: &Machine) -> Option<u16> {
        self.packed.is_none().then(|| machine.load(self.place + USED + 2))
    }

    /// Puts a request into the ring, which the device does not know yet: of this kind and sector, with so many bytes for the
    /// device and for the driver at `data`.
    ///
    /// # Panics
    /// Where all places are taken.
    pub fn put(
        &mut self,
        machine: &Machine,
        (kind, sector): (u32, u64),
        (to_device, to_driver): (u64, u64),
        data: u64,
    ) -> Placed {
        let head = self.free.pop().expect("a free descriptor");
        let slot = self.slot(head);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        machine.write(slot, &header);
        machine.write(slot + STATUS, &[0xff]);
        self.cut += 1;
        let mut pieces = Pieces::new(self.cut);
        pieces.push(slot, 16, 0);
        pieces.push(data, to_device, 0);
        pieces.push(data, to_driver, WRITE);
        pieces.push(slot + STATUS, 1, WRITE);
        let count = pieces.link();
        for (index, piece) in (0..).zip(&pieces.list[..count]) {
            let bytes = match self.packed {
                // Tables of packed rings have no flag for it: all of their descriptors count.
                Some(_) => Piece { flags: piece.flags & !NEXT, ..*piece }.encode_packed(0),
                None => piece.encode(),
            };
            machine.write(slot + TABLE + 16 * index, &bytes);
        }
        let table = Piece {
            address: GUEST + slot + TABLE,
            len: u32::try_from(16 * count).expect("small"),
            flags: IS_INDIRECT,
            next: 0,
        };
        if let Some(packed) = &mut self.packed {
            packed.set_table(head, u16::try_from(count).expect("small"));
        } else {
            let at = self.place + DESCRIPTORS + 16 * u64::from(head);
            machine.write(at, &table.encode());
        }
        self.offer(machine, head);
        Placed { head, data }
    }

    /// Makes a head available, which the device does not know yet.
    pub fn offer(&mut self, machine: &Machine, head: u16) {
        let table = self.slot(head) + TABLE;
        if let Some(packed) = &mut self.packed {
            packed.offer(machine, head, table, self.free.len());
            return;
        }
        let place = u64::from(self.available % self.size);
        machine.store(self.place + AVAILABLE + 4 + 2 * place, head);
        self.available = self.available.wrapping_add(1);
    }

    /// Makes a request that is over available once more, as it is.
    pub fn put_again(&mut self, machine: &Machine, head: u16) {
        self.free.retain(|free| *free != head);
        self.offer(machine, head);
    }

    /// Lets the device know of all that was put there, and kicks where it wants that.
    pub fn kick(&mut self, machine: &Machine) {
        if self.show(machine) {
            self.kick_anyway();
        }
    }

    /// Kicks, whether the device wants it or not.
    ///
    /// # Panics
    /// Where its eventfd takes no more.
    pub fn kick_anyway(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicked");
    }

    /// Lets the device know of all that was put there; whether it wants a kick.
    fn show(&mut self, machine: &Machine) -> bool {
        if let Some(packed) = &mut self.packed {
            return packed.show(machine, self.event_idx);
        }
        let index = self.place + AVAILABLE + 2;
        let old = machine.load(index);
        machine.store(index, self.available);
        fence(Ordering::SeqCst);
        if !self.event_idx {
            return machine.load(self.place + USED) & 1 == 0;
        }
        let event = machine.load(self.place + USED + 4 + 8 * u64::from(self.size));
        self.available.wrapping_sub(event).wrapping_sub(1) < self.available.wrapping_sub(old)
    }

    /// Asks for an interrupt with the next used element.
    pub fn ask_for_interrupt(&self, machine: &Machine) {
        if let Some(packed) = &self.packed {
            packed.ask(machine, self.event_idx);
            return;
        }
        let event = self.place + AVAILABLE + 4 + 2 * u64::from(self.size);
        machine.store(event, self.used);
        fence(Ordering::SeqCst);
    }

    /// Tells if there is a used element.
    #[must_use]
    pub fn has_used(&self, machine: &Machine) -> bool {
        match &self.packed {
            Some(packed) => packed.has_used(machine),
            None => machine.load(self.place + USED + 2) != self.used,
        }
    }

    /// The next used element, where there is one: its head and length.
    ///
    /// # Panics
    /// Where the device has made nonsense of the ring.
    pub fn take(&mut self, machine: &Machine) -> Option<(u16, u32)> {
        if !self.has_used(machine) {
            return None;
        }
        let (head, len) = if let Some(packed) = &mut self.packed {
            packed.take(machine)
        } else {
            let place = u64::from(self.used % self.size);
            let mut element = [0; 8];
            machine.read(self.place + USED + 4 + 8 * place, &mut element);
            self.used = self.used.wrapping_add(1);
            let head = u16::from_le_bytes([element[0], element[1]]);
            let len = u32::from_le_bytes(element[4..].try_into().expect("four"));
            (head, len)
        };
        self.free.push(head);
        Some((head, len))
    }

    /// Where the status of a request is written.
    #[must_use]
    pub fn status_at(&self, head: u16) -> u64 {
        self.slot(head) + STATUS
    }

    /// The status of a request that is over.
    #[must_use]
    pub fn status(&self, machine: &Machine, head: u16) -> u8 {
        let mut status = [0];
        machine.read(self.status_at(head), &mut status);
        status[0]
    }

    fn slot(&self, head: u16) -> u64 {
        self.place + SLOTS + u64::from(head) * SLOT
    }
}
