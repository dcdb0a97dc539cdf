//! 64-bit ARM: the whole program is compiled for it, and the ciphers' tests run under QEMU's user
//! emulation.
//!
//! How long they take there says nothing about a real processor.

use crate::step::{Failed, cannot_run, cargo_command, run as run_command, skip, succeeds};
use crate::tools::has_target;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian has the C library for `TARGET`.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Parts of names of tests: those of the crate itself, of edges of requests, and of the kernel's ciphertexts.
const TESTS: &[&str] = &[
    "sector::",
    "xts::",
    "cpu::",
    "ceiling::",
    "whole_requests_are_encrypted",
    "every_part_of_a_sector_is",
    "vectors_of_ieee_1619_are_met",
    "stay_inside_their_buffers",
    "every_sector_is_encrypted_as_the_kernel_did",
    "a_sector_alone_is_the_same",
];

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
        skip("ARM", &why);
        return Ok(());
    }
    cargo(&["check", "--package=cryptline"], &[])?;
    cargo(&["test", "--package=cryptline-cipher", "--lib"], TESTS)
}

fn cargo(arguments: &[&str], tests: &[&str]) -> Result<(), Failed> {
    let variable = |name: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}");
    let mut cargo = cargo_command();
    cargo.args(arguments).args(["--locked", "--quiet", "--target", TARGET]);
    if !tests.is_empty() {
        cargo.arg("--").args(tests);
    }
    cargo.env(variable("LINKER"), LINKER).env(variable("RUNNER"), format!("{EMULATOR} -L {LIBRARIES}"));
    run_command(&mut cargo)
}
