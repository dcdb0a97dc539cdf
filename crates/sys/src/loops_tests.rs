//! Folders as the kernel would have them, and a real loop device where there is one.

use std::cell::RefCell;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::lock_file;

const MIB: u64 = 1 << 20;

/// A machine in a folder.
struct Machine {
    folder: tempfile::TempDir,
    system: System,
    /// The files, as loop devices have them open.
    held: RefCell<Vec<File>>,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let system = System { root: folder.path().to_owned() };
        let machine = Self { folder, system, held: RefCell::default() };
        machine.put("sys/block/sda/dev", "8:0\n");
        machine.put("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
        machine.put("proc/locks", "");
        machine
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn file(&self, name: &str, size: u64) -> (PathBuf, File) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        file.set_len(size).unwrap();
        self.held.borrow_mut().push(File::open(&path).unwrap());
        (path, file)
    }

    /// A loop device that nobody can ask, since it has no node.
    fn attach(&self, number: u32, path: &Path, bytes: Range<u64>) {
        let folder = format!("sys/block/loop{number}");
        self.put(&format!("{folder}/dev"), &format!("7:{number}\n"));
        self.put(&format!("{folder}/size"), &format!("{}\n", (bytes.end - bytes.start) / SECTOR));
        self.put(&format!("{folder}/loop/backing_file"), &format!("{}\n", path.display()));
        self.put(&format!("{folder}/loop/offset"), &format!("{}\n", bytes.start));
        self.put(&format!("{folder}/loop/sizelimit"), "0\n");
    }

    fn is_refused(&self, file: &File) -> bool {
        match self.system.refuse_other_users(file, true) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
                true
            }
        }
    }
}

#[test]
fn file_is_refused_whose_loop_device_cannot_be_asked_whatever_its_name_is() {
    let machine = Machine::new();
    let (path, file) = machine.file("disk", MIB + 100);
    let (other, other_file) = machine.file("other", 2 * MIB);
    assert!(!machine.is_refused(&file));
    machine.attach(0, &other, 0..2 * MIB);
    assert!(!machine.is_refused(&file), "of another file");
    assert!(machine.is_refused(&other_file));
    let [hard, soft] = ["hard", "soft"].map(|name| machine.folder.path().join(name));
    fs::hard_link(&path, &hard).unwrap();
    symlink(&path, &soft).unwrap();
    for name in [&path, &hard, &soft] {
        machine.attach(1, name, 4096..MIB);
        assert!(machine.is_refused(&file), "{name:?}");
        assert!(machine.is_refused(&File::options().write(true).open(&hard).unwrap()));
    }
}

/// As in a container, where the names are those of another machine.
#[test]
fn name_that_leads_nowhere_or_to_a_file_that_cannot_be_it_proves_nothing() {
    let machine = Machine::new();
    let (_, file) = machine.file("disk", MIB);
    let nowhere = Path::new("/nowhere/at/all");
    machine.attach(0, &nowhere.join("other"), 0..2 * MIB);
    assert!(!machine.is_refused(&file), "neither its name nor its size");
    machine.attach(0, &nowhere.join("other"), 0..MIB);
    assert!(machine.is_refused(&file), "its size");
    machine.attach(0, &nowhere.join("other"), 4096..MIB);
    assert!(machine.is_refused(&file), "its size, from an offset on");
    machine.attach(0, &nowhere.join("disk"), 0..2 * MIB);
    assert!(machine.is_refused(&file), "its name, and it has grown since");
    // Another file has that name here, and it does not end where the device does.
    let (other, _) = machine.file("there/disk", 4 * MIB);
    machine.attach(0, &other, 0..MIB);
    assert!(machine.is_refused(&file));
    machine.attach(0, &other, 0..4 * MIB);
    assert!(!machine.is_refused(&file));
}

/// As in a container beside one that has a disk of the same name.
#[test]
fn file_that_nobody_else_has_open_is_shown_by_no_loop_device() {
    let machine = Machine::new();
    let (path, file) = machine.file("disk", MIB);
    machine.attach(0, Path::new("/nowhere/disk"), 0..MIB);
    assert!(machine.is_refused(&file));
    machine.held.borrow_mut().clear();
    assert!(!machine.is_refused(&file));
    let read_only = File::open(&path).unwrap();
    assert!(machine.is_refused(&file) && machine.is_refused(&read_only));
    drop(file);
    assert!(!machine.is_refused(&read_only));
    // Nothing is left of the question: who opens it now does not wait, nor sends a signal.
    drop(read_only);
    File::options().write(true).open(&path).unwrap();
}

#[test]
fn loop_device_whose_path_cannot_be_told_may_show_any_file() {
    let machine = Machine::new();
    let (_, file) = machine.file("disk", MIB);
    machine.attach(0, Path::new("/nowhere/other"), 0..2 * MIB);
    assert!(!machine.is_refused(&file), "neither its name nor its size");
    fs::remove_file(machine.folder.path().join("sys/block/loop0/loop/backing_file")).unwrap();
    assert!(machine.is_refused(&file));
}

#[test]
fn loop_device_that_shows_nothing_or_is_not_there_keeps_nobody_out() {
    let machine = Machine::new();
    let (_, file) = machine.file("disk", MIB);
    machine.put("sys/block/loop0/dev", "7:0\n");
    assert!(!machine.is_refused(&file));
    fs::remove_dir_all(machine.folder.path().join("sys")).unwrap();
    assert!(!machine.is_refused(&file));
}

