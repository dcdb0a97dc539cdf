//! Requests in: from received bytes to what a lane serves, and payloads into their buffers.

use cryptline_engine::{Buffer, Op, Ring};
use cryptline_nbd::{DRAIN_MAX, NbdCommand, NbdError, Rejection, RequestHeader, parse_request, validate, wire};

use super::{Expect, NbdReplyForm, NbdTag, NbdWire, REPLY_HEADER_RESERVE, REPLY_PARTS_RESERVE, WantedChunk};
use crate::lane::{Brought, CHUNK, LaneRoom, WireInput, WireRequest, WriteChunk};

/// The rest of a payload is received straight into its buffer when it is at least this long;
/// below that, receiving ahead saves more system calls than the copy costs.
const DIRECT_MIN: usize = 16 * 1024;
/// Bytes of a long write that are worth beginning with before the rest of its chunk has arrived. A client's socket holds
/// less than a chunk, and a client that has filled it sleeps until all of that was received: what has arrived is encrypted
/// and written while the client brings more.
const EARLY: usize = 64 * 1024;
/// A write of at most this many bytes is given to the device as one.
const SHORT: u32 = 128 * 1024;

/// Outcome of one step with the received bytes.
enum IntakeStep {
    Taken(WireInput<NbdTag>),
    /// Something was answered here, or thrown away.
    Again,
    /// More bytes are needed, or more room.
    Wait,
}

impl NbdWire {
    pub(super) fn take_next(&mut self, room: &LaneRoom) -> Option<WireInput<NbdTag>> {
        while !self.closing {
            let step = match &self.expect {
                Expect::Header => self.take_header(room),
                Expect::Payload { .. } => self.take_payload(room),
                Expect::Drain { .. } => self.drain(),
            };
            match step {
                IntakeStep::Taken(taken) => return Some(taken),
                IntakeStep::Again => {}
                IntakeStep::Wait => {
                    let is_over = self.transport.connection.ended && !self.is_short_of_room(room);
                    if is_over || self.transport.connection.is_broken {
                        return self.close();
                    }
                    return None;
                }
            }
        }
        None
    }

    /// Tells if what has arrived waits for something in flight to end.
    fn is_short_of_room(&self, room: &LaneRoom) -> bool {
        let unread = self.transport.connection.unread().len();
        match &self.expect {
            Expect::Header => unread >= wire::REQUEST_LEN && !self.has_room(room),
            Expect::Payload { wanted, .. } => unread > 0 && wanted.as_ref().is_none_or(|it| it.buffer.is_none()),
            Expect::Drain { .. } => false,
        }
    }

    /// Tells if something that has arrived can be taken now. A medium that answers at once makes room before anything
    /// is waited for, and no later event tells of it.
    pub(super) fn can_take_more(&self, room: &LaneRoom) -> bool {
        let unread = self.transport.connection.unread().len();
        match &self.expect {
            _ if self.closing => false,
            Expect::Header => unread >= wire::REQUEST_LEN && self.has_room(room),
            Expect::Payload { wanted, .. } => {
                let is_stuck =
                    wanted.as_ref().is_some_and(|it| it.buffer.is_none()) && !self.transport.connection.is_receiving();
                is_stuck && unread > 0 && room.has_buffer()
            }
            Expect::Drain { .. } => false,
        }
    }

    fn has_room(&self, room: &LaneRoom) -> bool {
        let batch = &self.transport.filling;
        room.has_job() && batch.has_room(REPLY_HEADER_RESERVE, REPLY_PARTS_RESERVE)
    }

