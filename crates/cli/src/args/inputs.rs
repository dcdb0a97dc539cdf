//! Inputs that two arguments of one command must not share: standard input, and a file that one of them overwrites.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cryptline::Target;

use super::keys::{KeyArgs, PassphraseSource};
use crate::CliError;

/// Leads to what standard input is.
const INPUT: &str = "/proc/self/fd/0";

/// How much of standard input something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromInput {
    /// One line: as a question is answered where there is no terminal. The next line is the next answer.
    Line,
    /// All of it.
    All,
}

/// Something that may come from standard input.
pub struct Taker {
    /// Name of it in messages.
    pub what: &'static str,
    /// The option that takes it from elsewhere.
    pub instead: &'static str,
    /// Part of standard input that it takes.
    pub takes: Option<FromInput>,
}

/// Refuses two things from standard input, of which one would get what is meant for the other. Only lines can follow
/// each other.
///
/// # Errors
/// Advice on what to give instead.
pub fn refuse_shared_input(takers: &[Taker]) -> Result<(), CliError> {
    let takers: Vec<_> = takers.iter().filter(|it| it.takes.is_some()).collect();
    let all_lines = takers.iter().all(|it| it.takes == Some(FromInput::Line));
    match takers.as_slice() {
        [first, .., last] if !all_lines => Err(CliError::parameters(format!(
            "standard input cannot be both {} and {}; pass the latter with {} FILE",
            first.what, last.what, last.instead
        ))),
        _ => Ok(()),
    }
}

/// Refuses to overwrite a file that the command itself needs.
///
/// # Errors
/// Error that tells which file it is.
pub fn refuse_needed(destination: &Target, needed: &[(&str, Option<&Path>)]) -> Result<(), CliError> {
    let files = needed.iter().filter_map(|(what, path)| Some((what, (*path)?)));
    for (what, path) in files {
        let path = if path == Path::new("-") { Path::new(INPUT) } else { path };
        if Target::Path(path.to_owned()).is_same_place(destination) {
            return Err(CliError::parameters(format!(
                "{destination}: it is {what}, which would be overwritten; use another destination"
            )));
        }
    }
    Ok(())
}

/// Tells if `source` is what standard input is, under whatever name.
pub fn is_input(source: &Path) -> bool {
    if source == Path::new("-") {
        return true;
    }
    let target = Target::parse(source).ok();
    target.as_ref().and_then(Target::path).is_some_and(is_open_as_input)
}

/// Such as `/dev/stdin`.
fn is_open_as_input(path: &Path) -> bool {
    let input = rustix::fs::fstat(rustix::stdio::stdin());
    match (input, path.metadata()) {
        (Ok(input), Ok(found)) => (input.st_dev, input.st_ino) == (found.dev(), found.ino()),
        _ => false,
    }
}

impl PassphraseSource {
    /// The file that it is read from: for a descriptor, whatever is open there.
    pub fn file(&self) -> Option<PathBuf> {
        let open = || self.passphrase_fd.map(|number| PathBuf::from(format!("/proc/self/fd/{number}")));
        self.key_file.clone().or_else(open)
    }

    /// Returns what it takes of standard input, once somebody needs the passphrase.
    pub fn from_input(&self) -> Option<FromInput> {
        if self.command.passphrase_command.is_some() {
            return None;
        }
        let takes_all = match (&self.key_file, self.passphrase_fd) {
            (Some(path), _) => path == Path::new("-") || is_open_as_input(path),
            (None, Some(0)) => true,
            (None, Some(_)) => self.file().is_some_and(|path| is_open_as_input(&path)),
            (None, None) => return (!io::stdin().is_terminal()).then_some(FromInput::Line),
        };
        takes_all.then_some(FromInput::All)
    }
}

impl KeyArgs {
    /// Returns what they take of standard input, once somebody needs the key.
    pub fn from_input(&self) -> Option<FromInput> {
        match &self.volume_key_file {
            Some(path) => is_open_as_input(path).then_some(FromInput::All),
            None => self.passphrase.from_input(),
        }
    }

    /// The files that they are read from.
    pub fn files(&self) -> [(&'static str, Option<PathBuf>); 2] {
        [("a key file", self.passphrase.file()), ("a key file", self.volume_key_file.clone())]
    }

    /// Refuses to overwrite the files that they are read from, or `other`.
    ///
    /// # Errors
    /// Which of them it is.
    pub fn refuse_needed(&self, destination: &Target, other: (&str, Option<&Path>)) -> Result<(), CliError> {
        let [first, second] = self.files();
        refuse_needed(destination, &[other, (first.0, first.1.as_deref()), (second.0, second.1.as_deref())])
    }
}
