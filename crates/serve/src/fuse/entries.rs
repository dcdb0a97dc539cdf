//! Requests that come through the lane's ring (Linux 6.14), in entries that the kernel fills and empties.
//!
//! ```text
//! kernel ─► arrived ─► take, bring, lend ─► lane ─► give, end ─► ready ─► commit, and wait for the next ─► kernel
//! ```
//!
//! An entry has memory of its own for the data, page-aligned and as long as the longest read or write. There a write is
//! encrypted and from there it is written; there a read ends. So the kernel's copy is the only one.
//!
//! The kernel picks a queue by where the program runs, so every lane has entries in all queues: with queues of its own,
//! a lane would leave the others idle while one program is busy. A request costs the server 10 to 20 % less this way.
//! But the kernel fills first the entry that was emptied last, so a few large requests all go to one lane: four reads
//! of 1 MiB at a time took twice as long on two busy cores. Hence it is not the default. Entries in the kernel's hands
//! come back only with the end of the mount, so a ring that is dropped before leaves their memory alone. A silent disk
//! can have all entries.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_engine::{Buffer, Fault, Ring};
use cryptline_sys::{FuseEntry, FuseQueues, Io, RequestSource};
use rustix::io::Errno;

use super::TRANSFER_MAX;
use super::abi::{self, Body, HEAD, IN_HEADER};
use super::replies::{ReplyForm, errno};

/// Bytes of the longest first structure of a call's arguments.
const ARGUMENTS: usize = 128;

/// The queues of the kernel that one lane serves.
#[derive(Clone, Debug, Default)]
pub struct LaneQueues {
    /// By their numbers.
    pub numbers: Vec<u16>,
    /// Entries of each.
    pub depth: usize,
}

/// All entries of a lane.
#[derive(Default)]
pub struct Entries {
    places: Vec<RingEntry>,
    /// With requests that the lane does not have yet.
    arrived: VecDeque<usize>,
    /// For the kernel.
    ready: VecDeque<usize>,
    /// Some were given to the ring which the kernel may not have.
    is_on_the_way: bool,
}

struct RingEntry {
    /// Here, while it is not the kernel's.
    entry: Option<Box<FuseEntry>>,
    unique: u64,
    device: usize,
    form: ReplyForm,
    /// Of the payload's memory, what the lane does not have yet, and where in the payload it begins.
    rest: Option<Buffer>,
    rest_at: u64,
    /// Bytes of the request.
    length: u64,
    /// Set if what was read is elsewhere: the entry has the bytes of an earlier request.
    is_lost: bool,
    answers: bool,
}

impl Entries {
    /// Entries for the queues, which the kernel has with the first [`submit`](Self::submit).
    pub fn new(ring: &mut Ring, device: &Arc<OwnedFd>, queues: &LaneQueues) -> io::Result<Self> {
        let count = queues.numbers.len() * queues.depth;
        if count == 0 {
            return Ok(Self::default());
        }
        let made = FuseQueues::new(ring, Arc::clone(device))?;
        ring.reserve(u32::try_from(count).unwrap_or(u32::MAX));
        let mut places = Vec::with_capacity(count);
        // The first entry of each queue comes first: when all queues have one, they are used.
        for _ in 0..queues.depth {
            for number in &queues.numbers {
                let entry = made.entry(*number, TRANSFER_MAX as usize)?;
                places.push(RingEntry::new(entry));
            }
        }
        Ok(Self { arrived: VecDeque::with_capacity(count), ready: (0..count).collect(), places, is_on_the_way: false })
    }

    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Tells if the kernel may not have all answers.
    pub fn has_unsent(&self) -> bool {
        let mut ready = self.ready.iter();
        self.is_on_the_way || ready.any(|index| self.places[*index].answers)
    }

    /// The next request, for who has room for it.
    pub fn next(&mut self) -> Option<usize> {
        self.arrived.pop_front()
    }

    /// Gives `look` a request: its header and the beginning of its arguments, the rest of those and the data, and how
    /// many bytes it has.
    pub fn with_message<T>(&mut self, index: usize, look: impl FnOnce(&[u8], &[u8], usize) -> T) -> Option<T> {
        let entry = self.places[index].entry.as_mut()?;
        let data = entry.payload_len();
        let (mut header, mut arguments) = ([0; IN_HEADER], [0; ARGUMENTS]);
        header.copy_from_slice(entry.header().get(..IN_HEADER)?);
        arguments.copy_from_slice(entry.arguments().get(..ARGUMENTS)?);
        let payload = entry.payload()?.get(..data)?;
        let (head, rest, len) = gather(&header, &arguments, payload)?;
        Some(look(&head, rest, len))
    }

    /// A request that is served or answered from now on.
    pub fn begin(&mut self, index: usize, unique: u64, form: ReplyForm, device: usize, length: u64) {
        let place = &mut self.places[index];
        (place.unique, place.form, place.device) = (unique, form, device);
        (place.length, place.rest, place.rest_at) = (length, None, 0);
        place.is_lost = false;
    }

    /// Which device the request is for.
    pub fn device(&self, index: usize) -> usize {
        self.places[index].device
    }

