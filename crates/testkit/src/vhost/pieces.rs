//! How the bytes of a request are cut into segments: differently from one to the next.

use super::{GUEST, NEXT, Piece, SEGMENT, SHARED};

/// The descriptors of one request.
pub struct Pieces {
    pub list: Vec<Piece>,
    cut: u32,
}

impl Pieces {
    pub fn new(cut: u32) -> Self {
        Self { list: Vec::with_capacity(200), cut }
    }

    /// Cuts `len` bytes at `at` into segments.
    pub fn push(&mut self, at: u64, len: u64, flags: u16) {
        let most = match self.cut % 4 {
            // Whole.
            0 => SEGMENT,
            // A header in three pieces, and data in up to a hundred.
            1 => (len / 100).max(7),
            2 => (len / 3).next_multiple_of(512).max(9),
            _ => (len / 40).max(1000),
        };
        let mut done = 0;
        while done < len {
            let here = (len - done).min(most).min(SEGMENT);
            let address = GUEST + at + if len > SHARED { 0 } else { done };
            let len = u32::try_from(here).expect("small");
            match self.list.last_mut() {
                // What touches shares a segment now and then.
                Some(last)
                    if self.cut.is_multiple_of(4)
                        && last.flags == flags
                        && last.address + u64::from(last.len) == address =>
                {
                    last.len += len;
                }
                _ => self.list.push(Piece { address, len, flags, next: 0 }),
            }
            done += here;
        }
    }

    pub fn link(&mut self) -> usize {
        let count = self.list.len();
        for (next, piece) in (1..).zip(&mut self.list[..count - 1]) {
            piece.flags |= NEXT;
            piece.next = next;
        }
        count
    }
}
