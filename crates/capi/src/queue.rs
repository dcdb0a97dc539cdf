//! Many requests at a time: submitted, carried out meanwhile, and collected by the thread that owns the queue.
//!
//! ```text
//! cryptline_queue_read(...) ─► a buffer of our own, a slot with the caller's ─► Channel
//! cryptline_queue_poll(...) ◄─ copied to the caller's buffer, token and result ◄┘
//! ```
//!
//! A queue belongs to one thread, as the ring below it does, so the queues are kept by thread and nothing is locked.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline::Channel;
use cryptline::engine::{Arena, BackendChoice, Buffer, Completion, Fault, Op, Request, Submitted};
use rustix::io::Errno;

use crate::call::{CallFailure, Out, Outcome, bytes, bytes_mut, call, count};
use crate::disk::{cryptline_volume, disk, is_durable};
use crate::handle;

/// A queue into a volume, of the thread that opened it.
pub struct cryptline_queue {
    _opaque: [u8; 0],
}

/// How a request has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_completion {
    /// The request's.
    pub token: u64,
    /// 0 or -errno.
    pub result: c_int,
    /// Always 0.
    pub reserved: u32,
}

/// Requests in flight of one queue.
const DEPTH_MAX: u32 = 1024;
/// Bytes of a buffer that is there from the start. Longer requests get one of their own.
const BUFFER: usize = 256 * 1024;

thread_local! {
    static QUEUES: RefCell<HashMap<u64, HandleQueue>> = RefCell::new(HashMap::new());
}

struct HandleQueue {
    channel: Channel,
    buffers: Arc<Arena>,
    slots: Vec<RequestSlot>,
    free: Vec<usize>,
    /// Ended, and not yet collected.
    ended: VecDeque<cryptline_completion>,
    done: Vec<Completion>,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct RequestSlot {
    token: u64,
    /// Where the bytes of a read go; null for everything else.
    target: *mut c_void,
}

impl HandleQueue {
    fn open(volume: *const cryptline_volume, depth: u32) -> Outcome<Self> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            let text = format!("a queue has room for 1 to {DEPTH_MAX} requests, not {depth}");
            return Err(CallFailure::invalid(text));
        }
        let disk = disk(volume)?;
        let mut channel = Channel::open(disk.gate(), BackendChoice::Auto, depth).map_err(cryptline::Error::from)?;
        let slots = depth as usize;
        let none = RequestSlot { token: 0, target: std::ptr::null_mut() };
        Ok(Self {
            buffers: channel.buffers(BUFFER, slots)?,
            channel,
            slots: vec![none; slots],
            free: (0..slots).collect(),
            ended: VecDeque::with_capacity(slots),
            done: Vec::with_capacity(slots),
        })
    }

    fn buffer(&self, len: usize) -> Outcome<Buffer> {
        let mut buffer = match self.buffers.take() {
            Some(buffer) if len <= BUFFER => buffer,
            _ => Buffer::alloc(len)?,
        };
        buffer.set_len(len);
        Ok(buffer)
    }

    /// Takes a request. What has ended is collected later, even if that is at once.
    fn submit(&mut self, slot: RequestSlot, request: Request) -> Outcome {
        // What has ended keeps its place until it is collected.
        let has_room = self.free.len() > self.ended.len();
        let Some(index) = has_room.then(|| self.free.pop()).flatten() else {
            let text = "the queue is full; collect what has ended first";
            return Err(CallFailure::new(Errno::AGAIN, text));
        };
        self.slots[index] = slot;
        let request = Request { token: index as u64, ..request };
        if let Submitted::Done(completion) = self.channel.submit(request) {
            self.end(&completion);
            // Its descriptor is readable then, and nobody waits in vain.
            self.channel.ring_mut().stay_awake();
        }
        Ok(())
    }

    fn end(&mut self, completion: &Completion) {
        let index = usize::try_from(completion.request.token).unwrap_or(usize::MAX);
        let slot = self.slots[index];
        self.free.push(index);
        let mut result = completion.result;
        if let (Op::Read, Some(data), Ok(())) = (completion.request.op, &completion.request.data, result) {
            // SAFETY: whoever submitted the read promised that the buffer is there, as long as this, and nobody
            // else's until the request has been collected, which it has not been.
            match unsafe { bytes_mut(slot.target, data.len(), "the buffer") } {
                Ok(target) => target.copy_from_slice(data),
                Err(_) => result = Err(Fault::Io(Errno::FAULT)),
            }
        }
        self.ended.push_back(cryptline_completion {
            token: slot.token,
            result: result.map_or_else(|fault| -fault.errno().raw_os_error(), |()| 0),
            reserved: 0,
        });
    }

    /// Waits until something has ended, or for `patience`.
    fn collect(&mut self, patience: Option<Duration>) -> Outcome {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let waits = self.ended.is_empty() && self.channel.in_flight() > 0 && !is_over;
            let mut done = std::mem::take(&mut self.done);
            let entered = if waits {
                if let Some(until) = until {
                    self.channel.ring_mut().wake_by(until);
                }
                self.channel.wait(&mut done)
            } else {
                self.channel.poll(&mut done)
            };
            for completion in done.drain(..) {
                self.end(&completion);
            }
            self.done = done;
            // A failure is told when there is nothing else to tell: what has ended is not lost.
            if !self.ended.is_empty() {
                return Ok(());
            }
            entered?;
            if !waits {
                return Ok(());
            }
        }
    }
}

/// Does `work` with a queue of this thread.
fn with<T>(queue: *const cryptline_queue, work: impl FnOnce(&mut HandleQueue) -> Outcome<T>) -> Outcome<T> {
    let number = handle::number(queue, "queue")?;
    let found = QUEUES.try_with(|queues| {
        let mut queues = queues.try_borrow_mut().ok()?;
        queues.get_mut(&number).map(work)
    });
    found.ok().flatten().unwrap_or_else(|| Err(unknown()))
}

