//! Volumes that grow with their file, and those that say how large they are.

use std::fs::File;
use std::path::Path;

use cryptline::{Open, Plain, TableLine, Target, Volume};
use tempfile::TempDir;

use crate::common::{PHRASE, make};

const SIZE: u64 = 20 << 20;
const MORE: u64 = 3 << 20;

fn enlarge(path: &Path, size: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
}

fn read(volume: &Volume, offset: u64) -> Vec<u8> {
    let mut data = vec![0; 4096];
    volume.blocking().unwrap().read_at(offset, &mut data).unwrap();
    data
}

#[test]
fn luks_volume_to_the_end_of_its_file_grows_as_if_it_were_opened_anew() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    make(&path, SIZE);
    let unlocked = || Open::new(&path).passphrase(PHRASE).open().unwrap();
    let volume = unlocked();
    let clients = volume.gate_for_any_bytes().unwrap();
    let old = volume.size();
    assert_eq!((volume.grow(), volume.info().size), (old, old));
    enlarge(&path, SIZE + MORE + 100);
    assert_eq!(volume.size(), old, "nobody has looked");
    assert_eq!(volume.grow(), old + MORE);
    assert_eq!(clients.grow(), old + MORE, "also in other blocks");
    let data = vec![7; 4096];
    let mut disk = volume.blocking().unwrap();
    disk.write_at(old + MORE - 4096, &data, false).unwrap();
    disk.flush().unwrap();
    let noise = read(&volume, old);
    let runs: u64 = volume.extents(0).map(|run| run.unwrap().len).sum();
    assert_eq!(runs, old + MORE);
    drop((disk, clients, volume));
    let volume = unlocked();
    assert_eq!(volume.size(), old + MORE);
    assert!(read(&volume, old + MORE - 4096) == data);
    assert!(read(&volume, old) == noise);
}

#[test]
fn plain_volume_grows_unless_its_size_was_given() {
    let folder = TempDir::new().unwrap();
    for size in [None, Some(SIZE)] {
        let path = folder.path().join("plain");
        File::create(&path).unwrap().set_len(SIZE).unwrap();
        let plain = Plain { size, ..Plain::new("aes-xts-plain64", 64) };
        let open = Open::new(&path).plain(plain).key([3; 64]);
        let volume = open.open().unwrap();
        enlarge(&path, SIZE + MORE);
        let expected = if size.is_some() { SIZE } else { SIZE + MORE };
        assert_eq!(volume.grow(), expected);
    }
}

#[test]
fn table_keeps_the_length_that_it_says() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let (place, sectors, key) = (path.display(), SIZE / 512, "07".repeat(64));
    let lines =
        [format!("0 {sectors} linear {place} 0"), format!("0 {sectors} crypt aes-xts-plain64 {key} 0 {place} 0")];
    for line in lines {
        let table = Target::Table(TableLine::new(&line).unwrap());
        let volume = Open::target(table).open().unwrap();
        enlarge(&path, SIZE + MORE);
        assert_eq!(volume.grow(), SIZE, "{line}");
        drop(volume);
        enlarge(&path, SIZE);
    }
}
