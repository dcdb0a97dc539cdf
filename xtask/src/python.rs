//! The Python module: built, tested by Debian's own Python, and made a wheel by maturin.
//!
//! The module is a workspace of its own, so that nothing else needs a Python. What both need is built once, in the same
//! folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failed, cannot_run, cargo_command, run as run_command, skip, succeeds};

const PYTHON: &str = "/usr/bin/python3";
const MANIFEST: &str = "--manifest-path=python/Cargo.toml";
/// The profiles of the workspace, so that its builds are used again.
const PROFILES: &str = "--config=Cargo.toml";
/// Tool that builds the wheel, and the one that knows the form of the list that `notices` writes.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "cyclonedx-python-lib[json-validation]==11.12.0"];
/// Packages beside which the module is tested and measured. Newer versions of them may be faster: they are part of the
/// result.
const BESIDE: [&str; 3] = ["libluksde-python==20260902", "dissect.fve==4.6", "libewf-python==20260924"];
/// Compares the stubs with the module.
const STUBTEST: &str = "mypy==2.4.1";
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
    cargo(&["fmt", MANIFEST, "--check"])?;
    cargo(&["clippy", MANIFEST, PROFILES, "--locked", "--", "-D", "warnings"])?;
    cargo(&["build", MANIFEST, PROFILES, "--locked"])?;
    let root = crate::root();
    let modules = root.join("target/python/modules");
    assemble(&root, &modules).map_err(|error| Failed(error.to_string()))?;
    test(Command::new(PYTHON).env("PYTHONPATH", &modules))
}

/// Makes the wheel, and runs the tests with it where it is installed, beside other readers of LUKS. The tools come over
/// the network; without it this is skipped by name, in CI too: nothing about this tree has failed. Where maturin could be
/// had, CI wants the others as well.
pub fn check_wheel() -> Result<(), Failed> {
    if !is_new_enough() {
        return cannot_run("wheel", MISSING);
    }
    let tools = match tools() {
        Ok(tools) => tools,
        Err(Failed(why)) => {
            skip("wheel", &why);
            return Ok(());
        }
    };
    let wheel = build(&tools, "dev", &crate::root().join("target/python/wheels"))?;
    let python = environment(&tools, &wheel)?;
    match run_command(pip(&tools, &python).args(BESIDE).arg(STUBTEST)) {
        Ok(()) => {
            test(Command::new(&python).env("OTHER_READERS", "required"))?;
            compare_stubs(&python)?;
            try_bench(&python)?;
            install_source(&tools, &python)?;
        }
        Err(Failed(why)) => {
            test(&mut Command::new(&python))?;
            cannot_run("other readers of LUKS, and the stubs", &why)?;
        }
    }
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

/// Measures the wheel beside other readers of LUKS.
pub fn bench() -> Result<(), Failed> {
    if !is_new_enough() {
        return cannot_run("bench-python", MISSING);
    }
    let target = crate::root().join("target");
    let tools = tools()?;
    let wheel = build(&tools, "release", &target.join("wheels"))?;
    let python = environment(&tools, &wheel)?;
    run_command(pip(&tools, &python).args(BESIDE))?;
    let report = target.join("python.json");
    run_command(&mut readers(&python, &report))?;
    println!("{}", report.display());
    Ok(())
}

/// As README.md says, but for a build that is there already.
fn install_source(tools: &Path, python: &Path) -> Result<(), Failed> {
    let mut install = pip(tools, python);
    install.args(["--no-deps", "--force-reinstall", "./python"]);
    let profiles = crate::root().join("Cargo.toml");
    install.env("MATURIN_PEP517_ARGS", format!("--profile dev --config {}", profiles.display()));
    run_command(in_our_target(&mut install))?;
    let open = "import cryptline; cryptline.open('ram:1M').close()";
    run_command(Command::new(python).args(["-c", open]))
}

fn compare_stubs(python: &Path) -> Result<(), Failed> {
    let mut stubtest = Command::new(python);
    stubtest.args(["-m", "mypy.stubtest", "cryptline", "--allowlist"]);
    run_command(stubtest.arg("python/stubtest-allowlist.txt"))
}

/// Verifies that the measurement runs and writes its report; nothing is said of speed.
fn try_bench(python: &Path) -> Result<(), Failed> {
    let report = crate::root().join("target/python/tried.json");
    run_command(readers(python, &report).args(["--rounds=2", "--seconds=0"]))
}

/// The command that measures the readers.
fn readers(python: &Path, report: &Path) -> Command {
    let mut bench = Command::new(python);
    bench.args(["python/bench/readers.py", "--json"]).arg(report).env("PYTHONDONTWRITEBYTECODE", "1");
    bench
}

const MISSING: &str = "there is no Python 3.11 or later with venv: apt-get install python3 python3-venv";

fn is_new_enough() -> bool {
    let check = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))";
    succeeds(PYTHON, &["-c", check])
}

