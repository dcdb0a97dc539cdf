//! `mount`: the decrypted disk as a file, used by programs that nobody here wrote.

mod ends;
mod growth;
mod others;
mod uring;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{CHEAP, Folder};
use crate::server::{READY, cryptline, noise, ready, run, text};
use cryptline_testkit::peer::{self, BackgroundProgram, Peer, Run};
use rustix::io::Errno;
use tempfile::TempDir;

/// Bytes of the disks in memory.
const SIZE: u64 = 16 << 20;

/// Tells if this machine lets us mount; where not, that is said.
pub fn can_mount() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        peer::skip(&format!("/dev/fuse cannot be used: {error}"));
        return false;
    }
    rustix::process::geteuid().is_root() || peer::require("fusermount3").is_some()
}

/// A disk in memory, or any other, mounted by a server in the foreground.
struct Disk {
    folder: TempDir,
    server: Option<BackgroundProgram>,
    file: PathBuf,
}

impl Disk {
    /// `None` where nothing can be mounted.
    #[track_caller]
    fn in_memory(options: &[&str]) -> Option<Self> {
        Self::mount(&format!("ram:{SIZE}"), options)
    }

    #[track_caller]
    fn mount(target: &str, options: &[&str]) -> Option<Self> {
        can_mount().then(|| {
            let folder = tempfile::tempdir().expect("a folder");
            let point = folder.path().join("mnt");
            fs::create_dir(&point).expect("a mount point");
            Self::over(folder, target, &point, options)
        })
    }

    /// The disk of one line of a table.
    #[track_caller]
    fn of_table(line: &str) -> Option<Self> {
        Self::mount(&format!("--table={line}"), &[])
    }

    #[track_caller]
    fn over(folder: TempDir, target: &str, point: &Path, options: &[&str]) -> Self {
        let mut command = cryptline(["mount", "--foreground", target]);
        command.arg(point).args(["--name", "disk"]).args(options);
        let file = if point.is_dir() { point.join("disk") } else { point.to_owned() };
        Self { folder, server: Some(ready(&mut command)), file }
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }

    fn file(&self) -> &str {
        self.file.to_str().expect("temporary paths are text")
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&self.file);
        file.expect("the disk can be opened")
    }

    /// SIGTERM; it must end well and leave nothing behind.
    #[track_caller]
    fn end(mut self) -> Run {
        let server = self.server.take().expect("it runs");
        let ended = server.stop().success();
        let left = fs::read_dir(self.point()).map(Iterator::count);
        assert!(matches!(left, Ok(0)), "{left:?}");
        ended
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Else the folder could not be removed.
        let point = text(&self.point());
        let _ = peer::run(&mut cryptline(["umount", "--lazy", &point]), READY);
    }
}

#[track_caller]
fn succeeds(peer: &Peer, arguments: &[&str]) -> String {
    peer.run(arguments).success().stdout_text()
}

#[test]
fn what_dd_writes_cmp_finds_and_a_second_mount_too() {
    check_bytes(&[]);
}

