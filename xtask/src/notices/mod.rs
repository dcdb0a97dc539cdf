//! Notices that go along with a built program: whose work is in it under which licence, and the same as a list for
//! machines.
//!
//! ```text
//! cargo metadata ─► components ─┬─► THIRD-PARTY.txt      names, licences, their texts
//!                               └─► cryptline.cdx.json   CycloneDX
//! the compiler's own notices ─────► RUST-LIBRARY.html    what Rust's standard library consists of
//! ```

mod bom;
mod components;
mod licences;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::portable::{Build, USUAL};
use crate::step::{Failed, output, skip};

/// Licences and their texts.
pub const THIRD_PARTY: &str = "THIRD-PARTY.txt";
/// The list for machines.
pub const BOM: &str = "cryptline.cdx.json";
/// Comes with the compiler; not every distribution's has it.
const RUST_LIBRARY: &str = "RUST-LIBRARY.html";

/// Writes all of it and says where.
pub fn run() -> Result<(), Failed> {
    let folder = folder();
    write(&folder, &USUAL)?;
    println!("{THIRD_PARTY} and {BOM} are in {}", folder.display());
    Ok(())
}

/// Where [`run`] writes, and what packages take them from.
pub fn folder() -> PathBuf {
    crate::root().join("target/notices")
}

/// Writes all of it into a folder, for the program that was built so.
pub fn write(folder: &Path, build: &Build) -> Result<(), Failed> {
    let components = components::of_the_program(build)?;
    let texts = licences::file(&components)?;
    let bom = bom::of(&components);
    let failed = |error: io::Error| Failed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join(THIRD_PARTY), texts).map_err(failed)?;
    fs::write(folder.join(BOM), bom).map_err(failed)?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    match fs::copy(&library, folder.join(RUST_LIBRARY)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(RUST_LIBRARY, "this compiler came without it");
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}
