//! A real kernel loses acknowledged writes: its page cache cannot be written out. Whatever it tells
//! whom of it, no flush and no durable write says yes afterwards.
//!
//! ```text
//! image ── ext4 ── loop device ── file in tmpfs      blocks are punched out of the file, and the
//!          or an overlay over it, or the device      tmpfs is full: writing them out fails
//! ```
//!
//! Each test runs as root in a mount namespace of its own, which takes everything with it when it ends.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cryptline_engine::base::{DirectMode, Image, PersistentMemory, PmemDevice};
use cryptline_engine::{Fault, Gate, Request};
use cryptline_testkit::peer;
use cryptline_testkit::suite::{Driver, Setup};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

const MIB: u64 = 1 << 20;
/// The image, or the part of the device that is used.
const IMAGE: u64 = 8 * MIB;
/// The head of the image, whose blocks stay.
const SOUND: u64 = MIB;
const INSIDE: &str = "CRYPTLINE_TEST_IN_NAMESPACE";

/// Runs `test` in a process with mounts of its own.
fn apart(test: impl Fn(&Place)) {
    in_a_namespace(|| {
        for make in [Place::ext4, Place::overlay, Place::block_device] {
            let Some(place) = make() else { return };
            test(&place);
        }
    });
}

fn in_a_namespace(test: impl Fn()) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    if !rustix::process::geteuid().is_root() {
        return peer::skip("mounts and loop devices need root");
    }
    let Some([unshare, _, _]) = peer::require_all(["unshare", "losetup", "mkfs.ext4"]) else { return };
    let mut child = unshare.command();
    child.args(["--mount", "--propagation", "private"]);
    child.arg(std::env::current_exe().unwrap());
    child.args([&name, "--exact", "--nocapture", "--test-threads=1"]);
    let output = child.env(INSIDE, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let ran = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{ran}\n{told}");
    assert!(ran.contains("1 passed"), "{ran}");
    std::io::stderr().write_all(&output.stderr).unwrap();
}

/// Runs `test` in each place by each setup, with `/proc` and without: then queues cannot open the
/// file again.
fn each_way(test: impl Fn(&Place, Setup)) {
    let test = |place: &Place, proc: &str| {
        for setup in Setup::ALL {
            println!("{} {setup:?}, {proc} /proc", place.image.display());
            test(place, setup);
        }
    };
    apart(|place| {
        test(place, "with");
        run("mount", &["-t", "tmpfs", "none", "/proc"]);
        assert!(!Path::new("/proc/self").exists());
        test(place, "without");
        run("umount", &["/proc"]);
    });
}

/// An image whose writes reach the page cache and no further.
struct Place {
    image: PathBuf,
    /// Keeps a loop device alive that was given up already: the kernel frees it with its last user.
    _device: Option<File>,
    folder: tempfile::TempDir,
}

impl Place {
    /// A file in ext4.
    fn ext4() -> Option<Self> {
        Self::in_ext4(|mount| mount.join("image"))
    }

    /// A file in an overlay over ext4, as the files of containers are. Its page cache is that of the
    /// file below, of which only a sync through the overlay learns.
    fn overlay() -> Option<Self> {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap();
        if !known.contains("overlay") {
            return Self::ext4();
        }
        Self::in_ext4(|mount| overlay_in(mount).join("image"))
    }

