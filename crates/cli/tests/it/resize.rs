//! `resize`: volumes that become larger or smaller, and what is lost by that.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Folder, LoopDevice, SIZE, cryptline, edit_metadata, metadata, open, refused, resize as set_len};
use crate::server::Server;
use cryptline_testkit::peer;

const HEADER: u64 = 16 << 20;

fn resize(image: &Path, size: u64, options: &[&str]) -> cryptline_testkit::peer::Run {
    let (image, size) = (image.to_str().unwrap(), size.to_string());
    cryptline([&["resize", image, &size], options].concat())
}

/// Bytes of the clear disk.
fn data_size(folder: &Folder, image: &Path) -> u64 {
    let key = format!("--key-file={}", folder.key().display());
    open(&[image.to_str().unwrap(), &key, "--read-only"]).size()
}

fn write(folder: &Folder, image: &Path, offset: u64, data: &[u8]) {
    let key = format!("--key-file={}", folder.key().display());
    let volume = open(&[image.to_str().unwrap(), &key]);
    let mut disk = volume.blocking().unwrap();
    disk.write_at(offset, data, false).unwrap();
    disk.flush().unwrap();
}

fn read(folder: &Folder, image: &Path, offset: u64) -> Vec<u8> {
    let key = format!("--key-file={}", folder.key().display());
    let volume = open(&[image.to_str().unwrap(), &key, "--read-only"]);
    let mut data = vec![0; 4096];
    volume.blocking().unwrap().read_at(offset, &mut data).unwrap();
    data
}

/// cryptsetup opens it as well.
fn opens_there(folder: &Folder, image: &Path) {
    if let Some(cryptsetup) = peer::require("cryptsetup") {
        let key = format!("--key-file={}", folder.key().display());
        let image = image.to_str().unwrap();
        cryptsetup.run(["open", "--test-passphrase", image, &key]).success();
    }
}

#[test]
fn volumes_grow_with_their_files_and_keep_what_they_hold() {
    let folder = Folder::new();
    let pattern = vec![0x5a; 4096];
    for image in [folder.luks2(), folder.luks1()] {
        let before = data_size(&folder, &image);
        write(&folder, &image, before - 4096, &pattern);
        let header = fs::read(&image).unwrap()[..4096].to_vec();
        resize(&image, SIZE + (5 << 20), &[]).success();
        assert_eq!(fs::metadata(&image).unwrap().len(), SIZE + (5 << 20));
        assert_eq!(data_size(&folder, &image), before + (5 << 20));
        assert!(read(&folder, &image, before - 4096) == pattern);
        assert!(fs::read(&image).unwrap()[..4096] == header);
        opens_there(&folder, &image);
        let again = resize(&image, SIZE + (5 << 20), &[]).success();
        assert!(again.stdout_text().contains("as before"), "{again}");
    }
}

#[test]
fn size_that_the_header_says_follows() {
    let folder = Folder::new();
    let image = folder.luks2();
    fix(&image, 1 << 20);
    assert_eq!(data_size(&folder, &image), 1 << 20);
    write(&folder, &image, 0, &[7; 4096]);
    // As a run leaves it that was cut off between the file and the header.
    set_len(&image, SIZE + (1 << 20));
    resize(&image, SIZE + (1 << 20), &[]).success();
    assert_eq!(fixed(&image), (5 << 20).to_string());
    assert_eq!(data_size(&folder, &image), 5 << 20);
    // Without a size, as far as there is room; and no whole sector is lost to what is none.
    set_len(&image, SIZE + (2 << 20) + 512);
    cryptline(["resize", image.to_str().unwrap()]).success();
    assert_eq!(data_size(&folder, &image), 6 << 20);
    resize(&image, HEADER + (1 << 20), &["--shrink"]).success();
    assert_eq!(fixed(&image), (1 << 20).to_string());
    assert_eq!(fs::metadata(&image).unwrap().len(), HEADER + (1 << 20));
    assert!(read(&folder, &image, 0) == [7; 4096]);
    opens_there(&folder, &image);
}

/// The size of the data, where the header says it.
fn fixed(image: &Path) -> serde_json::Value {
    metadata(image)["segments"]["0"]["size"].clone()
}

fn fix(image: &Path, size: u64) {
    edit_metadata(image, |json| {
        json["segments"]["0"]["size"] = size.to_string().into();
    });
}

