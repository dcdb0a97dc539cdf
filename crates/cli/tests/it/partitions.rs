//! LUKS inside a partition, partitions inside LUKS, and what is said of disks that are neither.

use std::fs;
use std::path::Path;

use crate::common::*;
use cryptline_testkit::peer::{self, Peer, run_with_input};
use serde_json::Value;

const MIB: usize = 1 << 20;
const DISK: u64 = 64 << 20;
const CHEAP: [&str; 2] = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
/// For `sfdisk`: an EFI partition, one for LUKS and one behind it.
const GPT: &str = "label: gpt\n\
    start=2048, size=8192, name=EFI\n\
    start=10240, size=81920, name=root, uuid=01234567-89AB-CDEF-0123-456789ABCDEF\n\
    start=92160, size=8192, name=\"a label\"\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// A target with what follows it.
fn part(disk: &Path, query: &str) -> String {
    format!("{}?{query}", text(disk))
}

fn empty(folder: &Folder, name: &str, len: u64) -> std::path::PathBuf {
    let path = folder.path(name);
    fs::write(&path, []).unwrap();
    resize(&path, len);
    path
}

#[track_caller]
fn sfdisk(sfdisk: &Peer, disk: &Path, options: &[&str], script: &str) {
    let mut command = sfdisk.command();
    command.args(["--quiet", "--no-reread", "--no-tell-kernel"]);
    command.args(options).arg(disk);
    run_with_input(&mut command, peer::TIMEOUT_DEFAULT, script.as_bytes()).success();
}

/// A disk with the table [`GPT`].
fn gpt(folder: &Folder) -> Option<std::path::PathBuf> {
    let program = peer::require("sfdisk")?;
    let disk = empty(folder, "disk.img", DISK);
    sfdisk(&program, &disk, &[], GPT);
    Some(disk)
}

fn info(target: &str) -> Value {
    let run = cryptline(["info", "--json", target]).success();
    serde_json::from_str(&run.stdout_text()).expect("JSON")
}

/// Number, label, first byte and bytes of each partition.
fn listed(target: &str) -> Vec<(u64, String, u64, u64)> {
    let json = info(target);
    let parts = json["partitions"].as_array().expect("partitions");
    let parts = parts.iter().map(|part| {
        let number = |name: &str| part[name].as_u64().expect("a number");
        let label = part["label"].as_str().unwrap_or_default().to_owned();
        (number("number"), label, number("start"), number("size"))
    });
    parts.collect()
}

fn sectors(number: u64, label: &str, start: u64, size: u64) -> (u64, String, u64, u64) {
    (number, label.to_owned(), start * 512, size * 512)
}

/// Opens `target` with the key of the folder, in this process.
fn open_with_key(folder: &Folder, target: &str, options: &[&str]) -> cryptline::Volume {
    let key = folder.key();
    let key = ["--key-file", text(&key)];
    open(&[&[target], &key[..], options].concat())
}

fn create_in(folder: &Folder, target: &str) -> peer::Run {
    let key = folder.key();
    let key = ["create", target, "--key-file", text(&key)];
    cryptline([&key[..], &CHEAP].concat())
}

#[test]
fn tables_of_sfdisk_sgdisk_and_parted_are_read_as_they_are_meant() {
    let Some([_, sgdisk, parted]) = peer::require_all(["sfdisk", "sgdisk", "parted"]) else {
        return;
    };
    let folder = Folder::new();
    let disk = gpt(&folder).expect("sfdisk is there");
    let expected =
        [sectors(1, "EFI", 2048, 8192), sectors(2, "root", 10240, 81920), sectors(3, "a label", 92160, 8192)];
    assert_eq!(listed(text(&disk)), expected);

    let of_sgdisk = empty(&folder, "sgdisk.img", DISK);
    let arguments = ["--new=1:2048:10239", "--new=7:20480:+4M", "--change-name=7:Größe"];
    let arguments = arguments.into_iter().chain([text(&of_sgdisk)]);
    sgdisk.run(arguments).success();
    let expected = [sectors(1, "", 2048, 8192), sectors(7, "Größe", 20480, 8192)];
    assert_eq!(listed(text(&of_sgdisk)), expected);

    let of_parted = empty(&folder, "parted.img", DISK);
    let arguments = ["--script", text(&of_parted), "mklabel", "gpt"];
    let make = ["mkpart", "data", "ext4", "4MiB", "12MiB"];
    parted.run(arguments.into_iter().chain(make)).success();
    assert_eq!(listed(text(&of_parted)), [sectors(1, "data", 8192, 16384)]);
    let arguments = ["--script", text(&of_parted), "mklabel", "msdos"];
    let make = ["mkpart", "primary", "4MiB", "12MiB", "mkpart", "extended", "16MiB", "60MiB"];
    let logical = ["mkpart", "logical", "17MiB", "20MiB", "mkpart", "logical", "30MiB", "40MiB"];
    parted.run(arguments.into_iter().chain(make).chain(logical)).success();
    let expected = [sectors(1, "", 8192, 16384), sectors(5, "", 34816, 6144), sectors(6, "", 61440, 20480)];
    assert_eq!(listed(text(&of_parted)), expected);
}

