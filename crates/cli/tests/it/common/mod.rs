//! Helpers shared by the tests of the program: running it, and making volumes to run it on.

mod header;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use cryptline::{Volume, Warning};
use cryptline_cli::args::{self, KeyArgs, TargetArgs};
use cryptline_testkit::peer::{Run, run, run_with_input, skip};
use serde_json::Value;
use tempfile::TempDir;

pub use header::*;

/// Opens every volume made here.
pub const PASSPHRASE: &str = "pass phrase";
/// Size of the volumes made here: a LUKS2 header and 4 MiB.
pub const SIZE: u64 = 20 << 20;
/// Options for key slots that cost next to nothing.
pub const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
/// Nothing here takes longer.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The options of a verb, as the command line gives them.
#[derive(Parser)]
struct Line {
    #[arg(default_value = "")]
    target: OsString,
    #[command(flatten)]
    options: TargetArgs,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Opens a volume as the verbs do, in this process.
#[track_caller]
pub fn open(arguments: &[&str]) -> Volume {
    let line = Line::parse_from([&["test"], arguments].concat());
    let opened = args::open(&line.target, &line.options, &line.keys);
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns what the program would say of a volume.
pub fn warnings(volume: &Volume) -> Vec<String> {
    let said = volume.warnings().iter().map(Warning::to_string);
    said.collect()
}

/// The program.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cryptline"));
    command.env("LC_ALL", "C").env_remove("LISTEN_FDS");
    command
}

/// Runs the program.
#[track_caller]
pub fn cryptline<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    run(command().args(arguments), TIMEOUT)
}

/// Runs the program with something on its standard input.
#[track_caller]
pub fn cryptline_with_input<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, input: &[u8]) -> Run {
    run_with_input(command().args(arguments), TIMEOUT, input)
}

/// Asserts that the program said one line, and nothing else, and ended with `code`.
#[track_caller]
pub fn refused(run: Run, code: i32, text: &str) {
    let run = run.exited_with(code);
    let message = run.stderr_text();
    assert!(run.stdout.is_empty(), "{run}");
    assert_eq!(message.lines().count(), 1, "not one line: {run}");
    assert!(message.starts_with("cryptline: "), "{run}");
    assert!(message.contains(text), "{text:?} is not in: {run}");
}

/// A folder that goes with the test, with the key file of every volume in it. Nobody else enters it, so
/// nobody is warned of the key.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        let mut private = tempfile::Builder::new();
        private.permissions(fs::Permissions::from_mode(0o700));
        let folder = Self(private.tempdir().expect("a temporary folder"));
        fs::write(folder.path("key"), PASSPHRASE).expect("room for a key file");
        folder
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn key(&self) -> PathBuf {
        self.path("key")
    }

    /// Names of what it holds besides the key.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root()).expect("a folder");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "key").collect();
        names.sort();
        names
    }

    /// Those of unfinished copies.
    pub fn drafts(&self) -> Vec<String> {
        self.files().into_iter().filter(|name| name.starts_with(".cryptline-")).collect()
    }

    /// A LUKS2 volume with Argon2id at next to no cost.
    pub fn luks2(&self) -> PathBuf {
        self.create("luks2.img", &["--pbkdf-force-iterations=4", "--pbkdf-memory=32"])
    }

    /// A LUKS1 volume with PBKDF2 at next to no cost.
    pub fn luks1(&self) -> PathBuf {
        self.create("luks1.img", &["--luks1", "--pbkdf-force-iterations=1000"])
    }

    #[track_caller]
    pub fn create(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        let mut command = command();
        command.arg("create").arg(&path).arg("--key-file").arg(self.key());
        command.arg(format!("--size={SIZE}")).args(options);
        run(&mut command, TIMEOUT).success();
        path
    }

    /// `VERB IMAGE --key-file KEY OPTIONS...`
    #[track_caller]
    pub fn run(&self, verb: &[&str], image: &Path, options: &[&str]) -> Run {
        let mut command = command();
        command.args(verb).arg(image).arg("--key-file").arg(self.key());
        run(command.args(options), TIMEOUT)
    }

    /// Tries if the passphrase opens the image.
    #[track_caller]
    pub fn check(&self, image: &Path) -> Run {
        self.run(&["open", "--check"], image, &[])
    }

    /// Opens the image for service, and ends at once.
    #[track_caller]
    pub fn serve(&self, image: &Path) -> Run {
        self.run(&["serve"], image, &["--run", "true"])
    }
}

/// Changes the JSON of both copies and corrects their checksums.
pub fn edit_metadata(image: &Path, change: impl FnOnce(&mut Value)) {
    let mut json = metadata(image);
    change(&mut json);
    set_metadata(image, json.to_string().as_bytes());
}

/// A loop device, detached when dropped.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// `None` without the rights to make one.
    pub fn over(path: &Path) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let made = run(losetup.args(["--find", "--show"]).arg(path), TIMEOUT);
        if !made.status.success() {
            skip("no loop device can be made here");
            return None;
        }
        Some(Self(made.stdout_text().trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
