//! The driver's commands, by name.

use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cryptline_sys::{UblkControl, UblkDevice};
use rustix::fs::Access;
use rustix::io::Errno;

use super::abi::{DeviceInfo, UNPRIVILEGED, UblkParameters, command};
use super::{NAME, path};
use crate::device::AttachError;

/// For what changes little. On Linux 6.17, adding a device can hang for ever.
const SHORT: Duration = Duration::from_secs(10);
/// For what waits for requests to end: the partition table is read, caches are written.
const LONG: Duration = Duration::from_secs(600);
/// For what waits until nobody has the device open. It goes away as well when that is later.
const DELETION: Duration = Duration::from_secs(5);
/// For requests that are on their way to the server.
const QUIESCING: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Control(UblkControl);

impl Control {
    pub fn open() -> Result<Self, AttachError> {
        let opened = UblkControl::open();
        let opened = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => AttachError::NoDriver(NAME),
            _ => AttachError::at("open /dev/ublk-control")(error),
        });
        opened.map(Self)
    }

    /// The same, for a device that is there.
    pub fn of(id: u32) -> Result<Self, AttachError> {
        let mut control = Self::open()?;
        let found = control.info_of_any(id);
        control.0.name_by_path(match found {
            Ok(info) => is_unprivileged(&info),
            // Kernels before 6.3 do not know the question, and no devices of users.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        });
        Ok(control)
    }

    /// Returns what is known of a device, whoever has made it.
    pub fn info_of_any(&mut self, id: u32) -> io::Result<DeviceInfo> {
        let number = command::GET_INFO_OF_ANY;
        let found = self.run(number, id, 0, vec![0; DeviceInfo::LEN], SHORT)?;
        DeviceInfo::parse(&found).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Kernels before 6.5 do not know the question.
    pub fn features(&mut self) -> Result<u64, AttachError> {
        let step = "ask the ublk driver for its features";
        let found = self.step(step, command::GET_FEATURES, super::abi::ANY, 0, vec![0; 8], SHORT)?;
        Ok(found.first_chunk().map_or(0, |bits| u64::from_ne_bytes(*bits)))
    }

    pub fn add(&mut self, wanted: DeviceInfo) -> Result<DeviceInfo, AttachError> {
        let added = self.run(command::ADD, wanted.id, 0, wanted.to_bytes(), SHORT);
        let added = added.map_err(not_added)?;
        let info = DeviceInfo::parse(&added).ok_or(AttachError::Hangs)?;
        self.0.name_by_path(is_unprivileged(&info));
        Ok(info)
    }

    /// The driver's own words on a device.
    pub fn description(&mut self, id: u32) -> io::Result<Vec<u8>> {
        self.run(command::GET_INFO, id, 0, vec![0; DeviceInfo::LEN], SHORT)
    }

    pub fn info(&mut self, id: u32) -> Result<DeviceInfo, AttachError> {
        let found = self.step("ask for the ublk device", command::GET_INFO, id, 0, vec![0; DeviceInfo::LEN], SHORT)?;
        DeviceInfo::parse(&found).ok_or(AttachError::Different(path(id)))
    }

    /// The process that serves a device, or has served it last: no more than 0 where nobody has. `None` where there is
    /// no such device.
    pub fn server(&mut self, id: u32) -> io::Result<Option<i32>> {
        match self.description(id) {
            Ok(found) => {
                let info = DeviceInfo::parse(&found).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Some(info.pid))
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Size in sectors, and bytes of a logical block.
    pub fn shape(&mut self, id: u32) -> Result<(u64, u32), AttachError> {
        let step = "ask for the ublk device's size";
        let found = self.step(step, command::GET_PARAMETERS, id, 0, UblkParameters::query(), SHORT)?;
        UblkParameters::shape(&found).ok_or(AttachError::Different(path(id)))
    }

    pub fn set_parameters(&mut self, id: u32, parameters: UblkParameters) -> Result<(), AttachError> {
        let step = "set the ublk device's parameters";
        self.step(step, command::SET_PARAMETERS, id, 0, parameters.to_bytes(), SHORT).map(drop)
    }

    /// Opens the device's own side. Its node may have just been made, and be given its rights only now.
    pub fn open_device(&mut self, id: u32) -> Result<UblkDevice, AttachError> {
        insist(
            |error| matches!(error, Errno::NOENT | Errno::ACCESS | Errno::BUSY),
            || UblkDevice::open(&mut self.0, id),
        )
        .map_err(AttachError::at("open the ublk device"))
    }

    /// Returns once all queues serve and the partition table has been read.
    pub fn start(&mut self, id: u32) -> Result<(), AttachError> {
        self.step("start the ublk device", command::START, id, our_pid(), Vec::new(), LONG).map(drop)
    }

    /// The kernel notices late that a server is gone.
    pub fn start_recovery(&mut self, id: u32) -> Result<(), AttachError> {
        insist(|error| error == Errno::BUSY, || self.run(command::START_RECOVERY, id, 0, Vec::new(), SHORT))
            .map(drop)
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => AttachError::InUse(path(id)),
                _ => AttachError::at("recover the ublk device")(error),
            })
    }

    pub fn end_recovery(&mut self, id: u32) -> Result<(), AttachError> {
        self.step("end the ublk device's recovery", command::END_RECOVERY, id, our_pid(), Vec::new(), LONG).map(drop)
    }

    /// Gives a device another size, which its users are told. Some kernels go wrong where the device has just been
    /// stopped, so that is asked first.
    pub fn update_size(&mut self, id: u32, sectors: u64) -> io::Result<()> {
        let found = self.description(id)?;
        if !DeviceInfo::is_live(&found) {
            return Err(Errno::NODEV.into());
        }
        self.run(command::UPDATE_SIZE, id, sectors, Vec::new(), SHORT).map(drop)
    }

    /// From now on, what is asked of the device waits for another server; this one ends what it has been asked.
    pub fn quiesce(&mut self, id: u32) -> io::Result<()> {
        let limit = u64::try_from(QUIESCING.as_millis()).unwrap_or(0);
        self.run(command::QUIESCE, id, limit, Vec::new(), SHORT).map(drop)
    }

    /// Ends once all that is under way has been answered.
    pub fn stop(&mut self, id: u32) -> io::Result<()> {
        self.stop_within(id, LONG)
    }

    pub fn stop_within(&mut self, id: u32, limit: Duration) -> io::Result<()> {
        gone_is_well(self.run(command::STOP, id, 0, Vec::new(), limit))
    }

    pub fn delete(&mut self, id: u32) -> io::Result<()> {
        match self.run(command::DELETE, id, 0, Vec::new(), DELETION) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
            deleted => gone_is_well(deleted),
        }
    }

    /// Does not wait until it has gone.
    pub fn delete_soon(&mut self, id: u32) -> io::Result<()> {
        gone_is_well(self.run(command::DELETE, id, 0, Vec::new(), SOON))
    }

    /// The same as [`run`](Self::run), of a step that an error is to name.
    fn step(
        &mut self,
        step: &'static str,
        number: u32,
        id: u32,
        data: u64,
        payload: Vec<u8>,
        limit: Duration,
    ) -> Result<Vec<u8>, AttachError> {
        self.run(number, id, data, payload, limit).map_err(AttachError::at(step))
    }

    fn run(&mut self, number: u32, id: u32, data: u64, payload: Vec<u8>, limit: Duration) -> io::Result<Vec<u8>> {
        self.0.command(number, id, data, payload, limit)
    }
}

/// Tells if a user without privileges has made a device.
pub(super) fn is_unprivileged(info: &DeviceInfo) -> bool {
    info.flags & UNPRIVILEGED != 0
}

/// Waits until a device's node may be used: whoever looks after nodes gives it to its user only now.
pub(super) fn wait_for_node(node: &Path) -> Result<(), AttachError> {
    insist(
        |error| matches!(error, Errno::NOENT | Errno::ACCESS | Errno::PERM),
        || Ok(rustix::fs::access(node, Access::READ_OK | Access::WRITE_OK)?),
    )
    .map_err(|_| AttachError::NotGiven(node.to_owned()))
}

/// Why there is no new device.
fn not_added(error: io::Error) -> AttachError {
    match Errno::from_io_error(&error) {
        _ if error.kind() == io::ErrorKind::TimedOut => AttachError::Hangs,
        Some(Errno::ACCESS) => AttachError::TooMany,
        _ => AttachError::at("add a ublk device")(error),
    }
}

fn our_pid() -> u64 {
    std::process::id().into()
}

fn gone_is_well(done: io::Result<Vec<u8>>) -> io::Result<()> {
    match done {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
        done => done.map(drop),
    }
}

/// Tries again for a while where it was too early.
fn insist<T>(is_early: impl Fn(Errno) -> bool, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + SHORT;
    loop {
        match attempt() {
            Err(error) if Errno::from_io_error(&error).is_some_and(&is_early) && Instant::now() < deadline => {
                sleep(PAUSE);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_never_answers_for_a_new_device_is_named() {
        let said = |error: io::Error| not_added(error).to_string();
        let hangs = said(io::ErrorKind::TimedOut.into());
        assert!(hangs.contains("6.17"), "{hangs}");
        for other in [Errno::ACCESS, Errno::NOMEM] {
            let other = said(other.into());
            assert!(!other.contains("6.17"), "{other}");
        }
    }
}
