//! Tables of several lines: the same lines give the same bytes, over one disk and over two.

use cryptline_testkit::oracle::{Oracle, pattern};

use super::Check;
use super::bench::{Bench, Opening, hex, text};
use super::exchange::Volume;

/// Three ranges of one disk, out of order, with borders on no page's.
const ONE_DISK: [&str; 3] = [
    "0 701 crypt aes-xts-plain64 KEY64 17 DISK 1400",
    "701 47 linear DISK 3",
    "748 1300 crypt aes-xts-plain64 KEY32 0 DISK 50 1 allow_discards",
];
/// Ranges of two disks.
const TWO_DISKS: [&str; 3] = [
    "0 1024 crypt aes-xts-plain64 KEY64 0 SECOND 8 1 sector_size:4096",
    "1024 512 linear DISK 0",
    "1536 512 crypt aes-cbc-essiv:sha256 KEY32 0 DISK 512 1 sector_size:4096",
];
/// Sectors of each image.
const IMAGE: usize = 2112;

pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    [("one disk", ONE_DISK), ("two disks", TWO_DISKS)]
        .into_iter()
        .map(|(name, lines)| volume(bench, name, lines).exchange(bench, oracle))
        .collect()
}

fn volume<'a>(bench: &'a Bench, name: &str, lines: [&str; 3]) -> Volume<'a> {
    let name = format!("lines over {name}");
    let [disk, second] = ["first", "second"].map(|which| bench.image(&format!("{name} {which}"), IMAGE * 512));
    let table = |disk: &str, second: &str| {
        let (long, short) = (pattern::bytes(81, 64), pattern::bytes(82, 32));
        lines.map(|line| {
            line.replace("DISK", disk)
                .replace("SECOND", second)
                .replace("KEY64", &hex(&long))
                .replace("KEY32", &hex(&short))
        })
    };
    let ours = table(text(&disk), text(&second)).join("\n");
    let file = bench.file(&name, ours.as_bytes());
    let theirs = table("$disk", "$second").map(|line| format!("echo \"{line}\""));
    let theirs = format!("({}) | dmsetup create v", theirs.join("; "));
    let ours = Opening::new(["--table", &format!("@{}", text(&file))]);
    let mut volume = Volume::new(name, &disk, ours, &theirs);
    volume.more.push(("second", second));
    volume.lines = lines.len();
    volume
}
