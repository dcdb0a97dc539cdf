//! A device that goes from one server to the next while it is used.
//!
//! ```text
//! quiesce ─► new requests wait in the kernel
//!            those under way are answered ─► flush ─► the process ends ─► another recovers the device
//! ```
//!
//! The commands for tags that are answered meanwhile stay with the kernel, which ends them with the process. So this is
//! safe at any moment: what was not answered is asked again of the next server.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use super::abi::QUIESCING;
use super::control::Control;
use super::{Ublk, path};
use crate::device::{AttachError, EndError, flush};

const PAUSE: Duration = Duration::from_millis(20);
/// Looks in a row at which no lane has a request: one may have been on its way.
const LOOKS: u32 = 3;

/// Whether a device can go to another server while one serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// It can.
    Possible,
    /// This kernel cannot do so.
    UnknownToKernel,
    /// The device was made without that.
    NotOfDevice,
}

/// Whether the device with this number can go to another server while one serves it.
///
/// # Errors
/// Where the driver is missing or refuses.
pub fn hand_over_of(id: u32) -> Result<HandOver, AttachError> {
    let mut control = Control::of(id)?;
    let of_device = control.info(id)?.flags;
    Ok(judge(of_device, control.features()?))
}

fn judge(of_device: u64, of_kernel: u64) -> HandOver {
    match (of_device & QUIESCING, of_kernel & QUIESCING) {
        (0, 0) => HandOver::UnknownToKernel,
        (0, _) => HandOver::NotOfDevice,
        _ => HandOver::Possible,
    }
}

impl Ublk {
    /// Whether it can be left to another server.
    #[must_use]
    pub fn can_be_handed_over(&self) -> bool {
        self.can_be_handed_over
    }

    /// Leaves the device to another server: new requests wait for it, and what is under way is answered, as long as that
    /// takes: what a slow medium did only after the next server would do harm. The device stays. The process must end at
    /// once: only with that can another recover the device.
    ///
    /// # Errors
    /// Where the last flush failed: what was written lately may be lost.
    pub fn hand_over(mut self, log: impl Fn(&str)) -> Result<(), EndError> {
        if let Err(error) = self.control.quiesce(self.id) {
            // New requests wait all the same.
            log(&format!(
                "{} does not come to rest: {error}",
                path(self.id).display()
            ));
        }
        let mut idle = 0;
        while idle < LOOKS {
            sleep(PAUSE);
            let lanes = &self.team.in_hand;
            let is_idle = lanes.iter().all(|count| count.load(Ordering::Acquire) == 0);
            idle = if is_idle { idle + 1 } else { 0 };
        }
        flush(&self.gate, self.options.backend())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_goes_to_another_server_only_where_it_was_made_for_that() {
        assert_eq!(judge(QUIESCING | 1, QUIESCING), HandOver::Possible);
        assert_eq!(judge(1, QUIESCING), HandOver::NotOfDevice);
        assert_eq!(judge(1, 1), HandOver::UnknownToKernel);
    }
}
