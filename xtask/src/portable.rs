//! The program that runs on any Linux of this architecture and in an empty container: linked statically, with musl.
//!
//! ```text
//! cargo install ─► target/TRIPLE/dist ─► objcopy ─┬─► target/static/cryptline         what is distributed
//!                                                    └─► target/static/cryptline.debug   found by gdb beside it
//!                                        notices ──────► target/static/notices
//! ```
//!
//! `crates/cli/tests/it/container.rs` runs it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use cryptline_peers as peer;

use crate::step::{Failed, cannot_run, cargo_command, output, run as run_command, skip, succeeds};
use crate::tools::has_target;

/// How a program is built.
pub struct Build {
    pub target: &'static str,
    pub profile: &'static str,
    /// In the place of the default ones.
    pub features: Option<&'static str>,
    flags: Option<&'static str>,
    /// Limit of its size on a disk.
    bytes_max: u64,
}

/// Build that is distributed.
pub const DIST: Build = Build {
    target: if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" },
    profile: DISTRIBUTED,
    features: Some(FEATURES),
    flags: None,
    bytes_max: 16_000_000,
};
/// The same without optimisation across crates, which takes longer than all else: what each landing tries.
pub const TRIED: Build = Build { profile: "release", bytes_max: 40_000_000, ..DIST };
/// Build that CI tries where Rust cannot compile for musl: whatever takes a static program is tested even so.
const GLIBC: Build = Build { target: GLIBC_TARGET, flags: Some("-C target-feature=+crt-static"), ..TRIED };
/// As `cargo build --release` builds it here.
pub const USUAL: Build = Build { target: GLIBC_TARGET, features: None, ..TRIED };

/// The profile that has debug information, too.
const DISTRIBUTED: &str = "dist";
const GLIBC_TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
/// All there are.
const FEATURES: &str = "rbd";
/// For what is written in C below us.
const COMPILER: &str = "musl-gcc";

/// Makes what is distributed.
pub fn distributed() -> Result<(), Failed> {
    run(DIST)
}

/// Builds it, puts its debug information apart, and looks at the result.
pub fn run(build: Build) -> Result<(), Failed> {
    if !succeeds(COMPILER, &["--version"]) {
        let why = format!("{COMPILER} is missing: cargo xtask peers");
        return cannot_run("static build", &why);
    }
    if has_target(build.target)? {
        return make(&build);
    }
    let why = format!("Rust cannot compile for it: rustup target add {}", build.target);
    if !peer::in_ci() {
        return cannot_run("static build", &why);
    }
    skip("musl", &format!("{why}; glibc takes its place"));
    make(&GLIBC)
}

fn make(build: &Build) -> Result<(), Failed> {
    let folder = folder();
    let installed = folder.join("installed");
    // As anybody would install it, so that this is tried as well; it builds where `cargo build` would.
    let mut install = cargo_command();
    install.args(["install", "--locked", "--path=crates/cli"]);
    install.args(["--target", build.target, "--profile", build.profile]);
    if let Some(features) = build.features {
        install.args(["--no-default-features", "--features", features]);
    }
    if let Some(flags) = build.flags {
        install.env("RUSTFLAGS", flags);
    }
    install.args(["--force", "--no-track", "--root"]);
    run_command(install.arg(&installed))?;
    separate(&installed.join("bin/cryptline").display().to_string())?;
    fs::remove_dir_all(&installed).map_err(|error| failed(&error))?;
    crate::notices::write(&folder.join("notices"), build)?;
    check(build)
}

/// Where all of it is.
pub fn folder() -> PathBuf {
    crate::root().join("target/static")
}

fn program() -> String {
    folder().join("cryptline").display().to_string()
}

fn debug() -> String {
    format!("{}.debug", program())
}

fn failed(error: &io::Error) -> Failed {
    Failed(format!("{}: {error}", folder().display()))
}

/// Cuts a program in two.
fn separate(whole: &str) -> Result<(), Failed> {
    let (program, debug) = (program(), debug());
    let objcopy = |arguments: &[&str]| run_command(Command::new("objcopy").args(arguments));
    objcopy(&["--only-keep-debug", "--compress-debug-sections", whole, &debug])?;
    let link = format!("--add-gnu-debuglink={debug}");
    objcopy(&["--strip-all", &link, whole, &program])
}

fn check(build: &Build) -> Result<(), Failed> {
    let (program, debug) = (program(), debug());
    let require = |holds: bool, what: &str| {
        let failure = || Failed(format!("{program}: {what}"));
        if holds { Ok(()) } else { Err(failure()) }
    };
    let headers =
        output(Command::new("readelf").args(["--file-header", "--segments", "--dynamic", "--wide", &program]))?;
    require(!headers.contains("INTERP"), "it wants a dynamic linker")?;
    require(!headers.contains("(NEEDED)"), "it wants a shared library")?;
    require(headers.contains("DYN (Position-Independent"), "it is always at the same address")?;
    let bytes = fs::metadata(&program).map_err(|error| failed(&error))?.len();
    require(bytes <= build.bytes_max, &format!("{bytes} bytes are more than {}", build.bytes_max))?;
    let version = output(Command::new(&program).arg("--version"))?;
    print!("{version}");
    require(
        version.contains("(commit ") && version.contains("\nfeatures: rbd"),
        "it does not say what it was made from",
    )?;
    if build.profile == DISTRIBUTED {
        require(line_of_main(&debug)?.contains("main.rs:"), "its debug information has no lines")?;
    }
    println!("{program}: static, {bytes} bytes");
    Ok(())
}

/// Where the source says that the program begins.
fn line_of_main(debug: &str) -> Result<String, Failed> {
    let symbols = output(Command::new("nm").args(["--demangle", debug]))?;
    let address = symbols.lines().find_map(|line| {
        let (address, name) = line.split_once(' ')?;
        name.contains(" cryptline::main").then_some(address)
    });
    let address = address.ok_or_else(|| Failed(format!("{debug} has no symbols")))?;
    output(Command::new("addr2line").args(["--exe", debug, address]))
}
