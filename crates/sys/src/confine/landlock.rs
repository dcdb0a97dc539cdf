//! Rulesets of Landlock, of as much as the kernel knows of what is asked for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::last_errno;

/// The newest version whose rights are known here.
const NEWEST: usize = 9;
/// From linux/landlock.h: bits of rights that each version knows, first those to files.
const FILES: [u32; NEWEST] = [13, 14, 15, 15, 16, 16, 16, 16, 17];
const NETWORK: [u32; NEWEST] = [0, 0, 0, 2, 2, 2, 2, 2, 2];
const SCOPES: [u32; NEWEST] = [0, 0, 0, 0, 0, 2, 2, 2, 2];
/// A rule about what lies below a folder.
const PATH_BENEATH: libc::c_ulong = 1;

/// The rights that a ruleset takes from those who come under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landlock {
    /// To files and folders by name.
    pub files: u64,
    /// To TCP ports.
    pub network: u64,
    /// To reach what is outside.
    pub scopes: u64,
}

/// From linux/landlock.h.
#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
    scopes: u64,
}

/// From linux/landlock.h.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

impl Landlock {
    /// All rights that are known.
    pub const ALL: Self = Self { files: ones(FILES), network: ones(NETWORK), scopes: ones(SCOPES) };
    /// To write to a file.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// To read a file.
    pub const READ_FILE: u64 = 1 << 2;
    /// To list a folder.
    pub const READ_FOLDER: u64 = 1 << 3;
    /// To remove an empty folder from a folder.
    pub const REMOVE_FOLDER: u64 = 1 << 4;
    /// To remove a file from a folder.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// To control a device.
    pub const IOCTL_DEVICE: u64 = 1 << 15;
    /// To reach a Unix socket by its path.
    pub const RESOLVE_UNIX: u64 = 1 << 16;
    /// To reach a TCP port.
    pub const CONNECT_TCP: u64 = 1 << 1;
    /// To reach an abstract Unix socket outside.
    pub const ABSTRACT_UNIX: u64 = 1 << 0;
    /// To signal a process outside.
    pub const SIGNAL: u64 = 1 << 1;

    /// Returns the part of it that a kernel with this version can take.
    fn known(self, version: i64) -> Self {
        let at = usize::try_from(version).unwrap_or(0).clamp(1, NEWEST) - 1;
        let mask = |bits: u32| (1 << bits) - 1;
        Self {
            files: self.files & mask(FILES[at]),
            network: self.network & mask(NETWORK[at]),
            scopes: self.scopes & mask(SCOPES[at]),
        }
    }

    /// A ruleset that takes these rights, but leaves some below folders, or to a file.
    ///
    /// Errors: `Unsupported` where the kernel has no Landlock, or it is switched off.
    pub fn ruleset(self, left: &[(BorrowedFd<'_>, u64)]) -> io::Result<OwnedFd> {
        let Self { files, network, scopes } = self.known(super::landlock_version()?);
        let attributes = RulesetAttributes { files, network, scopes };
        // Zeros at the end are no hindrance to a kernel that knows less of it.
        let len = size_of::<RulesetAttributes>();
        // SAFETY: the kernel reads `len` bytes of the structure, which lives until the end of the call.
        let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, len, 0) };
        let made = i32::try_from(made).unwrap_or(-1);
        if made < 0 {
            return Err(io::Error::from_raw_os_error(last_errno()));
        }
        // SAFETY: the kernel has just made this descriptor, so nobody else has it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(made) };
        for (folder, rights) in left {
            let rule = Beneath { allowed: rights & files, parent: folder.as_raw_fd() };
            // SAFETY: the kernel reads the structure, which lives until the end of the call.
            let added = unsafe {
                libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
            };
            if added != 0 {
                return Err(io::Error::from_raw_os_error(last_errno()));
            }
        }
        Ok(ruleset)
    }
}

const fn ones(bits: [u32; NEWEST]) -> u64 {
    (1 << bits[NEWEST - 1]) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::Restriction;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn older_kernels_are_asked_for_what_they_know() {
        let known = |version| {
            let Landlock { files, network, scopes } = Landlock::ALL.known(version);
            (files, network, scopes)
        };
        assert_eq!(known(1), (0x1fff, 0, 0));
        assert_eq!(known(2), (0x3fff, 0, 0));
        assert_eq!(known(3), (0x7fff, 0, 0));
        assert_eq!(known(4), (0x7fff, 3, 0));
        assert_eq!(known(5), (0xffff, 3, 0));
        assert_eq!(known(6), (0xffff, 3, 3));
        assert_eq!(known(8), (0xffff, 3, 3));
        assert_eq!(known(9), (0x1_ffff, 3, 3));
        assert_eq!(Landlock::ALL.known(99), Landlock::ALL);
    }

    #[test]
    fn only_what_is_left_is_possible_afterwards() {
        if let Err(error) = crate::landlock_version() {
            return crate::skip(&format!("no Landlock here: {error}"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("open")).unwrap();
        for name in ["one", "open/one"] {
            fs::write(path(name), name).unwrap();
        }
        let open = fs::File::open(path("open")).unwrap();
        let rules = [(open.as_fd(), Landlock::REMOVE_FILE)];
        let ruleset = Landlock::ALL.ruleset(&rules).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Restriction::NoNewPrivileges.apply_here().unwrap();
                Restriction::Landlock(ruleset.as_fd()).apply_here().unwrap();
                let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
                assert!(fs::read(path("open/one")).is_err_and(denied));
                assert!(fs::write(path("open/two"), "").is_err_and(denied));
                assert!(fs::remove_file(path("one")).is_err_and(denied));
                assert!(fs::remove_dir(path("open")).is_err_and(denied));
                fs::remove_file(path("open/one")).unwrap();
            });
        });
    }
}
