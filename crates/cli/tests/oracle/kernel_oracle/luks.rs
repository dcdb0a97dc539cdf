//! LUKS2 and LUKS1 volumes, made by cryptsetup here, by cryptsetup in the guest, and by `cryptline create`.

use std::path::Path;

use cryptline_testkit::oracle::Oracle;

use super::Check;
use super::bench::{Bench, Opening, text};
use super::exchange::{CLEAR_BYTES, Volume};

/// Default size of a LUKS2 header with its key slots.
const LUKS2_HEADER: usize = 16 << 20;
/// Default size of a LUKS1 header with its key slots.
const LUKS1_HEADER: usize = 2 << 20;
/// Keys as hexadecimal digits in the table, not in the kernel's keyring, so that they can be compared.
const OPEN: &str = "cryptsetup open --disable-keyring --key-file $key $disk v";
const PBKDF2: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
const ARGON2ID: &str = "--pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 64 --pbkdf-parallel 1";
const ARGON2I: &str = "--pbkdf argon2i --pbkdf-force-iterations 5 --pbkdf-memory 1024 --pbkdf-parallel 2";

/// Kinds and ciphers of volumes, key slots included, that are not AES-XTS.
const CIPHERS: &[(&str, &str)] = &[
    ("luks1", "aes-cbc-essiv:sha256 --key-size 256"),
    ("luks1", "serpent-xts-plain64 --key-size 512"),
    ("luks1", "cast6-cbc-essiv:sha256 --key-size 256"),
    ("luks2", "aes-cbc-essiv:sha256 --key-size 256 --sector-size 4096"),
    ("luks2", "serpent-xts-plain64 --key-size 512 --sector-size 4096"),
    ("luks2", "twofish-cbc-essiv:sha256 --key-size 256 --sector-size 512"),
    ("luks2", "camellia-xts-plain64 --key-size 512 --sector-size 512"),
    ("luks2", "aes-lrw-benbi --key-size 384 --sector-size 512"),
    ("luks2", "xchacha20,aes-adiantum-plain64 --key-size 256 --sector-size 4096"),
    ("luks1", "xchacha12,aes-adiantum-plain64 --key-size 256"),
];

/// Party that makes the header.
#[derive(Clone, Copy, Debug)]
enum Maker {
    Cryptsetup,
    Cryptline,
}

/// All volumes of both versions.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let mut volumes = Vec::new();
    for maker in [Maker::Cryptsetup, Maker::Cryptline] {
        for key_bits in [256, 512] {
            for sector_size in [512, 1024, 2048, 4096] {
                volumes.push(luks2(bench, maker, key_bits, sector_size));
            }
            volumes.push(luks1(bench, maker, key_bits));
        }
    }
    for (kind, cipher) in CIPHERS {
        let options = format!("--cipher {cipher} {PBKDF2}");
        let name = format!("{kind} by us, {cipher}");
        let header = header_of(kind);
        volumes.push(format(bench, Maker::Cryptline, name, kind, &options, header));
        volumes.push(made_by_the_guest(bench, kind, &options));
    }
    volumes.push(compact(bench));
    volumes.push(detached(bench));
    volumes.push(made_by_the_guest(bench, "luks1", PBKDF2));
    volumes.push(made_by_the_guest(bench, "luks2", PBKDF2));
    volumes.push(with_flags(bench));
    let checks = volumes.into_iter().map(|volume| volume.exchange(bench, oracle));
    checks.collect()
}

fn luks2<'a>(bench: &'a Bench, maker: Maker, key_bits: u32, sector_size: u32) -> Volume<'a> {
    let name = format!("luks2 by {maker:?}, {key_bits} bits, sectors of {sector_size}");
    let pbkdf = match (key_bits, sector_size) {
        (_, 2048) => ARGON2I,
        (512, _) => ARGON2ID,
        _ => PBKDF2,
    };
    let options = format!("--key-size {key_bits} --sector-size {sector_size} {pbkdf}");
    format(bench, maker, name, "luks2", &options, LUKS2_HEADER)
}

