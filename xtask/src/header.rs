//! `crates/capi/include/cryptline.h`, made from the Rust source by cbindgen and compared with what is committed.
//!
//! cbindgen is a tool of the build and no dependency: it is installed below `target`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cryptline_testkit::peer;

use crate::step::{Failed, cannot_run, cargo, output, succeeds};

/// Another version writes another header.
const CBINDGEN: &str = "0.29.4";
const HEADER: &str = "crates/capi/include/cryptline.h";

/// Compares the committed header with a new one.
pub fn check() -> Result<(), Failed> {
    let Some(program) = cbindgen(peer::in_ci())? else {
        return cannot_run(
            "C header",
            "cbindgen is missing: cargo xtask header installs it",
        );
    };
    let new = generate(&program)?;
    let committed = fs::read_to_string(crate::root().join(HEADER))
        .map_err(|error| Failed(format!("{HEADER}: {error}")))?;
    if committed == new {
        println!("{HEADER} is what the source says");
        Ok(())
    } else {
        Err(Failed(format!(
            "{HEADER} is not what the source says; run `cargo xtask header` and commit it"
        )))
    }
}

/// Writes the header again.
pub fn update() -> Result<(), Failed> {
    let program = cbindgen(true)?;
    let program = program.ok_or_else(|| Failed("cbindgen was not installed".to_owned()))?;
    let new = generate(&program)?;
    fs::write(crate::root().join(HEADER), new).map_err(|error| Failed(error.to_string()))
}

fn generate(program: &str) -> Result<String, Failed> {
    let mut command = Command::new(program);
    output(command.args([
        "--quiet",
        "--config",
        "crates/capi/cbindgen.toml",
        "crates/capi",
    ]))
}

/// The program, if it is there or may be installed.
fn cbindgen(may_install: bool) -> Result<Option<String>, Failed> {
    let folder: PathBuf = crate::root().join("target/tools");
    let program = folder.join("bin/cbindgen").display().to_string();
    if !succeeds(&program, &["--version"]) {
        if !may_install {
            return Ok(None);
        }
        let (root, package) = (folder.display().to_string(), format!("cbindgen@{CBINDGEN}"));
        // A debug build takes a third of the time.
        cargo(&["install", "--locked", "--debug", "--root", &root, &package])?;
    }
    Ok(Some(program))
}
