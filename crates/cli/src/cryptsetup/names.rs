//! Names of attached devices: a small file for each beside what is known of the devices, and a link where
//! device-mapper would have its own.
//!
//! ```text
//! /run/cryptline/names/NAME     the mapping; locked while the name is being taken or given up
//! /dev/mapper/NAME              link to the device, made only where nothing has the name, removed only if it is ours
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::CliError;
use crate::attached::state::{self, DeviceRecord};

/// Where device-mapper has its devices.
const MAPPER: &str = "/dev/mapper";
/// Longest name that device-mapper takes, in bytes.
const NAME_MAX: usize = 127;

/// A volume that is attached under a name, as `status` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMapping {
    /// Block device.
    pub device: PathBuf,
    /// The server's process, and when it was started.
    pub pid: u32,
    /// See `pid`.
    pub started: u64,
    /// File or device of the volume.
    pub target: PathBuf,
    /// `LUKS1`, `LUKS2` or `PLAIN`.
    pub kind: String,
    /// The cipher's word.
    pub cipher: String,
    /// Bits of the volume key.
    pub key_bits: u32,
    /// Bytes of a sector that is encrypted as one.
    pub sector_size: u32,
    /// Where the data begins, in sectors of 512 bytes; `None` if that is not known.
    pub offset: Option<u64>,
    /// Set if the data has a length of its own, whatever the device's is.
    pub is_fixed: bool,
    /// Nobody can write to it.
    pub read_only: bool,
    /// Discards reach the volume's device.
    pub discards: bool,
}

impl NamedMapping {
    /// Facts about its device, while that is still this volume's.
    pub fn state(&self) -> Option<DeviceRecord> {
        state::of(&self.device).ok().filter(|now| (now.pid, now.started) == (self.pid, self.started))
    }
}

/// A name, which nobody else takes or gives up while this is kept.
pub struct ClaimedName {
    text: String,
    file: File,
    path: PathBuf,
    mapper: PathBuf,
}

impl ClaimedName {
    /// Takes a name for what will be attached.
    ///
    /// # Errors
    /// Exit code 5 where something has it, or is about to; 1 for what is no name.
    pub fn take(text: &str) -> Result<Self, CliError> {
        check(text)?;
        let taken = || CliError::busy(format!("Device {text} already exists."));
        let name = Self::locked(text, &state::folder(), Path::new(MAPPER))?.ok_or_else(taken)?;
        if let Some(mapping) = name.mapping() {
            if mapping.state().is_some() {
                return Err(taken());
            }
            name.unlink(&mapping.device);
        }
        if fs::symlink_metadata(&name.mapper).is_ok() {
            return Err(taken());
        }
        Ok(name)
    }

    /// Finds a name, or its path under /dev/mapper, for whoever gives it up; `None` where nothing of ours has it.
    ///
    /// # Errors
    /// Exit code 5 where somebody else is about to take it or give it up.
    pub fn find(text: &str) -> Result<Option<(Self, NamedMapping)>, CliError> {
        let text = bare(text);
        if check(text).is_err() || !path_in(&state::folder(), text).exists() {
            return Ok(None);
        }
        let busy = || CliError::busy(format!("Device {text} is busy."));
        let name = Self::locked(text, &state::folder(), Path::new(MAPPER))?.ok_or_else(busy)?;
        let mapping = name.mapping();
        Ok(mapping.map(|mapping| (name, mapping)))
    }

