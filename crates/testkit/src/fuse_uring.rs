//! The switch of FUSE over io_uring, which is the whole machine's: on while a test uses it.
//!
//! Tests that use it at the same time share a lock. The last one leaves the switch as the first one found it, and a
//! test does that for one that was killed.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::peer::{skip, skip_everywhere};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Is there while the switch is on and was off. Gone with the machine's next start, as the switch is off.
const WAS_OFF: &str = "/run/cryptline-tests-enable-uring-was-off";

/// The kernel offers it, as long as this lives.
pub struct Enabled {
    switch: File,
}

impl Enabled {
    /// `None` where the kernel has no such thing or does not let us; that is said.
    #[must_use]
    pub fn here() -> Option<Self> {
        let switch = match locked(FlockOperation::LockShared) {
            Ok(switch) => switch,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                skip_everywhere("Linux 6.14 is needed for FUSE over io_uring");
                return None;
            }
            Err(error) => {
                skip(&format!("{SWITCH} cannot be used: {error}"));
                return None;
            }
        };
        let enabled = Self { switch };
        if let Err(error) = switch_on() {
            skip(&format!("FUSE over io_uring cannot be enabled: {error}"));
            return None;
        }
        Some(enabled)
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let alone = FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&self.switch, alone).is_ok() {
            restore();
        }
    }
}

/// The kernel does not offer it, as long as this lives.
pub struct Disabled {
    _switch: Option<File>,
    was_on: bool,
}

impl Disabled {
    /// `None` where we are not let to switch it off; that is said.
    #[must_use]
    pub fn here() -> Option<Self> {
        let switch = match locked(FlockOperation::LockExclusive) {
            Ok(switch) => Some(switch),
            // No kernel that offers it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                skip(&format!("{SWITCH} cannot be used: {error}"));
                return None;
            }
        };
        restore();
        let was_on = switch.is_some() && is_on();
        if was_on && let Err(error) = fs::write(SWITCH, "0") {
            skip(&format!("FUSE over io_uring cannot be disabled: {error}"));
            return None;
        }
        Some(Self { _switch: switch, was_on })
    }
}

impl Drop for Disabled {
    fn drop(&mut self) {
        if self.was_on {
            let _ = fs::write(SWITCH, "1");
        }
    }
}

fn locked(how: FlockOperation) -> io::Result<File> {
    let switch = File::open(SWITCH)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&switch, how))?;
    Ok(switch)
}

fn is_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|it| it.trim() == "Y")
}

fn switch_on() -> io::Result<()> {
    if is_on() {
        return Ok(());
    }
    // First: a test that is killed in between leaves no switch on that nobody knows of.
    fs::write(WAS_OFF, "")?;
    fs::write(SWITCH, "1")
}

/// For whoever has the lock alone.
fn restore() {
    if Path::new(WAS_OFF).exists() && fs::write(SWITCH, "0").is_ok() {
        let _ = fs::remove_file(WAS_OFF);
    }
}
