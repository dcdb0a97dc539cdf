//! The Python module: built, and tested by Debian's own Python.
//!
//! It is a workspace of its own, so that nothing else needs a Python. What both need is built once, in the same folder.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::step::{Failed, cannot_run, run as run_command, succeeds};

const PYTHON: &str = "/usr/bin/python3";
/// What the module is measured beside. Newer versions of them may be faster: they are part of the result.
const BESIDE: [&str; 2] = ["libluksde-python==20260902", "dissect.fve==4.6"];

/// Builds the module, lints it, and runs its tests.
pub fn run() -> Result<(), Failed> {
    if !succeeds(
        PYTHON,
        &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"],
    ) {
        return cannot_run(
            "Python",
            "there is no Python 3.11 or later: apt-get install python3",
        );
    }
    let root = crate::root();
    let (source, target) = (root.join("python"), root.join("target"));
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command
            .args(arguments)
            .env("CARGO_TARGET_DIR", &target)
            .env("PYO3_PYTHON", PYTHON);
        run_command(&mut command)
    };
    let manifest = "--manifest-path=python/Cargo.toml";
    cargo(&["fmt", manifest, "--check"])?;
    cargo(&["clippy", manifest, "--locked", "--", "-D", "warnings"])?;
    cargo(&["build", manifest, "--locked"])?;
    let modules = target.join("python");
    let built = target.join("debug/lib_cryptline.so");
    install(&source, &built, &modules).map_err(|error| Failed(error.to_string()))?;
    let mut tests = Command::new(PYTHON);
    tests
        .args(["-W", "error", "python/tests/test_cryptline.py", "--quiet"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", &modules);
    run_command(&mut tests)
}

/// Measures a release build of the module beside other readers of LUKS, which are installed below `target`.
pub fn bench() -> Result<(), Failed> {
    let root = crate::root();
    let (source, target) = (root.join("python"), root.join("target"));
    let [modules, others, report] =
        ["python-release", "python-peers", "python.json"].map(|name| target.join(name));
    let mut build = Command::new("cargo");
    build
        .args([
            "build",
            "--release",
            "--manifest-path=python/Cargo.toml",
            "--locked",
        ])
        .env("CARGO_TARGET_DIR", &target);
    run_command(&mut build)?;
    let built = target.join("release/lib_cryptline.so");
    install(&source, &built, &modules).map_err(|error| Failed(error.to_string()))?;
    // Not Debian's: another Python may come first on the path, and have pip where that has none.
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
        .arg(&others)
        .args(BESIDE);
    run_command(&mut pip)?;
    let path = std::env::join_paths([&modules, &others]);
    let mut bench = Command::new("python3");
    bench
        .args(["python/bench/readers.py", "--json"])
        .arg(&report)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(
            "PYTHONPATH",
            path.map_err(|error| Failed(error.to_string()))?,
        );
    run_command(&mut bench)?;
    println!("{}", report.display());
    Ok(())
}

/// Puts the module together as a wheel would have it.
fn install(source: &Path, built: &Path, modules: &Path) -> io::Result<()> {
    let package = modules.join("cryptline");
    fs::create_dir_all(&package)?;
    for entry in fs::read_dir(source.join("cryptline"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), package.join(entry.file_name()))?;
        }
    }
    let module = package.join("_cryptline.abi3.so");
    // A copy into a file that a Python has open would change it under its feet.
    let new = package.join("_cryptline.new");
    fs::copy(built, &new)?;
    fs::rename(new, module)
}
