//! Programs that nightly runs and that are no dependencies: installed below `target`, so that somebody's own stay as
//! they are.

use std::path::Path;
use std::process::Command;

use crate::step::{Failed, cargo, output, succeeds};

/// A program in a package of the same name.
pub struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Known to work with `deny.toml`.
pub const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Another version writes another header.
pub const CBINDGEN: Tool = Tool { name: "cbindgen", version: "0.29.4" };

/// Tests of mounts run it.
pub const FSX: Tool = Tool { name: "fsx", version: "0.3.2" };

/// Installs what nightly needs.
pub fn run() -> Result<(), Failed> {
    [CARGO_DENY, FSX].iter().try_for_each(Tool::install)
}

/// Tells if the compiler has the standard library for `target`, or gets it now.
pub fn has_target(target: &str) -> Result<bool, Failed> {
    let mut rustc = Command::new("rustc");
    let folder = output(rustc.args(["--print=target-libdir", "--target", target]))?;
    Ok(Path::new(folder.trim()).is_dir() || succeeds("rustup", &["target", "add", target]))
}

impl Tool {
    /// The program, where it has been installed.
    pub fn find(&self) -> Option<String> {
        let program = self.program();
        succeeds(&program, &["--version"]).then_some(program)
    }

    /// Installs it unless it is there.
    pub fn install(&self) -> Result<(), Failed> {
        if self.find().is_some() {
            return Ok(());
        }
        let (root, package) = (Self::root(), format!("{}@{}", self.name, self.version));
        // A debug build takes a third of the time and works as fast.
        cargo(&["install", "--locked", "--debug", "--root", &root, &package])
    }

    fn program(&self) -> String {
        format!("{}/bin/{}", Self::root(), self.name)
    }

    fn root() -> String {
        let folder = crate::root().join("target/tools");
        folder.display().to_string()
    }
}
