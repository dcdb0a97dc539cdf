//! Answers on their way: a place for each request that was taken, until its answer is written.
//!
//! ```text
//! begin ─► (parts of a read) ─► end ─► ready ─► write ─► written: the place is free
//! ```
//!
//! Each answer is one message. All places and their memory are made when the lane starts.

use std::collections::VecDeque;

use cryptline_engine::{Buffer, Fault, Ring};
use cryptline_sys::{FileId, Io, RequestSource, SendBatch};
use rustix::io::Errno;

use super::PARTS;
use super::abi::{self, Body, OUT_HEADER};
use crate::lane::{CHUNK, JOBS_MAX};

/// As many requests as a lane serves, and as many answers that are being written.
const PLACES: usize = 2 * JOBS_MAX;

/// Shape of a successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    Empty,
    /// The same; a device that cannot do it says so.
    Hole,
    /// The parts.
    Data,
    /// How many bytes were written.
    Written(u32),
    /// Failure: another answer could not be written.
    Failed,
}

pub struct FuseReplies {
    places: Vec<ReplySlot>,
    free: Vec<usize>,
    /// Those to be written, in order.
    ready: VecDeque<usize>,
    /// Being written.
    writing: usize,
}

struct ReplySlot {
    unique: u64,
    device: usize,
    /// Large buffers that the device may take for it.
    buffers: usize,
    form: ReplyForm,
    /// Bytes read, or bytes to be written.
    parts: [Option<Buffer>; PARTS],
    /// Away while it is written.
    batch: Option<Box<SendBatch>>,
}

impl FuseReplies {
    pub fn new() -> Self {
        let place = || ReplySlot {
            unique: 0,
            device: 0,
            buffers: 0,
            form: ReplyForm::Empty,
            parts: [const { None }; PARTS],
            batch: Some(SendBatch::new(OUT_HEADER + Body::CAPACITY, 1 + PARTS)),
        };
        Self {
            places: (0..PLACES).map(|_| place()).collect(),
            free: (0..PLACES).rev().collect(),
            ready: VecDeque::with_capacity(PLACES),
            writing: 0,
        }
    }

    pub fn has_place(&self) -> bool {
        !self.free.is_empty()
    }

    /// Tells if an answer is to be written, or being written.
    pub fn has_unwritten(&self) -> bool {
        self.writing > 0 || !self.ready.is_empty()
    }

    /// A place for the answer to a request for a device. The caller has asked [`has_place`](Self::has_place).
    pub fn begin(&mut self, unique: u64, form: ReplyForm, device: usize) -> usize {
        let Some(index) = self.free.pop() else {
            unreachable!("a request is taken only while there is a place for its answer")
        };
        let place = &mut self.places[index];
        (place.unique, place.form, place.device, place.buffers) = (unique, form, device, 0);
        index
    }

    /// Which device the request is for.
    pub fn device(&self, index: usize) -> usize {
        self.places[index].device
    }

    /// Notes how many large buffers it may take.
    pub fn note_buffers(&mut self, index: usize, buffers: usize) {
        self.places[index].buffers = buffers;
    }

    pub fn buffers(&self, index: usize) -> usize {
        self.places[index].buffers
    }

    /// Keeps a part of a request that begins `at` bytes behind its start.
    pub fn keep(&mut self, index: usize, at: u64, data: Buffer) {
        let part = usize::try_from(at / u64::from(CHUNK)).unwrap_or(PARTS);
        if let Some(part) = self.places[index].parts.get_mut(part) {
            *part = Some(data);
        }
    }

    /// Takes such a part out.
    pub fn take(&mut self, index: usize, at: u64) -> Option<Buffer> {
        let part = usize::try_from(at / u64::from(CHUNK)).ok()?;
        self.places[index].parts.get_mut(part)?.take()
    }

    /// Answers a request that a device has served, or failed.
    pub fn end_served(&mut self, index: usize, result: Result<(), Fault>) {
        let form = self.places[index].form;
        self.end(index, result.map_err(|fault| errno(fault, form)));
    }