    /// A file, all its blocks allocated, somewhere in an ext4 without a journal, which would notice
    /// the failure and stop the file system.
    fn in_ext4(place: impl FnOnce(&Path) -> PathBuf) -> Option<Self> {
        let (folder, backing) = backing();
        let mount = folder.path().join("mount");
        let options = "-q -F -b 4096 -m 0 -O ^has_journal -E nodiscard";
        let options: Vec<_> = options.split(' ').chain([text(&backing)]).collect();
        run("mkfs.ext4", &options);
        std::fs::create_dir(&mount).unwrap();
        let options = ["-o", "loop,noatime", text(&backing), text(&mount)];
        let mounted = Command::new("mount").args(options).status();
        if !mounted.unwrap().success() {
            peer::skip("there are no loop devices here");
            return None;
        }
        let image = place(&mount);
        let file = File::create(&image).unwrap();
        for offset in (0..IMAGE).step_by(4096) {
            file.write_all_at(&block(offset), offset).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        run("sync", &["-f", text(&mount)]);
        let place = Self { image, _device: None, folder };
        place.break_backing(&backing);
        Some(place)
    }

    /// The loop device itself.
    fn block_device() -> Option<Self> {
        let (folder, backing) = backing();
        let losetup = Command::new("losetup").args(["-f", "--show", text(&backing)]).stderr(Stdio::inherit()).output();
        let losetup = losetup.unwrap();
        if !losetup.status.success() {
            peer::skip("there are no loop devices here");
            return None;
        }
        let device = String::from_utf8(losetup.stdout).unwrap();
        let image = PathBuf::from(device.trim());
        let file = File::options().read(true).write(true).open(&image).unwrap();
        run("losetup", &["-d", device.trim()]);
        for offset in (0..IMAGE).step_by(4096) {
            file.write_all_at(&block(offset), offset).unwrap();
        }
        file.sync_all().unwrap();
        let place = Self { image, _device: Some(file), folder };
        place.break_backing(&backing);
        Some(place)
    }

    /// Punches the image's blocks out of the backing file, but for the sound ones, and leaves no room
    /// for them to come back.
    fn break_backing(&self, backing: &Path) {
        let file = File::options().read(true).write(true).open(backing);
        let file = file.unwrap();
        let mut bytes = [0; 4096];
        let mut punched = 0;
        for offset in (0..file.metadata().unwrap().len()).step_by(4096) {
            file.read_exact_at(&mut bytes, offset).unwrap();
            let (mark, number) = bytes[..16].split_at(8);
            let number = u64::from_le_bytes(number.try_into().unwrap());
            if mark == MARK && number >= SOUND {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, offset, 4096).unwrap();
                punched += 4096;
            }
        }
        assert_eq!(punched, IMAGE - SOUND, "where the image lies was not found");
        let mut filler = File::create(self.folder.path().join("tmpfs/filler")).unwrap();
        let full = loop {
            if let Err(error) = filler.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    fn gate(&self) -> Gate {
        // Beside `somebody`, who has it open too.
        let image = Image::open_shared(&self.image, false).unwrap();
        Gate::new(image.into_device(512, DirectMode::Off).unwrap())
    }

    /// Another program's open file, from before the writes that are lost.
    fn somebody(&self) -> File {
        let file = File::options().read(true).write(true).open(&self.image);
        let file = file.unwrap();
        // Of what was lost in an earlier round it need not be told now.
        let _ = file.sync_data();
        assert!(file.sync_data().is_ok(), "nothing new is lost");
        file
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the folder is removed; and what is still in use goes with the namespace.
        for mount in ["mount/merged", "mount", "tmpfs"] {
            let mut umount = Command::new("umount");
            umount.args(["-q", "-l"]).arg(self.folder.path().join(mount));
            let _ = umount.status();
        }
    }
}

const MARK: &[u8] = b"lost?\0\0\0";

fn block(offset: u64) -> Vec<u8> {
    let mut block = vec![0x5a; 4096];
    block[..8].copy_from_slice(MARK);
    block[8..16].copy_from_slice(&offset.to_le_bytes());
    block
}

/// A file in a small tmpfs.
fn backing() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let tmpfs = folder.path().join("tmpfs");
    std::fs::create_dir(&tmpfs).unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=32M", "none", text(&tmpfs)]);
    let backing = tmpfs.join("backing");
    File::create(&backing).unwrap().set_len(16 * MIB).unwrap();
    (folder, backing)
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes that are acknowledged, and that nobody will see again.
fn write_what_will_be_lost(driver: &mut Driver) {
    for token in 0..16 {
        let offset = 2 * MIB + token * 65536;
        driver.submit(driver.write_request(offset, 65536, 9, token));
    }
    for completion in driver.drain() {
        assert_eq!(completion.result, Ok(()));
    }
}

/// Mounts an overlay whose folders are in `place`; where it is.
fn overlay_in(place: &Path) -> PathBuf {
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| place.join(name));
    for folder in [&lower, &upper, &work, &merged] {
        std::fs::create_dir(folder).unwrap();
    }
    let parts = [("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)];
    let parts = parts.map(|(name, path)| format!("{name}={}", text(path)));
    let options = ["-t", "overlay", "-o", &parts.join(","), "none", text(&merged)];
    run("mount", &options);
    merged
}

fn durable_write(driver: &mut Driver, offset: u64) -> Result<(), Fault> {
    let mut data = driver.buffer(4096);
    data.fill(3);
    driver.result(Request::write(offset, data, true, 0))
}

fn no_flush_succeeds(driver: &mut Driver) {
    for _ in 0..3 {
        assert!(driver.flush().is_err(), "a flush of what was lost said yes");
    }
}

#[test]
fn durable_write_that_is_told_of_earlier_ones_leaves_no_flush_to_succeed() {
    each_way(|place, setup| {
        let somebody = place.somebody();
        let gate = place.gate();
        let mut driver = Driver::new(&gate, setup);
        assert_eq!(durable_write(&mut driver, 0), Ok(()));
        assert_eq!(driver.flush(), Ok(()));
        write_what_will_be_lost(&mut driver);
        // Writes it out.
        assert!(somebody.sync_data().is_err(), "nothing was lost");
        // Its own block is sound.
        assert!(durable_write(&mut driver, 4096).is_err());
        assert!(durable_write(&mut driver, 8192).is_err());
        no_flush_succeeds(&mut driver);
    });
}

/// There is no room for the write itself, and nothing else is lost: no reason to call nothing durable any more.
#[test]
fn durable_write_for_which_there_is_no_room_is_made_once_there_is() {
    in_a_namespace(|| {
        for (proc, setup) in ["with", "without"].into_iter().flat_map(|proc| Setup::ALL.map(|setup| (proc, setup))) {
            println!("{setup:?}, {proc} /proc");
            let folder = tempfile::tempdir().unwrap();
            run("mount", &["-t", "tmpfs", "-o", "size=1M", "none", text(folder.path())]);
            let [image, filler] = ["image", "filler"].map(|name| folder.path().join(name));
            File::create(&image).unwrap().set_len(IMAGE).unwrap();
            let gate = Gate::new(Image::open(&image, false).unwrap().into_device(512, DirectMode::Off).unwrap());
            if proc == "without" {
                run("mount", &["-t", "tmpfs", "none", "/proc"]);
            }
            let mut driver = Driver::new(&gate, setup);
            assert_eq!(driver.run(driver.write_request(0, 65536, 9, 1)).result, Ok(()));
            let mut file = File::create(&filler).unwrap();
            while file.write_all(&[1; 4096]).is_ok() {}
            for _ in 0..2 {
                assert_eq!(durable_write(&mut driver, MIB), Err(Fault::NoSpace));
                assert_eq!(driver.flush(), Ok(()), "what was written has its room");
            }
            std::fs::remove_file(&filler).unwrap();
            drop(file);
            assert_eq!(durable_write(&mut driver, MIB), Ok(()));
            assert_eq!(driver.flush(), Ok(()));
            assert!(!gate.is_latched());
            if proc == "without" {
                run("umount", &["/proc"]);
            }
            run("umount", &["-l", text(folder.path())]);
        }
    });
}

/// Want of room may be told of earlier writes where a file system is not known to refuse a write first, and without
/// `/proc` nobody is left who was told of nothing.
#[test]
fn write_without_room_through_the_only_open_file_leaves_no_flush_to_succeed() {
    in_a_namespace(|| {
        if !std::fs::read_to_string("/proc/filesystems").unwrap().contains("overlay") {
            return peer::skip("there are no overlays here");
        }
        for (durable, setup) in [false, true].into_iter().flat_map(|durable| Setup::ALL.map(|setup| (durable, setup))) {
            println!("{setup:?}, durable: {durable}");
            let folder = tempfile::tempdir().unwrap();
            run("mount", &["-t", "tmpfs", "-o", "size=1M", "none", text(folder.path())]);
            let merged = overlay_in(folder.path());
            let image = merged.join("image");
            File::create(&image).unwrap().set_len(IMAGE).unwrap();
            let gate = Gate::new(Image::open(&image, false).unwrap().into_device(512, DirectMode::Off).unwrap());
            run("mount", &["-t", "tmpfs", "none", "/proc"]);
            let mut driver = Driver::new(&gate, setup);
            assert_eq!(driver.run(driver.write_request(0, 65536, 9, 1)).result, Ok(()));
            assert_eq!(driver.flush(), Ok(()));
            let mut file = File::create(folder.path().join("filler")).unwrap();
            while file.write_all(&[1; 4096]).is_ok() {}
            let data = driver.buffer(4096);
            let full = driver.result(Request::write(MIB, data, durable, 0));
            assert_eq!(full, Err(Fault::Io(Errno::NOSPC)));
            no_flush_succeeds(&mut driver);
            assert!(durable_write(&mut driver, 0).is_err());
            run("umount", &["/proc"]);
            run("umount", &["-l", text(&merged)]);
            run("umount", &["-l", text(folder.path())]);
        }
    });
}

#[test]
fn flush_of_a_queue_opened_after_somebody_was_told_fails() {
    each_way(|place, setup| {
        let somebody = place.somebody();
        let gate = place.gate();
        let mut first = Driver::new(&gate, setup);
        assert_eq!(first.flush(), Ok(()));
        write_what_will_be_lost(&mut first);
        drop(first);
        assert!(somebody.sync_data().is_err(), "nothing was lost");
        let mut late = Driver::new(&gate, setup);
        // What a durable write promises is itself, and that is true.
        let _ = durable_write(&mut late, 4096);
        no_flush_succeeds(&mut late);
        no_flush_succeeds(&mut Driver::new(&gate, setup));
        assert!(durable_write(&mut late, 8192).is_err());
    });
}

#[test]
fn of_flushes_and_durable_writes_under_way_together_none_succeeds_after_a_loss() {
    each_way(|place, setup| {
        let gate = place.gate();
        let mut driver = Driver::new(&gate, setup);
        write_what_will_be_lost(&mut driver);
        for token in 0..32 {
            driver.submit(match token % 4 {
                3 => {
                    let mut data = driver.buffer(4096);
                    data.fill(4);
                    // Their own blocks are lost too.
                    Request::write(4 * MIB + token * 4096, data, true, token)
                }
                _ => Request::flush(token),
            });
        }
        for completion in driver.drain() {
            assert!(completion.result.is_err(), "{completion:?}");
        }
        no_flush_succeeds(&mut driver);
    });
}

#[test]
fn of_flushes_of_several_queues_at_once_none_succeeds_after_a_loss() {
    each_way(|place, setup| {
        let somebody = place.somebody();
        let gate = &place.gate();
        let mut early = Driver::new(gate, setup);
        write_what_will_be_lost(&mut early);
        assert!(somebody.sync_data().is_err(), "nothing was lost");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| no_flush_succeeds(&mut Driver::new(gate, setup)));
            }
            no_flush_succeeds(&mut early);
        });
    });
}

