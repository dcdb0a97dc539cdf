//! `crates/capi/include/cryptline.h`, made from the Rust source by cbindgen. A test of `crates/capi` compares it with the
//! library.

use std::fs;
use std::process::Command;

use crate::step::{Failed, output};
use crate::tools::CBINDGEN;

const HEADER: &str = "crates/capi/include/cryptline.h";

/// Writes the header again.
pub fn update() -> Result<(), Failed> {
    CBINDGEN.install()?;
    let program = CBINDGEN.find().ok_or_else(|| Failed("cbindgen does not start".to_owned()))?;
    let mut command = Command::new(program);
    let new = output(command.args(["--quiet", "--config", "crates/capi/cbindgen.toml", "crates/capi"]))?;
    fs::write(crate::root().join(HEADER), new).map_err(|error| Failed(error.to_string()))
}
