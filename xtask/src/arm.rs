//! 64-bit ARM: the whole program is compiled for it, and the ciphers' tests run under QEMU's user
//! emulation.
//!
//! How long they take there says nothing about a real processor.

use std::process::Command;

use crate::step::{Failed, cannot_run, run as run_command, succeeds, toolchain_lacks};
use crate::tools::has_target;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian has the C library for `TARGET`.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Names, or parts of them, of tests in the cipher crate itself.
const UNIT_TESTS: &[&str] = &["sector::", "xts::", "cpu::", "ceiling::"];

/// Compiles and tests, on any machine but one that is ARM itself: there all tests are tests on ARM.
pub fn run() -> Result<(), Failed> {
    if cfg!(target_arch = "aarch64") {
        println!("this machine is ARM");
        return Ok(());
    }
    if !succeeds(EMULATOR, &["--version"]) || !succeeds(LINKER, &["--version"]) {
        let why = format!("{EMULATOR} or {LINKER} is missing: cargo xtask peers");
        return cannot_run("ARM", &why);
    }
    if !has_target(TARGET)? {
        let why = format!("Rust cannot compile for it: rustup target add {TARGET}");
        return toolchain_lacks("ARM", &why);
    }
    cargo(&["check", "--package=cryptline"], &[])?;
    cargo(&["test", "--package=cryptline-cipher", "--lib"], UNIT_TESTS)?;
    let vectors = ["--test=it"];
    cargo(&[&["test", "--package=cryptline-cipher"], &vectors[..]].concat(), &[])
}

fn cargo(arguments: &[&str], tests: &[&str]) -> Result<(), Failed> {
    let variable = |name: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}");
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).args(["--locked", "--quiet", "--target", TARGET]);
    if !tests.is_empty() {
        cargo.arg("--").args(tests);
    }
    cargo.env(variable("LINKER"), LINKER).env(variable("RUNNER"), format!("{EMULATOR} -L {LIBRARIES}"));
    run_command(&mut cargo)
}