fn luks1<'a>(bench: &'a Bench, maker: Maker, key_bits: u32) -> Volume<'a> {
    let name = format!("luks1 by {maker:?}, {key_bits} bits");
    let options = format!("--key-size {key_bits} --hash sha512 {PBKDF2}");
    format(bench, maker, name, "luks1", &options, LUKS1_HEADER)
}

fn header_of(kind: &str) -> usize {
    match kind {
        "luks1" => LUKS1_HEADER,
        _ => LUKS2_HEADER,
    }
}

fn format<'a>(bench: &'a Bench, maker: Maker, name: String, kind: &str, options: &str, header: usize) -> Volume<'a> {
    let size = header + CLEAR_BYTES;
    let image = match maker {
        Maker::Cryptsetup => {
            let image = bench.image(&name, size);
            luks_format(bench, &format!("--type {kind} {options}"), &image);
            image
        }
        Maker::Cryptline => {
            let image = bench.path(&name);
            let size = size.to_string();
            let create = Opening::new([text(&image), "--size", &size, "--type", kind])
                .with(["--key-file", text(&bench.key)])
                .with(options.split(' '));
            let _ = bench.cryptline("create", &create, &[]).success();
            image
        }
    };
    let ours = opening(bench, &image);
    Volume::new(name, &image, ours, OPEN)
}

/// A header of the least size, and an odd start of the data.
fn compact(bench: &Bench) -> Volume<'_> {
    let offset = 2056 * 512;
    let image = bench.image("compact", offset + CLEAR_BYTES);
    luks_format(
        bench,
        &format!(
            "--type luks2 --luks2-metadata-size 16k --luks2-keyslots-size 512k --offset 2056 --sector-size 4096 {PBKDF2}"
        ),
        &image,
    );
    let ours = opening(bench, &image);
    Volume::new("luks2 with a compact header and data at sector 2056", &image, ours, OPEN)
}

/// The header in a file of its own, the data from sector 0.
fn detached(bench: &Bench) -> Volume<'_> {
    let header = bench.image("detached header", LUKS2_HEADER);
    let image = bench.image("detached data", CLEAR_BYTES);
    let options = format!("--type luks2 --sector-size 512 {PBKDF2} --header {}", text(&header));
    luks_format(bench, &options, &image);
    let ours = opening(bench, &image).with(["--header", text(&header)]);
    let theirs = "cryptsetup open --disable-keyring --key-file $key --header $header $disk v";
    let mut volume = Volume::new("luks2 with a detached header", &image, ours, theirs);
    volume.more.push(("header", header));
    volume
}

/// Nothing of ours before the guest formatted and filled it.
fn made_by_the_guest<'a>(bench: &'a Bench, kind: &str, options: &str) -> Volume<'a> {
    let name = format!("{kind} by the guest, {options}");
    let header = header_of(kind);
    let image = bench.image(&name, header + CLEAR_BYTES);
    let ours = opening(bench, &image);
    let theirs = format!("cryptsetup luksFormat -q --type {kind} {options} --key-file $key $disk\n{OPEN}");
    let mut volume = Volume::new(name, &image, ours, &theirs);
    volume.we_write = false;
    volume
}

/// Flags kept in the header turn up in both tables.
fn with_flags(bench: &Bench) -> Volume<'_> {
    let image = bench.image("flags", LUKS2_HEADER + CLEAR_BYTES);
    luks_format(bench, &format!("--type luks2 --sector-size 4096 {ARGON2ID}"), &image);
    // Of discards the header alone persuades nobody here.
    let ours = opening(bench, &image).with(["--allow-discards"]);
    let theirs = "cryptsetup open --persistent --allow-discards --perf-same_cpu_crypt \
        --perf-submit_from_crypt_cpus --perf-no_read_workqueue --perf-no_write_workqueue \
        --disable-keyring --key-file $key $disk v";
    Volume::new("luks2 with flags in its header", &image, ours, theirs)
}

fn opening(bench: &Bench, image: &Path) -> Opening {
    Opening::new([text(image), "--key-file", text(&bench.key)])
}

fn luks_format(bench: &Bench, options: &str, image: &Path) {
    let more = ["--key-file", text(&bench.key), text(image)];
    bench.cryptsetup(&format!("luksFormat -q {options}"), &more);
}