fn check_bytes(options: &[&str]) {
    let Some([dd, cmp]) = peer::require_all(["dd", "cmp"]) else {
        return;
    };
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let [image, key, clear] = [folder.luks2(), folder.key(), folder.path("clear")].map(|path| text(&path));
    fs::write(&clear, noise(4 << 20)).expect("a text");
    let with = |more: &[&'static str]| [&["--key-file", key.as_str()], options, more].concat();
    let disk = Disk::mount(&image, &with(&[])).expect("as above");
    let (from, to) = (format!("if={clear}"), format!("of={}", disk.file()));
    // Blocks of all sorts, none of them a sector.
    succeeds(&dd, &[&from, &to, "bs=1000003", "conv=notrunc,fsync"]);
    succeeds(&cmp, &[&clear, disk.file()]);
    let info = fs::read_to_string(format!("{}.info", disk.file())).expect("a description");
    assert!(info.contains("aes-xts-plain64"), "{info}");
    disk.end();
    let disk = Disk::mount(&image, &with(&["--read-only"])).expect("as above");
    succeeds(&cmp, &[&clear, disk.file()]);
    let denied = OpenOptions::new().write(true).open(&disk.file);
    let denied = denied.expect_err("it is for reading only");
    assert_eq!(Errno::from_io_error(&denied), Some(Errno::ROFS));
    disk.end();
}

#[test]
fn fio_finds_what_it_has_written() {
    for options in [&[][..], &["--cache"], &["--io=preadv", "--lanes=1"]] {
        verify(options);
    }
}

fn verify(options: &[&str]) {
    let Some(fio) = peer::require("fio") else {
        return;
    };
    let Some(disk) = Disk::in_memory(options) else {
        return;
    };
    for job in [
        &["--ioengine=libaio", "--iodepth=32", "--direct=1", "--bs=4k"][..],
        &["--ioengine=psync", "--direct=0", "--bs=1M", "--fsync=4"],
        &["--ioengine=psync", "--direct=0", "--bsrange=512-300k", "--bs_unaligned=1"],
        &["--ioengine=io_uring", "--iodepth=8", "--direct=1", "--bs=1M"],
    ] {
        fio_verifies(&fio, &disk, &[&["--size=16M"], job].concat());
    }
    disk.end();
}

/// Writes in random order, and finds it again.
#[track_caller]
fn fio_verifies(fio: &Peer, disk: &Disk, job: &[&str]) {
    let file = format!("--filename={}", disk.file());
    let usual = ["--name=verify", &file, "--rw=randwrite"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--thread", "--minimal"];
    succeeds(fio, &[&usual[..], &verify[..], job].concat());
}

#[test]
fn disk_can_be_mapped() {
    map(&[]);
}

fn map(options: &[&str]) {
    let Some(fio) = peer::require("fio") else {
        return;
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).flat_map(str::parse::<u32>);
    if (numbers.next(), numbers.next()) < (Some(6), Some(6)) {
        return peer::skip("Linux 6.6 is needed to map a file past the page cache");
    }
    let Some(disk) = Disk::in_memory(options) else {
        return;
    };
    fio_verifies(&fio, &disk, &["--ioengine=mmap", "--bs=4k", "--size=4M"]);
    disk.end();
}

#[test]
fn fsx_finds_no_byte_that_it_has_not_written() {
    for options in [&[][..], &["--cache"]] {
        exercise(options);
    }
}

/// Operations of all sorts and lengths in random order, each of which is compared with what a file would have. There are no
/// holes: a volume that encrypts has none that reads as zeros.
const FSX: &str = "\
blockmode = true

[opsize]
max = 300000

[weights]
close_open = 0
truncate = 0
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
fsync = 1
fdatasync = 1
punch_hole = 0
posix_fadvise = 1
";

fn exercise(options: &[&str]) {
    let (Some(fsx), Some(disk)) = (peer::tool("fsx"), Disk::mount("ram:2M", options)) else {
        return;
    };
    let (settings, folder) = (disk.path("fsx.toml"), text(disk.folder.path()));
    fs::write(&settings, FSX).expect("settings");
    let said = succeeds(&fsx, &["-f", &settings, "-P", &folder, "-N", "3000", disk.file()]);
    assert!(said.contains("A-OK"), "{said}");
    disk.end();
}

#[test]
fn file_systems_and_images_survive_on_it() {
    check_images(&[]);
}

fn check_images(options: &[&str]) {
    let peers = ["mkfs.ext4", "e2fsck", "qemu-img", "cmp"];
    let Some([mkfs, e2fsck, qemu, cmp]) = peer::require_all(peers) else {
        return;
    };
    let Some(disk) = Disk::in_memory(options) else {
        return;
    };
    succeeds(&mkfs, &["-q", "-F", disk.file()]);
    succeeds(&e2fsck, &["-f", "-n", disk.file()]);
    // The disk is full of other bytes where the image has holes.
    disk.open().write_all_at(&noise(16 << 20), 0).expect("written");
    let image = disk.path("sparse");
    let sparse = File::create(&image).expect("an image");
    sparse.set_len(SIZE).expect("room");
    sparse.write_all_at(&noise(100_000), 5_000_001).expect("written");
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", &image, disk.file()];
    succeeds(&qemu, &convert);
    succeeds(&qemu, &["compare", "-f", "raw", "-F", "raw", &image, disk.file()]);
    let copy = disk.path("copy");
    let cp = peer::run(Command::new("cp").args(["--sparse=always", disk.file(), &copy]), READY);
    cp.success();
    succeeds(&cmp, &[&image, &copy]);
    disk.end();
}

#[test]
fn writers_in_one_sector_lose_no_byte() {
    write_side_by_side(&[]);
}

fn write_side_by_side(more: &[&str]) {
    for options in [&[][..], &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"]] {
        let Some(disk) = Disk::in_memory(&[options, more].concat()) else {
            return;
        };
        const AREA: usize = 8192;
        disk.open().write_all_at(&[0; AREA], 0).expect("written");
        std::thread::scope(|scope| {
            for writer in [1_u8, 2] {
                let file = disk.open();
                scope.spawn(move || {
                    for at in (usize::from(writer) - 1..AREA).step_by(2) {
                        file.write_all_at(&[writer], at as u64).expect("written");
                    }
                });
            }
        });
        let mut read = [0; AREA];
        disk.open().read_exact_at(&mut read, 0).expect("read");
        assert!(read.chunks(2).all(|pair| pair == [1, 2]));
        disk.end();
    }
}

#[test]
fn disk_keeps_its_size() {
    let Some(disk) = Disk::in_memory(&[]) else {
        return;
    };
    let file = disk.open();
    assert_eq!(file.metadata().expect("a size").len(), SIZE);
    // What fits is written, as on a disk, and read again.
    let at = SIZE - 5;
    assert_eq!(file.write_at(&[7; 100], at).expect("a part"), 5);
    let full = file.write_at(&[7; 100], SIZE).expect_err("the end");
    assert_eq!(Errno::from_io_error(&full), Some(Errno::NOSPC));
    let mut read = [0; 100];
    assert_eq!(file.read_at(&mut read, at).expect("a part"), 5);
    assert_eq!(read[..5], [7; 5]);
    assert_eq!(file.read_at(&mut read, SIZE).expect("the end"), 0);
    let cut = file.set_len(5).expect_err("fixed");
    assert_eq!(Errno::from_io_error(&cut), Some(Errno::PERM));
    let made = File::create(disk.file.with_file_name("other"));
    assert!(made.is_err(), "nothing else can be made there");
    assert_eq!(file.metadata().expect("a size").len(), SIZE);
    drop(file);
    disk.end();
}

#[test]
fn disk_takes_the_place_of_a_file() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let point = folder.path().join("mnt");
    fs::write(&point, "what was there before").expect("a file");
    let mut disk = Disk::over(folder, "ram:1M", &point, &[]);
    assert_eq!(fs::metadata(&point).expect("a disk").len(), 1 << 20);
    disk.open().write_all_at(&[5; 1000], 77).expect("written");
    disk.server.take().expect("it runs").stop().success();
    let left = fs::read_to_string(&point).expect("a file");
    assert_eq!(left, "what was there before");
}

#[test]
fn several_disks_are_files_of_one_folder() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    for place in ["one", "two", "mnt"] {
        fs::create_dir(folder.path(place)).expect("a folder");
    }
    let (point, key) = (text(&folder.path("mnt")), text(&folder.key()));
    let [one, two] = &["one/image", "two/image"].map(|name| text(&folder.create(name, &CHEAP)));
    for round in 0..2 {
        run(["mount", one, two, &point, "--key-file", &key]).success();
        let mut names: Vec<_> = fs::read_dir(&point)
            .expect("a folder")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        let expected = ["image", "image-2", "image-2.info", "image.info"];
        assert_eq!(names, expected);
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true);
            file.open(format!("{point}/{name}")).expect("a disk")
        };
        let disks = [open("image"), open("image-2")];
        let sector = |disk: &File| {
            let mut bytes = [0; 1000];
            disk.read_exact_at(&mut bytes, 70_001).expect("read");
            bytes
        };
        if round == 1 {
            assert_eq!(disks.each_ref().map(sector), [[1; 1000], [2; 1000]]);
        }
        std::thread::scope(|scope| {
            for (disk, byte) in disks.iter().zip(1_u8..) {
                scope.spawn(move || {
                    for at in (1..200_000).step_by(1000) {
                        disk.write_all_at(&[byte; 1000], at).expect("written");
                    }
                });
            }
        });
        assert_eq!(disks.each_ref().map(sector), [[1; 1000], [2; 1000]]);
        let info = fs::read_to_string(format!("{point}/image-2.info")).expect("a description");
        assert!(info.contains("two/image"), "{info}");
        drop(disks);
        run(["umount", &point]).success();
    }
}

