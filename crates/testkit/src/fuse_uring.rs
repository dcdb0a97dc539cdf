//! The switch of FUSE over io_uring, which is the whole machine's: on while a test uses it.

use std::fs::{self, File};

use rustix::fs::FlockOperation;

use crate::peer::skip;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers it, as long as this lives.
pub struct Enabled {
    switch: File,
    was_off: bool,
}

impl Enabled {
    /// `None` where the kernel has no such thing or does not let us; that is said.
    #[must_use]
    pub fn here() -> Option<Self> {
        let switch = File::open(SWITCH);
        let Ok(switch) = switch else {
            skip("Linux 6.14 is needed for FUSE over io_uring");
            return None;
        };
        // Other tests may use it at the same time: the last one leaves it as it was.
        rustix::fs::flock(&switch, FlockOperation::LockShared).ok()?;
        let was_off = fs::read_to_string(SWITCH).is_ok_and(|it| it.trim() == "N");
        if was_off && fs::write(SWITCH, "1").is_err() {
            skip("FUSE over io_uring is off, and only root can enable it");
            return None;
        }
        Some(Self { switch, was_off })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let alone = FlockOperation::NonBlockingLockExclusive;
        if self.was_off && rustix::fs::flock(&self.switch, alone).is_ok() {
            let _ = fs::write(SWITCH, "0");
        }
    }
}
