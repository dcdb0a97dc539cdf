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
//! Each subject adds its cases to the machine of its kernel and gives back checks. All checks run, so that one
//! disagreement does not hide another. `CRYPTLINE_ORACLE=luks,btt` in the environment asks about these subjects only.
//!
//! | module | what is asked |
//! |---|---|
//! | `itself` | the oracle: its dm-crypt is real, a case that fails or is late says so; the golden ciphertexts |
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
//! | `block` | the `file` base of the engine on virtio-blk and null_blk, in the guest |
//! | `zoned` | zones of null_blk and the emulated ones, operation by operation |
//! | `attach` | `attach`, `detach` and `devices` by every driver, in the guest |
//! | `callers` | lines of cryptsetup's callers, asked of it and of us |

mod attach;
mod bench;
mod block;
mod btt;
mod discard;
mod dispatch;
mod exchange;
mod files;
mod images;
mod itself;
mod luks;
mod plain;
mod refusals;
mod segments;
mod subblock;
mod tables;
mod zoned;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cryptline_testkit::oracle::{Check, Linux, Oracle, judge};

use bench::Bench;

/// Names subjects, with commas between them, for a boot that asks about these only.
const SUBJECTS: &str = "CRYPTLINE_ORACLE";
/// Memory of a guest that attaches devices, in MiB.
const MEMORY: u32 = 1280;

/// Adds the cases of a subject to the machine. Without what it needs of this machine it adds none.
type Ask = for<'a> fn(&'a Bench, &mut Oracle) -> Vec<Check<'a>>;

/// One processor: two that wait for each other take more than twice as long on a busy machine. And sixty disks: what QEMU
/// and the kernel do for one more grows with their number, so that twice as many take many times as long to be found.
#[test]
fn kernel_oracle_of_this_release_agrees_on_headers() {
    let subjects: &[(&str, Ask)] = &[
        ("luks", luks::ask),
        ("refusals", refusals::ask),
        ("files", files::ask),
        ("images", images::ask),
        ("dispatch", dispatch::ask),
    ];
    agree(Linux::Stable, 1, subjects);
}

#[test]
fn kernel_oracle_of_this_release_agrees_on_tables_and_zones() {
    let subjects: &[(&str, Ask)] = &[
        ("itself", itself::ask),
        ("plain", plain::ask),
        ("tables", tables::ask),
        ("segments", segments::ask),
        ("discard", discard::ask),
        ("subblock", subblock::ask),
        ("ciphers", tables::ask_matrix),
        ("btt", btt::ask),
        ("block", block::ask),
        ("zoned", zoned::ask),
    ];
    agree(Linux::Stable, 1, subjects);
}

#[test]
fn kernel_oracle_of_this_release_attaches() {
    agree(Linux::Stable, 2, &[("attach", attach::ask_of_nbd), ("callers", attach::callers::ask_of_nbd)]);
}

/// The oldest kernel of Debian's that has ublk.
#[test]
fn kernel_oracle_6_12_agrees() {
    agree(Linux::V6_12, 2, &[("attach", attach::ask_of_ublk), ("callers", attach::callers::ask_of_ublk)]);
}

#[test]
fn kernel_oracle_of_the_newest_release_agrees() {
    agree(Linux::Newest, 2, &[("attach", attach::newest::ask)]);
}

#[test]
fn nightly_kernel_oracle_of_the_newest_release_agrees_as_older_ones_do() {
    agree(Linux::Newest, 2, &[("attach", attach::newest::ask_again)]);
}

/// Asks about all subjects in one boot, and names every case that fails. A device has no more hardware queues than there
/// are processors.
fn agree(linux: Linux, processors: u32, subjects: &[(&str, Ask)]) {
    let (Some(mut oracle), Some(bench)) = (Oracle::with(linux), Bench::new()) else {
        return;
    };
    oracle.memory_mib(MEMORY).processors(processors).this_program(bench.folder());
    let wanted = std::env::var(SUBJECTS).unwrap_or_default();
    let is_wanted = |subject: &str| wanted.is_empty() || wanted.split(',').any(|it| it == subject);
    let mut checks = Vec::new();
    let mut failed = Vec::new();
    for (subject, ask) in subjects.iter().filter(|it| is_wanted(it.0)) {
        match catch_unwind(AssertUnwindSafe(|| ask(&bench, &mut oracle))) {
            Ok(more) => checks.extend(more),
            Err(_) => failed.push(format!("{subject}: not all could be asked")),
        }
    }
    eprintln!("Linux {} and {} checks", oracle.kernel_version(), checks.len());
    judge(checks, &oracle.run(), failed);
}
