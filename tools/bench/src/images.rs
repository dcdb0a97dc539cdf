//! Encrypted images and a plain one, with the same clear text.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cryptline::luks::format::LuksVersion;
use cryptline::{Create, DirectMode, Open, Volume, size};
use cryptline_engine::Gate;

use tempfile::TempDir;

use crate::contents::TestPattern;
use crate::error::{Of as _, Result, fail};
use crate::volume::cheap;

/// Where the images go unless told otherwise: memory.
pub const FOLDER: &str = "/dev/shm";
/// Name of the socket of whoever serves one.
pub const SOCKET: &str = "socket";
/// Longest path of a socket, see unix(7).
const SOCKET_MAX: usize = 107;
/// The passphrase's file.
pub const KEY_FILE: &str = "passphrase";
/// Passphrase that protects only noise.
pub const PASSPHRASE: &str = "no secret at all";
/// More than any header made here.
const HEADER_ROOM: u64 = 32 << 20;
/// Bytes written at a time.
const PIECE: usize = 1 << 20;
/// Which contents.
const SEED: u64 = 0x6372_7970_746c_696e;

/// The images.
#[derive(Debug)]
pub struct Images {
    /// Of each version that was asked for.
    pub luks1: PathBuf,
    pub luks2: PathBuf,
    /// The clear text of the encrypted ones.
    pub plain: PathBuf,
    pub key: PathBuf,
    /// Of the clear text, in bytes.
    pub size: u64,
    pub contents: TestPattern,
    pub sha256: String,
    /// Description of the storage below the folder, for people.
    pub medium: String,
}

impl Images {
    /// Makes the plain one and one of each of `versions` in `folder`.
    pub fn make(folder: &Path, size: u64, versions: &[LuksVersion]) -> Result<Self> {
        let space = rustix::fs::statvfs(folder).of(format_args!("--dir {}", folder.display()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let count = versions.len() as u64 + 1;
        let needed = size.saturating_add(HEADER_ROOM).saturating_mul(count);
        if needed > free {
            fail!(
                "the images need {} and {} has {} free; use a smaller --size or another --dir",
                size::human(needed),
                folder.display(),
                size::human(free)
            );
        }
        let mut images = Self {
            luks1: folder.join("luks1.img"),
            luks2: folder.join("luks2.img"),
            plain: folder.join("plain.img"),
            key: folder.join(KEY_FILE),
            size,
            contents: TestPattern::new(SEED),
            sha256: String::new(),
            medium: format!(
                "files in {}, {} of clear disk",
                folder.parent().unwrap_or(folder).display(),
                size::human(size)
            ),
        };
        images.fill(versions)?;
        Ok(images)
    }

    /// Opens an encrypted one in this process.
    fn open(&self, version: LuksVersion) -> Result<Volume> {
        let open = Open::new(self.luks(version)).direct(DirectMode::Off);
        Ok(open.passphrase(PASSPHRASE).open()?)
    }

    fn luks(&self, version: LuksVersion) -> &Path {
        match version {
            LuksVersion::Luks1 => &self.luks1,
            LuksVersion::Luks2 => &self.luks2,
        }
    }

    /// Makes the files.
    fn fill(&mut self, versions: &[LuksVersion]) -> Result<()> {
        let private = |path: &Path| {
            let mut new = File::options();
            new.write(true).create_new(true).mode(0o600).open(path)
        };
        private(&self.key).and_then(|_| fs::write(&self.key, PASSPHRASE)).of(self.key.display())?;
        private(&self.plain).and_then(|plain| plain.set_len(self.size)).of(self.plain.display())?;
        let encrypted = versions.iter().map(|&version| self.encrypted(version));
        let encrypted = encrypted.collect::<Result<Vec<_>>>()?;
        // All are flushed: on a disk, writing back later would disturb what is measured.
        let (plain, _) = Open::new(&self.plain).direct(DirectMode::Off).base()?;
        let mut gates: Vec<&Gate> = encrypted.iter().map(Volume::gate).collect();
        gates.push(&plain);
        self.sha256 = self.contents.write_to_each(&gates, PIECE)?;
        Ok(())
    }

    /// Makes an empty encrypted one, whose clear disk is as large as the plain image, to the byte.
    fn encrypted(&self, version: LuksVersion) -> Result<Volume> {
        let path = self.luks(version);
        let room = self.size + HEADER_ROOM;
        let luks = Create::new(path).size(room).format(cheap(version));
        luks.passphrase(PASSPHRASE).create()?;
        let spare = self.open(version)?.gate().geometry().size - self.size;
        let resized = File::options().write(true).open(path).and_then(|luks| luks.set_len(room - spare));
        resized.of(path.display())?;
        self.open(version)
    }
}

/// A private folder for images and sockets.
pub fn private_folder(dir: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("cryptline-bench-").tempdir_in(dir);
    let name = format!("--dir {}", dir.display());
    let made = made.of(format_args!("{name}: use a folder that can be written to"))?;
    if made.path().join(SOCKET).as_os_str().len() > SOCKET_MAX {
        fail!("{name}: the path is too long for a socket; use a shorter one");
    }
    Ok(made)
}
