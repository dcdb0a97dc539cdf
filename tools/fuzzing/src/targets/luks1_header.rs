//! LUKS1 headers, and the detection of versions, on disks of any size.
//!
//! Input: 4 bytes for the disk's size in units of 4 KiB, then the disk's first bytes.

use crate::{Disk, use_header};

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((units, head)) = data.split_first_chunk::<4>() else {
        return;
    };
    let size = u64::from(u32::from_be_bytes(*units)) * 4096;
    use_header(Disk::new(head.to_vec(), size));
}