    /// `None` where somebody else has it locked.
    fn locked(text: &str, folder: &Path, mapper: &Path) -> Result<Option<Self>, CliError> {
        let path = path_in(folder, text);
        let failed = |error: io::Error| CliError::device(format!("{}: {error}", path.display()));
        let names = path.parent().unwrap_or(folder);
        loop {
            fs::create_dir_all(names).map_err(failed)?;
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o644);
            let file = match options.open(&path) {
                // The folder was the last name's, which has just been given up.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed(error.into())),
            }
            // Whoever had it may have removed it meanwhile.
            let identity = |of: io::Result<fs::Metadata>| of.map(|it| (it.dev(), it.ino())).ok();
            if identity(file.metadata()) == identity(fs::symlink_metadata(&path)) {
                return Ok(Some(Self { text: text.to_owned(), file, path, mapper: mapper.join(text) }));
            }
        }
    }

    fn mapping(&self) -> Option<NamedMapping> {
        let mut text = String::new();
        let mut file = &self.file;
        file.rewind().ok()?;
        file.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps what has the name, and makes the link.
    ///
    /// # Errors
    /// Exit code 5 where something has the name by now, 4 where there can be no link.
    pub fn give(&self, mapping: &NamedMapping) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::device(format!("{}: {error}", self.mapper.display()));
        let text = serde_json::to_string(mapping).map_err(|error| failed(error.into()))?;
        let mut file = &self.file;
        let kept = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{text}"));
        kept.map_err(failed)?;
        if let Some(folder) = self.mapper.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        symlink(&mapping.device, &self.mapper).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CliError::busy(format!("Device {} already exists.", self.text)),
            _ => failed(error),
        })
    }

    /// Gives the name up, with the link if that is of this device.
    pub fn release(self, device: &Path) {
        self.unlink(device);
        // While it is locked. What stays is taken over by the next.
        let _ = fs::remove_file(&self.path);
        let _ = self.path.parent().map(fs::remove_dir);
    }

    fn unlink(&self, device: &Path) {
        if fs::read_link(&self.mapper).is_ok_and(|to| to == device) {
            let _ = fs::remove_file(&self.mapper);
        }
    }
}

/// Returns what has the name, for whoever only looks.
pub fn look(text: &str) -> Option<NamedMapping> {
    let text = bare(text);
    check(text).ok()?;
    let found = fs::read_to_string(path_in(&state::folder(), text)).ok()?;
    serde_json::from_str(&found).ok()
}

/// The name in a path of device-mapper's.
fn bare(text: &str) -> &str {
    text.strip_prefix(MAPPER).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text)
}

/// Path by which callers know a name.
pub fn path(text: &str) -> String {
    if text.contains('/') { text.to_owned() } else { format!("{MAPPER}/{text}") }
}

fn path_in(folder: &Path, text: &str) -> PathBuf {
    folder.join("names").join(text)
}

fn check(text: &str) -> Result<(), CliError> {
    let is_name = !text.is_empty() && text.len() <= NAME_MAX && !text.contains('/') && !text.starts_with('.');
    if is_name && text != "control" {
        return Ok(());
    }
    Err(CliError::parameters(format!("Device name {text} is not possible; use up to {NAME_MAX} bytes without a slash")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(folder: &Path) -> Option<ClaimedName> {
        ClaimedName::locked("n", folder, &folder.join("mapper")).unwrap()
    }

    #[test]
    fn name_is_one_process_s_at_a_time_and_free_again_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let first = name(folder.path()).unwrap();
        assert!(name(folder.path()).is_none());
        first.release(Path::new("/dev/ublkb0"));
        assert!(!folder.path().join("names/n").exists());
        assert!(name(folder.path()).is_some());
    }

    #[test]
    fn link_is_made_where_nothing_is_and_removed_only_if_it_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("mapper/n");
        let mapping = NamedMapping { device: "/dev/ublkb7".into(), pid: 5, ..NamedMapping::default() };
        let taken = name(folder.path()).unwrap();
        taken.give(&mapping).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), mapping.device);
        assert_eq!(taken.mapping().as_ref(), Some(&mapping));
        let refused = taken.give(&mapping).unwrap_err();
        assert_eq!((refused.exit_code(), refused.to_string().as_str()), (5, "Device n already exists."));
        taken.unlink(Path::new("/dev/ublkb8"));
        assert!(fs::symlink_metadata(&link).is_ok(), "of another device");
        taken.release(&mapping.device);
        assert!(fs::symlink_metadata(&link).is_err());
    }

    #[test]
    fn names_are_device_mapper_s() {
        for text in ["", "a/b", ".", ".hidden", "control", &"n".repeat(128)] {
            assert_eq!(check(text).unwrap_err().exit_code(), 1, "{text}");
        }
        check("luks-3f0c_x.y").unwrap();
        assert_eq!((bare("/dev/mapper/x"), bare("x"), bare("/dev/x")), ("x", "x", "/dev/x"));
        assert_eq!((path("x"), path("/dev/mapper/x")), ("/dev/mapper/x".to_owned(), "/dev/mapper/x".to_owned()));
    }
}
