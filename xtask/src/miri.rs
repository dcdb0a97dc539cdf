//! Miri: the XTS kernels and the I/O buffers, interpreted, with every pointer watched.
//!
//! ```text
//!   cipher   AES-NI and VAES with 256-bit vectors, on requests small enough
//!   sys      buffers: slots taken, cut in pieces, joined, freed on other threads; copies that race
//! ```
//!
//! Miri lacks 512-bit shifts, so AVX-512's kernel is not among them, and assembly, so the empty blocks
//! of it that keep instructions in order are left out. Everything else in the project is safe code, or
//! system calls, which Miri lacks too.

use std::process::Command;

use crate::step::{Failed, command, run as run_command, skip, succeeds};

/// The features a program under Miri asks for are those it is compiled for. The software AES of
/// the library is what the kernels are compared with, and Miri lacks an instruction of its other.
const FLAGS: &str = "-Ctarget-feature=+aes,+ssse3,+avx2,+vaes,+vpclmulqdq --cfg aes_backend=\"soft\"";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Tests that Miri runs in seconds, by parts of their names.
const CIPHER: &[&str] = &["sector::tests::small::", "xts::keys::", "the_last_tweaks_of_a_4096_byte_sector", "cpu::"];
const SYS: &[&str] =
    &["pieces_are_disjoint", "slot_is_free", "slots_", "racing_cop", "overlapping_requests_of_threads"];

/// Runs the chosen tests on a nightly toolchain, which is installed if need be.
pub fn run() -> Result<(), Failed> {
    let install = ["toolchain", "install", "nightly", "--profile=minimal", "--component=miri,rust-src"];
    let add = ["component", "add", "--toolchain=nightly", "miri", "rust-src"];
    let here = || succeeds("rustup", &["run", "nightly", "cargo", "miri", "--version"]);
    // To the toolchain that is there, before another is fetched.
    let has = |arguments: &[&str]| command("rustup", arguments).is_ok() && here();
    let is_here = here() || has(&add) || has(&install);
    if !is_here {
        let install = install.join(" ");
        let why = format!("there is no nightly toolchain with Miri: rustup {install}");
        // In CI too: what is missing is no peer, and a machine without a way to it says nothing about the code.
        skip("Miri", &why);
        return Ok(());
    }
    tests("cryptline-cipher", CIPHER)?;
    tests("cryptline-sys", SYS)
}

fn tests(package: &str, names: &[&str]) -> Result<(), Failed> {
    let mut miri = Command::new("rustup");
    miri.args(["run", "nightly", "cargo", "miri", "test", "--locked"])
        .args(["--package", package, "--lib", "--target", TARGET, "--"])
        .args(names)
        .env("RUSTFLAGS", FLAGS)
        // Tests read a variable and the time.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation");
    run_command(&mut miri)
}
