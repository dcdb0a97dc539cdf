//! The seam between a front's protocol and the lane that serves it.

use std::sync::Arc;

use cryptline_engine::{Arena, Buffer, Fault, Op, Ring};

use super::{CHUNK, SMALL};

/// A front's protocol as a lane sees it.
///
/// ```text
///          take ─► Asked    bring ─► bytes of a write
/// Wire                                                   Lane
///          give ◄─ bytes of a read    end ◄─ result
/// ```
///
/// A wire checks what it takes: the range lies inside the device, and a change is allowed. It answers by
/// itself what it refuses, which the lane counts, and what needs no device. Its replies collect until [`arm`](Self::arm).
pub trait Wire {
    /// Data that the wire needs about a request when it answers: an NBD cookie, a descriptor's index, a FUSE unique.
    type Tag: Copy;

    /// The next thing that has arrived. `None` when there is nothing more, or no room for it.
    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<Self::Tag>>;

    /// The bytes of one chunk of a write. After [`Brought::Later`], [`take`](Self::take) gives them once they
    /// are there.
    fn bring(&mut self, tag: Self::Tag, chunk: WriteChunk, room: &LaneRoom) -> Brought;

    /// A buffer of the wire's own, of `len` bytes, for what is read from `at` bytes behind the start of a request.
    /// Without one the lane takes one of the room's.
    fn lend(&mut self, _tag: Self::Tag, _at: u64, _len: usize) -> Option<Buffer> {
        None
    }

    /// Bytes read, from `at` bytes behind the start of the request. Chunks come in any order. `last` means that
    /// all of them have been given and [`end`](Self::end) follows with success.
    fn give(&mut self, tag: Self::Tag, at: u64, data: Buffer, last: bool);

    /// Where on the device the bytes of an append are. [`end`](Self::end) follows with success.
    fn placed(&mut self, _tag: Self::Tag, _offset: u64) {}
    /// Which of the lane's devices a request is for.
    fn device(&self, _tag: Self::Tag) -> usize {
        0
    }

    /// The end of a request.
    fn end(&mut self, tag: Self::Tag, result: Result<(), Fault>);

    /// Called before each wait: submits what is to be sent, and whatever reports new requests (a
    /// receive, a fetch, the read of an eventfd). `true` when more can be taken right now, so that there is
    /// no need to wait. It is also `true` when the peer has just turned out to be gone, until
    /// [`take`](Self::take) has been called once more.
    fn arm(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool;

    /// The same, where the lane looks out for a moment before it waits, and asks [`has_more`](Self::has_more): new
    /// requests need not be reported.
    fn arm_to_look(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        self.arm(ring, room)
    }

    /// Tells if more can be taken that the ring does not know of.
    fn has_more(&mut self) -> bool {
        false
    }

    /// Tells if it has work of its own, of which [`arm`](Self::arm) does a little each time: the lane then looks at its
    /// ring and does not wait.
    fn has_work(&self) -> bool {
        false
    }

    /// Takes from the ring what belongs to the wire.
    fn reap(&mut self, _ring: &mut Ring) {}

    /// No new requests are to be taken from now on. Called repeatedly.
    fn stop(&mut self);

    /// Tells if no more requests come and nothing is left to be sent.
    fn is_over(&self) -> bool;

    /// Finds out whether the peer is gone; may cost a system call.
    fn look_for_peer(&mut self) {}

    /// Tells if the peer is known to be gone, so that nobody waits for an answer.
    fn is_gone(&self) -> bool {
        false
    }

    /// Why the wire takes no more, where the peer has broken the protocol.
    fn breach(&self) -> Option<String> {
        None
    }
}

/// A request as a wire takes it.
///
/// A device goes step by step where it works by itself. One that cannot discard keeps the data, since that is advice;
/// where it cannot zero, zeros are written; where it cannot cache, bytes are read and forgotten, which warms the caches
/// below. An append has at most [`CHUNK`] bytes, and [`Wire::placed`] is told where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRequest<T> {
    /// The wire's own mark.
    pub tag: T,
    /// Operation to carry out.
    pub op: Op,
    /// Of a discard or a zeroing: it ends only once its effect is durable. A write says so by its operation.
    pub durable: bool,
    /// Of a zeroing: it fails with [`Fault::NotSupported`] rather than write zeros.
    pub fast: bool,
    /// Of a read: the wire keeps all its buffers until the end. So the lane begins it only when there are buffers for
    /// all of it: two such reads must not each wait for the other's.
    pub whole: bool,
    /// Where on the device, in bytes.
    pub offset: u64,
    /// Bytes; 0 for an operation without a range. A request of no bytes ends at once, and a read of none is given
    /// nothing.
    pub length: u64,
}

