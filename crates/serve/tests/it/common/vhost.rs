//! A driver of one queue, whose front-end is served as it must be.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub use cryptline_testkit::vhost::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Discard and zeroing, which a read-only disk does not offer.
const CHANGES: u64 = 1 << 13 | 1 << 14;

/// A driver of one queue.
pub struct Driver {
    pub front: FrontEnd,
    pub machine: Machine,
    pub queue: Vring,
    features: u64,
    /// The next free byte for data.
    data: u64,
}

/// One request, as the device type has it.
pub struct Asked<'a> {
    pub kind: u32,
    pub sector: u64,
    pub to_device: &'a [u8],
    pub to_driver: u64,
}

impl Driver {
    pub fn start(stream: UnixStream) -> Self {
        Self::start_with(stream, FLUSH | EVENT_IDX)
    }

    /// With these features on top of what it always needs.
    pub fn start_with(stream: UnixStream, features: u64) -> Self {
        let features = features | INDIRECT | PROTOCOL | VERSION_1 | CHANGES;
        let driver = Self {
            front: FrontEnd::new(stream),
            machine: Machine::new(),
            queue: Vring::new(features, SIZE, 0),
            features,
            data: DATA,
        };
        let front = &driver.front;
        let offered = front.ask_number(1);
        front.agree(features & offered);
        // As machines do before they start; without it nobody knows what the driver takes for granted.
        front.config(0, 60);
        front.share(&driver.machine);
        driver.start_queue(driver.queue.base());
        driver
    }

    pub fn start_queue(&self, base: impl Into<u32>) {
        let front = &self.front;
        front.queue(8, 0, SIZE.into());
        front.queue(10, 0, base.into());
        front.queue_addresses(0, self.queue.addresses());
        front.queue_file(12, 0, &self.queue.kick);
        front.queue_file(13, 0, &self.queue.call);
        front.queue(18, 0, 1);
    }

    /// Goes to another server, which it tells its features and memory. The queue is not started.
    pub fn go_to(&mut self, stream: UnixStream, features: u64) {
        self.front = FrontEnd::new(stream);
        self.front.agree(features);
        self.front.share(&self.machine);
    }

    /// Lets the queue go on as one whose driver flushes, or does not.
    pub fn set_flushes(&mut self, on: bool) {
        let base = self.front.base(0).expect("a base");
        self.features = self.features & !FLUSH | if on { FLUSH } else { 0 };
        let features = self.features & self.front.ask_number(1);
        self.front.tell(2, &features.to_ne_bytes());
        self.start_queue(base);
    }

    /// Memory for data.
    pub fn place(&mut self, len: u64) -> u64 {
        if self.queue.is_idle() {
            self.data = DATA;
        }
        let data = self.data;
        // The next one begins anywhere.
        self.data += len + 13;
        assert!(self.data < SCRATCH, "more data than the machine has memory");
        data
    }

    /// Puts a request into the available ring; the device does not know yet.
    pub fn put(&mut self, asked: &Asked<'_>) -> Placed {
        let len = asked.to_driver.max(asked.to_device.len() as u64);
        let data = self.place(len);
        self.machine.write(data, asked.to_device);
        self.put_at(asked, data)
    }

    pub fn put_at(&mut self, asked: &Asked<'_>, data: u64) -> Placed {
        let lengths = (asked.to_device.len() as u64, asked.to_driver);
        self.queue.put(&self.machine, (asked.kind, asked.sector), lengths, data)
    }

    /// A request of this kind whose data no memory has.
    pub fn put_outside(&mut self, kind: u32, len: u64) -> Placed {
        self.queue.put(&self.machine, (kind, 0), (len, 0), MEMORY)
    }

    /// Makes a head available, which the device does not know yet.
    pub fn offer(&mut self, head: u16) {
        self.queue.offer(&self.machine, head);
    }

    /// Makes a request that is over available once more, as it is.
    pub fn put_again(&mut self, head: u16) {
        self.queue.put_again(&self.machine, head);
    }

    /// Lets the device know of all that was put there, and kicks where it wants that.
    pub fn kick(&mut self) {
        self.queue.kick(&self.machine);
    }

    pub fn kick_anyway(&self) {
        self.queue.kick_anyway();
    }

    /// The next used element: its head and length. `None` where nothing comes within `patience`.
    pub fn take_within(&mut self, patience: Duration) -> Option<(u16, u32)> {
        loop {
            if let Some(used) = self.queue.take(&self.machine) {
                return Some(used);
            }
            self.queue.ask_for_interrupt(&self.machine);
            if self.queue.has_used(&self.machine) {
                continue;
            }
            let call = &self.queue.call;
            let mut polled = [PollFd::from_borrowed_fd(call.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(patience).expect("small");
            if poll(&mut polled, Some(&timeout)).expect("polled") == 0 {
                return None;
            }
            let _ = rustix::io::read(call, &mut [0; 8]);
        }
    }

    pub fn take(&mut self) -> (u16, u32) {
        self.take_within(PATIENCE).expect("an answer")
    }

    /// The status of a request that is over.
    pub fn status(&self, head: u16) -> u8 {
        self.queue.status(&self.machine, head)
    }

    /// One request and its end: status, used length, and what was written to the driver.
    pub fn run(&mut self, asked: &Asked<'_>) -> (u8, u32, Vec<u8>) {
        let placed = self.put(asked);
        self.kick();
        let (head, len) = self.take();
        assert_eq!(head, placed.head);
        let mut data = vec![0; usize::try_from(asked.to_driver).expect("small")];
        self.machine.read(placed.data, &mut data);
        (self.status(head), len, data)
    }
}