#[test]
fn write_with_o_dsync_and_other_owners_and_modes() {
    let Some(disk) = Disk::in_memory(&[]) else {
        return;
    };
    let mut options = OpenOptions::new();
    let sync = i32::try_from(rustix::fs::OFlags::DSYNC.bits()).expect("a flag");
    let file = options.write(true).custom_flags(sync).open(&disk.file);
    let file = file.expect("the disk can be opened");
    file.write_all_at(&[1; 100], 5).expect("written");
    let mode = |mode| fs::set_permissions(&disk.file, fs::Permissions::from_mode(mode));
    let error = mode(0o644).expect_err("it has one for good");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM));
    mode(0o600).expect("the one that it has");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("nobody needs it");
    drop(file);
    disk.end();
}

#[test]
fn user_namespace_needs_no_helper() {
    let Some(unshare) = peer::require("unshare") else {
        return;
    };
    if !can_mount() {
        return;
    }
    let probe = unshare.run(["-Urm", "true"]);
    if !probe.status.success() {
        return peer::skip(&format!("no user namespaces: {}", probe.stderr_text().trim()));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let point = text(folder.path());
    let program = env!("CARGO_BIN_EXE_cryptline");
    let script =
        format!("'{program}' mount ram:1M '{point}' && test -s '{point}/disk' && '{program}' umount '{point}'");
    let mut command = unshare.command();
    command.args(["-Urm", "sh", "-ec", &script]).env("PATH", "/usr/bin:/bin");
    peer::run(&mut command, READY).success();
    let outside = fs::metadata(&point).expect("a folder").dev();
    let above = fs::metadata(folder.path().parent().expect("a parent")).expect("a folder");
    assert_eq!(outside, above.dev(), "nothing was mounted out here");
}

#[test]
fn user_who_may_not_mount_is_told_who_can() {
    if !can_mount() {
        return;
    }
    // Without the rights of root, and with no helper to be found.
    let folder = tempfile::tempdir().expect("a folder");
    let Some(unshare) = peer::require("unshare") else {
        return;
    };
    let mut command = unshare.command();
    let program = env!("CARGO_BIN_EXE_cryptline");
    command.args(["-U", program, "mount", "ram:1M"]).arg(folder.path());
    command.env("PATH", "/nowhere");
    let refused = peer::run(&mut command, READY);
    let said = refused.stderr_text();
    if said.contains("unshare failed") {
        return peer::skip("no user namespaces");
    }
    assert_eq!(refused.status.code(), Some(1), "{refused}");
    assert!(said.contains("install the package fuse3"), "{refused}");
}