    /// The memory of the next part: one after the other, as the lane asks for them.
    pub fn part(&mut self, index: usize, at: u64, len: usize) -> Option<Buffer> {
        let place = &mut self.places[index];
        if at == 0 && place.rest.is_none() {
            place.rest = place.entry.as_mut()?.take_payload();
        } else if at != place.rest_at {
            return None;
        }
        let mut part = place.rest.take()?;
        if len < part.len() {
            place.rest = Some(part.split_off(len));
        }
        place.rest_at = at + len as u64;
        (part.len() == len).then_some(part)
    }

    /// A part that was read. It is where it belongs, or the request fails.
    pub fn keep(&mut self, index: usize, data: Buffer) {
        let place = &mut self.places[index];
        let entry = place.entry.as_ref();
        place.is_lost |= !entry.is_some_and(|it| it.owns(&data));
    }

    /// Answers a request that a device has served, or failed.
    pub fn end_served(&mut self, index: usize, result: Result<(), Fault>) {
        let RingEntry { form, length, is_lost, .. } = self.places[index];
        let mut body = Body::new();
        match (result, form) {
            (Err(fault), _) => return self.end(index, Err(errno(fault, form)), 0),
            (Ok(()), ReplyForm::Data) if is_lost => return self.end(index, Err(Errno::IO), 0),
            (Ok(()), ReplyForm::Data) => {
                let length = u32::try_from(length).unwrap_or(0);
                return self.end(index, Ok(()), length);
            }
            (Ok(()), ReplyForm::Written(bytes)) => body.written(bytes),
            (Ok(()), ReplyForm::Empty | ReplyForm::Hole | ReplyForm::Failed) => {}
        }
        self.end_with(index, body.as_bytes());
    }

    /// Answers a request with a body of the wire's own.
    pub fn end_with(&mut self, index: usize, body: &[u8]) {
        let place = &mut self.places[index];
        place.rest = None;
        let payload = place.entry.as_mut().and_then(|entry| entry.payload());
        match payload.and_then(|payload| payload.get_mut(..body.len())) {
            Some(payload) => {
                payload.copy_from_slice(body);
                let len = u32::try_from(body.len()).unwrap_or(0);
                self.end(index, Ok(()), len);
            }
            None => self.end(index, Err(Errno::IO), 0),
        }
    }

    /// Answers a request with the first bytes of its payload.
    pub fn end(&mut self, index: usize, result: Result<(), Errno>, payload: u32) {
        let place = &mut self.places[index];
        place.rest = None;
        let header = abi::out_header(place.unique, result, payload as usize);
        if let Some(entry) = &mut place.entry {
            entry.answer(&header, payload);
        }
        place.answers = true;
        self.ready.push_back(index);
    }

    /// Gives the kernel what is for it. `false` where an entry cannot be given to it, which must not be.
    pub fn submit(&mut self, ring: &mut Ring, source: RequestSource) -> bool {
        while let Some(index) = self.ready.pop_front() {
            let place = &mut self.places[index];
            let Some(mut entry) = place.entry.take() else {
                return false;
            };
            if !entry.is_whole() {
                return false;
            }
            match ring.submit(source, index as u64, Io::Fuse(entry)) {
                Ok(()) => self.is_on_the_way |= place.answers,
                Err(Io::Fuse(entry)) => {
                    place.entry = Some(entry);
                    self.ready.push_front(index);
                    break;
                }
                Err(_) => unreachable!("what was submitted comes back"),
            }
        }
        true
    }

    /// The ring has been to the kernel, which may have refused what was for it.
    pub fn handed_over(&mut self, ring: &mut Ring) {
        self.is_on_the_way = self.is_on_the_way && ring.is_refused();
    }

    /// An entry has come back.
    pub fn came(&mut self, token: u64, result: Result<usize, Errno>, entry: Box<FuseEntry>) -> Came {
        let index = usize::try_from(token).unwrap_or(usize::MAX);
        let Some(place) = self.places.get_mut(index) else {
            debug_assert!(false, "none of ours");
            return Came::Dead;
        };
        let was_answer = std::mem::take(&mut place.answers);
        match result {
            Ok(_) => {
                place.entry = Some(entry);
                self.arrived.push_back(index);
                Came::Request
            }
            // Unmounted.
            Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) => Came::Dead,
            // Whoever waits for it would wait for ever.
            Err(error) if was_answer => Came::Refused(error),
            // The kernel goes on by messages.
            Err(_) => Came::Dead,
        }
    }
}

/// Outcome of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    Request,
    /// Used no more.
    Dead,
    /// Could not be answered.
    Refused(Errno),
}

