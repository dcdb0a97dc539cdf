//! Volumes that other verbs than `serve` have written: filled, copied into, converted, re-keyed and resized.

use std::path::Path;

use cryptline_testkit::oracle::{Oracle, pattern};

use super::Check;
use super::bench::{Bench, Opening, sha256, text};

const CLEAR_BYTES: usize = 1 << 20;
const SECTORS: usize = CLEAR_BYTES / 512;
const PBKDF2: [&str; 4] = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
/// Passphrase after `key change`.
const CHANGED: &[u8] = b"another passphrase";

/// An image, and what opens it.
struct Subject<'k> {
    name: &'static str,
    make: fn(&Bench, &Path, &Path),
    key: &'k [u8],
    /// Bytes of the clear disk.
    size: usize,
}

/// All of them.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let bytes = pattern::bytes(31, CLEAR_BYTES);
    let raw = bench.file("raw to fill with", &bytes);
    let key = std::fs::read(&bench.key).expect("the passphrase");
    let images = [
        Subject { name: "filled by create --from", make: filled, key: &key, size: CLEAR_BYTES },
        Subject { name: "filled by copy", make: copied_into, key: &key, size: CLEAR_BYTES },
        Subject { name: "converted, re-keyed and resized", make: changed, key: CHANGED, size: 2 * CLEAR_BYTES },
    ];
    let sum = sha256(&bytes);
    let mut checks = Vec::new();
    for Subject { name, make, key, size } in images {
        let image = bench.path(name);
        make(bench, &raw, &image);
        oracle.case(name).disk("disk", &image).file("key", key).script(&format!(
            "cryptsetup open --key-file $key $disk v
                 blockdev --getsize64 /dev/mapper/v
                 dd if=/dev/mapper/v bs=512 count={SECTORS} | sha256sum"
        ));
        let sum = sum.clone();
        checks.push(Check::new(name, move |outcomes| {
            let said: Vec<_> = outcomes.passed(name).lines().collect();
            assert_eq!(said[0], size.to_string(), "size of the clear disk");
            assert!(said[1].starts_with(&sum), "what was written here");
        }));
    }
    checks
}

fn filled(bench: &Bench, raw: &Path, image: &Path) {
    let create = opening(bench, image).with(["--from", text(raw), "--verify"]);
    let _ = bench.cryptline("create", &create, &PBKDF2).success();
}

fn copied_into(bench: &Bench, raw: &Path, image: &Path) {
    let size = ((16 << 20) + CLEAR_BYTES).to_string();
    let create = opening(bench, image).with(["--size", &size]);
    let _ = bench.cryptline("create", &create, &PBKDF2).success();
    let copy = Opening::new([text(raw), text(image), "--to-key-file", text(&bench.key)]);
    let _ = bench.cryptline("copy", &copy, &[]).success();
}

fn changed(bench: &Bench, raw: &Path, image: &Path) {
    let create = opening(bench, image).with(["--from", text(raw), "--type", "luks1"]);
    let _ = bench.cryptline("create", &create, &PBKDF2).success();
    let convert = Opening::new(["convert", text(image), "--to", "luks2"]);
    let _ = bench.cryptline("header", &convert, &[]).success();
    let new = bench.file("changed passphrase", CHANGED);
    let keys = ["--key-file", text(&bench.key), "--new-key-file", text(&new)];
    let change = Opening::new(["change", text(image)]).with(keys);
    let _ = bench.cryptline("key", &change, &PBKDF2).success();
    // LUKS1 has 2 MiB of header, and one converted keeps its data where it is.
    let size = ((2 << 20) + 2 * CLEAR_BYTES).to_string();
    let resize = Opening::new([text(image), &size]);
    let _ = bench.cryptline("resize", &resize, &[]).success();
}

fn opening(bench: &Bench, image: &Path) -> Opening {
    Opening::new([text(image), "--key-file", text(&bench.key)])
}
