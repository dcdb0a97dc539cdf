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

use crate::step::{Failed, cannot_run, output, run as run_command, succeeds};
use crate::tools::has_target;

/// How a program is built.
pub struct Build {
    pub target: &'static str,
    /// Whether Cargo is given the target, and so has a folder for it.
    is_named: bool,
    pub profile: &'static str,
    /// In the place of the default ones.
    pub features: Option<&'static str>,
    flags: Option<&'static str>,
    /// What it may weigh on a disk.
    bytes_max: u64,
}

/// What is distributed. Its profile makes it smaller than `release`, and no slower.
const MUSL: Build = Build {
    target: if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" },
    is_named: true,
    profile: "dist",
    features: Some(FEATURES),
    flags: None,
    bytes_max: 10_000_000,
};
/// What CI tries where Rust cannot compile for musl: whatever takes a static program is tested even so.
const GLIBC: Build = Build {
    target: GLIBC_TARGET,
    is_named: true,
    profile: "release",
    features: Some(FEATURES),
    flags: Some("-C target-feature=+crt-static"),
    bytes_max: 24 << 20,
};
/// As `cargo build --release` builds it here.
pub const USUAL: Build = Build {
    target: GLIBC_TARGET,
    is_named: false,
    profile: "release",
    features: None,
    flags: None,
    bytes_max: 24 << 20,
};

const GLIBC_TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
/// All but `bench`: whoever measures other programs can build this one as well.
const FEATURES: &str = "rbd";
/// For what is written in C below us.
const COMPILER: &str = "musl-gcc";

impl Build {
    /// The static one that has been made, if any.
    pub fn made() -> Option<Self> {
        let mut static_ones = [MUSL, GLIBC].into_iter();
        static_ones.find(|build| build.program().exists())
    }

    /// Where Cargo puts the program.
    pub fn program(&self) -> PathBuf {
        let target = crate::root().join("target");
        let folder = if self.is_named { target.join(self.target) } else { target };
        folder.join(self.profile).join("cryptline")
    }
}

/// Builds it, puts its debug information apart, and looks at the result.
pub fn run() -> Result<(), Failed> {
    if !succeeds(COMPILER, &["--version"]) {
        let why = format!("{COMPILER} is missing: cargo xtask peers");
        return cannot_run("static build", &why);
    }
    if has_target(MUSL.target)? {
        return make(&MUSL);
    }
    let target = MUSL.target;
    let why = format!("Rust cannot compile for it: rustup target add {target}");
    if !peer::in_ci() {
        return cannot_run("static build", &why);
    }
    println!("SKIP musl: {why}; glibc takes its place");
    make(&GLIBC)
}

fn make(build: &Build) -> Result<(), Failed> {
    let folder = folder();
    let installed = folder.join("installed");
    // As anybody would install it, so that this is tried as well; it builds where `cargo build` would.
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
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
    require(line_of_main(&debug)?.contains("main.rs:"), "its debug information has no lines")?;
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
