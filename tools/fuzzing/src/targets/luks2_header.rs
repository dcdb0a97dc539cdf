//! LUKS2 headers as they lie on the disk: both copies, damaged or whole.
//!
//! Input: one byte whose bits 0 and 1 say which copies get a fitting checksum, then the first
//! bytes of the disk. The second copy starts where the first one ends.

use crate::{SparseDisk, seal_at, use_header};

/// Bytes of a copy in the seeds: the smallest the format allows.
const COPY: usize = 0x4000;

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((&mode, parts)) = data.split_first() else {
        return;
    };
    // Both copies from one small input: its second half, if it starts a copy, is the second one.
    let mut image = parts.to_vec();
    if let Some(at) = parts.windows(6).position(|window| window == b"SKUL\xba\xbe") {
        image.truncate(at.min(COPY));
        image.resize(COPY, 0);
        image.extend_from_slice(&parts[at..]);
    }
    if mode & 1 != 0 {
        seal_at(&mut image, 0);
    }
    if mode & 2 != 0 {
        seal_at(&mut image, COPY);
    }
    use_header(SparseDisk::new(image, 64 << 20));
}
