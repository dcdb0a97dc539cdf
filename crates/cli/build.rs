//! Which commit a release is made from, where git knows it, and how a static program is linked.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CRYPTLINE_COMMIT");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl") {
        // A static program is relocated by the musl it was linked with, which knows the short form of that table.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Nothing else is built anew only because of a commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = std::env::var("CRYPTLINE_COMMIT").ok().or_else(|| {
        let head = is_release.then(head).flatten()?;
        println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
        Some(head)
    });
    if let Some(commit) = commit {
        println!("cargo::rustc-env=CRYPTLINE_COMMIT={commit}");
    }
}

fn head() -> Option<String> {
    let mut git = Command::new("git");
    let output = git
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}
