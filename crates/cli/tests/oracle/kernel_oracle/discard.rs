//! Discards: what was not discarded stays, and what was reads alike on both sides.

use std::os::unix::fs::MetadataExt as _;

use cryptline_testkit::oracle::{Oracle, pattern};

use super::Check;
use super::bench::{Bench, CLEAR_MAX, Opening, assert_same, hex, sha256, text};

/// Returns what we discard, in bytes: offset and length. First whole blocks of the image's file system, then cipher
/// sectors that do not fill such blocks.
const fn ours(sector_size: usize) -> [(usize, usize); 2] {
    [(1 << 20, 512 << 10), ((2 << 20) + 3 * sector_size, 17 * sector_size)]
}

/// Range that the guest discards: offset and length in bytes.
const THEIRS: (usize, usize) = (3 << 20, 256 << 10);

/// Sectors of 512 and of 4096 bytes.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let checks = [512, 4096].map(|sector_size| both_sides(bench, oracle, sector_size));
    checks.into_iter().chain([not_allowed(bench, oracle)]).collect()
}

fn both_sides<'a>(bench: &'a Bench, oracle: &mut Oracle, sector_size: usize) -> Check<'a> {
    let name = format!("discards with sectors of {sector_size}");
    let image = bench.image(&name, CLEAR_MAX);
    let options = format!("2 allow_discards sector_size:{sector_size}");
    let opening = Opening::new(["--table", &line(text(&image), &options)]);
    let model = pattern::bytes(5, CLEAR_MAX);
    bench.write(&opening, &model, &[]);
    let blocks = || std::fs::metadata(&image).expect("the image").blocks();
    let full = blocks();
    let ours = ours(sector_size);
    let _ = bench.discard(&opening, &ours);
    let freed = (full - blocks()) * 512;
    assert!(freed >= 512 << 10, "{name}: only {freed} bytes were freed");

    let (offset, length) = THEIRS;
    let case = oracle.case(&name).disk("disk", &image);
    case.script(&format!("dmsetup create v --table \"{}\"", line("$disk", &options)))
        .script("sha256sum < /dev/mapper/v");
    for (start, end) in kept(&ours) {
        case.script(&sum_of(start, end));
    }
    case.script(&format!("blkdiscard -o {offset} -l {length} /dev/mapper/v"))
        .script("echo 3 > /proc/sys/vm/drop_caches; sha256sum < /dev/mapper/v");

    let after_ours = bench.read(&opening);
    Check::new(name.clone(), move |outcomes| {
        let said = outcomes.passed(&name).lines();
        let said: Vec<&str> = said.filter_map(|line| line.split(' ').next()).collect();
        let parts = kept(&ours);
        assert_eq!(said.len(), parts.len() + 2, "{said:?}");
        for ((start, end), sum) in parts.iter().zip(&said[1..]) {
            assert_eq!(*sum, sha256(&model[*start..*end]), "kept bytes {start} to {end}");
        }
        assert_eq!(said[0], sha256(&after_ours), "all bytes after our discards");
        let after_theirs = bench.read(&opening);
        assert_eq!(said[said.len() - 1], sha256(&after_theirs), "all bytes after the kernel's");
        for (start, end) in kept(&[ours[0], ours[1], THEIRS]) {
            assert_same(&after_theirs[start..end], &model[start..end], "kept by the kernel");
        }
    })
}

/// Without the option neither side discards.
fn not_allowed<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
    let name = "discards that are not allowed";
    let image = bench.image(name, CLEAR_MAX);
    let opening = Opening::new(["--table", &line(text(&image), "")]);
    let model = pattern::bytes(6, CLEAR_MAX);
    bench.write(&opening, &model, &[]);
    let _ = bench.discard(&opening, &ours(512));
    oracle
        .case(name)
        .disk("disk", &image)
        .script(&format!("dmsetup create v --table \"{}\"", line("$disk", "")))
        .script("! blkdiscard -o 0 -l 1048576 /dev/mapper/v")
        .script("sha256sum < /dev/mapper/v");
    Check::new(name, move |outcomes| {
        let expected = format!("{}  -", sha256(&model));
        assert_eq!(outcomes.passed(name), expected);
        assert_same(&bench.read(&opening), &model, "after refused discards");
    })
}

fn line(device: &str, options: &str) -> String {
    let (sectors, key) = (CLEAR_MAX / 512, hex(&pattern::bytes(11, 64)));
    let line = format!("0 {sectors} crypt aes-xts-plain64 {key} 0 {device} 0 {options}");
    line.trim_end().to_owned()
}

/// The gaps between `discarded`, in 512-byte sectors' bytes: first byte and end.
fn kept(discarded: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (offset, length) in discarded {
        parts.push((start, *offset));
        start = offset + length;
    }
    parts.push((start, CLEAR_MAX));
    parts
}

fn sum_of(start: usize, end: usize) -> String {
    let (skip, count) = (start / 512, (end - start) / 512);
    format!("dd if=/dev/mapper/v bs=512 skip={skip} count={count} | sha256sum")
}
