//! `dir:DIR`: the files of a folder as a file system, made in memory. Nothing of it is on a disk in clear, unless the
//! machine swaps.
//!
//! mke2fs fills a memfd, whose holes are those of the file system, and that is copied as any file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use cryptline::CopySource;
use cryptline::luks::{Available, available_for_files};
use cryptline_engine::OpenError;
use cryptline_sys::keep_descriptors;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::CliError;
use crate::error::on_one_line;
use crate::size::human;

/// Programs that make and change the file system, and where they may be beside `PATH`.
const PROGRAM: &str = "mke2fs";
const DEBUGGER: &str = "debugfs";
const SYSTEM: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
const OPTIONS: [&str; 9] = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-N"];
const BLOCK: u64 = 4096;
/// Bytes of an inode, and inodes that no file of the folder has.
const INODE: u64 = 256;
const RESERVED_INODES: u64 = 64;
/// The inode of the uppermost folder, and the first of what is in it.
const ROOT_INODE: u32 = 2;
const FIRST_INODE: u32 = 11;
/// Where the superblock has the number of inodes, and of those that are free.
const INODES_AT: u64 = 1024;
const FREE_INODES_AT: u64 = 1024 + 16;
/// Variable in which a fixed time is given to the programs of e2fsprogs.
const CLOCK: &str = "E2FSPROGS_FAKE_TIME";
const SMALLEST: u64 = 8 << 20;
/// How often a larger file system is tried where the first is too small.
const TRIES: u32 = 5;

/// The folder, where that is what `name` names.
pub fn of(name: &Path) -> Option<&Path> {
    let rest = name.as_os_str().as_bytes().strip_prefix(b"dir:")?;
    Some(Path::new(std::ffi::OsStr::from_bytes(rest)))
}

/// Description of the file system to make.
#[derive(Default)]
pub struct FileSystem {
    /// Its bytes. `None`: what it takes.
    pub room: Option<u64>,
    /// Its UUID. It is then the same each time that the folder is, or a copy of it. `None`: a random one.
    pub uuid: Option<String>,
}

/// A disk with an ext4 file system of what is in `folder`.
///
/// # Errors
/// A folder that cannot be read; no program, memory or room for it.
pub fn disk(folder: &Path, wanted: &FileSystem) -> Result<CopySource, CliError> {
    let contents = FolderSummary::of(folder)?;
    contents.check_memory(folder, available_for_files())?;
    let program = find(PROGRAM, folder)?;
    let pinned = match &wanted.uuid {
        Some(uuid) => Some((uuid, find(DEBUGGER, folder)?)),
        None => None,
    };
    // The program must have none of those that keys come from.
    keep_descriptors()
        .map_err(|error| CliError::parameters(format!("dir:{}: it needs Linux 5.11: {error}", shown(folder))))?;
    let memory = memfd_create("cryptline-dir", MemfdFlags::CLOEXEC);
    let memory = File::from(memory.map_err(|error| CliError::memory(format!("no memory for a file system: {error}")))?);
    let room = wanted.room.map(|room| room - room % BLOCK);
    let mut size = room.unwrap_or_else(|| contents.size());
    let mut tries = if room.is_some() { 1 } else { TRIES };
    loop {
        let mut command = Command::new(&program);
        command.args(OPTIONS).arg(contents.inodes().to_string());
        if let Some((uuid, _)) = &pinned {
            pin(&mut command, uuid, contents.newest);
        }
        let made = make(command, folder, &memory, size);
        tries -= 1;
        match made {
            Ok(()) => break,
            Err(why) if tries == 0 || !why.is_too_small => return Err(why.error),
            Err(_) => size = (size + size / 4).next_multiple_of(1 << 20),
        }
    }
    if let Some((_, debugger)) = &pinned {
        pin_inodes(debugger, &memory, contents.newest).map_err(|why| {
            let (folder, why) = (shown(folder), on_one_line(&why.to_string()));
            CliError::device(format!("dir:{folder}: {DEBUGGER} cannot set the times of its files: {why}"))
        })?;
    }
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(CopySource::raw(path)?.named(format!("dir:{}", folder.display())))
}

/// Summary of what is in a folder.
#[derive(Default)]
struct FolderSummary {
    entries: u64,
    /// Bytes of files, in whole blocks.
    bytes: u64,
    /// When the last of them was changed, in seconds since 1970.
    newest: i64,
}

impl FolderSummary {
    fn of(folder: &Path) -> Result<Self, CliError> {
        let failed = |path: &Path, error: io::Error| CliError::device(format!("dir:{}: {error}", shown(path)));
        let mut contents = Self::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            contents.add(BLOCK);
            for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, error))? {
                let entry = entry.map_err(|error| failed(&folder, error))?;
                let path = entry.path();
                let found = entry.metadata().map_err(|error| failed(&path, error))?;
                contents.newest = contents.newest.max(found.mtime());
                if found.is_dir() {
                    folders.push(path);
                } else {
                    // Holes stay holes.
                    contents.add(found.len().min(found.blocks().saturating_mul(512)).max(1));
                }
            }
        }
        Ok(contents)
    }

    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        let whole = bytes.checked_next_multiple_of(BLOCK);
        self.bytes = self.bytes.saturating_add(whole.unwrap_or(u64::MAX));
    }

    fn inodes(&self) -> u64 {
        self.entries + self.entries / 16 + RESERVED_INODES
    }

    /// Of a file system that has room for it, and for its journal.
    fn size(&self) -> u64 {
        // No machine has so much memory.
        let bytes = self.bytes.min(1 << 60);
        let needed = bytes + bytes / 32 + self.inodes() * INODE;
        (needed + needed / 8 + SMALLEST).next_multiple_of(1 << 20)
    }

    fn check_memory(&self, folder: &Path, there: Option<Available>) -> Result<(), CliError> {
        match there {
            Some(Available { kib, bound }) if kib.saturating_mul(1024) < self.bytes => Err(CliError::memory(format!(
                "dir:{}: its file system is made in memory and takes {}, and {bound} has {} left; make a volume, mount it with `cryptline mount`, and run `{PROGRAM} -d` on the file there",
                shown(folder),
                human(self.bytes),
                human(kib.saturating_mul(1024))
            ))),
            _ => Ok(()),
        }
    }
}

