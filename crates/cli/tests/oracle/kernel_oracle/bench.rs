//! This machine's side: images in a folder that goes away, and the `cryptline` program over them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use base16ct::lower::encode_string as hex;
use cryptline_testkit::oracle::pattern;
use cryptline_testkit::peer::{self, Peer, Run};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// For a program on a machine that is busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pattern that the guest writes.
const NEWS_SEED: u64 = 77;
/// Longest clear disk of any case.
pub const CLEAR_MAX: usize = 4 << 20;

/// Folder, peers, and files that all cases share.
pub struct Bench {
    folder: TempDir,
    cryptsetup: Peer,
    mkfs: Peer,
    nbdcopy: Peer,
    qemu_io: Peer,
    /// A passphrase of every kind of byte, for all volumes.
    pub key: PathBuf,
    /// [`CLEAR_MAX`] bytes for the guest to write.
    pub news: PathBuf,
}

/// How `cryptline` opens a volume.
#[derive(Clone, Default)]
pub struct Opening {
    /// The target and options, as `serve` and `table` take them.
    pub arguments: Vec<String>,
    /// Standard input.
    pub input: Vec<u8>,
}

impl Opening {
    /// A target and its options.
    pub fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self { arguments: arguments.map(str::to_owned).to_vec(), input: Vec::new() }
    }

    /// With further options.
    pub fn with<'a>(mut self, more: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(more.into_iter().map(str::to_owned));
        self
    }
}

impl Bench {
    /// `None` after a named skip when a peer is missing.
    pub fn new() -> Option<Self> {
        let [cryptsetup, mkfs, nbdcopy, qemu_io] =
            peer::require_all(["cryptsetup", "mkfs.ext4", "nbdcopy", "qemu-io"])?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [key, news] = ["key", "news"].map(|name| folder.path().join(name));
        std::fs::write(&key, passphrase()).expect("written");
        std::fs::write(&news, pattern::bytes(NEWS_SEED, CLEAR_MAX)).expect("written");
        Some(Self { folder, cryptsetup, mkfs, nbdcopy, qemu_io, key, news })
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the folder, spaces of the name replaced.
    pub fn path(&self, name: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.folder.path().join(name.chars().map(plain).collect::<String>())
    }

    /// A new file of `bytes`.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path
    }

    /// A new sparse image of `length` bytes.
    pub fn image(&self, name: &str, length: usize) -> PathBuf {
        let path = self.path(&format!("{name}.img"));
        let file = std::fs::File::create_new(&path).expect("a new image");
        let length = u64::try_from(length).expect("a file's length");
        file.set_len(length).expect("a sparse image");
        path
    }

    /// Runs `cryptsetup`, which must succeed.
    pub fn cryptsetup(&self, arguments: &str, more: &[&str]) {
        let arguments = arguments.split_whitespace().chain(more.iter().copied());
        let _ = self.cryptsetup.run(arguments).success();
    }

    /// A program of e2fsprogs.
    pub fn e2fs(&self, program: &str) -> Command {
        let mut command = Command::new(self.mkfs.path().with_file_name(program));
        command.env("LC_ALL", "C");
        command
    }

    /// Runs `cryptline VERB` with the opening's arguments, and more.
    pub fn cryptline(&self, verb: &str, opening: &Opening, more: &[&str]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cryptline"));
        command.arg(verb).args(&opening.arguments).args(more);
        peer::run_with_input(&mut command, TIMEOUT, &opening.input)
    }

    /// Serves the volume for as long as `command` runs; its `$uri` is the volume.
    pub fn serve(&self, opening: &Opening, command: &str, more: &[&str]) -> Run {
        let more: Vec<&str> = ["--run", command].iter().chain(more).copied().collect();
        self.cryptline("serve", opening, &more).success()
    }

    /// Makes `bytes` the whole clear disk, then overwrites parts of it.
    pub fn write(&self, opening: &Opening, bytes: &[u8], patches: &[Patch]) {
        let source = self.file("written", bytes);
        let (nbdcopy, source) = (self.nbdcopy.path().display(), source.display());
        let mut command = format!("{nbdcopy} --flush {source} \"$uri\"");
        if !patches.is_empty() {
            let _infallible = write!(command, " && {}", self.patch(patches));
        }
        let _ = self.serve(opening, &command, &[]);
    }

    /// A shell command that writes `patches` to `$uri`.
    fn patch(&self, patches: &[Patch]) -> String {
        let mut command = format!("{} -f raw", self.qemu_io.path().display());
        for Patch { offset, length, byte } in patches {
            let _infallible = write!(command, " -c 'write -P {byte} {offset} {length}'");
        }
        command + " -c flush \"$uri\""
    }

    /// Discards a range of the clear disk.
    pub fn discard(&self, opening: &Opening, ranges: &[(usize, usize)]) -> Run {
        let mut command = format!("{} -f raw -d unmap", self.qemu_io.path().display());
        for (offset, length) in ranges {
            let _infallible = write!(command, " -c 'discard {offset} {length}'");
        }
        self.serve(opening, &(command + " \"$uri\""), &[])
    }

    /// The whole clear disk, opened for reading only.
    pub fn read(&self, opening: &Opening) -> Vec<u8> {
        let copy = self.path("read");
        let nbdcopy = self.nbdcopy.path().display();
        let command = format!("{nbdcopy} \"$uri\" {}", copy.display());
        let _ = self.serve(opening, &command, &["--read-only"]);
        let bytes = std::fs::read(&copy).expect("nbdcopy's output");
        std::fs::remove_file(&copy).expect("nbdcopy's output");
        bytes
    }

    /// The line of `cryptline table`.
    pub fn table(&self, opening: &Opening, more: &[&str]) -> String {
        let line = self.cryptline("table", opening, more).success();
        line.stdout_text().trim_end().to_owned()
    }
}

/// Bytes written over others.
#[derive(Clone, Copy)]
pub struct Patch {
    /// First byte.
    pub offset: usize,
    /// Number of bytes.
    pub length: usize,
    /// Value that they become.
    pub byte: u8,
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// As `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Panics with the place of the first difference.
#[track_caller]
pub fn assert_same(actual: &[u8], expected: &[u8], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: length");
    let differs = actual.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(place) = differs {
        let count = actual.iter().zip(expected).filter(|(a, b)| a != b).count();
        panic!("{what}: {count} bytes differ, the first at {place}");
    }
}

/// Bytes that tell a key file from a line of text: a newline in it, and one at its end.
fn passphrase() -> Vec<u8> {
    b"correct\nhorse \xff\x80 battery staple, and a newline at the end\n".to_vec()
}
