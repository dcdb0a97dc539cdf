//! Volumes that become larger while they are mounted.

use super::*;
use crate::server::wait_until;

const MORE: u64 = 3 << 20;

#[test]
fn disk_grows_with_its_image() {
    for options in [&[][..], &["--cache"], &["--io=preadv"]] {
        if !can_mount() {
            return;
        }
        let folder = Folder::new();
        let [image, key] = [folder.luks2(), folder.key()].map(|path| text(&path));
        let options = [options, &["--key-file", &key]].concat();
        let disk = Disk::mount(&image, &options).expect("as above");
        let file = disk.open();
        let size = || file.metadata().expect("a size").len();
        let old = size();
        let grown = OpenOptions::new().write(true).open(&image).expect("it");
        grown.set_len((20 << 20) + MORE).expect("more of it");
        wait_until("the disk has grown", || size() == old + MORE);
        let data = noise(1 << 20);
        file.write_all_at(&data, old - 512).expect("across the old end");
        file.sync_all().expect("flushed");
        let full = file.write_at(&[7; 512], old + MORE);
        assert_eq!(full.expect_err("the end").raw_os_error(), Some(28));
        drop(file);
        disk.end();
        let disk = Disk::mount(&image, &options).expect("as above");
        let mut read = vec![0; data.len()];
        let file = disk.open();
        assert_eq!(file.metadata().expect("a size").len(), old + MORE);
        file.read_exact_at(&mut read, old - 512).expect("inside");
        assert!(read == data);
        drop(file);
        disk.end();
    }
}
