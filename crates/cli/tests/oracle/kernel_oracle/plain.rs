//! `cryptsetup open --type plain`: no header, so both sides must make the same key and layout of the same
//! options.

use cryptline_testkit::oracle::Oracle;

use super::Check;
use super::bench::{Bench, Opening, text};
use super::exchange::{CLEAR_BYTES, Volume};

/// A layout: options that both programs spell alike, the image's size, and the clear disk's.
struct Layout {
    name: &'static str,
    options: &'static str,
    image: usize,
    clear: usize,
}

/// The passphrase of volumes whose key is made by a hash.
const PASSPHRASE: &str = "a passphrase, typed";

const LAYOUTS: &[Layout] = &[
    Layout {
        name: "plain, sha256",
        options: "--cipher aes-xts-plain64 --key-size 256 --hash sha256",
        image: CLEAR_BYTES,
        clear: CLEAR_BYTES,
    },
    Layout {
        name: "plain, sha512 with offset, skip and size",
        options: "--cipher aes-xts-plain64 --key-size 512 --hash sha512 --offset 72 --skip 4294967200 --size 1999",
        image: CLEAR_BYTES + 72 * 512,
        clear: 1999 * 512,
    },
    Layout {
        name: "plain, a hash shorter than the key",
        options: "--cipher aes-xts-plain64 --key-size 512 --hash sha1 --skip 3",
        image: CLEAR_BYTES + 512,
        clear: CLEAR_BYTES + 512,
    },
    Layout {
        name: "plain, a part of the hash",
        options: "--cipher aes-xts-plain --key-size 256 --hash sha256:20",
        image: CLEAR_BYTES,
        clear: CLEAR_BYTES,
    },
    Layout {
        name: "plain, no hash, large sectors with large IVs",
        options: "--cipher aes-xts-plain64 --key-size 384 --hash plain --sector-size 4096 --iv-large-sectors --skip 40 --offset 8",
        image: CLEAR_BYTES + 4096,
        clear: CLEAR_BYTES,
    },
    Layout {
        name: "plain, large sectors with small IVs",
        options: "--cipher aes-xts-plain64 --key-size 512 --hash sha256 --sector-size 2048 --skip 4",
        image: CLEAR_BYTES,
        clear: CLEAR_BYTES,
    },
];

/// Every layout with a passphrase, and a key file that is the key itself.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let volumes = LAYOUTS.iter().map(|layout| layout.volume(bench));
    let volumes = volumes.chain([with_key_file(bench)]);
    let checks = volumes.map(|volume| volume.exchange(bench, oracle));
    checks.collect()
}

impl Layout {
    fn volume<'a>(&self, bench: &'a Bench) -> Volume<'a> {
        let image = bench.image(self.name, self.image);
        let mut ours =
            Opening::new([text(&image), "--type", "plain", "--passphrase-fd", "0"]).with(self.options.split(' '));
        ours.input = format!("{PASSPHRASE}\n").into_bytes();
        let theirs = format!("echo '{PASSPHRASE}' | cryptsetup open --type plain {} $disk v", self.options);
        let mut volume = Volume::new(self.name, &image, ours, &theirs);
        volume.length = self.clear;
        volume
    }
}

/// The file's first bytes are the key; no hash is made of them.
fn with_key_file(bench: &Bench) -> Volume<'_> {
    let options = "--cipher aes-xts-plain64 --key-size 256 --keyfile-offset 1";
    let image = bench.image("plain with a key file", CLEAR_BYTES);
    let ours = Opening::new([text(&image), "--type", "plain", "--key-file", text(&bench.key)]).with(options.split(' '));
    let theirs = format!("cryptsetup open --type plain {options} --key-file $key $disk v");
    Volume::new("plain with a key file", &image, ours, &theirs)
}