#[test]
fn file_on_a_server_that_may_not_answer_is_not_asked_unless_it_is_there_too() {
    let machine = Machine::new();
    let (_, file) = machine.file("disk", MIB);
    // Same size, so it would count.
    let far = Path::new("/far away/image");
    machine.attach(0, far, 0..MIB);
    assert!(machine.is_refused(&file));
    let own = file.metadata().unwrap().dev();
    let mounts = |kind: &str, device: u64| {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let line = format!("40 20 {major}:{minor} / /far\\040away rw,relatime shared:1 - {kind} host:/x rw\n");
        machine.put("proc/self/mountinfo", &format!("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}"));
    };
    for (kind, device, refused) in [
        ("nfs4", own + 1, false),
        ("fuse.sshfs", own + 1, false),
        ("nfs4", own, true),
        ("ext4", own + 1, true),
        ("fuseblk", own + 1, true),
    ] {
        mounts(kind, device);
        assert_eq!(machine.is_refused(&file), refused, "{kind}");
    }
}

#[test]
fn swap_space_is_refused() {
    let machine = Machine::new();
    let (path, file) = machine.file("a file", MIB);
    let (_, other) = machine.file("other", MIB);
    let escaped = path.display().to_string().replace(' ', "\\040");
    machine.put("proc/swaps", &format!("Filename\tType\tSize\tUsed\tPriority\n{escaped} file\t1024\t0\t-2\n"));
    assert!(machine.is_refused(&file));
    assert!(!machine.is_refused(&other));
}

#[test]
fn lock_is_found_by_device_and_inode() {
    let machine = Machine::new();
    let file = (rustix::fs::makedev(0xfd, 0x11), 4711);
    let has = |alone| machine.system.has_lock(file, alone).unwrap();
    for (line, alone, shared) in [
        ("1: OFDLCK ADVISORY  WRITE -1 fd:11:4711 0 EOF", true, true),
        ("2: OFDLCK ADVISORY  READ  -1 fd:11:4711 0 0", true, false),
        ("2: POSIX  ADVISORY  WRITE 77 fd:11:4711 0 EOF", true, true),
        ("3: FLOCK  ADVISORY  WRITE 77 fd:11:4711 0 EOF", false, false),
        ("4: OFDLCK ADVISORY  WRITE -1 fd:11:4712 0 EOF", false, false),
        ("5: OFDLCK ADVISORY  WRITE -1 fd:12:4711 0 EOF", false, false),
    ] {
        machine.put("proc/locks", &format!("{line}\n"));
        assert_eq!((has(true), has(false)), (alone, shared), "{line}");
    }
    fs::remove_file(machine.folder.path().join("proc/locks")).unwrap();
    machine.system.has_lock(file, true).expect_err("nobody knows");
}

/// A loop device over a file, until it is dropped.
struct Attached(PathBuf);

impl Attached {
    fn over(path: &Path, options: &[&str]) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).args(options).arg(path).output().ok()?;
        let name = String::from_utf8(made.stdout).ok()?;
        made.status.success().then(|| Self(PathBuf::from(name.trim())))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn file_and_its_loop_devices_keep_each_other_out_and_a_name_that_lies_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [path, moved] = ["disk", "moved"].map(|name| folder.path().join(name));
    let make = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let file = make();
    file.set_len(4 * MIB).unwrap();
    let halves = ["--offset=2097152", "--sizelimit=2097152"];
    let (Some(whole), Some(first), Some(second)) =
        (Attached::over(&path, &[]), Attached::over(&path, &halves[1..]), Attached::over(&path, &halves))
    else {
        return crate::skip("no loop device here");
    };
    // From now on the kernel has a path that leads to another file.
    fs::rename(&path, &moved).unwrap();
    let other = make();
    other.set_len(4 * MIB).unwrap();
    let open =
        |device: &Attached, flags| File::options().read(true).write(true).custom_flags(flags).open(&device.0).unwrap();
    let check = |file: &File| refuse_other_users(file, true);
    let refused = |file: &File| check(file).unwrap_err().kind() == io::ErrorKind::ResourceBusy;
    let [of_whole, of_first, of_second] = [&whole, &first, &second].map(|device| open(device, 0));
    for idle in [&file, &other, &of_whole, &of_first, &of_second] {
        check(idle).unwrap();
    }
    // Claimed, as by a mount or a mapping.
    let claimed = open(&first, libc::O_EXCL);
    assert!(refused(&file) && refused(&of_whole));
    check(&of_second).unwrap();
    check(&other).unwrap();
    refuse_other_users(&file, false).unwrap();
    drop(claimed);
    // Locked, as by a server that only reads; and by one that writes.
    lock_file(&of_second, false).unwrap();
    assert!(refused(&file) && refused(&of_whole));
    check(&of_first).unwrap();
    refuse_other_users(&file, false).unwrap();
    drop(of_second);
    let of_second = open(&second, 0);
    lock_file(&of_second, true).unwrap();
    refuse_other_users(&file, false).unwrap_err();
    check(&other).unwrap();
    drop(of_second);
    // The other way round.
    lock_file(&file, true).unwrap();
    assert!(refused(&of_whole) && refused(&of_first));
    refuse_other_users(&of_whole, false).unwrap_err();
    check(&other).unwrap();
    drop(file);
    check(&of_whole).unwrap();
}
