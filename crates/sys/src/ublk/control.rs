//! Commands to the ublk driver itself: one at a time, waited for.
//!
//! Without CAP_SYS_ADMIN the driver makes devices that it trusts with less, and each command then names the node of the
//! device, whose rights the driver looks at. A server tries the privileged way first; whoever meets a device asks the
//! driver which kind it is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use super::{code, read_code};

/// Bytes of the command in its entry, and of those that ublk uses.
const COMMAND: usize = 80;
const HEADER: u32 = 32;
/// The number of the command that lists features; it and those that describe a device change nothing.
const READING: [u32; 5] = [0x01, 0x02, 0x09, 0x12, 0x13];
/// Those of no device that is there: the one that adds one, and the one that lists features.
const OF_NO_DEVICE: [u32; 2] = [0x04, 0x13];
/// Describes a device whoever it is of.
const DESCRIBE_ANY: u32 = 0x12;

/// How long to wait before a command is tried again.
const PAUSE: Duration = Duration::from_millis(1);

type ControlRing = IoUring<Entry128, cqueue::Entry>;

/// A way to the driver.
///
/// A command that did not end in time keeps this from being used again: the driver is still busy with it.
pub struct UblkControl {
    file: File,
    ring: Option<Box<ControlRing>>,
    by_path: bool,
}

impl UblkControl {
    /// Opens `/dev/ublk-control`.
    pub fn open() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/ublk-control")?;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder().build(4)?;
        Ok(Self { file, ring: Some(Box::new(ring)), by_path: false })
    }

    /// Sets whether commands name the node of their device as well. They must where a user without privileges has made
    /// it: the driver then asks for that node's rights instead of `CAP_SYS_ADMIN`.
    pub fn name_by_path(&mut self, by_path: bool) {
        self.by_path = by_path;
    }

    /// The path that a command begins its payload with, which may be none.
    fn path_for(&self, number: u32, id: u32) -> String {
        let is_named = self.by_path && !OF_NO_DEVICE.contains(&number);
        if is_named || number == DESCRIBE_ANY { super::node(id) } else { String::new() }
    }

    /// Carries out the command of this number on device `id`, and gives back the payload with what the driver
    /// has put there. A payload of no bytes is none.
    ///
    /// # Errors
    /// The driver's error; [`TimedOut`](io::ErrorKind::TimedOut) where it has said nothing in time.
    pub fn command(
        &mut self,
        number: u32,
        id: u32,
        data: u64,
        payload: Vec<u8>,
        limit: Duration,
    ) -> io::Result<Vec<u8>> {
        let mut ring = self.ring.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let path = self.path_for(number, id);
        let mut payload = [path.as_bytes(), &payload].concat().into_boxed_slice();
        let too_long = |_| io::ErrorKind::InvalidInput;
        let len = u16::try_from(payload.len()).map_err(too_long)?;
        let path_len = u16::try_from(path.len()).map_err(too_long)?;
        let address = match len {
            0 => 0,
            _ => payload.as_mut_ptr().expose_provenance() as u64,
        };
        let command = header(id, (len, path_len), address, data);
        let code = if READING.contains(&number) { read_code(number, HEADER) } else { code(number, HEADER) };
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), code).cmd(command).build();
        // SAFETY: the payload is on the heap and neither moved nor looked at before the command has ended, or else
        // leaked with the ring; the driver keeps to its length, which it is told. The file outlives the ring's use
        // of it: the kernel has a hold of its own on it.
        match unsafe { carry_out(&mut ring, &entry, limit) } {
            Ok(result) => {
                self.ring = Some(ring);
                match u32::try_from(result) {
                    Ok(_) => Ok(payload.into_vec().split_off(path.len())),
                    Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
                }
            }
            Err(error) => {
                // Whatever the driver does with it later must hit nothing else. Closing the ring would wait.
                std::mem::forget((ring, payload));
                Err(error)
            }
        }
    }
}

