//! A guest's memory, by hand, for the tests of rings.

use std::os::fd::OwnedFd;

use cryptline_sys::{GuestMemory, GuestRange, GuestRegion};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub(super) const MEMORY: u64 = 1 << 20;
pub(super) const GUEST: u64 = 0x10_0000;
pub(super) const USER: u64 = 0x7000_0000;

pub(super) struct Guest {
    pub file: OwnedFd,
    pub memory: GuestMemory,
    pub bytes: GuestRange,
}

impl Guest {
    pub fn new() -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, MEMORY).unwrap();
        let mut memory = GuestMemory::default();
        let region = GuestRegion { guest: GUEST, user: USER, len: MEMORY, offset: 0 };
        memory.add(region, &file).unwrap();
        let bytes = memory.user_range(USER, 1 << 20).unwrap();
        Self { file, memory, bytes }
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.bytes.write(at.try_into().unwrap(), bytes).unwrap();
    }

    pub fn set16(&self, at: u64, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    pub fn get16(&self, at: u64) -> u16 {
        u16::from_le(self.bytes.load16(at.try_into().unwrap()).unwrap())
    }

    /// A descriptor, which ends with two words that each kind of ring has a use of its own for.
    pub fn describe(&self, at: u64, (address, len): (u64, u32), words: [u16; 2]) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        self.put(at, &bytes);
    }

    pub fn part(&self, at: u64, len: usize) -> GuestRange {
        self.bytes.part(at.try_into().unwrap(), len).unwrap()
    }
}
