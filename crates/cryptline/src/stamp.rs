//! State by which a change of a regular file is noticed.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::target::Target;

/// A regular file as it was. It is taken before the file is opened, so it holds for the file that is open as long as
/// the path leads to the same: who puts another one there, or this one back, changes what it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    pub path: PathBuf,
    /// A change of the file changes one of these. The first two say which file it is.
    pub numbers: [u64; 7],
}

impl Stamp {
    /// Of the file that a target lies in; `None` where it lies in no regular file.
    pub fn of(target: &Target) -> Option<Self> {
        match target {
            Target::Path(path) => Some(Self { path: path.clone(), numbers: numbers(path)? }),
            Target::Slice(slice) => Self::of(&slice.of),
            Target::Keyed(keyed) => Self::of(&keyed.of),
            _ => None,
        }
    }

    /// Returns what the file is now; as before where another one has its place.
    pub fn again(&self) -> Self {
        let is_same = |now: &[u64; 7]| now[..2] == self.numbers[..2];
        Self { path: self.path.clone(), numbers: numbers(&self.path).filter(is_same).unwrap_or(self.numbers) }
    }

    /// Of a file that is open, and stays so as long as this is asked.
    pub fn of_open(file: &File) -> Option<Self> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let numbers = numbers(&path)?;
        Some(Self { path, numbers })
    }

    /// Tells if it is still as it was.
    pub fn is_unchanged(&self) -> bool {
        numbers(&self.path).is_some_and(|is| is == self.numbers)
    }
}

fn numbers(path: &Path) -> Option<[u64; 7]> {
    let it = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
    let [a, b, c, d] = times.map(i64::cast_unsigned);
    Some([it.dev(), it.ino(), it.len(), a, b, c, d])
}
