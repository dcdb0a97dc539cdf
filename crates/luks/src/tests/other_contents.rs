//! Disks that were LUKS2 volumes and were put to another use: each made by the program that makes
//! such disks, and judged as cryptsetup judges them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::common::{Cryptsetup, Image, PASSPHRASE};
use crate::Error;
use cryptline_testkit::peer::{self, Peer, TIMEOUT_DEFAULT, run_with_input};

const MIB: u64 = 1 << 20;
/// XFS takes no less than 300 MiB.
const SIZE: u64 = 320 * MIB;
const CHEAP: &str = "--type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
const SECONDARY: u64 = 0x4000;

/// A volume, then `reuse` makes something else of its disk. Most programs wipe more than they use, so
/// what a program does not wipe everywhere is put back: the secondary copy.
#[track_caller]
fn refused_after(name: &str, reuse: impl FnOnce(&Path)) {
    let Some(cryptsetup) = Cryptsetup::require() else { return };
    let image = Image::sparse(SIZE);
    cryptsetup.format(CHEAP, &image.path);
    let disk = || File::options().read(true).write(true).open(&image.path).unwrap();
    let mut copies = vec![0; 0x8000];
    disk().read_exact_at(&mut copies, 0).unwrap();

    reuse(&image.path);
    let mut start = vec![0; 16384];
    disk().read_exact_at(&mut start, 0).unwrap();
    assert_ne!(start, copies[..16384], "{name}: nothing was done");
    disk().write_all_at(&copies[0x4000..], SECONDARY).unwrap();

    let error = image.header().expect_err(name);
    assert!(
        matches!(error, Error::OtherContents { what, left: SECONDARY, .. } if what.contains(name)),
        "{name}: {error}"
    );
    let theirs = cryptsetup.run("open --test-passphrase --key-file -", &image.path, PASSPHRASE);
    assert!(!theirs.status.success(), "{name}: cryptsetup opens it");

    // The same secondary copy on a disk that is nothing else is good, for both.
    let plain = Image::sparse(SIZE);
    let disk = File::options().write(true).open(&plain.path).unwrap();
    disk.write_all_at(&copies[0x4000..], SECONDARY).unwrap();
    assert_eq!(plain.header().unwrap().warnings().len(), 1);
    let theirs = cryptsetup.run("luksDump", &plain.path, b"");
    assert!(theirs.status.success(), "{theirs}");
}

#[track_caller]
fn run(peer: &Peer, arguments: &str, target: &Path, input: &str) {
    let mut command = peer.command();
    command.args(arguments.split_whitespace()).arg(target);
    run_with_input(&mut command, TIMEOUT_DEFAULT, input.as_bytes()).success();
}

#[track_caller]
fn refused_after_program(program: &str, arguments: &str, input: &str, name: &str) {
    let Some(peer) = peer::require(program) else { return };
    refused_after(name, |disk| run(&peer, arguments, disk, input));
}

#[test]
fn file_systems() {
    refused_after_program("mkfs.ext4", "-q -F", "", "ext2, ext3 or ext4");
    refused_after_program("mkfs.xfs", "-q -f", "", "XFS");
    refused_after_program("mkfs.btrfs", "-q -f", "", "Btrfs");
    refused_after_program("mkfs.vfat", "", "", "FAT");
}

#[test]
fn swap() {
    refused_after_program("mkswap", "-q -f", "", "swap");
}

#[test]
fn partition_tables() {
    for wipe in ["always", "never"] {
        let arguments = format!("-q --wipe {wipe}");
        let table = |label| format!("label: {label}\nstart=2048, size=4096\n");
        refused_after_program("sfdisk", &arguments, &table("gpt"), "GPT");
        refused_after_program("sfdisk", &arguments, &table("dos"), "MBR");
    }
}

/// LVM takes block devices only.
#[test]
fn lvm() {
    let (Some(pvcreate), Some(losetup)) = (peer::require("pvcreate"), peer::require("losetup")) else { return };
    if !rustix::process::geteuid().is_root() {
        return peer::skip("a loop device needs root");
    }
    refused_after("LVM", |disk| {
        let attached = losetup.run([Path::new("--find"), Path::new("--show"), disk]);
        let device = attached.success().stdout_text().trim().to_owned();
        let made = pvcreate.run(["-ff", "--yes", &device]);
        losetup.run(["--detach", &device]).success();
        made.success();
    });
}
