//! One thread's access to a device: a channel, buffers, and a strict count of completions.

use std::collections::HashSet;
use std::sync::Arc;

use cryptline_engine::{Arena, Buffer, Channel, Completion, Fault, Gate, Request, Submitted};

use super::{Setup, fill};
use crate::model::ModelDisk;

/// Requests in flight at most.
const DEPTH: u32 = 64;
/// Bytes in a pooled buffer; longer ones are allocated.
const SLOT: usize = 128 * 1024;

/// A channel, used as a front would use it.
pub struct Driver {
    /// The channel, for tests that want to disturb it.
    pub channel: Channel,
    arena: Arc<Arena>,
    done: Vec<Completion>,
    tokens: HashSet<u64>,
    next_token: u64,
}

impl Driver {
    /// Opens a queue for the calling thread.
    #[must_use]
    pub fn new(gate: &Gate, setup: Setup) -> Self {
        let mut channel = Channel::open(gate, setup.backend, DEPTH).expect("a channel");
        let arena =
            if setup.registered { channel.buffers(SLOT, DEPTH as usize) } else { Arena::new(SLOT, DEPTH as usize) };
        Self {
            channel,
            arena: arena.expect("memory for buffers"),
            done: Vec::with_capacity(DEPTH as usize),
            tokens: HashSet::new(),
            next_token: 1 << 40,
        }
    }

    /// Size of the device in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.channel.geometry().size
    }

    /// Bytes in a logical block.
    #[must_use]
    pub fn block(&self) -> u64 {
        u64::from(self.channel.geometry().logical_block)
    }

    /// A buffer of `len` bytes with stale contents: from the pool where it fits.
    #[must_use]
    pub fn buffer(&self, len: u64) -> Buffer {
        let len = usize::try_from(len).expect("a buffer fits in memory");
        let pooled = (len <= SLOT).then(|| self.arena.take()).flatten();
        let mut buffer = pooled.unwrap_or_else(|| Buffer::alloc(len).expect("memory"));
        buffer.set_len(len);
        buffer.fill(0xee);
        buffer
    }

    /// A read of a range.
    pub fn read_request(&self, offset: u64, len: u64, token: u64) -> Request {
        Request::read(offset, self.buffer(len), token)
    }

    /// A write of the pattern of `seed`.
    pub fn write_request(&self, offset: u64, len: u64, seed: u64, token: u64) -> Request {
        let mut data = self.buffer(len);
        fill(&mut data, offset, seed);
        Request::write(offset, data, false, token)
    }

    /// Passes a request to the device. Its token must not be in flight already.
    pub fn submit(&mut self, request: Request) {
        assert!(self.tokens.insert(request.token), "token used twice");
        match self.channel.submit(request) {
            Submitted::Done(completion) => self.done.push(completion),
            Submitted::Pending => {}
        }
    }

    /// The next completion, in any order, or `None` where nothing is in flight.
    pub fn next_completion(&mut self) -> Option<Completion> {
        while self.done.is_empty() {
            if self.channel.in_flight() == 0 {
                assert!(self.tokens.is_empty(), "lost: {:?}", self.tokens);
                return None;
            }
            let waited = self.channel.wait(&mut self.done);
            waited.expect("a ring can be waited for");
        }
        // From the front: the order in which the device gave them.
        let completion = self.done.remove(0);
        let known = self.tokens.remove(&completion.request.token);
        assert!(known, "a token that is not in flight came back");
        Some(completion)
    }

    /// Takes in what has ended, without waiting for more.
    pub fn turn(&mut self) -> Vec<Completion> {
        let polled = self.channel.poll(&mut self.done);
        polled.expect("a ring can be entered");
        let ended: Vec<_> = self.done.drain(..).collect();
        for completion in &ended {
            let known = self.tokens.remove(&completion.request.token);
            assert!(known, "a token that is not in flight came back");
        }
        ended
    }

    /// Waits for everything in flight.
    pub fn drain(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.next_completion()).collect()
    }

    /// Submits one request with nothing else in flight, and checks that the very same comes back.
    pub fn run(&mut self, request: Request) -> Completion {
        let (offset, len, token) = (request.offset, request.len, request.token);
        self.submit(request);
        let completion = self.next_completion().expect("a completion");
        let back = &completion.request;
        assert_eq!((back.offset, back.len, back.token), (offset, len, token));
        assert!(self.next_completion().is_none(), "one request, two completions");
        completion
    }

    /// Runs a request, with a token of the driver's own, and gives its result.
    pub fn result(&mut self, request: Request) -> Result<(), Fault> {
        self.next_token += 1;
        let token = self.next_token;
        self.run(Request { token, ..request }).result
    }

    /// Runs a flush and gives its result.
    pub fn flush(&mut self) -> Result<(), Fault> {
        self.result(Request::flush(0))
    }

    /// Reads a range.
    pub fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, Fault> {
        let completion = self.run(self.read_request(offset, len, 0));
        completion.result?;
        Ok(data_of(&completion).to_vec())
    }

    /// Writes the pattern of `seed` to device and model.
    pub fn write(&mut self, model: &mut ModelDisk, offset: u64, len: u64, seed: u64) {
        let request = self.write_request(offset, len, seed, 0);
        let data = request.data.as_ref().expect("a write was made");
        model.write(offset, data);
        self.run(request).result.expect("a write in range succeeds");
    }

    /// Fills the whole device with the pattern of `seed`; the model of it.
    pub fn fill_device(&mut self, seed: u64) -> ModelDisk {
        let mut model = ModelDisk::new(self.size());
        let step = 256 * 1024;
        for offset in (0..self.size()).step_by(256 * 1024) {
            let len = step.min(self.size() - offset);
            self.write(&mut model, offset, len, seed);
        }
        model
    }

    /// Reads a range and compares it with the model.
    ///
    /// # Panics
    /// On a difference, naming the first wrong byte.
    pub fn verify(&mut self, model: &ModelDisk, offset: u64, len: u64) {
        let read = self.read(offset, len).expect("a read in range succeeds");
        if let Err(wrong) = model.check(offset, &read) {
            panic!("after reading {len} bytes at {offset}: {wrong}");
        }
    }

    /// Compares the whole device with the model.
    pub fn verify_all(&mut self, model: &ModelDisk) {
        let step = 1024 * 1024;
        for offset in (0..self.size()).step_by(1024 * 1024) {
            self.verify(model, offset, step.min(self.size() - offset));
        }
    }
}

/// The bytes of a finished transfer.
///
/// # Panics
/// Where it was no transfer.
#[must_use]
pub fn data_of(completion: &Completion) -> &[u8] {
    completion.request.data.as_ref().expect("it carries data")
}
