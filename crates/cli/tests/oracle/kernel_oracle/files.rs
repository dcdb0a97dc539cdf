//! A file system on a LUKS2 volume: made by one side, read and checked by the other.

use std::path::Path;
use std::time::Duration;

use cryptline_testkit::oracle::{Oracle, pattern};
use cryptline_testkit::peer;

use super::Check;
use super::bench::{Bench, CLEAR_MAX, Opening, assert_same, text};

const HEADER: usize = 16 << 20;
/// Cheap on a slow processor.
const PBKDF: &str = "--pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 1024 --pbkdf-parallel 1";
const OPEN: &str = "cryptsetup open --key-file $key $disk v";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Both directions.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    vec![made_by_the_guest(bench, oracle), made_here(bench, oracle)]
}

/// The guest formats, mounts and copies; here the clear disk is a sound file system with the files.
fn made_by_the_guest<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let name = "ext4 made by the guest";
    let image = bench.image(name, HEADER + CLEAR_MAX);
    let key = std::fs::read(&bench.key).expect("the passphrase");
    oracle.case(name).disk("disk", &image).read_only_disk("news", &bench.news).file("key", key).script(&format!(
        "cryptsetup luksFormat -q --type luks2 --sector-size 4096 {PBKDF} --key-file $key $disk
             {OPEN}
             mkfs.ext4 -q /dev/mapper/v
             mount /dev/mapper/v /mnt
             mkdir /mnt/folder
             dd if=$news of=/mnt/folder/large bs=4k count=300
             echo hello > /mnt/small
             umount /mnt"
    ));
    Check::new(name, move |outcomes| {
        outcomes.passed(name);
        let clear = bench.read(&opening(bench, &image));
        let clear = bench.file("clear of the guest", &clear);
        check_file_system(bench, &clear);
        assert_same(&content(bench, &clear, "/small"), b"hello\n", "small");
        let news = std::fs::read(&bench.news).expect("what the guest copied");
        let large = content(bench, &clear, "/folder/large");
        assert_same(&large, &news[..300 * 4096], "large");
    })
}

/// A file system made here goes in through cryptline; the guest mounts it, reads and adds to it.
fn made_here<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let name = "ext4 made here";
    let (folder, clear) = (bench.path("files"), bench.image("clear made here", CLEAR_MAX));
    let large = pattern::bytes(21, 1_234_567);
    std::fs::create_dir(&folder).expect("a new folder");
    std::fs::write(folder.join("large"), &large).expect("written");
    let mut mkfs = bench.e2fs("mkfs.ext4");
    // Its blocks can not be smaller than the volume's sectors.
    mkfs.args(["-q", "-b", "4096", "-d", text(&folder), text(&clear)]);
    let _ = peer::run(&mut mkfs, TIMEOUT).success();

    let image = bench.path(name);
    let size = (HEADER + CLEAR_MAX).to_string();
    let create = opening(bench, &image).with(["--size", &size]).with(PBKDF.split(' '));
    let _ = bench.cryptline("create", &create, &[]).success();
    let opening = opening(bench, &image);
    bench.write(&opening, &std::fs::read(&clear).expect("the file system"), &[]);

    let key = std::fs::read(&bench.key).expect("the passphrase");
    oracle.case(name).disk("disk", &image).file("key", key).file("large", &large).script(&format!(
        "{OPEN}
         mount /dev/mapper/v /mnt
         cmp $large /mnt/large
         mv /mnt/large /mnt/renamed
         echo added > /mnt/added
         umount /mnt"
    ));
    Check::new(name, move |outcomes| {
        outcomes.passed(name);
        let clear = bench.file("clear after the guest", &bench.read(&opening));
        check_file_system(bench, &clear);
        assert_same(&content(bench, &clear, "/added"), b"added\n", "added");
        assert_same(&content(bench, &clear, "/renamed"), &large, "renamed");
    })
}

fn opening(bench: &Bench, image: &Path) -> Opening {
    Opening::new([text(image), "--key-file", text(&bench.key)])
}

fn check_file_system(bench: &Bench, clear: &Path) {
    let mut check = bench.e2fs("e2fsck");
    let _ = peer::run(check.args(["-f", "-n", text(clear)]), TIMEOUT).success();
}

fn content(bench: &Bench, clear: &Path, file: &str) -> Vec<u8> {
    let mut debugfs = bench.e2fs("debugfs");
    debugfs.args(["-R", &format!("cat {file}"), text(clear)]);
    peer::run(&mut debugfs, TIMEOUT).success().stdout
}