#[test]
fn what_others_sync_takes_no_flush_from_us_while_nothing_is_lost() {
    each_way(|place, setup| {
        let somebody = place.somebody();
        let gate = place.gate();
        let mut driver = Driver::new(&gate, setup);
        for token in 0..64 {
            let offset = token % 16 * 65536;
            let write = driver.write_request(offset, 65536, token, token);
            assert_eq!(driver.run(write).result, Ok(()));
            somebody.sync_data().unwrap();
            assert_eq!(driver.flush(), Ok(()));
            assert_eq!(durable_write(&mut driver, offset), Ok(()));
            assert_eq!(Driver::new(&gate, setup).flush(), Ok(()));
        }
    });
}

/// The kernel tells a mapping once, too, and threads share it.
#[test]
fn mapped_file_that_failed_to_sync_fails_everything_on_every_thread() {
    apart(|place| {
        let gate = &{
            let memory = PersistentMemory::open(&place.image, false).unwrap();
            assert!(!memory.is_persistent_memory());
            Gate::new(PmemDevice::new(memory, false))
        };
        let setup = Setup::ALL[0];
        let mut early = Driver::new(gate, setup);
        let write = early.write_request(0, 4096, 1, 1);
        assert_eq!(early.run(write).result, Ok(()));
        assert_eq!(early.flush(), Ok(()));
        write_what_will_be_lost(&mut early);
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let together = &together;
                scope.spawn(move || {
                    let mut driver = Driver::new(gate, setup);
                    together.wait();
                    match thread % 2 {
                        0 => no_flush_succeeds(&mut driver),
                        // Of a block that is lost too.
                        _ => assert!(durable_write(&mut driver, 2 * MIB).is_err()),
                    }
                    no_flush_succeeds(&mut driver);
                    assert!(driver.read(0, 4096).is_err());
                    let write = driver.write_request(0, 4096, 1, 1);
                    assert!(driver.run(write).result.is_err());
                });
            }
        });
        no_flush_succeeds(&mut early);
        assert!(early.read(0, 4096).is_err());
    });
}