    fn take_header(&mut self, room: &LaneRoom) -> IntakeStep {
        let unread = self.transport.connection.unread();
        let Some(bytes) = unread.first_chunk::<{ wire::REQUEST_LEN }>() else {
            // Also without room: what came through TLS is all taken before more is received.
            let more = self.transport.refill();
            return if more { IntakeStep::Again } else { IntakeStep::Wait };
        };
        if !self.has_room(room) {
            return IntakeStep::Wait;
        }
        let header = match parse_request(bytes) {
            Ok(header) => header,
            Err(breach) => {
                // Out of step: whatever follows would be taken for something else.
                self.breach = Some(breach.to_string());
                self.close();
                return IntakeStep::Wait;
            }
        };
        self.transport.consume(wire::REQUEST_LEN);
        match validate(&header, &self.terms.limits) {
            Ok(command) => self.ask(&header, command, room),
            Err(rejection) => {
                match rejection {
                    Rejection::Reply(error) => self.refuse(header.cookie, error),
                    Rejection::ReplyAfterDraining { error, length } => {
                        self.expect = Expect::Drain { left: length as usize, cookie: header.cookie, error };
                    }
                    Rejection::DropConnection => {
                        let length = header.length;
                        self.breach = Some(format!(
                            "client announced a write of {length} bytes, and more than {DRAIN_MAX} are not even thrown away"
                        ));
                        drop(self.close());
                    }
                }
                refused(header.command)
            }
        }
    }

    /// Returns what the lane is to do for a request that may be carried out.
    fn ask(&mut self, header: &RequestHeader, command: NbdCommand, room: &LaneRoom) -> IntakeStep {
        let mut form = NbdReplyForm::Plain;
        let of = |op| WireRequest::new(op, header.offset, header.length.into());
        let asked = match command {
            NbdCommand::Disconnect => {
                self.close();
                return IntakeStep::Again;
            }
            NbdCommand::BlockStatus { req_one } => {
                let is_told = self.block_status(header, req_one, room);
                return if is_told { IntakeStep::Again } else { refused(header.command) };
            }
            // One chunk is at least the 64 KiB that the protocol demands here.
            NbdCommand::Read { df: true } if header.length > CHUNK => {
                self.refuse(header.cookie, NbdError::Overflow);
                return refused(header.command);
            }
            NbdCommand::Read { .. } => {
                form = self.form_of_read(header);
                WireRequest { whole: matches!(form, NbdReplyForm::Whole { .. }), ..of(Op::Read) }
            }
            NbdCommand::Cache => of(Op::Cache),
            NbdCommand::Write { fua } => {
                self.expect = Expect::Payload {
                    end: header.offset + u64::from(header.length),
                    left: header.length.into(),
                    // Each piece of a durable write waits for the medium.
                    may_begin_early: !fua && header.length > SHORT,
                    wanted: None,
                };
                of(Op::write(fua))
            }
            NbdCommand::Flush => of(Op::Flush),
            NbdCommand::Trim { fua } => WireRequest { durable: fua, ..of(Op::Discard) },
            NbdCommand::WriteZeroes { fua, no_hole, fast_zero } => {
                if fast_zero {
                    form = NbdReplyForm::FastZero;
                }
                WireRequest { durable: fua, fast: fast_zero, ..of(Op::zero(!no_hole)) }
            }
        };
        IntakeStep::Taken(WireInput::Asked(asked.tagged(NbdTag { cookie: header.cookie, form })))
    }

    fn form_of_read(&mut self, header: &RequestHeader) -> NbdReplyForm {
        self.reads += 1;
        if self.terms.limits.structured_replies {
            let offset = header.offset;
            NbdReplyForm::Chunks { offset }
        } else {
            NbdReplyForm::Whole { number: self.reads, length: header.length }
        }
    }

    pub(super) fn bring_payload(&mut self, chunk: WriteChunk, room: &LaneRoom) -> Brought {
        let Expect::Payload { wanted, .. } = &mut self.expect else {
            return Brought::Never;
        };
        *wanted = Some(WantedChunk { job: chunk.job, len: chunk.len, buffer: None, filled: 0 });
        self.fill(room).map_or(Brought::Later, Brought::Now)
    }

    fn take_payload(&mut self, room: &LaneRoom) -> IntakeStep {
        let Expect::Payload { wanted: Some(wanted), .. } = &self.expect else {
            return IntakeStep::Wait;
        };
        let job = wanted.job;
        match self.fill(room) {
            Some(data) => IntakeStep::Taken(WireInput::Bytes(job, Some(data))),
            None => IntakeStep::Wait,
        }
    }

