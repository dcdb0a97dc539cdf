//! The program that runs on any Linux of this architecture and in an empty container: linked statically, with musl.
//!
//! ```text
//! cargo install ─► target/TRIPLE/dist ─► objcopy ─┬─► target/static/cryptline         what is distributed
//!                                                    └─► target/static/cryptline.debug   found by gdb beside it
//!                                        notices ──────► target/static/notices
//! ```
//!
//! `crates/cli/tests/container.rs` runs it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::step::{Failed, cannot_run, output, run as run_command, succeeds, toolchain_lacks};
use crate::tools::has_target;

/// The target of the build.
pub const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-musl"
} else {
    "x86_64-unknown-linux-musl"
};
/// Smaller than `release`, and no slower.
pub const PROFILE: &str = "dist";
/// All but `bench`: whoever measures other programs can build this one as well.
const FEATURES: &str = "rbd";
/// For what is written in C below us.
const COMPILER: &str = "musl-gcc";
/// What the program may weigh on a disk.
const BYTES_MAX: u64 = 10_000_000;

/// Builds it, puts its debug information apart, and looks at the result.
pub fn run() -> Result<(), Failed> {
    if !succeeds(COMPILER, &["--version"]) {
        let why = format!("{COMPILER} is missing: cargo xtask peers");
        return cannot_run("static build", &why);
    }
    if !has_target(TARGET)? {
        let why = format!("Rust cannot compile for it: rustup target add {TARGET}");
        return toolchain_lacks("static build", &why);
    }
    let folder = folder();
    let installed = folder.join("installed");
    // As anybody would install it, so that this is tried as well; it builds where `cargo build` would.
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install
        .args([
            "install",
            "--locked",
            "--path=crates/cli",
            "--target",
            TARGET,
        ])
        .args(["--no-default-features", "--features", FEATURES])
        .args(["--profile", PROFILE, "--force", "--no-track", "--root"])
        .arg(&installed);
    run_command(&mut install)?;
    separate(&installed.join("bin/cryptline").display().to_string())?;
    fs::remove_dir_all(&installed).map_err(|error| failed(&error))?;
    crate::notices::write(&folder.join("notices"))?;
    check()
}

/// Where all of it is.
fn folder() -> PathBuf {
    crate::root().join("target/static")
}

/// The program, where it has been built.
pub fn program() -> String {
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
    objcopy(&[
        "--only-keep-debug",
        "--compress-debug-sections",
        whole,
        &debug,
    ])?;
    let link = format!("--add-gnu-debuglink={debug}");
    objcopy(&["--strip-all", &link, whole, &program])
}

fn check() -> Result<(), Failed> {
    let (program, debug) = (program(), debug());
    let require = |holds: bool, what: &str| {
        let failure = || Failed(format!("{program}: {what}"));
        if holds { Ok(()) } else { Err(failure()) }
    };
    let headers = output(Command::new("readelf").args([
        "--file-header",
        "--segments",
        "--dynamic",
        "--wide",
        &program,
    ]))?;
    require(!headers.contains("INTERP"), "it wants a dynamic linker")?;
    require(!headers.contains("(NEEDED)"), "it wants a shared library")?;
    require(
        headers.contains("DYN (Position-Independent"),
        "it is always at the same address",
    )?;
    let bytes = fs::metadata(&program)
        .map_err(|error| failed(&error))?
        .len();
    require(
        bytes <= BYTES_MAX,
        &format!("{bytes} bytes are more than {BYTES_MAX}"),
    )?;
    let version = output(Command::new(&program).arg("--version"))?;
    print!("{version}");
    require(
        version.contains("(commit ") && version.contains("\nfeatures: rbd"),
        "it does not say what it was made from",
    )?;
    require(
        line_of_main(&debug)?.contains("main.rs:"),
        "its debug information has no lines",
    )?;
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
