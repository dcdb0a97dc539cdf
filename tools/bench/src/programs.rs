//! Programs that others wrote, and cryptline itself: where they are, their command lines, and what they say.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::Args;

use crate::error::{Error, Of as _, Result, fail, on_one_line};
use crate::machine::quoted;

/// Programs that plans start, and the Debian packages that bring them.
const PACKAGES: [(&str, &str); 9] = [
    ("cp", "coreutils"),
    ("cryptsetup", "cryptsetup-bin"),
    ("fio", "fio"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("qemu-img", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("taskset", "util-linux"),
];

/// `--program`.
#[derive(Args, Clone, Debug, Default)]
pub struct ProgramArgs {
    /// The cryptline to measure [default: the one in this program's folder]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
}

/// Where programs are.
#[derive(Debug)]
pub struct Programs {
    cryptline: PathBuf,
    found: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Finds what is there.
    pub fn find(args: &ProgramArgs) -> Result<Self> {
        let cryptline = match &args.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().of("cannot find this program itself")?.with_file_name("cryptline"),
        };
        if !runs(&cryptline) {
            fail!(
                "{}: there is no such program; build it with `cargo build --release`, or name one with --program",
                cryptline.display()
            );
        }
        let found = PACKAGES.iter().filter_map(|(name, _)| Some((*name, find(name)?)));
        Ok(Self { cryptline, found: found.collect() })
    }

    /// Why a program cannot be used, with its package.
    pub fn missing(&self, name: &str) -> Option<String> {
        let (name, package) = PACKAGES.iter().find(|(one, _)| *one == name)?;
        let is_there = self.found.iter().any(|(found, _)| found == name);
        (!is_there).then(|| format!("{name} (package {package}) is not installed"))
    }

    /// Where a program is.
    pub fn path(&self, name: &str) -> &Path {
        let found = self.found.iter().find(|(found, _)| *found == name);
        found.map_or(&self.cryptline, |(_, path)| path)
    }

    /// Returns the versions of cryptline and of the programs that are needed, as they state them.
    pub fn versions(&self, needed: &[&str]) -> String {
        let version = |name: &&str| {
            let said = run(self.path(name), &["--version"]).ok()??;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let line = on_one_line(said.lines().next()?.trim());
            Some(if line.contains(name) { line } else { format!("{name}: {line}") })
        };
        let there = ["cryptline"].iter().chain(needed).filter(|name| self.missing(name).is_none());
        format!("Versions: {}.", there.filter_map(version).collect::<Vec<_>>().join("; "))
    }
}

/// Where `PATH` has a program.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| runs(file)))
}

fn runs(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The command that a line of words makes. A name in braces stands for its value; a name with a comma behind it stands
/// for the value with its commas doubled, as qemu's options want them. A word that comes out empty is left out.
pub fn words(line: &str, value: impl Fn(&str) -> OsString) -> Vec<OsString> {
    let word = |mut rest: &str| {
        let mut word = OsString::new();
        while let Some((text, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            word.push(text);
            match name.strip_suffix(',') {
                Some(name) => word.push(value(name).to_string_lossy().replace(',', ",,")),
                None => word.push(value(name)),
            }
            rest = after;
        }
        word.push(rest);
        word
    };
    line.split_whitespace().map(word).filter(|word| !word.is_empty()).collect()
}

/// A command as one would type it.
pub fn typed(command: &[OsString]) -> String {
    command.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// Runs a program that must succeed, with nothing to read. Nothing if there is no such program.
pub fn run(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Option<Output>> {
    let name = program.file_name().unwrap_or(program.as_os_str()).display();
    let run = Command::new(program).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() => Ok(Some(output)),
        Ok(output) => {
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said);
            let line = said.lines().find(|line| !line.trim().is_empty());
            fail!("{name} failed: {}", on_one_line(line.unwrap_or("it says nothing")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error(format!("cannot run {name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_line_become_words_whatever_their_values_hold() {
        let value = |name: &str| match name {
            "none" => OsString::new(),
            name => format!("a {name}, b").into(),
        };
        let words = words("serve --unix={x} {none} file={y,},z {x}", value);
        assert_eq!(words, ["serve", "--unix=a x, b", "file=a y,, b,z", "a x, b"]);
        assert_eq!(typed(&words[..2]), "serve '--unix=a x, b'");
    }

    #[test]
    fn a_program_that_fails_is_told_with_what_it_said() {
        let error = run(Path::new("/bin/sh"), &["-c", "echo; echo broken >&2; exit 3"]);
        assert_eq!(error.expect_err("it failed").to_string(), "sh failed: broken");
        assert!(matches!(run(Path::new("/no/such"), &["x"]), Ok(None)));
    }
}
