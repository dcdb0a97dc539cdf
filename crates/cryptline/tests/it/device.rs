//! Volumes over a device that the program has open already.

use cryptline::{ErrorKind, Open, Plain, VolumeKind};

/// Two halves that differ, as XTS wants them.
const KEY: [u8; 64] = {
    let mut key = [1; 64];
    key[0] = 2;
    key
};

fn plain() -> Plain {
    Plain { sector_size: 4096, ..Plain::new("aes-xts-plain64", KEY.len()) }
}

#[test]
fn volumes_over_one_device_see_what_the_others_write() {
    let (gate, _) = Open::new("ram:4M").base().unwrap();
    let open = || Open::device(&gate).plain(plain()).key(KEY).open().unwrap();
    let (one, other) = (open(), open());
    assert_eq!(one.info().kind, VolumeKind::Plain);
    one.blocking().unwrap().write_at(4096, &[7; 8192], false).unwrap();
    let mut read = vec![0; 8192];
    other.blocking().unwrap().read_at(4096, &mut read).unwrap();
    assert_eq!(read, [7; 8192]);
    let below = cryptline_engine::BackendChoice::Auto;
    let mut below = cryptline_engine::blocking::Blocking::new(&gate, below).unwrap();
    below.read_at(4096, &mut read).unwrap();
    assert_ne!(read, [7; 8192], "it is encrypted");
}

#[test]
fn clear_disk_of_a_volume_is_a_device_for_another() {
    let inner = Open::new("ram:4M").open().unwrap();
    let outer = Open::device(inner.gate()).plain(plain()).key(KEY).open();
    let outer = outer.unwrap();
    outer.blocking().unwrap().write_at(0, &[9; 4096], false).unwrap();
    let mut read = vec![0; 4096];
    outer.blocking().unwrap().read_at(0, &mut read).unwrap();
    assert_eq!(read, [9; 4096]);
    inner.blocking().unwrap().read_at(0, &mut read).unwrap();
    assert_ne!(read, [9; 4096]);
}

#[test]
fn device_is_not_written_where_the_volume_is_only_read() {
    let (gate, _) = Open::new("ram:4M").base().unwrap();
    let open = Open::device(&gate).plain(plain()).key(KEY).read_only(true);
    let volume = open.open().unwrap();
    assert!(volume.info().read_only);
    let written = volume.blocking().unwrap().write_at(0, &[1; 4096], false);
    assert_eq!(written, Err(cryptline_engine::Fault::ReadOnly));
    assert!(!gate.geometry().read_only, "others may write to it");
}

#[test]
fn device_is_not_shared_with_other_programs() {
    let (gate, _) = Open::new("ram:4M").base().unwrap();
    let open = Open::device(&gate).plain(plain()).key(KEY).shared(true);
    assert_eq!(open.open().err().unwrap().kind(), ErrorKind::Parameters);
}
