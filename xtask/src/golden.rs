//! Writes the file of golden ciphertexts, made by a real kernel.

use cryptline_testkit::oracle::{Oracle, golden};

use crate::step::Failed;

const FILE: &str = "crates/cipher/tests/data/kernel-golden.txt";

/// Boots the kernel oracle and writes [`FILE`].
pub fn run() -> Result<(), Failed> {
    let oracle = Oracle::new().ok_or_else(|| Failed("the kernel oracle cannot run here".to_owned()))?;
    println!("kernel package {}", oracle.kernel_version());
    let path = crate::root().join(FILE);
    let text = golden::generate(oracle);
    std::fs::write(&path, text).map_err(|error| Failed(format!("{}: {error}", path.display())))?;
    println!("wrote {FILE}");
    Ok(())
}