/// A size that the header says, on `target`, which has room for 4 MiB of data.
fn shrinks_and_grows_where_nothing_is_lost(folder: &Folder, target: &str) {
    let key = format!("--key-file={}", folder.key().display());
    let resize = |size: u64, options: &[&str]| {
        let size = (HEADER + size).to_string();
        cryptline([&["resize", target, &size], options].concat())
    };
    let size = || open(&[target, &key, "--read-only"]).size();
    let put = |at: u64| {
        let volume = open(&[target, &key]);
        let mut disk = volume.blocking().unwrap();
        disk.write_at(at, &[9; 4096], false).unwrap();
        disk.flush().unwrap();
    };
    resize(4 << 20, &[]).success();
    assert_eq!(size(), 4 << 20);
    put(2 << 20);
    refused(resize(1 << 20, &[]), 1, "--shrink");
    let least = HEADER + (2 << 20) + 4096;
    let smaller = resize(1 << 20, &["--shrink"]);
    refused(smaller, 5, &format!("{least} bytes are the least"));
    assert_eq!(size(), 4 << 20);
    resize((2 << 20) + 4096, &["--shrink"]).success();
    resize(1 << 20, &["--shrink", "--force"]).success();
    assert_eq!(size(), 1 << 20);
    // What is behind it now is not taken in unnoticed.
    refused(resize(4 << 20, &[]), 5, "behind that place");
    assert_eq!(size(), 1 << 20);
    resize(2 << 20, &[]).success();
    resize(4 << 20, &["--force"]).success();
    assert_eq!(size(), 4 << 20);
}

#[test]
fn volume_on_a_slice_shrinks_and_grows_where_nothing_is_lost() {
    let folder = Folder::new();
    let image = folder.luks2();
    fix(&image, 1 << 20);
    let disk = folder.path("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(SIZE + (2 << 20)).unwrap();
    file.write_all_at(&fs::read(&image).unwrap(), 1 << 20).unwrap();
    // Neighbours do not count.
    file.write_all_at(&[5; 4096], SIZE + (1 << 20)).unwrap();
    let part = format!("{}?offset=1M&length={SIZE}", disk.display());
    shrinks_and_grows_where_nothing_is_lost(&folder, &part);
}

#[test]
fn volume_on_a_block_device_shrinks_and_grows_where_nothing_is_lost_and_nobody_has_it() {
    let folder = Folder::new();
    let image = folder.luks2();
    fix(&image, 1 << 20);
    let Some(device) = LoopDevice::over(&image) else {
        return;
    };
    shrinks_and_grows_where_nothing_is_lost(&folder, &device.0);
    // As a mapping of the kernel or a mount has it.
    let claim =
        File::options().read(true).custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed()).open(&device.0).unwrap();
    let smaller = || {
        let size = (HEADER + (3 << 20)).to_string();
        cryptline(["resize", &device.0, &size, "--shrink"])
    };
    smaller().exited_with(5);
    drop(claim);
    smaller().success();
}

#[test]
fn what_lies_behind_a_volume_is_not_taken_in_unnoticed() {
    let folder = Folder::new();
    let image = folder.luks2();
    fix(&image, 1 << 20);
    let place = HEADER + (3 << 20);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[1], place).unwrap();
    let before = fs::read(&image).unwrap();
    let whole = || cryptline(["resize", image.to_str().unwrap()]);
    refused(whole(), 5, "behind that place");
    refused(resize(&image, SIZE + 4096, &[]), 5, "--force");
    assert!(fs::read(&image).unwrap() == before);
    resize(&image, SIZE, &["--force"]).success();
    assert_eq!(data_size(&folder, &image), 4 << 20);
}

#[test]
fn file_and_header_grow_at_once_and_neither_is_ahead_of_the_other_where_it_is_cut() {
    let folder = Folder::new();
    let image = folder.luks2();
    fix(&image, 1 << 20);
    let limited = |bytes: u64, size: u64, options: &[&str]| {
        let mut limited = Command::new("prlimit");
        limited
            .arg(format!("--fsize={bytes}"))
            .arg(env!("CARGO_BIN_EXE_cryptline"))
            .arg("resize")
            .arg(&image)
            .arg(size.to_string())
            .args(options);
        let ended = peer::run(&mut limited, peer::TIMEOUT_DEFAULT);
        assert!(!ended.status.success(), "{ended}");
    };
    let len = || fs::metadata(&image).unwrap().len();
    // The file cannot grow: the header does not say that it has.
    limited(SIZE, SIZE + (2 << 20), &[]);
    assert_eq!((fixed(&image), len()), ((1 << 20).to_string().into(), SIZE));
    resize(&image, SIZE + (2 << 20), &[]).success();
    let grown = (6 << 20).to_string().into();
    assert_eq!((fixed(&image), len()), (grown, SIZE + (2 << 20)));
    assert_eq!(data_size(&folder, &image), 6 << 20);
    // The header cannot be written: the file is not cut.
    limited(0, SIZE, &["--shrink"]);
    assert_eq!(len(), SIZE + (2 << 20));
    assert_eq!(data_size(&folder, &image), 6 << 20);
    resize(&image, SIZE, &["--shrink"]).success();
    assert_eq!(data_size(&folder, &image), 4 << 20);
}

