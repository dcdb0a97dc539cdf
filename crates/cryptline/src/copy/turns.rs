//! Chunks of a source that are read at the same time, and are wanted one after another.

use std::collections::VecDeque;

use cryptline_engine::Buffer;

/// Chunks that are begun, in the order of the source.
pub(super) struct Turns(VecDeque<ChunkTurn>);

enum ChunkTurn {
    /// Still to be read.
    Awaited {
        offset: u64,
    },
    Here(OrderedChunk),
}

/// A chunk whose turn it is.
pub(super) enum OrderedChunk {
    Read {
        offset: u64,
        buffer: Buffer,
    },
    /// So many bytes that are known to be zeros, or were taken care of.
    Zeros(usize),
}

impl Turns {
    /// None yet, and room for so many.
    pub fn with_capacity(count: usize) -> Self {
        Self(VecDeque::with_capacity(count))
    }

    /// Chunks that are begun and not taken.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells if all were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a chunk that is being read.
    pub fn begin(&mut self, offset: u64) {
        self.0.push_back(ChunkTurn::Awaited { offset });
    }

    /// Adds zeros.
    pub fn add_zeros(&mut self, len: usize) {
        self.0.push_back(ChunkTurn::Here(OrderedChunk::Zeros(len)));
    }

    /// Notes that a chunk was read.
    ///
    /// # Panics
    /// Where it was not begun.
    pub fn arrived(&mut self, offset: u64, buffer: Buffer) {
        let is_it = |turn: &&mut ChunkTurn| matches!(turn, ChunkTurn::Awaited { offset: it } if *it == offset);
        let turn = self.0.iter_mut().find(is_it).expect("it was noted when it was submitted");
        *turn = ChunkTurn::Here(OrderedChunk::Read { offset, buffer });
    }

    /// Takes the next chunk, if it is there.
    pub fn take(&mut self) -> Option<OrderedChunk> {
        match self.0.pop_front()? {
            ChunkTurn::Here(chunk) => Some(chunk),
            awaited @ ChunkTurn::Awaited { .. } => {
                self.0.push_front(awaited);
                None
            }
        }
    }
}
