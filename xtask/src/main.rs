//! `cargo xtask`: everything about this repository that is not the program.
//!
//! ```text
//! cargo xtask check      for each commit: format, style, clippy, unit tests, command-line cases
//! cargo xtask test       for each landing: all that must hold (.ci/run calls this)
//! cargo xtask nightly    everything, without a limit; target/nightly-report.md says what it did
//! ```
//!
//! The other verbs do one step of these, or make what is distributed; `cargo xtask` lists them.

#![forbid(unsafe_code)]

mod arm;
mod counts;
mod deny;
mod doors;
mod fuzz;
mod header;
mod miri;
mod notices;
mod package;
mod peers;
mod portable;
mod python;
mod runner;
mod simulate;
mod step;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use step::Failed;

/// One verb: its name, what it does, and how.
type XtaskVerb = (&'static str, &'static str, fn() -> Result<(), Failed>);

const VERBS: &[XtaskVerb] = &[
    ("check", "check a commit: format, style, clippy, unit tests and command-line cases", doors::check),
    ("test", "check a landing: install missing peers, lint, build, and run every test that must hold", doors::test),
    ("nightly", "check everything there is, and write target/nightly-report.md", doors::nightly),
    ("tidy", "check the style rules no other tool checks", tidy::run),
    ("licences", "check licences and sources of all crates", deny::run),
    ("peers", "install the Debian packages the tests need", peers::run),
    ("tools", "install the programs that only nightly runs below target", tools::run),
    ("counts", "compare instruction counts of AES-XTS and the engine with the committed ones", counts::run),
    ("recount", "write the instruction counts again", counts::update),
    ("miri", "run what Miri can run", miri::run),
    ("arm", "compile for 64-bit ARM and run the ciphers' tests emulated", arm::run),
    ("header", "write the C header again from the source", header::update),
    ("static", "make the static program, with its debug information and notices beside it", portable::distributed),
    ("notices", "write the licences of what is in the program, and a CycloneDX list of it", notices::run),
    ("package", "make a Debian package of a release build", package::usual),
    ("try-package", "do the steps of `test` that make the static program and a package of it", doors::try_package),
    ("fuzz", "fuzz each target for six minutes, two at a time, when the processors have nothing else to do", fuzz::run),
    ("simulate", "run the simulator: kept histories, mistakes that are built in, and new histories", simulate::run),
    ("mistakes", "make each mistake of simulator/mistakes in a copy, and see whether it is found", simulate::mistakes),
    ("python", "build and test the Python module", python::run),
    ("bench-python", "measure the Python module beside pyluksde and dissect.fve", python::bench),
    ("wheel", "make a wheel of the Python module from a release build", python::wheel),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let verb = VERBS.iter().find(|(name, ..)| *name == wanted);
    let (Some((_, _, run)), None) = (verb, arguments.next()) else {
        eprintln!("usage: cargo xtask VERB");
        for (name, purpose, _) in VERBS {
            eprintln!("  {name:<12} {purpose}");
        }
        return ExitCode::FAILURE;
    };
    let ended = run();
    if let Err(Failed(why)) = &ended {
        eprintln!("xtask {wanted}: {why}");
        if doors::free_bytes() < doors::FULL_BYTES {
            eprintln!("xtask {wanted}: the disk that has target is nearly full; make room and start again");
        }
    }
    // Nothing of ours comes after the runner's summary.
    runner::show_summary();
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// The folder in which Cargo builds.
fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
