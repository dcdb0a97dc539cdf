//! Devices of this program that nobody serves.
//!
//! A server that is killed can leave a device behind of which nothing is known any more: a container takes what it
//! kept with it, or its end comes before it has kept anything. The driver knows whose a device is: servers mark theirs
//! when they make them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use super::abi::DeviceInfo;
use super::control::Control;

/// A device that nobody serves, or nobody serves yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its number.
    pub id: u32,
    /// Bytes, where its server came so far as to say.
    pub size: Option<u64>,
}

/// Where the kernel lists devices by their own sides, which are there before and after the block device.
const FOLDER: &str = "/sys/class/ublk-char";

/// The numbers of all devices that there are, whoever made them.
#[must_use]
pub fn all() -> Vec<u32> {
    all_in(Path::new(FOLDER))
}

fn all_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| number(&entry.file_name())).collect();
    found.sort_unstable();
    found
}

fn number(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("ublkc")?.parse().ok()
}

/// Returns what a device is, where this program made it and nobody serves it. One that is being made looks like that
/// for a moment.
///
/// # Errors
/// Where that cannot be known, as of devices of other users.
pub fn orphan(id: u32) -> io::Result<Option<Orphan>> {
    let mut control = Control::of(id).map_err(super::system)?;
    let found = control.description(id)?;
    if !DeviceInfo::is_ours(&found) || DeviceInfo::is_live(&found) {
        return Ok(None);
    }
    // A device has no shape yet where its server was killed early.
    let shape = control.shape(id).ok();
    let size = shape.map(|(sectors, _)| sectors.saturating_mul(512));
    Ok(Some(Orphan { id, size: size.filter(|&bytes| bytes > 0) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_the_names_of_their_own_sides() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ublkc10", "ublkc2", "ublkc", "ublkb3", "ublkcx"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(all_in(folder.path()), [2, 10]);
        assert!(all_in(&folder.path().join("none")).is_empty());
    }
}
