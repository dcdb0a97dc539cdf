//! Devices that `attach` has made, that nobody serves, and of which nothing is known any more.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use cryptline_serve::ublk;

use super::state::DeviceRecord;

/// One of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanRecord {
    /// Its path, which need not be there.
    pub device: PathBuf,
    /// Its number.
    pub id: u32,
    /// Bytes, where that is known.
    pub size: Option<u64>,
}

/// All of them, but those that are known. Where the driver does not tell, as of devices of other users, it is none.
/// `known` is asked for after the devices: one that is being made becomes known at once.
pub fn all(known: impl FnOnce() -> Vec<DeviceRecord>) -> (Vec<DeviceRecord>, Vec<OrphanRecord>) {
    let numbers = ublk::all();
    let known = known();
    let paths: HashSet<_> = known.iter().map(|state| state.device.clone()).collect();
    let unknown = numbers.into_iter().filter(|&id| !paths.contains(&ublk::path(id)));
    let orphans = unknown.filter_map(of_number).collect();
    (known, orphans)
}

/// The one of this path, of which nothing is known.
pub fn of(device: &Path) -> Option<OrphanRecord> {
    let device = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    let all = ublk::all().into_iter();
    let mut named = all.filter(|&id| ublk::path(id) == device);
    named.next().and_then(of_number)
}

fn of_number(id: u32) -> Option<OrphanRecord> {
    let found = ublk::orphan(id).ok().flatten()?;
    let (device, size) = (ublk::path(id), found.size);
    Some(OrphanRecord { device, id, size })
}