#[test]
fn detached_header_says_how_long_data_is_that_lies_elsewhere() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let folder = Folder::new();
    let (data, header) = (folder.path("data"), folder.path("header"));
    File::create(&data).unwrap().set_len(4 << 20).unwrap();
    let (place, elsewhere) = (data.to_str().unwrap(), format!("--header={}", header.display()));
    let key = format!("--key-file={}", folder.key().display());
    let format =
        ["luksFormat", "--batch-mode", place, &elsewhere, &key, "--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    cryptsetup.run(format).success();
    let size = || open(&[place, &elsewhere, &key, "--read-only"]).size();
    assert_eq!(size(), 4 << 20);
    resize(&data, 6 << 20, &[&elsewhere]).success();
    assert_eq!(size(), 6 << 20);
    fix(&header, 1 << 20);
    resize(&data, 8 << 20, &[&elsewhere]).success();
    assert_eq!(size(), 8 << 20);
    resize(&data, 2 << 20, &[&elsewhere, "--shrink"]).success();
    assert_eq!((size(), fs::metadata(&data).unwrap().len()), (2 << 20, 2 << 20));
}

#[test]
fn volume_shrinks_only_where_that_was_said_and_nothing_is_lost() {
    let folder = Folder::new();
    let image = folder.luks2();
    write(&folder, &image, 1 << 20, &[9; 4096]);
    let before = fs::read(&image).unwrap();
    let smaller = HEADER + (1 << 20);
    refused(resize(&image, smaller, &[]), 1, "--shrink");
    let least = (smaller + 4096).to_string();
    refused(resize(&image, smaller, &["--shrink"]), 5, &least);
    refused(resize(&image, HEADER, &["--shrink", "--force"]), 1, "need at least");
    assert!(fs::read(&image).unwrap() == before);
    resize(&image, smaller + 4096, &["--shrink"]).success();
    assert!(read(&folder, &image, 1 << 20) == [9; 4096]);
    resize(&image, smaller, &["--shrink", "--force"]).success();
    assert_eq!(data_size(&folder, &image), 1 << 20);
    opens_there(&folder, &image);
}

#[test]
fn served_volume_grows_for_clients_that_come_later_and_does_not_shrink() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    let folder = Folder::new();
    let image = folder.luks2();
    let key = format!("--key-file={}", folder.key().display());
    let server = Server::start([image.to_str().unwrap(), &key]);
    let size = || {
        let run = nbdinfo.run(["--size", &server.uri]).success();
        run.stdout_text().trim().parse::<u64>().unwrap()
    };
    assert_eq!(size(), SIZE - HEADER);
    refused(resize(&image, HEADER + (1 << 20), &["--shrink"]), 5, "stop that one first");
    resize(&image, SIZE + (3 << 20), &[]).success();
    assert_eq!(size(), SIZE - HEADER + (3 << 20));
    server.stop();
}

#[test]
fn what_has_its_size_from_elsewhere_keeps_it() {
    let folder = Folder::new();
    let image = folder.luks2();
    let disk = folder.path("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(SIZE + (2 << 20)).unwrap();
    file.write_all_at(&fs::read(&image).unwrap(), 1 << 20).unwrap();
    let part = format!("{}?offset=1M&length={SIZE}", disk.display());
    let grown = (SIZE + (1 << 20)).to_string();
    refused(cryptline(["resize", &part, &grown]), 1, "resize what it lies on");
    let said = cryptline(["resize", &part]).success();
    assert!(said.stdout_text().contains("as before"), "{said}");
    refused(cryptline(["resize", "ram:1M", "2M"]), 1, "starts empty");
    let clear = folder.path("clear");
    File::create(&clear).unwrap().set_len(1 << 20).unwrap();
    refused(resize(&clear, 2 << 20, &[]), 4, "not a LUKS device");
    refused(resize(&folder.path("none"), 2 << 20, &[]), 4, "No such file");
    assert_eq!(fs::metadata(&clear).unwrap().len(), 1 << 20);
}
