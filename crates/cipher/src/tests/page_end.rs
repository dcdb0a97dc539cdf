//! No back end reads or writes past its buffers: each ends where an inaccessible page begins, or
//! begins where one ends.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use crate::{CipherSpec, SectorCipher, SectorOptions, XtsBackend};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// At least a page of any Linux, and a multiple of one.
const PAGE: usize = 64 * 1024;

/// A writable page between two that nobody may touch.
struct Fenced(*mut c_void);

impl Fenced {
    fn new() -> Fenced {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice, so no other memory changes.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), 3 * PAGE, access, MapFlags::PRIVATE) };
        let start = start.expect("three pages");
        for fence in [start, start.wrapping_byte_add(2 * PAGE)] {
            // SAFETY: a page of the mapping above, into which nothing points yet.
            unsafe { mprotect(fence, PAGE, MprotectFlags::empty()) }.expect("a fence");
        }
        Fenced(start)
    }

    /// The first or the last `len` bytes of the page.
    fn bytes(&mut self, len: usize, at_end: bool) -> &mut [u8] {
        assert!(len <= PAGE);
        let from = if at_end { 2 * PAGE - len } else { PAGE };
        let start = self.0.wrapping_byte_add(from).cast::<u8>();
        // SAFETY: `len` bytes of the middle page, which is mapped, zeroed by the kernel and
        // accessible as long as `self` lives; the exclusive borrow of `self` makes it the only one.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, and no borrow of it outlives `self`.
        unsafe { munmap(self.0, 3 * PAGE) }.expect("unmapped");
    }
}

fn cipher(backend: XtsBackend, sector_size: u32) -> SectorCipher {
    let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
    let key: Vec<u8> = (0..64).collect();
    let spec = CipherSpec::parse("aes-xts-plain64").expect("a cipher word");
    SectorCipher::with_backend(&spec, &key, options, backend).expect("a cipher")
}

#[test]
fn requests_stay_inside_their_buffers() {
    let mut page = Fenced::new();
    for backend in XtsBackend::available() {
        for (size, sectors) in [(512, 1), (512, 9), (512, 70), (1024, 3), (4096, 1), (4096, 9)] {
            let cipher = cipher(backend, size);
            let len = usize::try_from(size).expect("at most 4096") * sectors;
            for at_end in [false, true] {
                let data = page.bytes(len, at_end);
                data.fill(0x5a);
                cipher.encrypt_in_place(0, data);
                assert!(data.iter().any(|&byte| byte != 0x5a));
                cipher.decrypt_in_place(0, data);
                let back = data.iter().all(|&byte| byte == 0x5a);
                assert!(back, "{backend} {size} {sectors}");
            }
        }
    }
}

#[test]
fn ranges_stay_inside_their_buffers() {
    let mut page = Fenced::new();
    for backend in XtsBackend::available() {
        let cipher = cipher(backend, 4096);
        for len in (16..=1024).step_by(16) {
            for at_end in [false, true] {
                let data = page.bytes(len, at_end);
                data.fill(0x5a);
                cipher.encrypt_range_in_place(4096 + 48, data);
                assert!(data.iter().any(|&byte| byte != 0x5a));
                cipher.decrypt_range_in_place(4096 + 48, data);
                let back = data.iter().all(|&byte| byte == 0x5a);
                assert!(back, "{backend} {len}");
            }
        }
    }
}