#[test]
fn volume_made_in_a_partition_is_whole_when_it_is_cut_out() {
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    let before = fs::read(&disk).unwrap();
    create_in(&folder, &part(&disk, "partition=root")).success();
    let data: Vec<u8> = (0..253).cycle().take(MIB).collect();
    {
        let volume = open_with_key(&folder, &part(&disk, "partition=2"), &[]);
        assert_eq!(volume.info().size, (40 - 16) << 20);
        volume.blocking().unwrap().write_at(MIB as u64, &data, true).unwrap();
    }
    let after = fs::read(&disk).unwrap();
    let (start, end) = (5 * MIB, 45 * MIB);
    assert!(before[..start] == after[..start] && before[end..] == after[end..]);
    let cut = folder.path("cut.img");
    fs::write(&cut, &after[start..end]).unwrap();
    let mut found = vec![0; MIB];
    for target in [
        text(&cut).to_owned(),
        part(&disk, "partition=01234567-89ab-cdef-0123-456789abcdef"),
        part(&disk, "offset=5M&length=40M"),
    ] {
        let volume = open_with_key(&folder, &target, &["--read-only"]);
        volume.blocking().unwrap().read_at(MIB as u64, &mut found).unwrap();
        assert!(found == data, "{target}");
        found.fill(0);
    }
    assert!(info(text(&disk))["partitions"][1]["luks"] == true);
    if let Some(cryptsetup) = peer::require("cryptsetup") {
        cryptsetup.run(["isLuks", text(&cut)]).success();
        let (key, cut) = (folder.key(), text(&cut));
        let check = ["open", "--test-passphrase", cut, "--key-file", text(&key)];
        cryptsetup.run(check).success();
    }
}

#[test]
fn volume_of_cryptsetup_in_a_partition_opens_by_every_verb() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    let alone = empty(&folder, "alone.img", 40 << 20);
    let key = folder.key();
    let format = ["luksFormat", "-q", "--type", "luks2", text(&alone), text(&key)];
    cryptsetup.run(format.into_iter().chain(CHEAP)).success();
    let mut bytes = fs::read(&disk).unwrap();
    bytes[5 * MIB..45 * MIB].copy_from_slice(&fs::read(&alone).unwrap());
    fs::write(&disk, bytes).unwrap();
    let target = part(&disk, "partition=2");
    folder.check(Path::new(&target)).success();
    folder.serve(Path::new(&target)).success();
    assert_eq!(info(&target)["kind"], "LUKS2");
    assert_eq!(info(&target)["device_size"], 40 << 20);
    let line = |target: &str| cryptline(["table", target]).success().stdout_text();
    let (there, here) = (line(&target), line(text(&alone)));
    assert_eq!(there, here.replace("alone.img 32768", "disk.img 43008"));
    let listing = ["serve", &target, "--key-file", text(&key), "--run", "nbdinfo \"$uri\""];
    if peer::require("nbdinfo").is_some() {
        let said = cryptline(listing).success().stdout_text();
        assert!(said.contains(&(24 << 20).to_string()), "{said}");
    }
}

#[test]
fn partition_of_the_clear_disk_is_served_alone() {
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    let clear = fs::read(&disk).unwrap();
    let image = folder.path("luks.img");
    let key = folder.key();
    let create = ["create", text(&image), "--size=80M", "--key-file", text(&key)];
    cryptline([&create[..], &CHEAP].concat()).success();
    open_with_key(&folder, text(&image), &[]).blocking().unwrap().write_at(0, &clear, true).unwrap();
    for name in ["2", "root"] {
        let volume = open_with_key(&folder, text(&image), &["--partition", name]);
        assert_eq!(volume.info().size, 40 << 20);
        let mut disk = volume.blocking().unwrap();
        disk.write_at(512, &[7; 1024], true).unwrap();
        assert!(disk.write_at((40 << 20) - 512, &[7; 1024], true).is_err());
    }
    let mut found = vec![0; clear.len()];
    let whole = open_with_key(&folder, text(&image), &["--read-only"]);
    whole.blocking().unwrap().read_at(0, &mut found).unwrap();
    let mut expected = clear;
    expected[5 * MIB + 512..5 * MIB + 1536].fill(7);
    assert!(found == expected);
    drop(whole);
    let run = folder.run(&["serve"], &image, &["--run", "true", "--partition", "9"]);
    refused(run, 1, "luks.img (decrypted): there is no partition 9; it has 1 'EFI'");
    let table = ["table", text(&image), "--partition", "1"];
    refused(cryptline(table), 1, "a table has no use for a partition");
}

