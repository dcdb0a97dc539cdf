//! Images made by programs we did not write, and what those programs say about them.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::{Error, LuksHeader, UnlockOptions, UnlockedSlot, read};
use cryptline_testkit::peer::{self, Peer, Run, TIMEOUT_DEFAULT, run_with_input};
use tempfile::TempDir;

/// Passphrase of every image, unless a test says otherwise.
pub const PASSPHRASE: &[u8] = b"correct horse";

/// A file that holds a volume, in a folder of its own.
pub struct Image {
    folder: TempDir,
    pub path: PathBuf,
}

impl Image {
    /// A sparse file of `size` bytes.
    pub fn sparse(size: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(size).unwrap();
        Self { folder, path }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn open(&self) -> (File, u64) {
        open(&self.path)
    }

    pub fn header(&self) -> Result<LuksHeader, Error> {
        let (mut file, size) = self.open();
        read(&mut file, size)
    }

    pub fn unlock(&self, passphrase: &[u8]) -> Result<UnlockedSlot, Error> {
        self.unlock_with(passphrase, &UnlockOptions::default())
    }

    pub fn unlock_with(&self, passphrase: &[u8], options: &UnlockOptions) -> Result<UnlockedSlot, Error> {
        self.header()?.unlock(&mut self.open().0, passphrase, options)
    }
}

pub fn open(path: &Path) -> (File, u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    (file, size)
}

/// Debian's cryptsetup. On plain files it needs no privileges.
pub struct Cryptsetup(Peer);

impl Cryptsetup {
    pub fn require() -> Option<Self> {
        peer::require("cryptsetup").map(Self)
    }

    /// Runs it on `image` with `input` as the key file.
    #[track_caller]
    pub fn run(&self, arguments: &str, image: &Path, input: &[u8]) -> Run {
        let mut command = self.0.command();
        command.arg("--batch-mode");
        command.args(arguments.split_whitespace()).arg(image);
        run_with_input(&mut command, TIMEOUT_DEFAULT, input)
    }

    /// `luksFormat` with `arguments`, cheap key derivation and [`PASSPHRASE`].
    #[track_caller]
    pub fn format(&self, arguments: &str, image: &Path) {
        let arguments = format!("luksFormat --key-file - {arguments}");
        self.run(&arguments, image, PASSPHRASE).success();
    }

    /// The volume key as it prints it.
    #[track_caller]
    pub fn volume_key(&self, image: &Path) -> Vec<u8> {
        let run = self.run("luksDump --dump-volume-key --key-file -", image, PASSPHRASE);
        let text = run.success().stdout_text();
        let (_, dump) = text.split_once("MK dump:").expect("a key dump");
        let digits = dump.split_whitespace();
        let digits: String = digits.take_while(|word| word.len() == 2).collect();
        base16ct::mixed::decode_vec(digits).unwrap()
    }

    /// Tells if `passphrase` opens the image, by its own judgement.
    #[track_caller]
    pub fn opens(&self, image: &Path, passphrase: &[u8], slot: Option<u32>) -> bool {
        let slot = slot.map_or(String::new(), |slot| format!(" --key-slot {slot}"));
        let arguments = format!("open --test-passphrase --key-file -{slot}");
        let run = self.run(&arguments, image, passphrase);
        match run.status.code() {
            Some(0) => true,
            Some(2) => false,
            _ => panic!("{run}"),
        }
    }
}
