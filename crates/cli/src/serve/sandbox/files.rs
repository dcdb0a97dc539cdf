//! Landlock: no file can be opened, made or changed by name, no TCP port bound or reached. What
//! the server made in the file system may be removed, and nothing else but what lies beside it and below:
//! Linux knows that right for folders only.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

use crate::serve::cleanup::folder_of;

/// The newest version of Landlock whose rights we know and have looked at. Older kernels get
/// what they can enforce.
const NEWEST: ABI = ABI::V9;

/// What a confined thread may do with names.
#[derive(Debug, Default)]
pub struct Allowed {
    /// Files and sockets to remove.
    pub files: Vec<PathBuf>,
    /// Empty folders to remove.
    pub folders: Vec<PathBuf>,
    /// A process outside must be signalled.
    pub signals: bool,
    /// TCP ports elsewhere may be reached.
    pub connections: bool,
}

/// A ruleset that allows this, to be applied to threads.
pub fn ruleset(allowed: &Allowed) -> io::Result<OwnedFd> {
    let scope = if allowed.signals {
        Scope::AbstractUnixSocket.into()
    } else {
        Scope::from_all(NEWEST)
    };
    let network = if allowed.connections {
        AccessNet::from_all(NEWEST) & !AccessNet::ConnectTcp
    } else {
        AccessNet::from_all(NEWEST)
    };
    let build = || -> Result<Option<OwnedFd>, landlock::RulesetError> {
        let mut created = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(network)?
            .scope(scope)?
            .create()?;
        for (paths, right) in [
            (&allowed.files, AccessFs::RemoveFile),
            (&allowed.folders, AccessFs::RemoveDir),
        ] {
            // A folder that cannot be opened now cannot be changed later either.
            let folders = paths.iter().map(|path| folder_of(path));
            for folder in folders.filter_map(|folder| PathFd::new(folder).ok()) {
                created = created.add_rule(PathBeneath::new(folder, right))?;
            }
        }
        Ok(created.into())
    };
    build()
        .map_err(|error| io::Error::other(error.to_string()))?
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}
