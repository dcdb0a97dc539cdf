//! `cargo xtask`: everything about this repository that is not the program.
//!
//! ```text
//! cargo xtask test     peers, tidy, fmt, clippy, build, deny, fuzz, every test   (.ci/run calls this)
//! cargo xtask tidy     only the style rules no other tool checks
//! cargo xtask peers    only the Debian packages the tests need
//! cargo xtask tools    only the programs that checks run (cargo-deny, cargo-deb, cbindgen)
//! cargo xtask counts   only the instruction counts of AES-XTS
//! cargo xtask recount  write crates/cipher/instructions.txt again
//! cargo xtask miri     only what Miri can run
//! cargo xtask arm      only the tests on an emulated ARM processor
//! cargo xtask header   write crates/capi/include/cryptline.h again
//! cargo xtask others   only what runs beside the rest of `test`: counts, ARM, C header, Python, fuzz
//! cargo xtask static   only the static program, in target/static
//! cargo xtask package  only the Debian package, from a release build
//! cargo xtask notices  only the licences of what is in the program, and its list of components
//! cargo xtask python   only the Python module: build it and run its tests
//! cargo xtask bench-python  only the Python module's speed, beside pyluksde and dissect.fve
//! cargo xtask wheel    only the Python module's wheel, from a release build
//! ```

#![forbid(unsafe_code)]

mod arm;
mod beside;
mod counts;
mod header;
mod miri;
mod notices;
mod package;
mod peers;
mod portable;
mod python;
mod step;
mod suite;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use step::Failed;

/// One verb: its name, what it does, and how.
type Verb = (&'static str, &'static str, fn() -> Result<(), Failed>);

const VERBS: &[Verb] = &[
    ("test", "install missing peers, lint, build and run every test", suite::run),
    ("tidy", "check the style rules no other tool checks", tidy::run),
    ("peers", "install the Debian packages the tests need", peers::run),
    ("tools", "install the programs that checks run below target", tools::run),
    ("counts", "compare instruction counts of AES-XTS with the committed ones", counts::run),
    ("recount", "write the instruction counts of AES-XTS again", counts::update),
    ("miri", "run what Miri can run", miri::run),
    ("arm", "compile for 64-bit ARM and run the ciphers' tests emulated", arm::run),
    ("header", "write the C header again from the source", header::update),
    (
        "others",
        "the steps of `test` that run beside the rest: program without Ceph, counts, arm, header, python, fuzz",
        suite::others,
    ),
    ("static", "make the static program, with its debug information and notices beside it", portable::run),
    ("notices", "write the licences of what is in the program, and a CycloneDX list of it", notices::run),
    ("package", "make a Debian package of the release build; in CI, install, use and purge it", package::run),
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
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("xtask {wanted}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}
