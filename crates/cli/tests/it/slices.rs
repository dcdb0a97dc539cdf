//! A volume in a part of a disk, by every verb that changes or serves one: the part changes, what lies beside it does not.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::*;
use cryptline_testkit::peer::{Background, Run, listens, skip};

const MIB: usize = 1 << 20;
const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const READY: Duration = Duration::from_secs(60);

/// A disk with a volume between two MiB of something else.
struct Lab {
    folder: Folder,
    disk: PathBuf,
    target: String,
    key: String,
}

impl Lab {
    fn new() -> Self {
        let folder = Folder::new();
        let volume = fs::read(folder.luks2()).expect("a volume");
        let disk = folder.path("disk");
        let target = format!("{}?offset=1M&length={}", disk.display(), volume.len());
        let bytes = [beside(1), volume, beside(2)].concat();
        fs::write(&disk, bytes).expect("room");
        let key = folder.key().display().to_string();
        Self { folder, disk, target, key }
    }

    /// Runs a verb. Whether the part has changed.
    #[track_caller]
    fn changes(&self, verb: &[&str], options: &[&str]) -> bool {
        let before = self.part();
        self.run(verb, options).success();
        self.part() != before
    }

    fn run(&self, verb: &[&str], options: &[&str]) -> Run {
        cryptline([verb, &[&self.target], options].concat())
    }

    /// The part, after a look at the rest.
    #[track_caller]
    fn part(&self) -> Vec<u8> {
        let bytes = fs::read(&self.disk).expect("a disk");
        let end = bytes.len() - MIB;
        assert!(bytes[..MIB] == beside(1) && bytes[end..] == beside(2));
        bytes[MIB..end].to_vec()
    }

    #[track_caller]
    fn opens(&self) -> bool {
        let check = self.run(&["open", "--check"], &["--key-file", &self.key]);
        check.status.success()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path(name).display().to_string()
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.folder.path(name), bytes).expect("room");
        self.path(name)
    }
}

fn beside(seed: u8) -> Vec<u8> {
    let bytes = (0..=250_u8).cycle().take(MIB);
    bytes.map(|byte| byte.wrapping_mul(seed)).collect()
}

#[test]
fn keys_tokens_and_headers_of_a_slice_are_changed_in_it_and_nowhere_else() {
    let lab = Lab::new();
    let (key, new) = (lab.key.as_str(), lab.file("new", b"another one"));
    let token = lab.file("token", br#"{"type":"x","keyslots":["0"]}"#);
    let backup = lab.path("backup");
    let with_key = ["--key-file", key];
    let add = [&with_key[..], &["--new-key-file", &new], &CHEAP].concat();
    for (verb, options, changes) in [
        (&["key", "add"][..], &add[..], true),
        (&["key", "list"], &[], false),
        (&["token", "import"], &["--json-file", &token, "--token-id=3"], true),
        (&["token", "list"], &[], false),
        (&["header", "label"], &["--label=name"], true),
        (&["header", "backup"], &["--file", &backup], false),
        (&["token", "remove"], &["--token-id=3"], true),
        (&["key", "kill"], &["1", "-q", "--key-file", key], true),
        (&["erase"], &["-q"], true),
    ] {
        assert!(lab.opens(), "before {verb:?}");
        assert_eq!(lab.changes(verb, options), changes, "{verb:?}");
    }
    assert!(!lab.opens(), "it is erased");
    assert!(lab.changes(&["header", "restore"], &["-q", "--file", &backup]));
    assert!(lab.opens(), "it is restored");
    let said = lab.run(&["token", "list"], &[]).success().stdout_text();
    assert!(said.contains('3'), "{said}");
}

#[test]
fn slice_in_the_clear_is_encrypted_and_a_volume_in_a_slice_is_decrypted() {
    let lab = Lab::new();
    let key = ["--key-file", &lab.key];
    let clear = format!("{}?length=1M", lab.disk.display());
    let [new, back] = ["encrypted", "back"].map(|name| lab.path(name));
    cryptline([&["encrypt", &clear, &new][..], &key, &CHEAP].concat()).success();
    cryptline([&["copy", &new, &back][..], &key].concat()).success();
    assert!(fs::read(&back).expect("a copy") == beside(1));
    let back = lab.path("all");
    assert!(!lab.changes(&["copy"], &[&back, "--key-file", &lab.key]));
    assert_eq!(fs::metadata(&back).expect("a copy").len(), 4 << 20);
}

#[test]
fn slice_is_mounted_and_written_through_its_file() {
    if fs::File::options().write(true).open("/dev/fuse").is_err() {
        return skip("/dev/fuse cannot be used");
    }
    let lab = Lab::new();
    let point = lab.file("point", b"");
    let before = lab.part();
    lab.run(&["mount"], &[&point, "--key-file", &lab.key]).success();
    let disk = fs::File::options().write(true).open(&point);
    let disk = disk.expect("a disk");
    disk.write_all_at(&[7; 4096], 1 << 20).expect("room");
    disk.sync_all().expect("written");
    drop(disk);
    cryptline(["umount", &point]).success();
    let after = lab.part();
    let (header, at) = (16 << 20, 17 << 20);
    assert!(before[..at] == after[..at] && before[at + 4096..] == after[at + 4096..]);
    assert!(before[at..at + 4096] != after[at..at + 4096] && at > header);
}

#[test]
fn slice_is_the_disk_of_a_virtual_machine() {
    let lab = Lab::new();
    let socket = lab.folder.path("socket");
    let mut command = command();
    command.args(["vhost-user", &lab.target, "--key-file", &lab.key]);
    let server = Background::spawn(command.arg("--socket-path").arg(&socket));
    let server = server.wait_until(READY, || listens(&socket));
    let said = server.stop().success().stdout_text();
    assert!(said.contains(&lab.target), "{said}");
    lab.part();
}
