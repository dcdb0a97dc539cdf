//! Which commit a release is made from, where git knows it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CRYPTLINE_COMMIT");
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
