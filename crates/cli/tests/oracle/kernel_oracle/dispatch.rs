//! Dispatch of the cipher, which changes neither bytes nor tables: every mode and flag of ours, beside the kernel with
//! the words that ask it for the same.
//!
//! `high_priority` is not among them: Linux 6.1 does not know it (6.10 does).

use std::path::Path;

use cryptline_testkit::oracle::{Oracle, pattern};

use super::Check;
use super::bench::{Bench, CLEAR_MAX, Opening, hex, text};
use super::exchange::Volume;

/// Flags in the kernel's order.
const FLAGS: [&str; 4] = ["same_cpu_crypt", "submit_from_crypt_cpus", "no_read_workqueue", "no_write_workqueue"];

/// Enough for all that is written to a volume, and not more.
const SECTORS: usize = 1072;

/// One volume, asked for in different words by each side.
struct Case {
    /// Our table's words.
    ours: String,
    /// Our options.
    options: Vec<String>,
    /// The kernel's words.
    theirs: String,
    sectors: usize,
}

/// Every set of flags, by option and by table, and every mode.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let cases: Vec<Case> = sets_of_flags().chain(modes()).collect();
    let sectors: usize = cases.iter().map(|case| case.sectors).sum();
    // One behind the other.
    let image = bench.image("dispatch", sectors * 512);
    let mut offset = 0;
    let volumes = (0..).zip(cases).map(|(index, case)| {
        let volume = case.volume(bench, index, &image, offset);
        offset += case.sectors;
        volume
    });
    volumes.map(|volume| volume.exchange(bench, oracle)).collect()
}

/// Each set as our options, and as the words of the kernel's table.
fn sets_of_flags() -> impl Iterator<Item = Case> {
    (1..1 << FLAGS.len()).map(|set| {
        let chosen = |index: &usize| set & (1 << index) != 0;
        let flags: Vec<&str> = (0..FLAGS.len()).filter(chosen).map(|index| FLAGS[index]).collect();
        Case {
            ours: String::new(),
            options: flags.iter().map(|flag| format!("--perf-{flag}")).collect(),
            theirs: format!("{} {}", flags.len(), flags.join(" ")),
            sectors: SECTORS,
        }
    })
}

/// Modes, over disks with room for large requests.
fn modes() -> impl Iterator<Item = Case> {
    let inline = "2 no_read_workqueue no_write_workqueue";
    let cases = [
        ("", "--dispatch=queue", ""),
        ("", "--dispatch=auto", ""),
        ("", "--dispatch=auto --helpers=0", ""),
        ("", "--dispatch=inline", inline),
        ("", "--read-dispatch=queue --write-dispatch=auto", ""),
        ("", "--read-dispatch=auto --write-dispatch=inline", "1 no_write_workqueue"),
        ("1 submit_from_crypt_cpus", "--dispatch=queue", "1 submit_from_crypt_cpus"),
        ("1 no_read_workqueue", "--dispatch=queue", ""),
        ("2 no_read_workqueue same_cpu_crypt", "--dispatch=auto", ""),
        // The kernel has no such word: see `refusals`.
        ("1 force_inline", "", inline),
    ];
    cases.into_iter().map(|(ours, options, theirs)| Case {
        ours: ours.to_owned(),
        options: options.split_whitespace().map(str::to_owned).collect(),
        theirs: theirs.to_owned(),
        sectors: CLEAR_MAX / 512,
    })
}

impl Case {
    fn volume<'a>(&self, bench: &'a Bench, index: u64, image: &Path, offset: usize) -> Volume<'a> {
        let name = format!("dispatch {index}: {:?} {:?}", self.ours, self.options);
        let key = hex(&pattern::bytes(7000 + index, 64));
        let table = |device: &str, words: &str| {
            let line = format!("0 {} crypt aes-xts-plain64 {key} 0 {device} {offset} {words}", self.sectors);
            line.trim_end().to_owned()
        };
        let ours = table(text(image), &self.ours);
        let file = bench.file(&format!("dispatch line {index}"), ours.as_bytes());
        let ours =
            Opening::new(["--table", &format!("@{}", text(&file))]).with(self.options.iter().map(String::as_str));
        let theirs = format!("dmsetup create v --table \"{}\"", table("$disk", &self.theirs));
        let mut volume = Volume::new(name, image, ours, &theirs);
        volume.length = self.sectors * 512;
        volume
    }
}