fn unknown() -> CallFailure {
    let text = "this is no queue that this thread has opened";
    CallFailure::new(Errno::BADF, text)
}

/// Opens a queue for up to `depth` requests at a time, for the calling thread alone. The volume stays open until its
/// queues are closed, too.
///
/// # Safety
/// `queue` is a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_queue_open(
    queue: *mut *mut cryptline_queue,
    volume: *mut cryptline_volume,
    depth: u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same.
        let place = unsafe { Out::new(queue, "the place for the queue") }?;
        place.set(std::ptr::null_mut());
        let opened = HandleQueue::open(volume, depth)?;
        let handle = handle::new::<cryptline_queue>();
        let number = handle::number(handle, "queue")?;
        QUEUES.with(|queues| queues.borrow_mut().insert(number, opened));
        place.set(handle);
        Ok(())
    })
}

/// Closes a queue. Requests in flight end first; what they read is lost, and no buffer is used any more. A thread that
/// ends closes its queues.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_queue_close(queue: *mut cryptline_queue) -> c_int {
    call(|| {
        let number = handle::number(queue, "queue")?;
        let closed = QUEUES.try_with(|queues| queues.borrow_mut().remove(&number));
        closed.ok().flatten().map(drop).ok_or_else(unknown)
    })
}

/// A descriptor that is readable while cryptline_queue_poll has something to do, for a loop of the caller's own. It
/// belongs to the queue: it must not be read or closed. Otherwise -errno.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_queue_fd(queue: *mut cryptline_queue) -> c_int {
    count(|| with(queue, |queue| Ok(queue.channel.descriptor()?.as_raw_fd())))
}

/// Submits a read. It begins with the next cryptline_queue_poll at the latest. Any offset and length will do, but for
/// volumes that others write to (CRYPTLINE_SHARED) and zoned ones: there, what is not whole blocks ends with -EINVAL.
///
/// # Safety
/// `len` bytes can be written at `target`, and nobody else uses them until the request has been collected or the queue
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_queue_read(
    queue: *mut cryptline_queue,
    target: *mut c_void,
    len: usize,
    offset: u64,
    token: u64,
) -> c_int {
    call(|| {
        with(queue, |queue| {
            // SAFETY: the caller promises the same, and more. This is to see that they are there.
            unsafe { bytes_mut(target, len, "the buffer") }?;
            let buffer = queue.buffer(len)?;
            queue.submit(RequestSlot { token, target }, Request::read(offset, buffer, 0))
        })
    })
}

/// Submits a write. The bytes are copied, so the buffer is free again when this returns. `flags`: CRYPTLINE_FUA. Offset
/// and length are as for a read.
///
/// # Safety
/// `len` bytes can be read at `source`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_queue_write(
    queue: *mut cryptline_queue,
    source: *const c_void,
    len: usize,
    offset: u64,
    flags: u32,
    token: u64,
) -> c_int {
    call(|| {
        let durable = is_durable(flags)?;
        with(queue, |queue| {
            // SAFETY: the caller promises the same.
            let source = unsafe { bytes(source, len, "the buffer") }?;
            let mut data = queue.buffer(len)?;
            data.copy_from_slice(source);
            queue.submit(no_target(token), Request::write(offset, data, durable, 0))
        })
    })
}

/// Submits a flush: durable is what was collected before.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_queue_flush(queue: *mut cryptline_queue, token: u64) -> c_int {
    call(|| with(queue, |queue| queue.submit(no_target(token), Request::flush(0))))
}

/// Submits a discard.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_queue_discard(queue: *mut cryptline_queue, offset: u64, len: u64, token: u64) -> c_int {
    call(|| with(queue, |queue| queue.submit(no_target(token), Request::new(Op::Discard, offset, len, 0))))
}

/// Submits that a range is to read as zeros; -EOPNOTSUPP where the volume can only write them.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_queue_zero(queue: *mut cryptline_queue, offset: u64, len: u64, token: u64) -> c_int {
    call(|| with(queue, |queue| queue.submit(no_target(token), Request::new(Op::Zero, offset, len, 0))))
}

fn no_target(token: u64) -> RequestSlot {
    let target = std::ptr::null_mut();
    RequestSlot { token, target }
}

/// Hands over what was submitted and collects up to `room` requests that have ended, in any order: how many, or
/// -errno where there are none to collect and the queue cannot be waited for. It waits until there is one, but no
/// longer than `timeout_ms`: 0 not at all, less than 0 without end. Where nothing is in flight it does not wait.
///
/// # Safety
/// `room` completions can be written at `done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_queue_poll(
    queue: *mut cryptline_queue,
    done: *mut cryptline_completion,
    room: usize,
    timeout_ms: c_int,
) -> c_int {
    count(|| {
        if done.is_null() || !done.is_aligned() || room == 0 {
            return Err(CallFailure::invalid("there is no room for completions"));
        }
        with(queue, |queue| {
            let patience = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
            queue.collect(patience)?;
            let mut taken = 0;
            while taken < room
                && let Some(completion) = queue.ended.pop_front()
            {
                // SAFETY: `taken` is less than `room`, of which the caller promises that they can be written; the
                // place is not null and aligned (checked above), and completions are plain values.
                unsafe { done.add(taken).write(completion) };
                taken += 1;
            }
            if !queue.ended.is_empty() {
                queue.channel.ring_mut().stay_awake();
            }
            Ok(c_int::try_from(taken).unwrap_or(c_int::MAX))
        })
    })
}
