//! Servers that are killed between any two stores to the ring and the buffer of requests under way. The next one serves
//! exactly what the driver has not heard of.

use cryptline_sys::GuestMemory;

use super::super::inflight::size_of_queue;
use super::super::shared::kill;
use super::guest::{GUEST, Guest, USER};
use super::{DescriptorChain, PackedRing, RingError, RingPosition, SplitRing, Virtqueue, VirtqueueLayout};

const RING: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const INFLIGHT: u64 = 0x3000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const READABLE: u32 = 100;

/// One kind of ring, as a driver has it.
trait Side {
    type Ring: Virtqueue;
    const SIZE: u16;

    fn new() -> Self;
    fn layout() -> VirtqueueLayout;
    fn guest(&self) -> &Guest;
    /// Makes a request available whose readable segment is so long.
    fn put(&mut self, id: u16, len: u32);
    /// The next request that the driver hears of.
    fn used(&mut self) -> Option<u16>;
}

fn layout(size: u16, is_packed: bool) -> VirtqueueLayout {
    VirtqueueLayout {
        size,
        descriptors: USER + RING,
        available: USER + AVAILABLE,
        used: USER + USED,
        base: if is_packed { 0x8000_8000 } else { 0 },
        is_packed,
        event_idx: true,
        indirect: true,
    }
}

struct Split {
    guest: Guest,
    available: u16,
    used: u16,
}

impl Side for Split {
    type Ring = SplitRing;
    const SIZE: u16 = 8;

    fn new() -> Self {
        Self { guest: Guest::new(), available: 0, used: 0 }
    }

    fn layout() -> VirtqueueLayout {
        layout(Self::SIZE, false)
    }

    fn guest(&self) -> &Guest {
        &self.guest
    }

    fn put(&mut self, id: u16, len: u32) {
        let at = RING + 16 * u64::from(id);
        self.guest.describe(at, (GUEST, len), [NEXT, id + 1]);
        self.guest.describe(at + 16, (GUEST, 1), [WRITE, 0]);
        let place = u64::from(self.available % Self::SIZE);
        self.guest.set16(AVAILABLE + 4 + 2 * place, id);
        self.available = self.available.wrapping_add(1);
        self.guest.set16(AVAILABLE + 2, self.available);
    }

    fn used(&mut self) -> Option<u16> {
        if self.guest.get16(USED + 2) == self.used {
            return None;
        }
        let place = u64::from(self.used % Self::SIZE);
        self.used = self.used.wrapping_add(1);
        Some(self.guest.get16(USED + 4 + 8 * place))
    }
}

/// Requests of two places and of one, in a ring that they do not fill evenly.
struct Packed {
    guest: Guest,
    available: RingPosition,
    used: RingPosition,
}

const AVAILABLE_MARK: u16 = 1 << 7;
const USED_MARK: u16 = 1 << 15;

impl Packed {
    fn count(id: u16) -> u16 {
        if id == 2 { 1 } else { 2 }
    }
}

fn after(place: RingPosition, count: u16, size: u16) -> RingPosition {
    let index = place.index + count;
    RingPosition { index: index % size, wrap: place.wrap ^ (index >= size) }
}

impl Side for Packed {
    type Ring = PackedRing;
    const SIZE: u16 = 7;

    fn new() -> Self {
        let start = RingPosition { index: 0, wrap: true };
        Self { guest: Guest::new(), available: start, used: start }
    }

    fn layout() -> VirtqueueLayout {
        layout(Self::SIZE, true)
    }

    fn guest(&self) -> &Guest {
        &self.guest
    }

    fn put(&mut self, id: u16, len: u32) {
        let count = Self::count(id);
        for step in 0..count {
            let place = after(self.available, step, Self::SIZE);
            let mark = if place.wrap { AVAILABLE_MARK } else { USED_MARK };
            let is_last = step + 1 == count;
            let (len, flags) = match (step, is_last) {
                (0, true) => (len, mark),
                (0, false) => (len, mark | NEXT),
                _ => (1, mark | WRITE),
            };
            let at = RING + 16 * u64::from(place.index);
            // Only the last descriptor's id counts.
            let id = if is_last { id } else { 77 };
            self.guest.describe(at, (GUEST, len), [id, flags]);
        }
        self.available = after(self.available, count, Self::SIZE);
    }

    fn used(&mut self) -> Option<u16> {
        let at = RING + 16 * u64::from(self.used.index);
        let flags = self.guest.get16(at + 14);
        let marks = [AVAILABLE_MARK, USED_MARK].map(|mark| flags & mark != 0);
        if marks != [self.used.wrap; 2] {
            return None;
        }
        let id = self.guest.get16(at + 12);
        self.used = after(self.used, Self::count(id), Self::SIZE);
        Some(id)
    }
}

/// A driver, and what it waits for, the oldest first: each request's id and length.
struct Driver<S> {
    side: S,
    waits: Vec<(u16, u32)>,
    len: u32,
}

impl<S: Side> Driver<S> {
    fn new() -> Self {
        Self { side: S::new(), waits: Vec::new(), len: READABLE }
    }