struct NotMade {
    error: CliError,
    is_too_small: bool,
}

/// When it was made, whenever that is: what `SOURCE_DATE_EPOCH` says, or the time of the newest file.
fn time_of(newest: i64) -> i64 {
    let asked = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    // What is not positive is taken for no time at all.
    asked.unwrap_or(newest).max(1)
}

/// Leaves nothing to chance, nor to the clock.
fn pin(command: &mut Command, uuid: &str, newest: i64) {
    command.args(["-U", uuid, "-E", &format!("hash_seed={uuid}")]);
    command.env(CLOCK, time_of(newest).to_string());
}

/// Gives all files one time of access and of change. The program takes over the folder's, which differ where it was read
/// meanwhile (`relatime`), and in each copy of it.
fn pin_inodes(debugger: &Path, memory: &File, newest: i64) -> io::Result<()> {
    let number = |at| {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, at)?;
        Ok::<_, io::Error>(u32::from_le_bytes(bytes))
    };
    // Nothing was removed, so those in use are the first ones.
    let used = number(INODES_AT)?.saturating_sub(number(FREE_INODES_AT)?);
    let time = time_of(newest);
    // Without O_CLOEXEC: the program opens it by this number, since the script is its input.
    let inherited = rustix::io::dup(memory)?;
    let mut child = Command::new(debugger)
        .args(["-w", "-f", "-"])
        .arg(format!("/proc/self/fd/{}", inherited.as_raw_fd()))
        .env("LC_ALL", "C")
        .env(CLOCK, time.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take();
    let script = move || {
        let mut input = BufWriter::new(input.ok_or(io::ErrorKind::BrokenPipe)?);
        for inode in std::iter::once(ROOT_INODE).chain(FIRST_INODE..=used) {
            writeln!(input, "set_inode_field <{inode}> atime @{time}")?;
            writeln!(input, "set_inode_field <{inode}> ctime @{time}")?;
        }
        input.flush()
    };
    // Beside it, so that neither waits for the other.
    let (written, ran) = thread::scope(|scope| {
        // Without a thread its input ends at once, and so does it.
        let writer = thread::Builder::new().spawn_scoped(scope, script);
        let ran = child.wait_with_output();
        (writer.map(|writer| writer.join()), ran)
    });
    let ran = ran?;
    let said = String::from_utf8_lossy(&ran.stderr);
    // It says what failed, and goes on; its version comes first.
    let banner = format!("{DEBUGGER} ");
    let failure = said.lines().find(|line| !line.trim().is_empty() && !line.starts_with(&banner));
    match (failure, written) {
        (Some(why), _) => Err(io::Error::other(why.to_owned())),
        (_, Err(error)) => Err(io::Error::other(OpenError::Thread(error))),
        (None, Ok(Ok(Ok(())))) if ran.status.success() => Ok(()),
        (None, Ok(Ok(Err(error)))) => Err(error),
        (None, _) => Err(io::Error::other("it failed")),
    }
}

/// Makes a file system of `size` bytes.
fn make(mut command: Command, folder: &Path, memory: &File, size: u64) -> Result<(), NotMade> {
    let failed = |why: &str| NotMade {
        is_too_small: why.contains("Could not allocate") || why.contains("No space left"),
        error: CliError::device(format!(
            "dir:{}: {PROGRAM} cannot make a file system of {}: {}",
            shown(folder),
            human(size),
            on_one_line(why)
        )),
    };
    let input = memory.set_len(0).and_then(|()| memory.set_len(size)).and_then(|()| memory.try_clone());
    let input = input.map_err(|error| failed(&error.to_string()))?;
    let ran = command
        .arg("-d")
        .arg(folder)
        .arg("/proc/self/fd/0")
        .arg(format!("{}k", size / 1024))
        .env("LC_ALL", "C")
        .stdin(input)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    // An older one says what was not copied, and goes on.
    if ran.status.success() && !said.contains("while populating file system") {
        return Ok(());
    }
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    Err(failed(lines.next_back().unwrap_or("it failed")))
}

fn find(program: &str, folder: &Path) -> Result<PathBuf, CliError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|program| program.is_file());
    found.ok_or_else(|| {
        CliError::parameters(format!(
            "{program} makes the file system of dir:{}, and is not there; install e2fsprogs",
            shown(folder)
        ))
    })
}

fn shown(path: &Path) -> String {
    on_one_line(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_larger_than_the_memory_of_the_control_group_is_refused_with_its_name() {
        let contents = FolderSummary { bytes: 3 << 20, ..FolderSummary::default() };
        let check = |kib| {
            let bound = "its control group".to_owned();
            contents.check_memory(Path::new("site"), Some(Available { kib, bound }))
        };
        check(3 << 10).unwrap();
        let refused = check((3 << 10) - 1).unwrap_err().to_string();
        assert!(refused.contains("its control group has"), "{refused}");
        contents.check_memory(Path::new("site"), None).unwrap();
    }
}
