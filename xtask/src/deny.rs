//! Licences, sources and banned crates by `deny.toml`. A landing looks at what `cargo metadata` says, which builds
//! nothing; nightly runs cargo-deny, which also knows vulnerabilities and reads licence files.

use std::process::Command;
use std::time::Duration;

use cryptline_peers::BackgroundProgram;
use serde_json::Value;

use crate::portable::USUAL;
use crate::step::{Failed, cannot_run, cargo_command, output, run as run_command, skip};
use crate::tools::CARGO_DENY;

/// The advisory database comes over the network, which may swallow packets.
const ADVISORIES_TIMEOUT: Duration = Duration::from_secs(120);
const RULES: &str = include_str!("../../deny.toml");

/// Checks every crate that is locked.
pub fn run() -> Result<(), Failed> {
    // Others than for this machine need not have been downloaded.
    let mut metadata = cargo_command();
    metadata.args(["metadata", "--format-version=1", "--locked", "--filter-platform", USUAL.target]);
    let text = output(&mut metadata)?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| Failed(format!("cargo metadata: {error}")))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let findings: Vec<_> = packages.iter().flat_map(|package| findings(package, RULES)).collect();
    if packages.is_empty() {
        return Err(Failed("`cargo metadata` has not the form it had".to_owned()));
    }
    if !findings.is_empty() {
        return Err(Failed(format!("{}; deny.toml has the rules", findings.join("; "))));
    }
    println!("{} crates have permitted licences and sources", packages.len());
    Ok(())
}

/// The findings about one package.
fn findings(package: &Value, rules: &str) -> Vec<String> {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let name = text("name");
    let mut findings = Vec::new();
    if rules.contains(&format!("{{ crate = \"{name}\" }}")) {
        findings.push(format!("{name} is banned"));
    }
    // A path within the workspace, or the registry that is Cargo's default.
    if !package["source"].is_null() && !text("source").ends_with(concat!("/crates", ".io-index")) {
        findings.push(format!("{name} comes from {}", text("source")));
    }
    let is_allowed = |licence: &str| rules.contains(&format!("\n    \"{licence}\",\n"));
    if !allows(text("license"), is_allowed) {
        findings.push(format!("{name} has the licence {:?}", text("license")));
    }
    findings
}

/// Judges an SPDX expression of at most one level of brackets.
fn allows(expression: &str, is_allowed: impl Fn(&str) -> bool + Copy) -> bool {
    // Packages from before SPDX expressions say "or" by a slash.
    let expression = expression.replace('/', " OR ");
    if let Some((before, rest)) = expression.split_once('(')
        && let Some((within, after)) = rest.split_once(')')
    {
        let answer = if allows(within, is_allowed) { "MIT" } else { "no" };
        return allows(&format!("{before}{answer}{after}"), is_allowed);
    }
    let mut choices = expression.split(" OR ");
    choices.any(|choice| choice.split(" AND ").all(|licence| is_allowed(licence.trim())))
}

/// Licences, sources and bans need no network; advisories do, and are skipped without it.
pub fn whole() -> Result<(), Failed> {
    let Some(program) = CARGO_DENY.find() else {
        return cannot_run("cargo deny", "it is missing: cargo xtask tools installs it");
    };
    let mut check = Command::new(&program);
    check.args(["deny", "--locked", "check", "--hide-inclusion-graph"]);
    run_command(check.args(["licenses", "bans", "sources"]))?;
    advisories(&program)
}

/// Known vulnerabilities among the dependencies. The database is fetched first; where that is impossible the check is
/// skipped by name, in CI too: nothing about this tree has failed.
fn advisories(program: &str) -> Result<(), Failed> {
    let mut check = Command::new(program);
    check.args(["deny", "--locked", "check", "advisories"]).current_dir(crate::root());
    check.env("GIT_TERMINAL_PROMPT", "0");
    let mut running = BackgroundProgram::spawn(&mut check);
    let late = running.wait(ADVISORIES_TIMEOUT).is_none();
    let run = running.collect();
    if late || run.stderr_text().contains("failed to fetch advisory database") {
        skip("advisories", "the advisory database cannot be reached");
    } else if run.status.success() {
        println!("no known vulnerability");
    } else {
        return Err(Failed(run.to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(name: &str, licence: &str, source: Option<&str>) -> Vec<String> {
        findings(&json!({ "name": name, "license": licence, "source": source }), RULES)
    }

    #[test]
    fn permissive_licences_pass_in_every_form() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        ] {
            assert_eq!(found("a", licence, None), [""; 0], "{licence}");
        }
    }

    #[test]
    fn other_licences_sources_and_banned_crates_are_found() {
        for licence in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND LGPL-2.1", "(GPL-2.0 OR LGPL-2.1) OR no"] {
            assert_eq!(found("a", licence, None), [format!("a has the licence {licence:?}")]);
        }
        assert_eq!(found("tokio", "MIT", None), ["tokio is banned"]);
        let fork = "git+https://example.org/a";
        assert_eq!(found("a", "MIT", Some(fork)), [format!("a comes from {fork}")]);
    }
}
