//! Replies out: data as it comes, and the end of each request.

use std::time::Instant;

use cryptline_engine::{Buffer, Fault};
use cryptline_nbd::{NbdError, RequestHeader, reply};
use cryptline_sys::is_zero;

use super::super::status;
use super::{NbdReplyForm, NbdTag, NbdWire, WaitingChunk};
use crate::lane::{CHUNK, LaneRoom};

impl NbdWire {
    /// Data that was read: sent, or kept until its read is whole.
    pub(super) fn send_data(&mut self, tag: NbdTag, at: u64, data: Buffer, last: bool) {
        let batch = &mut self.transport.filling;
        let len = data.len();
        match tag.form {
            NbdReplyForm::Chunks { offset } => {
                let offset = offset + at;
                let wire_len = u32::try_from(len).unwrap_or(CHUNK);
                let last = if last { reply::ChunkPosition::Yes } else { reply::ChunkPosition::No };
                if is_zero(&data) {
                    batch.push_header(&reply::offset_hole(tag.cookie, offset, wire_len, last));
                } else {
                    batch.push_header(&reply::offset_data(tag.cookie, offset, wire_len, last));
                    batch.push_payload(data, 0, len);
                }
            }
            NbdReplyForm::Whole { length, .. } if length <= CHUNK => {
                batch.push_header(&reply::simple(tag.cookie, Ok(())));
                batch.push_payload(data, 0, len);
            }
            NbdReplyForm::Whole { number, .. } => self.parts.push(WaitingChunk { read: number, at, data }),
            NbdReplyForm::Plain | NbdReplyForm::FastZero => {}
        }
    }

    /// Answers a request that is over.
    pub(super) fn send_end(&mut self, tag: NbdTag, result: Result<(), Fault>) {
        let outcome = result.map_err(|fault| error_of(fault, tag.form));
        match (tag.form, outcome) {
            // Its last chunk said so.
            (NbdReplyForm::Chunks { .. }, Ok(())) => {}
            (NbdReplyForm::Chunks { .. }, Err(error)) => self.refuse(tag.cookie, error),
            // Its header went before its data.
            (NbdReplyForm::Whole { length, .. }, Ok(())) if length <= CHUNK => {}
            (NbdReplyForm::Whole { number, .. }, Ok(())) => {
                self.send_simple(tag.cookie, Ok(()));
                self.send_parts(number);
            }
            (form, outcome) => {
                self.send_simple(tag.cookie, outcome);
                if let NbdReplyForm::Whole { number, .. } = form {
                    self.parts.retain(|part| part.read != number);
                }
            }
        }
    }

    fn send_simple(&mut self, cookie: u64, outcome: Result<(), NbdError>) {
        let batch = &mut self.transport.filling;
        batch.push_header(&reply::simple(cookie, outcome));
    }

    /// Sends a read's parts in their order.
    fn send_parts(&mut self, read: u64) {
        let mut next = 0;
        let is_next = |part: &WaitingChunk, next| (part.read, part.at) == (read, next);
        while let Some(index) = self.parts.iter().position(|part| is_next(part, next)) {
            let data = self.parts.swap_remove(index).data;
            let len = data.len();
            next += len as u64;
            self.transport.filling.push_payload(data, 0, len);
        }
    }

    /// Answers a request that is not served.
    pub(super) fn refuse(&mut self, cookie: u64, error: NbdError) {
        let structured = self.terms.limits.structured_replies;
        let failure = reply::failure(structured, cookie, error, "");
        self.transport.filling.push_header(failure.as_bytes());
    }

    /// `false` where it could not be told.
    pub(super) fn block_status(&mut self, header: &RequestHeader, req_one: bool, room: &LaneRoom) -> bool {
        let started = self.terms.meter.is_some().then(Instant::now);
        let status = status::block_status(&self.terms.gate, header, req_one, room, self.terms.context);
        let Some((buffer, len)) = status else {
            self.refuse(header.cookie, NbdError::Io);
            return false;
        };
        self.transport.filling.push_payload(buffer, 0, len);
        if let (Some(meter), Some(started)) = (&self.terms.meter, started) {
            meter.record(None, 0, started.elapsed(), false);
        }
        true
    }
}

fn error_of(fault: Fault, form: NbdReplyForm) -> NbdError {
    match (fault, form) {
        // The only request that may be answered so.
        (Fault::NotSupported, NbdReplyForm::FastZero) => NbdError::NotSup,
        (Fault::Busy, _) => NbdError::NoMem,
        (fault, _) => NbdError::from_errno(fault.errno()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn faults_have_the_numbers_that_the_protocol_allows() {
        let whole = NbdReplyForm::Whole { number: 1, length: 512 };
        for form in [NbdReplyForm::Plain, NbdReplyForm::Chunks { offset: 0 }, whole] {
            for (fault, expected) in [
                (Fault::OutOfRange, NbdError::Inval),
                (Fault::Misaligned, NbdError::Inval),
                (Fault::NotSupported, NbdError::Inval),
                (Fault::ReadOnly, NbdError::Perm),
                (Fault::NoSpace, NbdError::NoSpc),
                (Fault::Busy, NbdError::NoMem),
                (Fault::Truncated, NbdError::Io),
                (Fault::Latched, NbdError::Io),
                (Fault::Io(Errno::NOMEM), NbdError::NoMem),
                (Fault::Io(Errno::SHUTDOWN), NbdError::Shutdown),
                (Fault::Io(Errno::NXIO), NbdError::Io),
            ] {
                assert_eq!(error_of(fault, form), expected, "{fault:?}");
            }
        }
        assert_eq!(error_of(Fault::NotSupported, NbdReplyForm::FastZero), NbdError::NotSup);
        assert_eq!(error_of(Fault::NoSpace, NbdReplyForm::FastZero), NbdError::NoSpc);
    }
}
