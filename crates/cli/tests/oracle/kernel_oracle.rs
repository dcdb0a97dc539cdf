//! A real Linux, with its dm-crypt and its cryptsetup, judges the `cryptline` program.
//!
//! ```text
//! on this machine                      in the guest (one boot)           on this machine again
//! ───────────────                      ───────────────────────           ─────────────────────
//! an image by cryptsetup or cryptline
//! cryptline writes it over NBD  ─────► the kernel opens it: the bytes?
//!                                      the kernel writes other bytes ──► cryptline reads it: the bytes?
//! cryptline table               ─────► dmsetup table: the same line?
//! ```
//!
//! Each subject adds its cases to the one machine and gives back checks. All checks run, so that one
//! disagreement does not hide another.
//!
//! | module | what is asked |
//! |---|---|
//! | `luks` | LUKS2 and LUKS1 by either side, key sizes, sector sizes, key derivations, detached headers, flags |
//! | `plain` | `cryptsetup open --type plain`: hash, offset, skip, size, sector size |
//! | `tables` | raw device-mapper lines: IV modes and offsets, sector sizes, options |
//! | `segments` | tables of several lines, `crypt` and `linear`, over one disk and over two |
//! | `dispatch` | who runs the cipher: every mode, every set of performance flags |
//! | `refusals` | what both refuse: bad lines with the kernel's words, volumes that do not fit |
//! | `discard` | discards by either side leave all other sectors as they were |
//! | `btt` | block translation tables made by either side, 512 and 4096 bytes, dm-crypt over them |
//! | `subblock` | large sectors written and read by us in blocks of 512 bytes |
//! | `files` | an ext4 file system made by either side |
//! | `images` | volumes filled, copied into, converted, re-keyed and resized here |

mod bench;
mod btt;
mod discard;
mod dispatch;
mod exchange;
mod files;
mod images;
mod luks;
mod plain;
mod refusals;
mod segments;
mod subblock;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cryptline_testkit::oracle::matrix::COMBINATIONS;
use cryptline_testkit::oracle::{Oracle, Outcomes};

use bench::Bench;

/// Ciphers that are asked about in one boot.
const DISKS_OF_A_BOOT: usize = 46;

/// What is looked at once the guest is off: panics when the two sides disagree.
struct Check<'a> {
    name: String,
    verify: Box<dyn FnOnce(&Outcomes) + 'a>,
}

impl<'a> Check<'a> {
    fn new(name: impl Into<String>, verify: impl FnOnce(&Outcomes) + 'a) -> Self {
        Self { name: name.into(), verify: Box::new(verify) }
    }
}

#[test]
fn kernel_oracle_and_cryptline_agree_on_every_header_both_ways() {
    agree_on(&[luks::ask, refusals::ask, files::ask, images::ask]);
}

#[test]
fn kernel_oracle_and_cryptline_agree_on_every_table_both_ways() {
    agree_on(&[plain::ask, tables::ask, segments::ask, discard::ask]);
}

/// Asks about several subjects in one boot.
fn agree_on(subjects: &[for<'b> fn(&'b Bench, &mut Oracle) -> Vec<Check<'b>>]) {
    let (Some(mut oracle), Some(bench)) = (Oracle::new(), Bench::new()) else {
        return;
    };
    let mut checks = Vec::new();
    for subject in subjects {
        checks.extend(subject(&bench, &mut oracle));
    }
    judge(oracle, checks);
}

#[test]
fn kernel_oracle_and_cryptline_agree_whoever_runs_the_cipher() {
    let (Some(mut oracle), Some(bench)) = (Oracle::new(), Bench::new()) else {
        return;
    };
    let checks = dispatch::ask(&bench, &mut oracle);
    judge(oracle, checks);
}

#[test]
fn kernel_oracle_and_cryptline_agree_on_sectors_written_in_small_blocks() {
    let (Some(mut oracle), Some(bench)) = (Oracle::new(), Bench::new()) else {
        return;
    };
    let checks = subblock::ask(&bench, &mut oracle);
    judge(oracle, checks);
}

/// A machine has room for some hundred disks, so there are several boots.
#[test]
fn kernel_oracle_and_cryptline_agree_on_every_cipher_both_ways() {
    for combinations in COMBINATIONS.chunks(DISKS_OF_A_BOOT) {
        let (Some(mut oracle), Some(bench)) = (Oracle::new(), Bench::new()) else {
            return;
        };
        let checks = tables::ask_matrix(&bench, &mut oracle, combinations);
        judge(oracle, checks);
    }
}

/// In a boot of its own: persistent memory is part of the machine.
#[test]
fn kernel_oracle_and_cryptline_agree_on_block_translation_tables_both_ways() {
    let (Some(mut oracle), Some(bench)) = (Oracle::new(), Bench::new()) else {
        return;
    };
    let checks = btt::ask(&bench, &mut oracle);
    judge(oracle, checks);
}

fn judge(oracle: Oracle, checks: Vec<Check<'_>>) {
    eprintln!("Linux {} and {} checks", oracle.kernel_version(), checks.len());
    let outcomes = oracle.run();

    let mut disagreements = Vec::new();
    for Check { name, verify } in checks {
        eprintln!("--- {name}");
        if catch_unwind(AssertUnwindSafe(|| verify(&outcomes))).is_err() {
            disagreements.push(name);
        }
    }
    assert!(
        disagreements.is_empty(),
        "{} disagreements, each explained above:\n{}",
        disagreements.len(),
        disagreements.join("\n")
    );
}
