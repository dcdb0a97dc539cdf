//! Descriptors that we were started with and that a key comes from. Neither the command of `--run` nor a companion may have
//! them, since what was read from a file can be read again, nor the server itself once every key has been read.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cryptline_sys::take_passed_fd;

use crate::args::{KeyArgs, TableArgument, TargetArgs, passphrase_from_input};

/// Closed when dropped: keep it until every key has been read.
pub struct Passed {
    /// Not passed on meanwhile.
    _taken: Vec<OwnedFd>,
    /// A key comes from standard input.
    standard_input: bool,
}

impl Passed {
    /// Takes what the options name. Call before anything else is opened.
    pub fn take(options: &TargetArgs, keys: &KeyArgs, targets: &[OsString]) -> Self {
        let pin_file = &options.tokens.pin_file;
        let table_file = match &options.table {
            Some(TableArgument::File(path)) => Some(path.as_path()),
            _ => None,
        };
        let files =
            [keys.passphrase.key_file.as_deref(), keys.volume_key_file.as_deref(), pin_file.as_deref(), table_file];
        let is_table = matches!(options.table, Some(TableArgument::Input));
        let own_files = targets.iter().filter_map(|target| {
            let keys = keys.passphrase.of_target(target);
            keys.key_file
        });
        let own_files: Vec<_> = own_files.collect();
        let files = files.into_iter().flatten().chain(own_files.iter().map(PathBuf::as_path));
        let mut numbers: Vec<u32> = files.filter_map(number_of).collect();
        let of_all = [&keys.passphrase.key_file, pin_file];
        let mut from_dash = of_all.into_iter().flatten().chain(&own_files);
        let is_dash = from_dash.any(|path| path == Path::new("-"));
        numbers.sort_unstable();
        numbers.dedup();
        numbers.extend(keys.passphrase.passphrase_fd);
        Self {
            standard_input: numbers.contains(&0) || is_dash || is_table,
            // What was not passed is told of when it is read.
            _taken: numbers.into_iter().filter_map(|number| take_passed_fd(number).ok()).collect(),
        }
    }

    /// Returns what a command that we run may read.
    pub fn input_of_command(&self) -> Stdio {
        if self.standard_input || passphrase_from_input() { Stdio::null() } else { Stdio::inherit() }
    }
}

/// The descriptor behind a path such as a shell's `<(command)` has.
fn number_of(path: &Path) -> Option<u32> {
    if path == Path::new("/dev/stdin") {
        return Some(0);
    }
    let folder = path.parent()?;
    let folders = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    let is_one = folders.iter().any(|known| folder == Path::new(known));
    path.file_name().filter(|_| is_one)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_descriptors_are_known() {
        for (path, number) in [
            ("/dev/fd/63", Some(63)),
            ("/dev//fd/5", Some(5)),
            ("/proc/self/fd/0", Some(0)),
            ("/dev/stdin", Some(0)),
            ("/dev/fd/x", None),
            ("/dev/fd", None),
            ("key/5", None),
            ("", None),
        ] {
            assert_eq!(number_of(Path::new(path)), number, "{path}");
        }
    }
}
