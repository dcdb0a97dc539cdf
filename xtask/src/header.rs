//! `crates/capi/include/cryptline.h`, made from the Rust source by cbindgen and compared with what is committed.

use std::fs;
use std::process::Command;

use cryptline_peers as peer;

use crate::step::{Failed, cannot_run, output};
use crate::tools::CBINDGEN;

const HEADER: &str = "crates/capi/include/cryptline.h";

/// Compares the committed header with a new one.
pub fn check() -> Result<(), Failed> {
    if peer::in_ci() {
        CBINDGEN.install()?;
    }
    let Some(program) = CBINDGEN.find() else {
        return cannot_run("C header", "cbindgen is missing: cargo xtask header installs it");
    };
    let new = generate(&program)?;
    let committed =
        fs::read_to_string(crate::root().join(HEADER)).map_err(|error| Failed(format!("{HEADER}: {error}")))?;
    if committed == new {
        println!("{HEADER} is what the source says");
        Ok(())
    } else {
        Err(Failed(format!("{HEADER} is not what the source says; run `cargo xtask header` and commit it")))
    }
}

/// Writes the header again.
pub fn update() -> Result<(), Failed> {
    CBINDGEN.install()?;
    let program = CBINDGEN.find().ok_or_else(|| Failed("cbindgen does not start".to_owned()))?;
    let new = generate(&program)?;
    fs::write(crate::root().join(HEADER), new).map_err(|error| Failed(error.to_string()))
}

fn generate(program: &str) -> Result<String, Failed> {
    let mut command = Command::new(program);
    output(command.args(["--quiet", "--config", "crates/capi/cbindgen.toml", "crates/capi"]))
}
