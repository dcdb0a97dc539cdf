//! The Python module: a wheel by maturin, installed into an environment of its own and tested there by Debian's own
//! Python.
//!
//! It is a workspace of its own, so that nothing else needs a Python. What both need is built once, in the same folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failed, cannot_run, run as run_command, succeeds};

const PYTHON: &str = "/usr/bin/python3";
/// What builds the wheel, and what knows the form of the list that `notices` writes.
const TOOLS: [&str; 2] = [
    "maturin==1.16.0",
    "cyclonedx-python-lib[json-validation]==11.12.0",
];
/// Says nothing of a file that is as it should be.
const VALIDATE: &str = "
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(pathlib.Path(sys.argv[1]).read_text())
sys.exit(wrong and str(wrong))
";

/// Lints the module, builds it as the tests build everything, and runs its tests.
pub fn run() -> Result<(), Failed> {
    if !is_new_enough() {
        return cannot_run("Python", MISSING);
    }
    let manifest = "--manifest-path=python/Cargo.toml";
    cargo(&["fmt", manifest, "--check"])?;
    cargo(&["clippy", manifest, "--locked", "--", "-D", "warnings"])?;
    let tools = tools()?;
    let wheel = build(&tools, "dev", &crate::root().join("target/python/wheels"))?;
    let python = install(&tools, &wheel)?;
    let mut tests = Command::new(&python);
    tests
        .args(["-W", "error", "python/tests/test_cryptline.py", "--quiet"])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run_command(&mut tests)?;
    crate::notices::run()?;
    let list = crate::notices::folder().join(crate::notices::BOM);
    let mut validate = Command::new(tools.join("bin/python"));
    run_command(validate.args(["-W", "error", "-c", VALIDATE]).arg(list))
}

/// Only the wheel, for distribution.
pub fn wheel() -> Result<(), Failed> {
    if !is_new_enough() {
        return cannot_run("wheel", MISSING);
    }
    let wheel = build(&tools()?, "release", &crate::root().join("target/wheels"))?;
    println!("{}", wheel.display());
    Ok(())
}

const MISSING: &str =
    "there is no Python 3.11 or later with venv: apt-get install python3 python3-venv";

fn is_new_enough() -> bool {
    let check = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))";
    succeeds(PYTHON, &["-c", check])
}

fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    run_command(in_our_target(Command::new("cargo").args(arguments)))
}

fn in_our_target(command: &mut Command) -> &mut Command {
    let target = crate::root().join("target");
    command
        .env("CARGO_TARGET_DIR", target)
        .env("PYO3_PYTHON", PYTHON)
}

/// An environment with [`TOOLS`], below `target`.
fn tools() -> Result<PathBuf, Failed> {
    let folder = crate::root().join("target/tools/python");
    let python = folder.join("bin/python");
    if !python.exists() {
        run_command(Command::new(PYTHON).args(["-m", "venv"]).arg(&folder))?;
    }
    let mut pip = Command::new(&python);
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    run_command(pip.args(install).args(TOOLS))?;
    Ok(folder)
}

/// Builds the wheel into a folder, alone.
fn build(tools: &Path, profile: &str, into: &Path) -> Result<PathBuf, Failed> {
    let failed = |error: std::io::Error| Failed(format!("{}: {error}", into.display()));
    if into.exists() {
        fs::remove_dir_all(into).map_err(failed)?;
    }
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin
        .args(["build", "--locked", "--manifest-path=python/Cargo.toml"])
        .args(["--interpreter", PYTHON, "--profile", profile, "--out"])
        .arg(into);
    run_command(in_our_target(&mut maturin))?;
    let mut made = fs::read_dir(into).map_err(failed)?;
    let wheel = made
        .next()
        .ok_or_else(|| Failed("maturin made no wheel".to_owned()))?;
    Ok(wheel.map_err(failed)?.path())
}

/// Installs a wheel into a new environment; gives its Python. What Debian has is there as well.
fn install(tools: &Path, wheel: &Path) -> Result<PathBuf, Failed> {
    let folder = crate::root().join("target/python/environment");
    let mut make = Command::new(PYTHON);
    make.args([
        "-m",
        "venv",
        "--clear",
        "--without-pip",
        "--system-site-packages",
    ]);
    run_command(make.arg(&folder))?;
    let python = folder.join("bin/python");
    let mut pip = Command::new(tools.join("bin/python"));
    pip.args(["-m", "pip", "--python"]).arg(&python);
    pip.args(["install", "--quiet", "--no-index", "--no-deps"]);
    run_command(pip.arg(wheel))?;
    Ok(python)
}
