//! LUKS1 volumes that QEMU makes open here, and QEMU opens ours.

use std::time::Duration;

use super::common::{Image, PASSPHRASE};
use crate::format::{FormatOptions, KdfCost, LuksVersion, format};
use crate::{ErrorKind, SegmentPolicy};
use cryptline_testkit::peer::{self, Peer};

const MIB: u64 = 1 << 20;
const SECRET: &str = "secret,id=pass,data=correct horse";

#[test]
fn luks1_made_by_qemu_opens() {
    let Some(qemu_img) = peer::require("qemu-img") else { return };
    for (cipher, key_len) in [("aes-128", 32), ("aes-256", 64)] {
        let image = Image::sparse(0);
        let luks = format!("key-secret=pass,cipher-alg={cipher},cipher-mode=xts,iter-time=10");
        create(&qemu_img, &luks, &image);
        assert_eq!(image.unlock(PASSPHRASE).unwrap().key.len(), key_len);
        let segment = image.header().unwrap().segments(SegmentPolicy::default()).unwrap().remove(0);
        let size = image.open().1;
        assert_eq!(segment.data_size(size).unwrap(), 4 * MIB);
        assert_eq!(image.unlock(b"wrong").err().unwrap().kind(), ErrorKind::NoKey);
    }
}

/// QEMU times its key derivation first, and gives up when the clock did not move meanwhile.
fn create(qemu_img: &Peer, luks: &str, image: &Image) {
    let path = image.path.to_str().unwrap();
    let arguments = ["create", "-q", "--object", SECRET, "-f", "luks", "-o", luks, path, "4M"];
    let mut run = qemu_img.run(arguments);
    for turn in 0..200 {
        if !run.stderr_text().contains("Unable to get accurate CPU usage") {
            break;
        }
        std::thread::sleep(Duration::from_millis(10 * (turn % 10)));
        run = qemu_img.run(arguments);
    }
    run.success();
}

#[test]
fn luks1_made_here_is_opened_by_qemu() {
    let Some(qemu_img) = peer::require("qemu-img") else { return };
    let image = Image::sparse(6 * MIB);
    let (mut file, size) = image.open();
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    let options = FormatOptions { version: LuksVersion::Luks1, cost, ..FormatOptions::default() };
    format(&mut file, size, PASSPHRASE, &options).unwrap();
    let source = format!("driver=luks,key-secret=pass,file.filename={}", image.path.display());
    let arguments = ["info", "--object", SECRET, "--image-opts", &source];
    let info = qemu_img.run(arguments).success().stdout_text();
    assert!(info.contains("file format: luks"), "{info}");
    assert!(info.contains("virtual size: 4 MiB"), "{info}");
}
