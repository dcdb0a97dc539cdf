//! `create` on what is there already: nothing that anybody could want is lost without `--force`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use cryptline_testkit::peer::{self, Background, Run, run};

const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
const MIB: u64 = 1 << 20;

fn create(folder: &Folder, target: &str, options: &[&str]) -> Run {
    let mut command = command();
    command.args(["create", target, "--key-file"]).arg(folder.key());
    run(command.args(CHEAP).args(options), Duration::from_secs(60))
}

/// A file of holes.
fn sparse(folder: &Folder, name: &str, size: u64) -> PathBuf {
    let path = folder.path(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn pmem(path: &Path) -> String {
    format!("pmem:{}", path.display())
}

/// A table in a file of 64 MiB.
fn table(folder: &Folder, name: &str) -> (PathBuf, String) {
    let path = folder.path(name);
    let mut command = command();
    command.args(["btt", "create"]).arg(&path).arg("--size=64M");
    run(&mut command, Duration::from_secs(60)).success();
    let target = format!("btt:{}", path.display());
    (path, target)
}

#[test]
fn one_byte_anywhere_in_a_mapped_file_is_data() {
    let folder = Folder::new();
    let size = 64 * MIB;
    for offset in [0, MIB - 1, MIB, 2 * MIB, 37 * MIB + 12345, size - 1] {
        let path = sparse(&folder, "disk", size);
        put(&path, offset, &[1]);
        let before = fs::read(&path).unwrap();
        refused(create(&folder, &pmem(&path), &[]), 5, "--force");
        assert!(fs::read(&path).unwrap() == before, "{offset}");
        create(&folder, &pmem(&path), &["--force"]).success();
    }
}

#[test]
fn one_byte_anywhere_in_a_table_is_data() {
    let folder = Folder::new();
    for offset in [2 * MIB, 37 * MIB + 12345] {
        let (path, target) = table(&folder, "disk.btt");
        put(&path, offset, &[1]);
        let before = fs::read(&path).unwrap();
        refused(create(&folder, &target, &[]), 5, "--force");
        assert!(fs::read(&path).unwrap() == before, "{offset}");
        create(&folder, &target, &["--force"]).success();
        fs::remove_file(&path).unwrap();
    }
    let (_, target) = table(&folder, "empty.btt");
    create(&folder, &target, &[]).success();
}

#[test]
fn holes_reserved_space_and_zeros_are_nothing() {
    let folder = Folder::new();
    let holes = sparse(&folder, "holes", 64 * MIB);
    // Nobody waits for a terabyte of holes to be read.
    let huge = sparse(&folder, "huge", 1 << 40);
    let reserved = sparse(&folder, "reserved", 64 * MIB);
    let file = File::options().write(true).open(&reserved).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 64 * MIB).unwrap();
    let zeros = folder.path("zeros");
    fs::write(&zeros, vec![0; 64 << 20]).unwrap();
    for path in [&holes, &huge, &reserved, &zeros] {
        let made = create(&folder, &pmem(path), &[]).success();
        assert!(made.stdout_text().contains("LUKS2"), "{made}");
        folder.check(path).success();
    }
}

#[test]
fn what_is_there_is_named() {
    let Some([mkfs, cryptsetup]) = peer::require_all(["mkfs.ext4", "cryptsetup"]) else {
        return;
    };
    let folder = Folder::new();
    let path = sparse(&folder, "disk", 64 * MIB);
    let text = path.to_str().unwrap();
    let key = folder.key();
    let make: [(&dyn Fn(), _); 4] = [
        (&|| drop(mkfs.run(["-q", "-F", text]).success()), "an ext2, ext3 or ext4 file system"),
        (
            &|| {
                let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
                let made = ["-q", "luksFormat", text, key.to_str().unwrap()];
                drop(cryptsetup.run(made.iter().chain(&cheap)).success());
            },
            "a LUKS header",
        ),
        (&|| put(&path, 512, b"EFI PART"), "a GPT partition table"),
        (&|| drop(run(Command::new("mkswap").arg(text), Duration::from_secs(30)).success()), "swap space"),
    ];
    for (make, name) in make {
        fs::remove_file(&path).unwrap();
        sparse(&folder, "disk", 64 * MIB);
        make();
        refused(create(&folder, &pmem(&path), &[]), 5, name);
        // A file is replaced, not written over, and just as lost.
        refused(create(&folder, text, &["--size=64M"]), 5, name);
    }
}

#[test]
fn a_damaged_start_does_not_hide_a_file_system() {
    let Some(mkfs) = peer::require("mkfs.ext4") else {
        return;
    };
    let folder = Folder::new();
    let path = sparse(&folder, "disk", 256 * MIB);
    mkfs.run(["-q", "-F", path.to_str().unwrap()]).success();
    put(&path, 0, &vec![0; 2 << 20]);
    refused(create(&folder, &pmem(&path), &[]), 5, "--force");
}

/// A device is looked at in places: a whole one would take too long.
#[test]
fn a_block_device_is_looked_at_from_end_to_end() {
    let folder = Folder::new();
    for (offset, len) in [(0, 1), (3 * MIB, 1 << 20), (200 * MIB - 1, 1)] {
        let path = sparse(&folder, "disk", 200 * MIB);
        put(&path, offset, &vec![1; len]);
        let Some(device) = LoopDevice::over(&path) else {
            return;
        };
        let target = pmem(Path::new(&device.0));
        refused(create(&folder, &target, &[]), 5, "--force");
        drop(device);
        fs::remove_file(&path).unwrap();
    }
    let path = sparse(&folder, "disk", 200 * MIB);
    let Some(device) = LoopDevice::over(&path) else {
        return;
    };
    create(&folder, &pmem(Path::new(&device.0)), &[]).success();
}

#[test]
fn targets_without_a_place_for_a_volume_are_refused() {
    let folder = Folder::new();
    for target in ["zoned:disk.img", "ram:64M"] {
        let mut command = command();
        command.current_dir(folder.root()).args(["create", target, "--size=64M", "--key-file"]).arg(folder.key());
        let ended = run(command.args(CHEAP), Duration::from_secs(60));
        refused(ended, 1, &format!("./{target}"));
        assert!(!folder.path(target).exists());
    }
}

#[test]
fn a_volume_that_will_be_replaced_is_not_served_meanwhile() {
    let folder = Folder::new();
    let image = folder.luks2();
    let fifo = folder.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let mut replace = command();
    replace.arg("create").arg(&image).args(CHEAP);
    replace.args(["--size=32M", "--force", "--key-file"]).arg(&fifo);
    let mut replacing = Background::spawn(&mut replace);
    let begun = || {
        let names = fs::read_dir(image.parent().unwrap()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with(".cryptline-"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !begun() {
        assert!(Instant::now() < deadline, "no draft of the new volume");
        std::thread::sleep(Duration::from_millis(10));
    }
    // It waits for its passphrase now, or soon.
    let serve = || {
        let mut serve = command();
        serve.arg("serve").arg(&image).arg("--key-file").arg(folder.key());
        run(serve.args(["--run", "true"]), Duration::from_secs(60))
    };
    refused(serve(), 5, "in use");
    fs::write(&fifo, "another passphrase").unwrap();
    assert!(replacing.wait(Duration::from_secs(60)).is_some());
    replacing.collect().success();
    refused(serve(), 2, "");
}
