//! LUKS volumes of other ciphers than AES-XTS: QEMU and cryptsetup make them, QEMU's own LUKS driver
//! reads and writes the same clear disk.
//!
//! ```text
//!   clear ─ qemu-img convert ─► volume ─► cryptline serve ─ nbdcopy ─► the same clear
//!   news ─ nbdcopy ─► cryptline serve ─► volume ─► qemu-img compare with news
//! ```

use std::fs;

use crate::server::{Server, noise, text};
use cryptline_testkit::peer::{self, Peer};

/// Bytes of the clear disk: several chunks of a request.
const SIZE: usize = 4 << 20;
/// The same for Twofish, which runs at some megabytes a second.
const SIZE_SLOW: usize = 384 << 10;
const PASSPHRASE: &str = "correct horse";
/// cryptsetup's words for volumes that QEMU knows. Other ciphers than AES it makes only with the
/// kernel's help.
const BY_CRYPTSETUP: &[&str] = &[
    "--type luks1 --cipher aes-cbc-essiv:sha256 --key-size 256",
    "--type luks1 --cipher aes-cbc-essiv:sha256 --key-size 128",
    "--type luks1 --cipher aes-cbc-plain --key-size 256",
    "--type luks1 --cipher aes-cbc-plain64 --key-size 128",
];
/// QEMU's own words.
const BY_QEMU: &[&str] = &[
    "cipher-alg=aes-256,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
    "cipher-alg=aes-128,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
    "cipher-alg=aes-256,cipher-mode=cbc,ivgen-alg=plain64",
    "cipher-alg=aes-256,cipher-mode=cbc,ivgen-alg=plain",
    "cipher-alg=serpent-256,cipher-mode=xts,ivgen-alg=plain64",
    "cipher-alg=serpent-256,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
];
const TWOFISH_BY_QEMU: &[&str] = &[
    "cipher-alg=twofish-256,cipher-mode=xts,ivgen-alg=plain64",
    "cipher-alg=twofish-256,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
];

/// A volume in a folder, with its key and two clear texts.
struct Volume {
    folder: tempfile::TempDir,
    name: &'static str,
    size: usize,
}

#[test]
fn luks1_made_by_cryptsetup_is_the_same_disk_for_qemu_and_us() {
    let peers = ["cryptsetup", "nbdcopy", "qemu-img"];
    let Some([cryptsetup, nbdcopy, qemu_img]) = peer::require_all(peers) else {
        return;
    };
    for name in BY_CRYPTSETUP {
        let volume = Volume::new(name, SIZE);
        let image = fs::File::create(volume.path("image")).unwrap();
        image.set_len((2 << 20) + SIZE as u64).unwrap();
        let (image, key) = (volume.path("image"), volume.path("key"));
        let format = "-q luksFormat --pbkdf-force-iterations 1000 --offset 4096".split(' ');
        let format = format.chain(name.split(' ')).chain([&*image, &*key]);
        cryptsetup.run(format).success();
        volume.both_ways(&nbdcopy, &qemu_img);
    }
}

#[test]
fn luks1_made_by_qemu_is_the_same_disk_for_qemu_and_us() {
    both_ways_through_qemu(BY_QEMU, SIZE);
}

#[test]
fn twofish_luks1_made_by_qemu_is_the_same_disk_for_qemu_and_us() {
    both_ways_through_qemu(TWOFISH_BY_QEMU, SIZE_SLOW);
}

fn both_ways_through_qemu(names: &[&'static str], size: usize) {
    let Some([nbdcopy, qemu_img]) = peer::require_all(["nbdcopy", "qemu-img"]) else {
        return;
    };
    for name in names {
        let volume = Volume::new(name, size);
        volume.create(&qemu_img);
        volume.both_ways(&nbdcopy, &qemu_img);
    }
}

impl Volume {
    fn new(name: &'static str, size: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let volume = Self { folder, name, size };
        let noise = noise(2 * size);
        fs::write(volume.path("key"), PASSPHRASE).unwrap();
        fs::write(volume.path("clear"), &noise[..size]).unwrap();
        fs::write(volume.path("news"), &noise[size..]).unwrap();
        volume
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }

    /// QEMU times its key derivation first, and gives up when the clock did not move meanwhile.
    fn create(&self, qemu_img: &Peer) {
        let options = format!("key-secret=key,iter-time=10,{}", self.name);
        let (secret, image, size) = (self.secret(), self.path("image"), self.size.to_string());
        let arguments = ["create", "-q", "--object", &secret, "-f", "luks", "-o", &options, &image, &size];
        let unlucky = "Unable to get accurate CPU usage";
        let mut run = qemu_img.run(arguments);
        for _ in 0..20 {
            if !run.stderr_text().contains(unlucky) {
                break;
            }
            run = qemu_img.run(arguments);
        }
        run.success();
    }

    #[track_caller]
    fn both_ways(&self, nbdcopy: &Peer, qemu_img: &Peer) {
        let (clear, news, read) = (self.path("clear"), self.path("news"), self.path("read"));
        let secret = self.secret();
        let encrypted = format!("driver=luks,key-secret=key,file.filename={}", self.path("image"));
        let convert = ["convert", "-n", "-f", "raw", "--object", &secret];
        let convert = convert.into_iter().chain(["--target-image-opts", &clear, &encrypted]);
        qemu_img.run(convert).success();

        let (image, key) = (self.path("image"), self.path("key"));
        let server = Server::start([&*image, "--key-file", &key]);
        nbdcopy.run([&*server.uri, &read]).success();
        let same = fs::read(&read).unwrap() == fs::read(&clear).unwrap();
        assert!(same, "{}: we read other bytes than QEMU wrote", self.name);
        nbdcopy.run(["--flush", &news, &server.uri]).success();
        server.stop();

        let raw = format!("driver=raw,file.filename={news}");
        let compare = ["compare", "--object", &secret, "--image-opts", &encrypted, &raw];
        let run = qemu_img.run(compare);
        assert!(run.stdout_text().contains("identical"), "{}: {run}", self.name);
        run.success();
    }

    fn secret(&self) -> String {
        format!("secret,id=key,file={}", self.path("key"))
    }
}
