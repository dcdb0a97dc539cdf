//! A running `cryptline serve`, and volumes that others made for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cryptline_testkit::peer::{self, BackgroundProgram, Run};

/// How long anything may take to get ready.
pub const READY: Duration = Duration::from_secs(30);
/// Clear text of the volumes, in bytes.
pub const SIZE: usize = 8 << 20;

/// The program with these arguments.
pub fn cryptline<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cryptline"));
    command.args(arguments).env("LC_ALL", "C");
    for inherited in ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "XDG_RUNTIME_DIR"] {
        command.env_remove(inherited);
    }
    command
}

/// Runs the program to its end.
#[track_caller]
pub fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    peer::run(&mut cryptline(arguments), READY)
}

/// A server whose clients can connect.
pub struct Server {
    pub process: BackgroundProgram,
    pub uri: String,
}

impl Server {
    /// Starts `cryptline serve` with these arguments.
    #[track_caller]
    pub fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut command = cryptline(["serve"]);
        command.args(arguments);
        Self::spawn(&mut command)
    }

    /// Starts a prepared command.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let process = ready(command);
        let uri = value(&process.stdout_text(), "uri");
        Self { process, uri }
    }

    /// SIGTERM, and what it said; must end well.
    #[track_caller]
    pub fn stop(self) -> Run {
        self.process.stop().success()
    }
}

/// Starts a server that says when clients can come.
#[track_caller]
pub fn ready(command: &mut Command) -> BackgroundProgram {
    let mut process = BackgroundProgram::spawn(command);
    let deadline = Instant::now() + READY;
    while !process.stdout_text().contains("\nready:") {
        let ended = process.wait(Duration::from_millis(10)).is_some();
        if ended || Instant::now() > deadline {
            panic!("no server:\n{}", process.collect());
        }
    }
    process
}

/// The first value of `key: value` in a report.
#[track_caller]
pub fn value(report: &str, key: &str) -> String {
    let prefix = format!("{key}:");
    let line = report.lines().find(|line| line.starts_with(&prefix));
    let line = line.unwrap_or_else(|| panic!("no {key} in:\n{report}"));
    line[prefix.len()..].trim().to_owned()
}

/// Waits until `done`, but not for ever.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + READY;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder with an encrypted image made by cryptsetup, its key, and a clear text.
pub struct Disk {
    pub folder: tempfile::TempDir,
    pub image: String,
    pub key: String,
    pub clear: String,
}

impl Disk {
    /// `kind` is `luks1` or `luks2`; the clear disk has [`SIZE`] bytes.
    #[track_caller]
    pub fn new(cryptsetup: &peer::Peer, kind: &str) -> Self {
        let mut private = tempfile::Builder::new();
        // Else the server warns of a key that everybody can read.
        private.permissions(fs::Permissions::from_mode(0o700));
        let folder = private.tempdir().expect("a folder");
        let path = |name: &str| text(&folder.path().join(name));
        let (image, key, clear) = (path("disk.img"), path("key"), path("clear"));
        let header: u64 = if kind == "luks1" { 2 << 20 } else { 16 << 20 };
        let file = fs::File::create(&image).expect("an image");
        file.set_len(header + SIZE as u64).expect("room");
        fs::write(&key, "correct horse\nbattery staple").expect("a key file");
        fs::write(&clear, noise(SIZE)).expect("a clear text");
        // Argon2 is what volumes have.
        let pbkdf: &[_] = match kind {
            "luks1" => &["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"],
            _ => &["--pbkdf-force-iterations=4", "--pbkdf-memory=32"],
        };
        let format = ["-q", "luksFormat", "--type", kind, &image, &key];
        cryptsetup.run(pbkdf.iter().chain(&format)).success();
        Self { folder, image, key, clear }
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }

    /// Arguments that open it.
    pub fn arguments(&self) -> [&str; 3] {
        [&self.image, "--key-file", &self.key]
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_str().expect("temporary paths are text").to_owned()
}

/// The path of the socket in a URI.
pub fn socket_of(uri: &str) -> PathBuf {
    PathBuf::from(uri.split_once("socket=").expect("a Unix URI").1)
}

/// Bytes that do not repeat (xorshift64).
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}
