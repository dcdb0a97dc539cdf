//! A mount as other programs, users and rules of the system have it.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::*;

/// Block device that `losetup` makes of a file, until this is dropped.
struct Loop<'a> {
    losetup: &'a Peer,
    device: String,
}

impl Drop for Loop<'_> {
    fn drop(&mut self) {
        let _ = self.losetup.run(["--detach", &self.device]);
    }
}

#[test]
fn file_is_a_block_device_for_root() {
    let peers = ["losetup", "mkfs.ext4", "e2fsck", "cmp"];
    let Some([losetup, mkfs, e2fsck, cmp]) = peer::require_all(peers) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return peer::skip("loop devices take root");
    }
    let Some(disk) = Disk::in_memory(&[]) else {
        return;
    };
    let made = losetup.run(["--direct-io=on", "--find", "--show", disk.file()]);
    if !made.status.success() {
        return peer::skip(&format!("no loop device: {}", made.stderr_text().trim()));
    }
    let device = made.stdout_text().trim().to_owned();
    let over = Loop { losetup: &losetup, device };
    succeeds(&mkfs, &["-q", &over.device]);
    succeeds(&e2fsck, &["-f", "-n", &over.device]);
    // Nothing is left in anybody's cache.
    succeeds(&cmp, &[&over.device, disk.file()]);
    drop(over);
    succeeds(&e2fsck, &["-f", "-n", disk.file()]);
    disk.end();
}

#[test]
fn other_users_read_and_write_where_they_are_allowed_to_and_nowhere_else() {
    let Some([setpriv, dd]) = peer::require_all(["setpriv", "dd"]) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return peer::skip("being another user takes root");
    }
    for is_allowed in [true, false] {
        let options = if is_allowed { &["--allow-other"][..] } else { &[] };
        let Some(disk) = Disk::in_memory(options) else {
            return;
        };
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(disk.folder.path(), everybody).expect("ours");
        let [from, to] = ["if=", "of="].map(|way| format!("{way}{}", disk.file()));
        for (way, other) in [(&from, "of=/dev/null"), (&to, "if=/dev/zero")] {
            let mut other_user = setpriv.command();
            other_user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(dd.path()).args([
                way,
                other,
                "bs=4k",
                "count=1",
                "conv=notrunc",
            ]);
            let ended = peer::run(&mut other_user, READY);
            assert_eq!(ended.status.success(), is_allowed, "{ended}");
        }
        disk.end();
    }
}

#[test]
fn hole_that_is_punched_is_found_and_reads_as_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = text(&folder.path().join("image"));
    fs::write(&image, noise(4 << 20)).expect("an image");
    // What encrypts has no holes that read as zeros.
    let line = format!("0 8192 linear {image} 0");
    let Some(disk) = Disk::of_table(&line) else {
        return;
    };
    let file = disk.open();
    let hole = |from| seek(&file, SeekFrom::Hole(from));
    let data = |from| seek(&file, SeekFrom::Data(from));
    assert_eq!(hole(0), Ok(4 << 20), "there is none yet");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1 << 20, 1 << 20).expect("punched");
    assert_eq!(hole(0), Ok(1 << 20));
    assert_eq!(data(1 << 20), Ok(2 << 20));
    assert_eq!(hole(2 << 20), Ok(4 << 20));
    let mut found = vec![1; 4 << 20];
    file.read_exact_at(&mut found, 0).expect("read");
    let (kept, zeros) = (noise(4 << 20), 1 << 20..2 << 20);
    assert!(found[zeros.clone()].iter().all(|byte| *byte == 0));
    assert!(found[..zeros.start] == kept[..zeros.start]);
    assert!(found[zeros.end..] == kept[zeros.end..]);
    drop(file);
    disk.end();
    let left = fs::metadata(&image).expect("an image").blocks() * 512;
    assert!(left <= 3 << 20, "{left} bytes take up room");
}

#[test]
fn machine_without_fuse_is_told_what_does_without() {
    let Some(unshare) = peer::require("unshare") else {
        return;
    };
    if !unshare.run(["-Urm", "true"]).status.success() {
        return peer::skip("no user namespaces");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&folder.path().join(name));
    let (program, point, devices) = (env!("CARGO_BIN_EXE_cryptline"), path("mnt"), path("dev"));
    fs::create_dir(&point).expect("a mount point");
    fs::create_dir(&devices).expect("a folder");
    fs::write(path("dev/null"), "").expect("a file");
    let script = format!(
        "mount --bind /dev/null '{devices}/null' && mount --rbind '{devices}' /dev && \
         exec '{program}' mount ram:1M '{point}'"
    );
    let mut command = unshare.command();
    command.args(["-Urm", "sh", "-ec", &script]).env("PATH", "/usr/bin:/bin");
    let refused = peer::run(&mut command, READY);
    let said = refused.stderr_text();
    if said.contains("mount:") {
        return peer::skip("no mounts in user namespaces");
    }
    assert_eq!(refused.status.code(), Some(1), "{refused}");
    assert!(
        said.lines().count() == 1 && said.contains("fuse module") && said.contains("`cryptline serve`"),
        "{refused}"
    );
}

#[test]
fn wrong_key_leaves_nothing_behind() {
    let folder = Folder::new();
    let image = text(&folder.luks2());
    let [wrong, point, socket, stats] = ["wrong", "mnt", "socket", "stats"].map(|name| text(&folder.path(name)));
    fs::create_dir(&point).expect("a mount point");
    fs::write(&wrong, "another").expect("a key");
    let files = || folder.files();
    let before = files();
    for verb in [
        &["mount", &image, &point][..],
        &["mount", "--foreground", &image, &point],
        &["vhost-user", &image, "--socket-path", &socket],
    ] {
        let keys = ["--key-file", &wrong, "--stats", &stats];
        let refused = run([verb, &keys].concat()).exited_with(2);
        assert_eq!(refused.stderr_text().lines().count(), 1, "{refused}");
        assert_eq!(fs::read_dir(&point).expect("a folder").count(), 0);
        assert_eq!(files(), before, "{verb:?}");
        let dev = |path: &str| fs::metadata(path).expect("a folder").dev();
        assert_eq!(dev(&point), dev(&text(folder.root())), "something is mounted");
    }
}

#[test]
fn statistics_tell_what_the_mount_was_asked() {
    let Some(dd) = peer::require("dd") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let stats = text(&folder.path().join("stats"));
    let Some(disk) = Disk::in_memory(&["--stats", &stats]) else {
        return;
    };
    let from = format!("if={}", disk.file());
    succeeds(&dd, &[&from, "of=/dev/null", "bs=1M", "count=3", "iflag=direct"]);
    let said = run(["top", "--once", "--json", &stats]).success();
    let line: serde_json::Value = serde_json::from_str(&said.stdout_text()).expect("JSON");
    let read = &line["exports"][0]["operations"]["read"];
    assert_eq!(read["bytes"], 3 << 20, "{line}");
    disk.end();
    assert!(!Path::new(&stats).exists());
}
