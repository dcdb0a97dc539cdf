//! Landlock: no file can be opened, made or changed by name, no TCP port bound or reached. What
//! the server made in the file system may be removed, and nothing else but what lies beside it and below:
//! Linux knows that right for folders only.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
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
    /// Unix sockets elsewhere may be reached, by path or abstract name.
    pub unix: bool,
}

impl Allowed {
    /// Rights to names of files that are given up but for exceptions.
    fn handled(&self) -> BitFlags<AccessFs> {
        let all = AccessFs::from_all(NEWEST);
        if self.unix { all & !AccessFs::ResolveUnix } else { all }
    }

    /// What outside cannot be reached.
    fn scope(&self) -> BitFlags<Scope> {
        let mut scope = Scope::from_all(NEWEST);
        if self.signals {
            scope.remove(Scope::Signal);
        }
        if self.unix {
            scope.remove(Scope::AbstractUnixSocket);
        }
        scope
    }
}

/// A ruleset that allows this, to be applied to threads.
pub fn ruleset(allowed: &Allowed) -> io::Result<OwnedFd> {
    let network = if allowed.connections {
        AccessNet::from_all(NEWEST) & !AccessNet::ConnectTcp
    } else {
        AccessNet::from_all(NEWEST)
    };
    let build = || -> Result<Option<OwnedFd>, landlock::RulesetError> {
        let mut created = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(allowed.handled())?
            .handle_access(network)?
            .scope(allowed.scope())?
            .create()?;
        for (paths, right) in [(&allowed.files, AccessFs::RemoveFile), (&allowed.folders, AccessFs::RemoveDir)] {
            // A folder that cannot be opened now cannot be changed later either.
            let folders = paths.iter().map(|path| folder_of(path));
            for folder in folders.filter_map(|folder| PathFd::new(folder).ok()) {
                created = created.add_rule(PathBeneath::new(folder, right))?;
            }
        }
        Ok(created.into())
    };
    build().map_err(|error| io::Error::other(error.to_string()))?.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_sockets_are_reached_only_where_a_server_below_has_one() {
        for unix in [false, true] {
            let allowed = Allowed { unix, ..Allowed::default() };
            assert_eq!(allowed.handled().contains(AccessFs::ResolveUnix), !unix);
            assert_eq!(allowed.scope().contains(Scope::AbstractUnixSocket), !unix);
            assert!(allowed.scope().contains(Scope::Signal));
        }
    }
}