    /// The chunk that the lane waits for, where all of it has arrived, or enough of it.
    fn fill(&mut self, room: &LaneRoom) -> Option<Buffer> {
        let Expect::Payload { end, left, may_begin_early, wanted: Some(wanted) } = &mut self.expect else {
            return None;
        };
        if self.transport.connection.is_receiving() {
            return None;
        }
        if wanted.buffer.is_none() {
            wanted.buffer = room.buffer(wanted.len);
        }
        let target = wanted.buffer.as_mut()?;
        while wanted.filled < wanted.len {
            let taken = self.transport.take_into(&mut target[wanted.filled..]);
            wanted.filled += taken;
            if taken == 0 && !self.transport.refill() {
                let beyond = (*end - *left + wanted.filled as u64) % self.block;
                let len = wanted.filled.saturating_sub(usize::try_from(beyond).unwrap_or(usize::MAX));
                if !*may_begin_early || len < EARLY {
                    return None;
                }
                wanted.len = len;
                self.transport.connection.put_back(&target[len..wanted.filled]);
                target.set_len(len);
                break;
            }
        }
        let data = wanted.buffer.take();
        *left -= wanted.len as u64;
        self.expect = match *left {
            0 => Expect::Header,
            left => Expect::Payload { end: *end, left, may_begin_early: *may_begin_early, wanted: None },
        };
        data
    }

    fn drain(&mut self) -> IntakeStep {
        let Expect::Drain { left, cookie, error } = &mut self.expect else {
            return IntakeStep::Again;
        };
        let taken = self.transport.connection.unread().len().min(*left);
        *left -= taken;
        let (finished, cookie, error) = (*left == 0, *cookie, *error);
        self.transport.consume(taken);
        if finished {
            self.expect = Expect::Header;
            self.refuse(cookie, error);
        }
        let more = taken > 0 && !self.transport.connection.unread().is_empty();
        if finished || more { IntakeStep::Again } else { IntakeStep::Wait }
    }

    pub(super) fn receive(&mut self, ring: &mut Ring, room: &LaneRoom) {
        if self.closing || self.transport.connection.is_receiving() {
            return;
        }
        let has_room = self.has_room(room);
        match &mut self.expect {
            Expect::Header if !has_room => {}
            Expect::Payload { wanted: None, .. } => {}
            Expect::Payload { wanted: Some(wanted), .. } => match wanted.buffer.take() {
                // Some are freed by what is in flight.
                None => {}
                Some(buffer) if wanted.len - wanted.filled >= DIRECT_MIN && self.transport.can_receive_direct() => {
                    let place = (wanted.filled, buffer.len() - wanted.filled);
                    wanted.buffer = self.transport.connection.receive_direct(ring, buffer, place);
                }
                buffer => {
                    wanted.buffer = buffer;
                    self.transport.connection.receive(ring, usize::MAX);
                }
            },
            _ => self.transport.connection.receive(ring, usize::MAX),
        }
    }

    /// Takes no more requests. A payload that will not come is told to the lane that waits for it.
    fn close(&mut self) -> Option<WireInput<NbdTag>> {
        self.closing = true;
        self.transport.connection.ended = true;
        match std::mem::replace(&mut self.expect, Expect::Header) {
            Expect::Payload { wanted: Some(wanted), .. } => Some(WireInput::Bytes(wanted.job, None)),
            _ => None,
        }
    }
}

/// A request with this command that is not carried out.
fn refused(command: u16) -> IntakeStep {
    IntakeStep::Taken(WireInput::Refused(
        0,
        match command {
            wire::cmd::READ => Some(Op::Read),
            wire::cmd::WRITE | wire::cmd::WRITE_ZEROES => Some(Op::Write),
            wire::cmd::FLUSH => Some(Op::Flush),
            _ => None,
        },
    ))
}
