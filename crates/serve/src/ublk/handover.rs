//! A device that goes from one server to the next while it is used.
//!
//! ```text
//! quiesce ─► new requests wait in the kernel, idle tags come back
//!            those under way are answered ─► quiesce again ─► the last tags come back ─► lanes end
//!            flush ─► the process ends ─► another recovers the device
//! ```
//!
//! Only that every tag has come back proves that nothing is under way. A lane that has no request may have one all the
//! same, which it sees once it enters the kernel, and an answer that it has queued may not have arrived there. What was
//! not answered is asked again of the next server, and a write that reached the medium after that could undo a later one.
//!
//! ```text
//! in batches: no request is begun ─► those under way are answered ─► the kernel has all answers ─► lanes end
//! ```
//!
//! A device whose commands are for many tags is not quiesced: on Linux 7.3 what is asked of it from then on would fail
//! instead of waiting. There a lane leaves by itself: a request that it has not begun does no harm when it is asked again, and
//! the end of a commit says that the kernel has its answers.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;

use super::abi::QUIESCING;
use super::control::Control;
use super::{Ublk, path};
use crate::device::{AttachError, EndError, flush};

const PAUSE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_secs(1);
/// Looks in a row at which no lane has a request, and the kernel is asked for the rest: it gives back no tag that it
/// still answers.
const LOOKS: u32 = 2;

/// Ability of a device to go to another server while one serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The device can.
    Possible,
    /// This kernel cannot do so.
    UnknownToKernel,
    /// The device was made without that.
    NotOfDevice,
}

/// Tells if the device with this number can go to another server while one serves it.
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
    /// Tells if it can be left to another server.
    #[must_use]
    pub fn can_be_handed_over(&self) -> bool {
        self.can_be_handed_over
    }

    /// Leaves the device to another server: new requests wait for it, and what is under way is answered, as long as that
    /// takes: what a slow medium did only after the next server would do harm. The device stays. The process must end at
    /// once.
    ///
    /// # Errors
    /// Where the last flush failed: what was written lately may be lost.
    pub fn hand_over(mut self, log: impl Fn(&str)) -> Result<(), EndError> {
        if self.in_batches {
            self.leave();
        } else {
            self.come_to_rest(log);
        }
        flush(&self.gate, self.options.backend(), self.options.grace)
    }

    /// Has the lanes end as soon as nothing that they have begun lacks its answer.
    fn leave(&self) {
        self.team.leaves.store(true, Ordering::Release);
        self.team.crew.wake();
        while !self.team.crew.has_ended_within(LOOK) {}
    }

    /// Has the kernel take back all tags, with which the lanes end.
    fn come_to_rest(&mut self, log: impl Fn(&str)) {
        let mut is_told = false;
        loop {
            if let Err(error) = self.quiesce()
                && !is_told
            {
                is_told = true;
                log(&format!("{} does not come to rest: {error}", path(self.id).display()));
            }
            if self.has_ended_before_idle() {
                break;
            }
        }
    }

    /// Has the kernel keep what is asked from now on, and give back the tags for which it has no request.
    fn quiesce(&mut self) -> io::Result<()> {
        match self.control.quiesce(self.id) {
            Err(error) => match Errno::from_io_error(&error) {
                // It waits for an idle tag; there will be one.
                Some(Errno::BUSY | Errno::INTR) => Ok(()),
                _ => {
                    // One that has not answered in time is of no more use.
                    if let Ok(control) = Control::of(self.id) {
                        self.control = control;
                    }
                    Err(error)
                }
            },
            done => done,
        }
    }

    /// Waits until all lanes have ended, as they do without a tag, or seem to have nothing more to answer. Whether they
    /// have ended.
    fn has_ended_before_idle(&mut self) -> bool {
        let mut idle = 0;
        while idle < LOOKS {
            if self.team.crew.has_ended_within(PAUSE) {
                return true;
            }
            let lanes = &self.team.in_hand;
            let is_idle = lanes.iter().all(|count| count.load(Ordering::Acquire) == 0);
            idle = if is_idle { idle + 1 } else { 0 };
        }
        false
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