    fn open(&self) -> Result<Server<S::Ring>, RingError> {
        let guest = self.side.guest();
        let layout = S::layout();
        let len = size_of_queue(layout.size, layout.is_packed);
        let inflight = guest.part(INFLIGHT, len);
        Ok(Server {
            ring: S::Ring::open(layout, &guest.memory, Some(inflight))?,
            memory: guest.memory.clone(),
            has: Vec::new(),
        })
    }

    fn offer(&mut self, ids: &[u16]) {
        for id in ids {
            assert!(self.waits.iter().all(|(other, _)| other != id), "a test's mistake");
            self.len += 1;
            self.side.put(*id, self.len);
            self.waits.push((*id, self.len));
        }
    }

    /// Hears of what is over: each request once, and only what it has asked for.
    fn hear(&mut self) {
        while let Some(id) = self.side.used() {
            let before = self.waits.len();
            self.waits.retain(|(other, _)| *other != id);
            assert_eq!(self.waits.len(), before - 1, "{id} is over, and was not under way");
        }
    }
}

struct Server<Q> {
    ring: Q,
    memory: GuestMemory,
    has: Vec<DescriptorChain>,
}

impl<Q: Virtqueue> Server<Q> {
    /// Takes all that there is.
    fn take(&mut self) -> Result<(), RingError> {
        loop {
            let mut chain = DescriptorChain::new();
            if !self.ring.next(&self.memory, &mut chain)? {
                return self.ring.ask_for_kick().map(|_| ());
            }
            self.has.push(chain);
        }
    }

    fn end(&mut self, ids: &[u16]) -> Result<(), RingError> {
        for id in ids {
            let place = self.has.iter().position(|chain| chain.head == *id);
            let chain = self.has.remove(place.expect("a test's mistake"));
            self.ring.finish(&chain, 1)?;
        }
        Ok(())
    }

    fn end_all(&mut self) -> Result<(), RingError> {
        while let Some(chain) = self.has.pop() {
            self.ring.finish(&chain, 1)?;
        }
        self.ring.publish().map(|_| ())
    }

    fn has(&self) -> Vec<(u16, u32)> {
        let len = |chain: &DescriptorChain| u32::try_from(chain.readable_len()).expect("small");
        self.has.iter().map(|it| (it.head, len(it))).collect()
    }
}

/// More than two laps: batches of one and of several, out of order, with requests taken between the end of others and
/// their publication.
fn work<S: Side>(driver: &mut Driver<S>) -> Result<(), RingError> {
    let mut server = driver.open()?;
    for round in 0..3 {
        driver.offer(&[0, 2, 4]);
        server.take()?;
        server.end(&[2])?;
        server.ring.publish()?;
        driver.hear();
        driver.offer(&[2]);
        server.end(&[4, 0])?;
        server.take()?;
        server.ring.publish()?;
        driver.hear();
        driver.offer(if round == 1 { &[4] } else { &[0, 4] });
        server.take()?;
        server.end(if round == 1 { &[4, 2] } else { &[4, 2, 0] })?;
        server.ring.publish()?;
        driver.hear();
    }
    Ok(())
}

/// A server after one that was killed: takes everything, ends and publishes one request, then the others.
fn resume<S: Side>(driver: &mut Driver<S>) -> Result<(), RingError> {
    let mut server = driver.open()?;
    server.take()?;
    assert_eq!(server.has(), driver.waits, "taken again");
    if let Some((id, _)) = driver.waits.last() {
        server.end(&[*id])?;
        server.ring.publish()?;
        driver.hear();
    }
    server.end_all()
}

/// Does the work with a server that is killed before its store `first`, and, where there is a `second`, with another
/// that is killed before that one of its own. Whether both were.
fn with_kills<S: Side>(first: usize, second: Option<usize>) -> (bool, bool) {
    let mut driver = Driver::<S>::new();
    kill::after(first);
    let is_killed = work(&mut driver).is_err();
    kill::never();
    driver.hear();
    let mut is_killed_again = false;
    if let Some(second) = second {
        kill::after(second);
        is_killed_again = resume(&mut driver).is_err();
        kill::never();
        driver.hear();
    }
    resume(&mut driver).expect("it is served");
    driver.hear();
    assert_eq!(driver.waits, [], "all is over");
    // And the ring goes on.
    driver.offer(&[4, 0]);
    resume(&mut driver).expect("it is served");
    driver.hear();
    assert_eq!(driver.waits, []);
    (is_killed, is_killed_again)
}

fn every_kill<S: Side>() {
    let (mut kills, mut second_kills) = (0, 0);
    for first in 0.. {
        let (is_killed, _) = with_kills::<S>(first, None);
        for second in 0.. {
            if !with_kills::<S>(first, Some(second)).1 {
                break;
            }
            second_kills += 1;
        }
        if !is_killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 60, "{kills}");
    assert!(second_kills > 1000, "{second_kills}");
}

#[test]
fn what_a_killed_server_of_a_split_ring_has_not_published_is_done_by_the_next() {
    every_kill::<Split>();
}

#[test]
fn what_a_killed_server_of_a_packed_ring_has_not_published_is_done_by_the_next() {
    every_kill::<Packed>();
}
