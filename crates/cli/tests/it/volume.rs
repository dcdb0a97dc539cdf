//! Volumes opened as the verbs do: what is said of them, and that all ways into a volume lead
//! to the same bytes.

use std::fs;
use std::path::Path;

use crate::common::*;
use cryptline::{BaseInfo, Volume, VolumeKind};
use cryptline_engine::BackendChoice;
use cryptline_engine::blocking::Blocking;
use serde_json::json;

#[track_caller]
fn open_luks(folder: &Folder, image: &Path, options: &[&str]) -> Volume {
    let (image, key) = (image.to_str().unwrap(), folder.key());
    open(&[&[image, "--key-file", key.to_str().unwrap()], options].concat())
}

fn blocking(volume: &Volume) -> Blocking {
    Blocking::new(volume.gate(), BackendChoice::Auto).unwrap()
}

#[test]
fn the_summary_says_what_was_opened() {
    let folder = Folder::new();
    let image = folder.luks2();
    let summary = open_luks(&folder, &image, &["--read-only"]).info().clone();
    assert_eq!(summary.source, image.to_str().unwrap());
    assert_eq!((summary.kind, summary.cipher.as_str()), (VolumeKind::Luks2, "aes-xts-plain64"));
    assert_eq!((summary.key_bits, summary.sector_size, summary.size), (512, 4096, 4 << 20));
    assert!(summary.read_only && !summary.discards);
    assert!(!summary.cipher_kernel.is_empty());
    let summary = open_luks(&folder, &folder.luks1(), &["--direct=off"]).info().clone();
    assert_eq!((summary.kind, summary.sector_size), (VolumeKind::Luks1, 512));
    assert!(!summary.read_only);
    assert_eq!(summary.base, BaseInfo::File { direct: false });
}

#[test]
fn ram_is_a_volume_under_a_new_key_each_time() {
    let (one, two) = (open(&["ram:1G"]), open(&["ram:1G"]));
    let summary = one.info();
    assert_eq!((summary.kind, summary.size), (VolumeKind::RandomKey, 1 << 30));
    assert_eq!((summary.key_bits, summary.sector_size), (512, 4096));
    assert_eq!((summary.base, summary.discards), (BaseInfo::Ram, true));
    let (mut first, mut second) = (vec![0; 4096], vec![0; 4096]);
    blocking(&one).read_at(0, &mut first).unwrap();
    blocking(&two).read_at(0, &mut second).unwrap();
    assert!(first != second, "both volumes have the same key");
}

#[test]
fn discards_pass_when_the_header_or_the_user_says_so() {
    let folder = Folder::new();
    let image = folder.luks2();
    assert!(!open_luks(&folder, &image, &[]).info().discards);
    assert!(open_luks(&folder, &image, &["--allow-discards"]).info().discards);
    edit_metadata(&image, |json| json["config"]["flags"] = json!(["allow-discards", "new-flag"]));
    let volume = open_luks(&folder, &image, &[]);
    assert!(volume.info().discards);
    assert!(warnings(&volume).iter().any(|line| line.contains("'new-flag'")), "{:?}", volume.warnings());
}

#[test]
fn what_is_written_through_luks_is_read_through_its_table_and_as_plain() {
    let folder = Folder::new();
    for (image, sector) in [(folder.luks2(), 4096), (folder.luks1(), 512)] {
        let data: Vec<u8> = (0..100 * 4096_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let volume = open_luks(&folder, &image, &[]);
        let mut disk = blocking(&volume);
        disk.write_at(8192, &data, false).unwrap();
        disk.flush().unwrap();
        drop((disk, volume));
        let line = folder.run(&["table"], &image, &["--show-keys"]).success().stdout_text();
        let words: Vec<_> = line.split_whitespace().collect();
        let (cipher, key, offset) = (words[3], words[4], words[7]);
        let raw = folder.path("raw");
        fs::write(&raw, base16ct::mixed::decode_vec(key).unwrap()).unwrap();
        let plain = [
            image.to_str().unwrap(),
            "--type=plain",
            "--key-file",
            raw.to_str().unwrap(),
            "--cipher",
            cipher,
            "--key-size=512",
            "--offset",
            offset,
            "--sector-size",
            &sector.to_string(),
            "--read-only",
        ];
        let ways: [&[&str]; 2] = [&["--table", line.trim(), "--read-only"], &plain];
        for way in ways {
            let volume = open(way);
            let mut read = vec![0; data.len()];
            blocking(&volume).read_at(8192, &mut read).unwrap();
            assert!(read == data, "{} reads other bytes", volume.info().kind);
        }
    }
}

#[test]
fn data_that_is_off_the_grid_of_its_sectors_is_the_same_with_and_without_the_page_cache() {
    let folder = Folder::new();
    let (image, key) = (folder.path("plain.img"), folder.path("raw"));
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    fs::write(&key, [0x5a; 64]).unwrap();
    let base = [
        image.to_str().unwrap(),
        "--type=plain",
        "--cipher=aes-xts-plain64",
        "--key-size=512",
        "--key-file",
        key.to_str().unwrap(),
        "--sector-size=4096",
        "--offset=3",
    ];
    let data = vec![7; 64 << 10];
    for (writing, reading) in [("--direct=off", "--direct=auto"), ("--direct=auto", "--direct=off")] {
        let volume = open(&[&base[..], &[writing]].concat());
        assert_eq!(volume.info().size, (1 << 20) - 4096);
        let mut disk = blocking(&volume);
        disk.write_at(4096, &data, true).unwrap();
        drop((disk, volume));
        let mut read = vec![0; data.len()];
        let volume = open(&[&base[..], &[reading]].concat());
        blocking(&volume).read_at(4096, &mut read).unwrap();
        assert!(read == data, "{writing}, then {reading}");
    }
}

#[test]
fn faults_that_were_asked_for_strike() {
    let volume = open(&["ram:1M", "--fault=read:nth=2"]);
    let mut disk = blocking(&volume);
    let mut read = vec![0; 4096];
    disk.read_at(0, &mut read).unwrap();
    assert!(disk.read_at(0, &mut read).is_err());
    disk.read_at(0, &mut read).unwrap();
}
