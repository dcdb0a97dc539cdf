//! Which commit a release is made from, where git knows it, and how a static program is linked.

use std::process::Command;

/// Rust's own musl knows the short form of relocations from this version on (1.93, with musl 1.2.5).
const RUST_WITH_SHORT_RELOCATIONS: u32 = 93;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CRYPTLINE_COMMIT");
    let is_musl = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl");
    if is_musl && minor_of_rust().is_some_and(|minor| minor >= RUST_WITH_SHORT_RELOCATIONS) {
        // A static program is relocated by the musl it was linked with; one before 1.2.4 would leave these out.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Nothing else is built anew only because of a commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = std::env::var("CRYPTLINE_COMMIT").ok();
    if let Some(commit) = commit.or_else(|| is_release.then(head).flatten()) {
        println!("cargo::rustc-env=CRYPTLINE_COMMIT={commit}");
    }
}

fn minor_of_rust() -> Option<u32> {
    // rustc 1.95.0 (59807616e 2026-04-14)
    let said = output(&std::env::var("RUSTC").ok()?, &["--version"])?;
    said.split('.').nth(1)?.parse().ok()
}

/// The commit, and whether what is built differs from it.
fn head() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let log = output("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    for source in ["../../crates", "../../Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={source}");
    }
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Some(commit + mark)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
