//! One whole message from a descriptor that gives messages: its head, then its data in buffers.

use std::fmt;

use crate::Buffer;

/// Where one message goes: a head of a fixed length, then buffers, which are page-aligned. So the data
/// behind a head can be worked on where it arrives. All its memory is allocated when it is made.
///
/// For [`Io::ReadMessage`](super::Io::ReadMessage).
pub struct ReceiveBatch {
    head: Box<[u8]>,
    buffers: Vec<Buffer>,
    vectors: Vec<libc::iovec>,
    is_event: bool,
}

// SAFETY: the vectors point into the head and the buffers, which the batch owns and which are `Send`; they are
// built anew for each operation.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// A batch for messages whose head has `head` bytes, with room for `buffers` buffers.
    #[must_use]
    pub fn new(head: usize, buffers: usize) -> Box<Self> {
        let buffers = buffers.min(1023);
        Box::new(Self {
            head: vec![0; head].into(),
            buffers: Vec::with_capacity(buffers),
            vectors: Vec::with_capacity(1 + buffers),
            is_event: false,
        })
    }

    /// A batch for the count of an eventfd that other processes hold as well. They can make it one that blocks; it is
    /// not waited for even so.
    #[must_use]
    pub fn for_event() -> Box<Self> {
        let mut batch = Self::new(size_of::<u64>(), 0);
        batch.is_event = true;
        batch
    }

    /// Where the count of an eventfd goes, if it is for one.
    pub(super) fn event(&mut self) -> Option<&mut [u8]> {
        self.is_event.then_some(&mut self.head)
    }

    /// Appends a buffer, all of which may be filled.
    ///
    /// # Panics
    /// Where the batch is full: a caller's bug.
    pub fn push(&mut self, buffer: Buffer) {
        assert!(self.buffers.len() < self.buffers.capacity(), "more buffers than the batch was made for");
        self.buffers.push(buffer);
    }

    /// The head of the message. How much of it has arrived, the result of the operation says.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The buffers, in the order in which they were filled.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Takes the buffers out.
    pub fn take_buffers(&mut self) -> impl ExactSizeIterator<Item = Buffer> + '_ {
        self.buffers.drain(..)
    }

    /// Builds the vectors for `readv`. They stay valid as long as the batch is neither moved out of its box,
    /// changed nor dropped.
    pub(super) fn prepare(&mut self) -> &[libc::iovec] {
        self.vectors.clear();
        let head: &mut [u8] = &mut self.head;
        let parts = self.buffers.iter_mut().map(|buffer| &mut **buffer);
        for bytes in std::iter::once(head).chain(parts) {
            self.vectors.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        }
        &self.vectors
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, buffers) = (self.head.len(), self.buffers.len());
        write!(f, "ReceiveBatch({head} bytes, {buffers} buffers)")
    }
}