/// `struct ublksrv_ctrl_cmd`, with the lengths of the payload and of the path that it begins with.
fn header(id: u32, (len, path_len): (u16, u16), address: u64, data: u64) -> [u8; COMMAND] {
    let mut command = [0; COMMAND];
    command[0..4].copy_from_slice(&id.to_ne_bytes());
    // No queue in particular.
    command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    command[6..8].copy_from_slice(&len.to_ne_bytes());
    command[8..16].copy_from_slice(&address.to_ne_bytes());
    command[16..24].copy_from_slice(&data.to_ne_bytes());
    command[24..26].copy_from_slice(&path_len.to_ne_bytes());
    command
}

/// Submits a command until it has begun, and waits for its result. The driver sleeps, so it is called by a thread of the
/// kernel's, and the kernel gives back as cancelled what it could make no thread for.
///
/// # Safety
/// The memory that the entry points to and its descriptor stay as they are until it has ended: also after an error,
/// which says that it has not.
unsafe fn carry_out(ring: &mut ControlRing, entry: &Entry128, limit: Duration) -> io::Result<i32> {
    let deadline = Instant::now() + limit;
    loop {
        // SAFETY: the caller's promise.
        unsafe { ring.submission().push(entry) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
        match wait(ring, deadline)? {
            cancelled if cancelled == -libc::ECANCELED && Instant::now() < deadline => std::thread::sleep(PAUSE),
            result => return Ok(result),
        }
    }
}

/// Submits what is queued and waits for its one result.
fn wait(ring: &mut ControlRing, deadline: Instant) -> io::Result<i32> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = types::Timespec::from(left);
        let arguments = types::SubmitArgs::new().timespec(&left);
        let entered = ring.submitter().submit_with_args(1, &arguments);
        if let Some(entry) = ring.completion().next() {
            return Ok(entry.result());
        }
        match entered {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ETIME) => return Err(io::ErrorKind::TimedOut.into()),
                _ => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few_threads::without_threads;

    #[test]
    fn command_is_laid_out_as_the_kernel_has_it() {
        let command = header(7, (64, 11), 0x1122_3344_5566_7788, 42);
        assert_eq!(command[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(u64::from_ne_bytes(command[8..16].try_into().unwrap()), 0x1122_3344_5566_7788);
        assert_eq!(command[16], 42);
        assert_eq!(command[17..26], [0, 0, 0, 0, 0, 0, 0, 11, 0]);
        assert!(command[26..].iter().all(|&byte| byte == 0));
        // UBLK_U_CMD_ADD_DEV and UBLK_U_CMD_GET_DEV_INFO.
        assert_eq!(code(0x04, HEADER), 0xc020_7504);
        assert_eq!(read_code(0x02, HEADER), 0x8020_7502);
    }

    #[test]
    fn driver_that_says_nothing_is_not_waited_for_longer_than_the_limit() {
        let Ok(mut ring) = IoUring::<Entry128, cqueue::Entry>::builder().build(4) else {
            return crate::skip("there is no io_uring");
        };
        for limit in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(wait(&mut ring, Instant::now() + limit).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }

    /// A sync stands for a command: both wait for a thread.
    #[test]
    fn command_that_no_thread_could_be_made_for_is_tried_until_one_can() {
        let file = tempfile::tempfile().unwrap();
        without_threads(move |scarce| {
            let Ok(mut ring) = IoUring::<Entry128, cqueue::Entry>::builder().build(4) else {
                return crate::skip("there is no io_uring");
            };
            let entry = Entry128::from(opcode::Fsync::new(types::Fd(file.as_raw_fd())).build());
            scarce.ends_soon();
            // SAFETY: the entry points to nothing, and the file is open until the end of this test.
            let carried_out = unsafe { carry_out(&mut ring, &entry, Duration::from_secs(100)) };
            assert_eq!(carried_out.unwrap(), 0);
        });
    }

    #[test]
    fn node_is_named_for_users_devices_and_where_that_is_not_known() {
        let file = File::open("/dev/null").unwrap();
        let ring = None;
        let mut control = UblkControl { file, ring, by_path: false };
        assert_eq!(control.path_for(0x05, 3), "");
        assert_eq!(control.path_for(DESCRIBE_ANY, 3), "/dev/ublkc3");
        control.name_by_path(true);
        assert_eq!(control.path_for(0x05, 3), "/dev/ublkc3");
        for number in OF_NO_DEVICE {
            assert_eq!(control.path_for(number, 3), "");
        }
    }
}
