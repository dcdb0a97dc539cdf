//! `detach` of a mount, also one whose server has died.
//!
//! ```text
//! found ─► flushed, server known ─► unmounted ─► its last word ─► its end
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_serve::fuse::{self, LastFlush, MountError, Waiter};
use rustix::io::Errno;

use super::no_server;
use crate::CliError;
use crate::again;
use crate::cmd::mount::{self, holders};

/// How long the server may take for its last flush, and then for its end.
const END_MAX: Duration = Duration::from_secs(60);

/// Tells if a volume is mounted there.
pub fn is_ours(point: &Path) -> bool {
    whole(point).is_ok_and(|point| fuse::identity_at(&point).is_some())
}

/// Unmounts.
///
/// # Errors
/// Exit code 4 where no volume is mounted or not everything is known to be durable, 5 where it is in use.
pub fn unmount(place: &Path, lazy: bool) -> Result<(), CliError> {
    let point = whole(place)?;
    let failed = |error| of_mount(place, &error);
    let identity = fuse::identity_at(&point).ok_or_else(|| failed(MountError::NotMounted))?;
    let server = (!lazy).then(|| MountOwner::ask(&point));
    fuse::unmount(&point, lazy, Some(&identity)).map_err(failed)?;
    server.map_or(Ok(()), MountOwner::wait).map_err(|text| {
        CliError::device(format!(
            "{}: unmounted, but {text}; what was written since the last good flush may be lost",
            place.display()
        ))
    })
}

/// For a server that has ended; nobody hears why it fails.
///
/// # Errors
/// Exit code 4 where there is no such folder.
pub fn unmount_at_end_of_input(place: &Path) -> Result<(), CliError> {
    let point = &whole(place)?;
    let mut server = again::server_of_companion().map_err(no_server)?;
    let identity = again::wait_for_end(&server);
    let mut ended = fuse::unmount(point, false, Some(&identity));
    if let Err(MountError::Busy | MountError::Helper(_)) = ended {
        // It will be gone when nobody uses it.
        ended = fuse::unmount(point, true, Some(&identity));
    }
    if let Ok(()) | Err(MountError::NotMounted) = ended {
        // Where the server is gone, nobody needs to know.
        let _ = server.write_all(mount::UNMOUNTED);
    }
    Ok(())
}

/// The server of a mount, which tells nobody else how its last flush went.
struct MountOwner {
    /// `None` where it cannot be asked.
    waiter: Option<Waiter>,
    /// How the flush went that comes before its last.
    flushed: io::Result<()>,
}

impl MountOwner {
    /// Has it flush what is mounted over `point`.
    fn ask(point: &Path) -> Self {
        let mut server = Self { waiter: None, flushed: Ok(()) };
        match files_of(point) {
            Ok(files) => files.iter().for_each(|file| server.flush(file)),
            Err(error) => server.flushed = Err(error),
        }
        server
    }

    fn flush(&mut self, file: &Path) {
        let flushed = File::open(file).and_then(|file| {
            let asked = match &self.waiter {
                Some(_) => Ok(()),
                None => Waiter::new(&file).map(|waiter| self.waiter = Some(waiter)),
            };
            cryptline_sys::sync_all(&file).and(asked)
        });
        // The first failure is told.
        if self.flushed.is_ok() {
            self.flushed = flushed;
        }
    }

    /// Waits for its end; otherwise why not everything is known to be durable.
    fn wait(self) -> Result<(), String> {
        let last = self.waiter.map(|waiter| waiter.wait(END_MAX));
        match (self.flushed, last) {
            // Its flushes were true, but nobody knows how the last one went.
            (Err(error), None) if is_without_server(&error) => Err("its server had died".to_owned()),
            (Err(error), _) => Err(format!("the flush before failed ({error})")),
            (Ok(()), Some(LastFlush::Worked)) => Ok(()),
            (Ok(()), Some(LastFlush::Failed)) => Err("the last flush failed".to_owned()),
            (Ok(()), Some(LastFlush::Unknown(error))) => {
                Err(format!("whether the last flush worked is not known ({error})"))
            }
            (Ok(()), None) => Err("whether the last flush worked is not known".to_owned()),
        }
    }
}

fn files_of(point: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(point)?.is_dir() {
        return Ok(vec![point.to_owned()]);
    }
    fs::read_dir(point)?.map(|entry| Ok(entry?.path())).collect()
}

fn is_without_server(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::NOTCONN, Errno::CONNABORTED].contains(&errno))
}

/// Describes what went wrong at a mount point, and what to do.
pub fn of_mount(point: &Path, error: &MountError) -> CliError {
    let text = format!("{}: {error}", point.display());
    match error {
        MountError::NoDevice(_) => CliError::parameters(format!(
            "{text}; load the kernel's fuse module, or give the container /dev/fuse; `cryptline serve` needs neither"
        )),
        MountError::NoHelper => CliError::parameters(format!("{text}; install the package fuse3, or run it as root")),
        MountError::Helper(_) => CliError::parameters(text),
        MountError::System(_) | MountError::NotMounted => CliError::device(text),
        MountError::Moved => CliError::busy(format!("{text}; try again")),
        MountError::Busy => {
            let holders = whole(point).ok().and_then(|point| holders::of(&point));
            let by = holders.map_or(String::new(), |holders| format!(" by {holders}"));
            CliError::busy(format!("{text}{by}; close what uses it, or use --lazy"))
        }
    }
}

/// The path from the root, without links. The last part is not looked at: where a server has died, that fails.
fn whole(point: &Path) -> Result<PathBuf, CliError> {
    if let Ok(whole) = fs::canonicalize(point) {
        return Ok(whole);
    }
    let failed = |error| CliError::device(format!("{}: {error}", point.display()));
    let name = point.file_name().map(OsStr::to_owned);
    let folder = match point.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder).map_err(failed)?;
    Ok(name.map_or(folder.clone(), |name| folder.join(name)))
}