fn test(python: &mut Command) -> Result<(), Failed> {
    python.args(["-W", "error", "python/tests/test_cryptline.py", "--quiet"]).env("PYTHONDONTWRITEBYTECODE", "1");
    run_command(python)
}

fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    run_command(in_our_target(cargo_command().args(arguments)))
}

fn in_our_target(command: &mut Command) -> &mut Command {
    let target = crate::root().join("target");
    command.env("CARGO_TARGET_DIR", target).env("PYO3_PYTHON", PYTHON)
}

/// Puts the module together as a wheel would have it.
fn assemble(root: &Path, modules: &Path) -> io::Result<()> {
    let package = modules.join("cryptline");
    fs::create_dir_all(&package)?;
    for entry in fs::read_dir(root.join("python/cryptline"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), package.join(entry.file_name()))?;
        }
    }
    let module = package.join("_cryptline.abi3.so");
    // A copy into a file that a Python has open would change it under its feet.
    let new = package.join("_cryptline.new");
    fs::copy(root.join("target/debug/lib_cryptline.so"), &new)?;
    fs::rename(new, module)
}

/// An environment with [`TOOLS`], below `target`.
fn tools() -> Result<PathBuf, Failed> {
    let folder = crate::root().join("target/tools/python");
    let python = folder.join("bin/python");
    if !python.exists() {
        run_command(Command::new(PYTHON).args(["-m", "venv"]).arg(&folder))?;
    }
    run_command(pip(&folder, &python).args(TOOLS))?;
    Ok(folder)
}

/// The beginning of a command that installs packages for `python`.
fn pip(tools: &Path, python: &Path) -> Command {
    let mut pip = Command::new(tools.join("bin/python"));
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]);
    pip.arg(python).args(["install", "--quiet"]);
    pip
}

/// Builds the wheel into a folder, alone.
fn build(tools: &Path, profile: &str, into: &Path) -> Result<PathBuf, Failed> {
    let failed = |error: io::Error| Failed(format!("{}: {error}", into.display()));
    if into.exists() {
        fs::remove_dir_all(into).map_err(failed)?;
    }
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin
        .args(["build", "--locked", MANIFEST, "--interpreter", PYTHON])
        .args(["--profile", profile, "--out"])
        .arg(into);
    if profile == "dev" {
        maturin.arg(PROFILES);
    }
    run_command(in_our_target(&mut maturin))?;
    let mut made = fs::read_dir(into).map_err(failed)?;
    let wheel = made.next().ok_or_else(|| Failed("maturin made no wheel".to_owned()))?;
    Ok(wheel.map_err(failed)?.path())
}

/// A new environment with a wheel; gives its Python. What Debian has is there as well.
fn environment(tools: &Path, wheel: &Path) -> Result<PathBuf, Failed> {
    let folder = crate::root().join("target/python/environment");
    let mut make = Command::new(PYTHON);
    make.args(["-m", "venv", "--clear", "--without-pip"]);
    run_command(make.arg("--system-site-packages").arg(&folder))?;
    let python = folder.join("bin/python");
    run_command(pip(tools, &python).args(["--no-index", "--no-deps"]).arg(wheel))?;
    Ok(python)
}