    /// Answers a request.
    pub fn end(&mut self, index: usize, result: Result<(), Errno>) {
        let ReplySlot { form, ref parts, .. } = self.places[index];
        let mut body = Body::new();
        let len = match (result, form) {
            (Err(_), _) | (Ok(()), ReplyForm::Empty | ReplyForm::Hole | ReplyForm::Failed) => 0,
            (Ok(()), ReplyForm::Written(bytes)) => {
                body.written(bytes);
                body.as_bytes().len()
            }
            (Ok(()), ReplyForm::Data) => parts.iter().flatten().map(|part| part.len()).sum(),
        };
        let is_data = result.is_ok() && form == ReplyForm::Data;
        self.fill(index, result, len, body.as_bytes(), is_data);
    }

    /// Answers a request with a body of the wire's own.
    pub fn end_with(&mut self, index: usize, body: &[u8]) {
        self.fill(index, Ok(()), body.len(), body, false);
    }

    fn fill(&mut self, index: usize, result: Result<(), Errno>, len: usize, body: &[u8], is_data: bool) {
        let place = &mut self.places[index];
        if let Some(batch) = &mut place.batch {
            batch.push_header(&abi::out_header(place.unique, result, len));
            batch.push_header(body);
            for part in place.parts.iter_mut().filter_map(Option::take) {
                if is_data {
                    let len = part.len();
                    batch.push_payload(part, 0, len);
                }
            }
        }
        self.ready.push_back(index);
    }

    /// Submits the answers that are ready. Their tokens are those of their places.
    pub fn write(&mut self, ring: &mut Ring, source: RequestSource, file: FileId) {
        while let Some(index) = self.ready.pop_front() {
            let Some(batch) = self.places[index].batch.take() else {
                debug_assert!(false, "an answer that is being written is not ready");
                continue;
            };
            let message = Io::WriteMessage { file, batch };
            match ring.submit(source, index as u64, message) {
                Ok(()) => self.writing += 1,
                Err(Io::WriteMessage { batch, .. }) => {
                    self.places[index].batch = Some(batch);
                    self.ready.push_front(index);
                    return;
                }
                Err(_) => unreachable!("what was submitted comes back"),
            }
        }
    }

    /// Tells if an answer that could not be written can be replaced.
    pub fn can_fail(&self, index: usize) -> bool {
        self.places[index].form != ReplyForm::Failed
    }

    /// An answer could not be written: what it answered has failed.
    pub fn fail(&mut self, index: usize, mut batch: Box<SendBatch>) {
        batch.clear();
        self.writing -= 1;
        let place = &mut self.places[index];
        (place.form, place.batch) = (ReplyForm::Failed, Some(batch));
        self.fill(index, Err(Errno::IO), 0, &[], false);
    }

    /// An answer has been written, or never will be.
    pub fn written(&mut self, index: usize, mut batch: Box<SendBatch>) {
        batch.clear();
        self.places[index].batch = Some(batch);
        self.writing -= 1;
        self.free.push(index);
    }
}

/// Programs take a flush that is not supported for one that is not needed.
pub fn errno(fault: Fault, form: ReplyForm) -> Errno {
    match (fault, form) {
        (Fault::NotSupported, ReplyForm::Hole) => Errno::OPNOTSUPP,
        (Fault::NotSupported | Fault::OutOfRange | Fault::Misaligned, _) => Errno::IO,
        (Fault::Busy, _) => Errno::NOMEM,
        // The kernel would take it for a call that the server does not know, and never ask again.
        (Fault::Io(Errno::NOSYS), _) => Errno::IO,
        (fault, _) => fault.errno(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_the_device_is_never_taken_for_a_refusal_of_the_call() {
        for form in [ReplyForm::Empty, ReplyForm::Data, ReplyForm::Written(1)] {
            assert_eq!(errno(Fault::NotSupported, form), Errno::IO);
            assert_eq!(errno(Fault::Latched, form), Errno::IO);
            assert_eq!(errno(Fault::NoSpace, form), Errno::NOSPC);
            assert_eq!(errno(Fault::Busy, form), Errno::NOMEM);
        }
        assert_eq!(errno(Fault::NotSupported, ReplyForm::Hole), Errno::OPNOTSUPP);
        let faults = [Fault::NotSupported, Fault::Io(Errno::NOSYS)];
        assert!(faults.iter().all(|it| errno(*it, ReplyForm::Hole) != Errno::NOSYS));
    }
}
