//! The writer over a medium that notes what it gets.

use std::sync::mpsc::{Receiver, Sender, channel};

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_sys::{Buffer, Ring};

use super::super::job::{CipherJob, SharedSlots};
use super::*;
use crate::cipher_map::{CipherMap, CipherRange, Zeroes};
use crate::queue::Immediate;
use crate::{Device, Extent, Fault, Geometry, Queue, Traits};

/// Notes the offset of each write; the first waits until it is let through.
struct Notes {
    seen: Sender<u64>,
    first: Mutex<Option<Receiver<()>>>,
}

struct NotesQueue {
    seen: Sender<u64>,
    first: Option<Receiver<()>>,
}

impl Device for Notes {
    fn traits(&self) -> Traits {
        Traits::base(Geometry { rotational: true, answers_at_once: true, ..Geometry::plain(1 << 30, 512) })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(NotesQueue { seen: self.seen.clone(), first: self.first.lock().unwrap().take() }))
    }

    fn extent(&self, _offset: u64, _len: u64) -> Result<Extent, Fault> {
        Err(Fault::NotSupported)
    }
}

impl Immediate for NotesQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        self.seen.send(request.offset).unwrap();
        if let Some(first) = self.first.take() {
            first.recv().unwrap();
        }
        Ok(())
    }
}

/// A device that takes as many requests as the ring has places for, beside two of its own, and answers later.
struct Later {
    first: Mutex<Option<Receiver<()>>>,
}

struct LaterQueue {
    most: usize,
    taken: Vec<Request>,
    first: Option<Receiver<()>>,
}

impl Device for Later {
    fn traits(&self) -> Traits {
        Traits::base(Geometry::plain(1 << 30, 512))
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let queue = LaterQueue { most: ring.depth(), taken: Vec::new(), first: self.first.lock().unwrap().take() };
        ring.reserve(2);
        Ok(Box::new(queue))
    }
}

impl Queue for LaterQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if let Some(first) = self.first.take() {
            first.recv().unwrap();
        }
        if self.taken.len() == self.most {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        self.taken.push(request);
        ring.stay_awake();
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        done.extend(self.taken.drain(..).map(|request| request.complete(Ok(()))));
    }
}

fn order(sector: u64, cipher_map: &Arc<CipherMap>, slots: &Arc<SharedSlots>) -> JobOrder {
    let job = CipherJob {
        cipher_map: Arc::clone(cipher_map),
        direction: JobDirection::Encrypt { durable: false },
        offset: sector * 512,
        data: Some(Buffer::alloc(512).unwrap()),
        split: 0,
        part: 0,
        result: None,
        lent: false,
        measured: false,
        took_ns: 0,
    };
    JobOrder { job, slots: Arc::clone(slots) }
}

/// A writer over [`Notes`] or [`Later`], and what its orders need.
struct Desk {
    writer: Arc<WriterThread>,
    cipher_map: Arc<CipherMap>,
    slots: Arc<SharedSlots>,
    heard: Receiver<u64>,
    let_through: Sender<()>,
    _ring: Ring,
}

impl Desk {
    fn new(is_late: bool) -> Self {
        let spec = CipherSpec::parse("cipher_null-ecb").unwrap();
        let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
        let cipher = SectorCipher::new(&spec, &[], options).unwrap();
        let range = CipherRange { len: 1 << 20, cipher: Some(cipher) };
        let cipher_map = Arc::new(CipherMap::new(vec![range], Zeroes::Decrypt));
        let mut ring = Ring::new(BackendChoice::Syscalls, 8).unwrap();
        let slots = Arc::new(SharedSlots::new(512, ring.waker().unwrap(), Vec::new()));
        let (seen, heard) = channel();
        let (let_through, first) = channel();
        let first = Mutex::new(Some(first));
        let lower = if is_late { Gate::new(Later { first }) } else { Gate::new(Notes { seen, first }) };
        let writer = WriterThread::start(lower, 4096, BackendChoice::Syscalls, false).unwrap();
        Self { writer, cipher_map, slots, heard, let_through, _ring: ring }
    }

    fn hand_over(&self, sector: u64) {
        self.writer.hand_over(order(sector, &self.cipher_map, &self.slots));
    }
}

#[test]
fn writes_that_came_while_it_was_busy_are_submitted_by_sector_and_all_before_it_ends() {
    let desk = Desk::new(false);
    desk.hand_over(7);
    assert_eq!(desk.heard.recv().unwrap(), 4096 + 7 * 512);
    for sector in [90, 3, 50, 1, 70, 2] {
        desk.hand_over(sector);
    }
    let Desk { writer, slots, heard, let_through, .. } = desk;
    let_through.send(()).unwrap();
    drop(writer);
    let sectors: Vec<u64> = heard.iter().map(|at| (at - 4096) / 512).collect();
    assert_eq!(sectors, [1, 2, 3, 50, 70, 90]);
    let back = std::iter::from_fn(|| slots.collect());
    assert!(back.map(|job| (job.result, job.data.is_some())).eq([(Some(Ok(())), true); 7]));
}

#[test]
fn medium_that_hangs_keeps_nobody_from_closing_and_gets_nothing_more_afterwards() {
    let desk = Desk::new(false);
    desk.hand_over(7);
    desk.hand_over(8);
    assert_eq!(desk.heard.recv().unwrap(), 4096 + 7 * 512);
    let Desk { writer, slots, heard, let_through, .. } = desk;
    drop(writer);
    assert!(heard.try_recv().is_err(), "it hangs");
    let_through.send(()).unwrap();
    assert_eq!(heard.iter().next(), None, "the device is closed");
    let back = std::iter::from_fn(|| slots.collect());
    assert!(back.map(|job| job.result).eq([Some(Ok(())), Some(Err(Fault::Io(Errno::CANCELED)))]));
}

#[test]
fn more_writes_than_there_are_places_for_wait_and_none_finds_the_device_below_full() {
    let desk = Desk::new(true);
    // All but the first, with which the thread is busy, come together.
    (0..300).for_each(|sector| desk.hand_over(sector));
    let Desk { writer, slots, let_through, .. } = desk;
    let_through.send(()).unwrap();
    let mut results = Vec::new();
    while results.len() < 300 {
        results.extend(std::iter::from_fn(|| slots.collect()).map(|job| job.result));
        std::thread::yield_now();
    }
    drop(writer);
    assert!(results.iter().all(|result| *result == Some(Ok(()))));
}
