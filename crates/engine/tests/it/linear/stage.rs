//! Devices whose requests a test answers by hand, and a channel into what lies over them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use cryptline_engine::{
    BackendChoice, Channel, Completion, Device, Extent, Fault, Gate, Geometry, OpenError, Operation, Queue, Request,
    Ring, Submitted,
};
use cryptline_testkit::suite::noise;

/// Bytes of each device.
pub const SIZE: u64 = 1 << 20;

/// What all devices of a test have been given.
#[derive(Default)]
struct State {
    /// The device, and the request with its place there.
    taken: VecDeque<(usize, Request)>,
    /// For each device what is answered and was not fetched yet.
    answered: [Vec<Completion>; 2],
    /// Requests that are taken at a time; `None` for any number.
    room: Option<usize>,
}

#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<State>>);

struct Manual {
    number: usize,
    stage: Stage,
}

impl Stage {
    /// A device of this stage: number 0 or 1.
    pub fn device(&self, number: usize) -> Gate {
        let stage = self.clone();
        Gate::new(Manual { number, stage })
    }

    pub fn limit(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    /// How many requests wait to be answered.
    pub fn taken(&self) -> usize {
        self.lock().taken.len()
    }

    /// Looks at a request that waits.
    pub fn look<R>(&self, index: usize, look: impl FnOnce(usize, &Request) -> R) -> R {
        let state = self.lock();
        let (device, request) = &state.taken[index];
        look(*device, request)
    }

    /// Answers one that waits; a read gets the bytes of its place.
    pub fn answer(&self, index: usize, result: Result<(), Fault>) {
        let mut state = self.lock();
        let (device, mut request) = state.taken.remove(index).unwrap();
        let offset = request.offset;
        if let (Operation::Read(buffer), Ok(())) = (&mut request.operation, result) {
            for (at, byte) in (offset..).zip(buffer.iter_mut()) {
                *byte = stored(device, at);
            }
        }
        state.answered[device].push(request.complete(result));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// What lies at a place of a device.
pub fn stored(device: usize, offset: u64) -> u8 {
    noise(((device as u64) << 40) | (offset / 512)).to_le_bytes()[usize::try_from(offset % 8).unwrap()]
}

impl Device for Manual {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: SIZE,
            logical_block: 512,
            preferred_block: 4096,
            read_only: false,
            rotational: false,
            discard: true,
            write_zeroes: true,
            cache: true,
            answers_at_once: false,
            zones: None,
        }
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let (number, stage) = (self.number, self.stage.clone());
        Ok(Box::new(Manual { number, stage }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        Ok(Extent { len, hole: false, zero: false })
    }
}

impl Queue for Manual {
    fn submit(&mut self, _ring: &mut Ring, request: Request) -> Submitted {
        let mut state = self.stage.lock();
        if state.room.is_some_and(|room| state.taken.len() >= room) {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        state.taken.push_back((self.number, request));
        Submitted::Pending
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        done.append(&mut self.stage.lock().answered[self.number]);
    }

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}

/// Whoever uses the device that lies over the stage.
pub struct User {
    pub channel: Channel,
    pub done: Vec<Completion>,
}

impl User {
    pub fn of(gate: &Gate) -> Self {
        Self { channel: Channel::open(gate, BackendChoice::Syscalls, 32).unwrap(), done: Vec::new() }
    }

    pub fn submit(&mut self, request: Request) {
        if let Submitted::Done(completion) = self.channel.submit(request) {
            self.done.push(completion);
        }
    }

    pub fn poll(&mut self) {
        self.channel.poll(&mut self.done).unwrap();
    }

    /// The only request that has ended.
    pub fn ended(&mut self) -> Completion {
        assert_eq!((self.done.len(), self.channel.in_flight()), (1, 0));
        self.done.pop().unwrap()
    }
}
