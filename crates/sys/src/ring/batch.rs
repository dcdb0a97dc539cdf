//! Many replies in one `sendmsg`: headers and payload buffers, in order.

use std::fmt;

use crate::Buffer;

enum BatchPart {
    /// A range of the batch's own header bytes.
    Header {
        start: usize,
        len: usize,
    },
    Payload {
        buffer: Buffer,
        start: usize,
        len: usize,
    },
}

impl BatchPart {
    fn len(&self) -> usize {
        match self {
            Self::Header { len, .. } | Self::Payload { len, .. } => *len,
        }
    }
}

/// An ordered list of bytes to send; owns the payload buffers until they are sent. Its tables grow
/// to what was ever in it at a time, and it has bounds for that.
pub struct SendBatch {
    header_bytes_max: usize,
    parts_max: usize,
    headers: Vec<u8>,
    parts: Vec<BatchPart>,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
    total: usize,
    sent: usize,
}

// SAFETY: `message` and `vectors` hold the only pointers. They point to memory of the parts and of `vectors`, all of which
// the batch owns and takes along; nothing here dereferences them, and `prepare` makes them again before the kernel sees
// them. Nobody else has them meanwhile: a batch in a ring is the ring's alone until it comes back.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// A batch for at most `header_bytes` of headers and `parts` pieces (1024 at most: the
    /// kernel's `UIO_MAXIOV`).
    #[must_use]
    pub fn new(header_bytes: usize, parts: usize) -> Box<Self> {
        Box::new(Self {
            header_bytes_max: header_bytes,
            parts_max: parts.min(1024),
            headers: Vec::new(),
            parts: Vec::new(),
            vectors: Vec::new(),
            // SAFETY: `msghdr` is a plain C structure for which all-zero bytes are valid.
            message: unsafe { std::mem::zeroed() },
            total: 0,
            sent: 0,
        })
    }

    /// Tells if `header_bytes` more bytes of headers in `parts` more pieces fit.
    #[must_use]
    pub fn has_room(&self, header_bytes: usize, parts: usize) -> bool {
        self.headers.len() + header_bytes <= self.header_bytes_max && self.parts.len() + parts <= self.parts_max
    }

    /// Appends a copy of `bytes`. The caller has asked [`has_room`](Self::has_room).
    pub fn push_header(&mut self, bytes: &[u8]) {
        debug_assert!(self.has_room(bytes.len(), 1));
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        self.total += bytes.len();
        match self.parts.last_mut() {
            Some(BatchPart::Header { len, .. }) => *len += bytes.len(),
            _ => self.parts.push(BatchPart::Header { start, len: bytes.len() }),
        }
    }

    /// Appends `buffer[start..start + len]`.
    ///
    /// # Panics
    /// Where the range leaves the buffer.
    pub fn push_payload(&mut self, buffer: Buffer, start: usize, len: usize) {
        debug_assert!(self.has_room(0, 1));
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= buffer.len()), "payload outside its buffer");
        self.total += len;
        self.parts.push(BatchPart::Payload { buffer, start, len });
    }

    /// Bytes not yet sent.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.total - self.sent
    }

    /// Notes that `len` more bytes are sent; once all are, the payload buffers are freed and the
    /// batch is empty again. Returns whether all are sent.
    pub fn advance(&mut self, len: usize) -> bool {
        self.sent = (self.sent + len).min(self.total);
        if self.sent < self.total {
            return false;
        }
        self.clear();
        true
    }

    /// Notes that `len` more bytes are sent. Whether all are; the payload buffers stay until
    /// [`pop_payload`](Self::pop_payload) takes them.
    pub fn note_sent(&mut self, len: usize) -> bool {
        self.sent = (self.sent + len).min(self.total);
        self.sent == self.total
    }

    /// Takes the last payload buffer out, sent or not. The batch is empty once there is none.
    pub fn pop_payload(&mut self) -> Option<Buffer> {
        while let Some(part) = self.parts.pop() {
            if let BatchPart::Payload { buffer, .. } = part {
                return Some(buffer);
            }
        }
        self.clear();
        None
    }

    /// Drops everything, sent or not.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.headers.clear();
        self.vectors.clear();
        (self.total, self.sent) = (0, 0);
    }

    /// Returns the bytes left to send, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.sent;
        self.parts.iter().filter_map(move |part| {
            let bytes = match part {
                BatchPart::Header { start, len } => &self.headers[*start..start + len],
                BatchPart::Payload { buffer, start, len } => &buffer[*start..start + len],
            };
            let skipped = skip.min(part.len());
            skip -= skipped;
            (skipped < bytes.len()).then(|| &bytes[skipped..])
        })
    }

    /// Builds the message for `sendmsg`. The pointer and all it points to stay valid as long as
    /// the batch is neither moved out of its box, changed nor dropped.
    pub(super) fn prepare(&mut self) -> *const libc::msghdr {
        self.message.msg_iovlen = self.vectors().len() as _;
        self.message.msg_iov = self.vectors.as_mut_ptr();
        &raw const self.message
    }

    /// The vectors of what is left to send, which stay valid just as long.
    pub(super) fn vectors(&mut self) -> &[libc::iovec] {
        let mut vectors = std::mem::take(&mut self.vectors);
        vectors.clear();
        vectors.extend(
            self.pieces().map(|bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }),
        );
        self.vectors = vectors;
        &self.vectors
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBatch({} of {} bytes sent)", self.sent, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(batch: &SendBatch) -> Vec<u8> {
        batch.pieces().flatten().copied().collect()
    }

    #[test]
    fn pieces_go_on_where_a_short_send_stopped() {
        let mut batch = SendBatch::new(64, 8);
        let mut buffer = Buffer::alloc(4).unwrap();
        buffer.copy_from_slice(b"cdef");
        batch.push_header(b"a");
        batch.push_header(b"b");
        batch.push_payload(buffer, 0, 4);
        batch.push_header(b"gh");
        assert_eq!(rest(&batch), b"abcdefgh");
        assert!(!batch.advance(3));
        assert_eq!(rest(&batch), b"defgh");
        assert!(!batch.advance(3));
        assert_eq!(rest(&batch), b"gh");
        assert!(batch.advance(2));
        assert_eq!(batch.remaining(), 0);
        assert!(batch.has_room(64, 8) && !batch.has_room(65, 8) && !batch.has_room(64, 9));
    }

    #[test]
    fn payload_buffers_come_back_the_last_first() {
        let mut batch = SendBatch::new(64, 8);
        for (len, mark) in [(1, b'x'), (3, b'y')] {
            let mut buffer = Buffer::alloc(len).unwrap();
            buffer.fill(mark);
            batch.push_header(b"-");
            batch.push_payload(buffer, 0, len);
        }
        assert!(!batch.note_sent(5));
        assert_eq!(rest(&batch), b"y");
        assert!(batch.note_sent(1));
        let back = std::iter::from_fn(|| batch.pop_payload()).map(|buffer| buffer.to_vec());
        assert_eq!(back.collect::<Vec<_>>(), [b"yyy".to_vec(), b"x".to_vec()]);
        assert_eq!(batch.remaining(), 0);
        assert!(batch.has_room(64, 8));
    }
}