/// A request as a message would have it: the head, what comes behind it, and how long it is. The kernel puts the first
/// structure of the arguments in a place of its own, and what follows into the payload.
fn gather<'a>(
    header: &[u8; IN_HEADER],
    arguments: &'a [u8; ARGUMENTS],
    payload: &'a [u8],
) -> Option<([u8; HEAD], &'a [u8], usize)> {
    const ROOM: usize = HEAD - IN_HEADER;
    let len = u32::from_ne_bytes(*header.first_chunk()?);
    let len = usize::try_from(len).ok()?;
    let first = len.checked_sub(IN_HEADER + payload.len())?;
    let first = arguments.get(..first)?;
    let mut head = [0; HEAD];
    let (start, behind) = head.split_at_mut(IN_HEADER);
    start.copy_from_slice(header);
    let (in_head, rest) = first.split_at(first.len().min(ROOM));
    behind[..in_head.len()].copy_from_slice(in_head);
    if !rest.is_empty() {
        // No call that is looked at has more behind such a long one.
        return Some((head, rest, len));
    }
    let (in_head_too, rest) = payload.split_at(payload.len().min(ROOM - in_head.len()));
    behind[in_head.len()..][..in_head_too.len()].copy_from_slice(in_head_too);
    Some((head, rest, len))
}

impl RingEntry {
    fn new(entry: Box<FuseEntry>) -> Self {
        Self {
            entry: Some(entry),
            unique: 0,
            device: 0,
            form: ReplyForm::Empty,
            rest: None,
            rest_at: 0,
            length: 0,
            is_lost: false,
            answers: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use cryptline_sys::BackendChoice;
    use cryptline_testkit::peer;

    use super::*;

    /// Entries of a device without a mount. `None` where there are none, which is said.
    fn entries(depth: usize) -> Option<(Ring, Entries)> {
        let ring = Ring::new(BackendChoice::WideIoUring, 8);
        let device = std::fs::File::open("/dev/fuse");
        let (Ok(mut ring), Ok(device)) = (ring, device) else {
            peer::skip("io_uring and /dev/fuse are needed");
            return None;
        };
        let numbers = vec![0];
        let queues = LaneQueues { numbers, depth };
        let made = Entries::new(&mut ring, &Arc::new(device.into()), &queues);
        Some((ring, made.expect("entries")))
    }

    fn answered(entries: &Entries, index: usize) -> i32 {
        let entry = entries.places[index].entry.as_ref().expect("it is here");
        i32::from_ne_bytes(*entry.header()[4..].first_chunk().unwrap())
    }

    #[test]
    fn read_whose_bytes_are_elsewhere_fails_and_the_next_one_does_not() {
        let Some((_ring, mut entries)) = entries(2) else { return };
        for (from, error) in [(0, 0), (1, Errno::IO.raw_os_error()), (0, 0)] {
            entries.begin(0, 7, ReplyForm::Data, 0, 4096);
            let data = entries.part(from, 0, 4096).expect("a part");
            entries.keep(0, data);
            entries.end_served(0, Ok(()));
            assert_eq!(answered(&entries, 0), -error);
            entries.begin(1, 8, ReplyForm::Data, 0, 4096);
        }
    }

    #[test]
    fn answer_is_unsent_until_the_kernel_has_taken_it() {
        let Some((mut ring, mut entries)) = entries(1) else { return };
        entries.ready.clear();
        entries.begin(0, 7, ReplyForm::Empty, 0, 0);
        entries.end(0, Ok(()), 0);
        let source = ring.add_source();
        assert!(entries.submit(&mut ring, source));
        entries.handed_over(&mut ring);
        assert!(entries.has_unsent());
        ring.poll().expect("the kernel takes it");
        entries.handed_over(&mut ring);
        assert!(!entries.has_unsent());
    }

    fn header(len: usize) -> [u8; IN_HEADER] {
        let mut header = [9; IN_HEADER];
        header[..4].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
        header
    }

    /// The head's arguments and the rest, one behind the other.
    fn gathered(first: usize, payload: &[u8]) -> Vec<u8> {
        let arguments: [u8; ARGUMENTS] = std::array::from_fn(|at| at.try_into().unwrap());
        let len = IN_HEADER + first + payload.len();
        let (head, rest, whole) = gather(&header(len), &arguments, payload).unwrap();
        assert_eq!((whole, &head[4..IN_HEADER]), (len, &[9; IN_HEADER - 4][..]));
        [&head[IN_HEADER..], rest].concat()
    }

    #[test]
    fn request_in_an_entry_is_put_together_as_a_message() {
        let counted: Vec<u8> = (0..128).collect();
        let name = [b'n'; 50];
        // A name alone, arguments alone, both, and a write.
        assert_eq!(gathered(0, &name)[..50], name);
        assert_eq!(gathered(24, &[])[..24], counted[..24]);
        assert_eq!(gathered(88, &[])[..88], counted[..88]);
        let both = gathered(16, &name);
        assert_eq!((&both[..16], &both[16..66]), (&counted[..16], &name[..]));
        let write = gathered(40, &name);
        assert_eq!((&write[..40], &write[40..]), (&counted[..40], &name[..]));
    }

    #[test]
    fn lengths_that_make_no_sense_are_no_request() {
        let arguments = [0; ARGUMENTS];
        for (len, payload) in [(39, 0), (0, 0), (40, 1), (40 + ARGUMENTS + 1, 0)] {
            let payload = vec![0; payload];
            assert!(gather(&header(len), &arguments, &payload).is_none(), "{len}");
        }
    }
}