#[test]
fn partition_that_is_not_there_or_lies_is_refused_by_name() {
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    let serve = |query: &str| folder.serve(Path::new(&part(&disk, query)));
    refused(
        serve("partition=7"),
        1,
        "there is no partition 7; it has 1 'EFI' (4 MiB), 2 'root' (40 MiB), 3 'a label' (4 MiB)",
    );
    refused(serve("partition=7&offset=1M"), 1, "either a partition, or an offset");
    refused(serve("partition=1"), 4, "not a LUKS device");
    // The first header is damaged: the backup is as good.
    poke(&disk, 512 + 16, b"xxxx");
    refused(serve("partition=boot"), 1, "there is no partition 'boot'; it has 1 'EFI'");
    let text_of = cryptline(["info", text(&disk)]).success().stdout_text();
    assert!(text_of.contains("Damaged       the first GPT header"), "{text_of}");
    assert!(text_of.contains("\nPartition 2\n  Label         root\n"), "{text_of}");
    // Both are.
    let last = usize::try_from(DISK).unwrap() - 512;
    poke(&disk, last + 16, b"xxxx");
    refused(serve("partition=1"), 4, "its partition table is damaged");
    let cut = empty(&folder, "cut.img", DISK);
    poke(&cut, 446, b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\0\x10\0");
    poke(&cut, 510, b"\x55\xaa");
    let run = folder.serve(Path::new(&part(&cut, "partition=1")));
    refused(run, 4, "partition 1 ends at byte 537919488, the disk has 67108864");
}

#[test]
fn file_whose_name_ends_like_a_partition_is_meant_itself() {
    let folder = Folder::new();
    let image = folder.luks2();
    let named = folder.path("luks2.img?partition=1");
    fs::rename(&image, &named).unwrap();
    folder.check(&named).success();
}

#[test]
fn what_is_no_luks_volume_is_called_by_its_name_with_the_next_step() {
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    refused(folder.check(&disk), 4, "name a partition, as in 'TARGET?partition=1'");
    refused(folder.check(&disk), 4, "a disk with partitions (GPT); it has 1 'EFI' (4 MiB), 2 'root'");
    for (magic, said) in [
        (&b"QFI\xfb"[..], "it holds a qcow2 image; export it with `qemu-nbd -r -t --shared=8 -f qcow2 -k SOCKET FILE`"),
        (b"vhdxfile", "qemu-nbd -r -t --shared=8 -f vhdx"),
        (b"\x28\xb5\x2f\xfd", "a zstd file; decompress it first (`zstd -d`)"),
        (b"\xeb\x58\x90-FVE-FS-", "cryptsetup open --type bitlk"),
        (b"XFSB", "it holds an XFS file system; so it is not encrypted"),
    ] {
        let image = empty(&folder, "other.img", SIZE);
        poke(&image, 0, magic);
        refused(folder.check(&image), 4, said);
    }
    if let Some(qemu_img) = peer::require("qemu-img") {
        for (format, said) in [("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vpc", "vpc"), ("vdi", "vdi")] {
            let image = folder.path(format);
            qemu_img.run(["create", "-q", "-f", format, text(&image), "16M"]).success();
            refused(folder.check(&image), 4, &format!("qemu-nbd -r -t --shared=8 -f {said} -k"));
        }
    }
    let nothing = empty(&folder, "nothing.img", SIZE);
    refused(folder.check(&nothing), 4, "no LUKS header found");
}

#[test]
fn plain_volume_is_not_opened_for_writing_over_what_is_recognised() {
    let folder = Folder::new();
    let Some(disk) = gpt(&folder) else { return };
    fs::write(folder.key(), [7; 32]).unwrap();
    let plain = ["--type=plain", "--cipher=aes-xts-plain64", "--key-size=256", "--hash=sha256"];
    let serve = |options: &[&str]| {
        let options = [&plain[..], &["--run", "true"], options].concat();
        folder.run(&["serve"], &disk, &options)
    };
    refused(serve(&[]), 5, "which a plain volume would overwrite; --force opens it all the same");
    serve(&["--force"]).success();
    serve(&["--read-only"]).success();
    // Nothing is recognised where the data begins.
    serve(&["--offset=10240", "--size=81920"]).success();
    refused(folder.run(&["serve"], &disk, &["--force", "--run", "true"]), 1, "--force is for volumes without a header");
}