impl WireRequest<()> {
    /// A request without a mark, which is neither durable nor fast nor whole.
    #[must_use]
    pub const fn new(op: Op, offset: u64, length: u64) -> Self {
        Self { tag: (), op, durable: false, fast: false, whole: false, offset, length }
    }

    /// The same with a mark.
    #[must_use]
    pub fn tagged<T>(self, tag: T) -> WireRequest<T> {
        let Self { tag: (), op, durable, fast, whole, offset, length } = self;
        WireRequest { tag, op, durable, fast, whole, offset, length }
    }
}

/// Input of a wire for its lane.
#[derive(Debug)]
pub enum WireInput<T> {
    /// A request. Taken only while the room [has a job](Room::has_job).
    Asked(WireRequest<T>),
    /// A request for the device of this number that may not be carried out; the wire has answered it. Its operation,
    /// where a device has such a one.
    Refused(usize, Option<Op>),
    /// The bytes that [`Wire::bring`] has put off; `None` when they will never come.
    Bytes(JobId, Option<Buffer>),
}

/// Which job a chunk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId(pub(super) usize);

/// A part of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteChunk {
    /// Whose it is.
    pub job: JobId,
    /// Bytes behind the start of the request.
    pub at: u64,
    /// Bytes, at most [`CHUNK`].
    pub len: usize,
}

/// The answer to [`Wire::bring`].
#[derive(Debug)]
pub enum Brought {
    /// Here they are, or the first of them, in a buffer of the room's or of the wire's own.
    Now(Buffer),
    /// [`Wire::take`] will have them, or the first of them.
    Later,
    /// The room has no buffer: ask again when others have ended.
    NoRoom,
    /// They will not come.
    Never,
}

/// Space that a lane can still give to requests. All of it is allocated when the lane starts.
pub struct LaneRoom {
    small: Arc<Arena>,
    large: Arc<Arena>,
    /// Places for more jobs.
    pub(super) jobs_left: usize,
    /// A read that is wanted whole waits for its buffers; no request is taken before it has them.
    pub(super) reserved: bool,
}

impl LaneRoom {
    pub(crate) fn new(small: Arc<Arena>, large: Arc<Arena>, jobs: usize) -> Self {
        Self { small, large, jobs_left: jobs, reserved: false }
    }

    /// Tells if one more request can be taken.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.jobs_left > 0 && !self.reserved
    }

    /// Tells if there is a buffer for a chunk.
    #[must_use]
    pub fn has_buffer(&self) -> bool {
        self.large.available() > 0
    }

    /// A buffer of [`SMALL`] bytes, for replies that a wire makes by itself.
    #[must_use]
    pub fn small_buffer(&self) -> Option<Buffer> {
        let mut buffer = self.small.take()?;
        buffer.set_len(SMALL);
        Some(buffer)
    }

    /// A buffer of `len` bytes, at most [`CHUNK`]: a small one where that is enough and there is one.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        debug_assert!(len <= CHUNK as usize);
        let is_small = len <= self.small.slot_size();
        let from_small = if is_small { self.small.take() } else { None };
        let mut buffer = from_small.or_else(|| self.large.take())?;
        buffer.set_len(len);
        Some(buffer)
    }

    /// Makes a whole read of `chunks` chunks wait until there are buffers for all of them.
    pub(super) fn reserve(&mut self, chunks: u64) -> bool {
        self.reserved = (self.large.available() as u64) < chunks;
        !self.reserved
    }
}
