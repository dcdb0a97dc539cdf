//! What the tests of the benches share that start servers of others and make a report.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cryptline_testkit::peer;
use serde_json::Value;

use super::common::{BENCH_TIMEOUT, command, refused};

/// As little as can be: numbers of no worth, but numbers.
const QUICK: [&str; 3] = ["--size=16M", "--seconds=0.02", "--rounds=1"];

/// A bench with its images in `dir`.
pub fn quick_bench(name: &str, dir: &Path) -> Command {
    let mut command = command();
    command.args(["bench", name, "--dir"]).arg(dir);
    command.args(QUICK);
    command
}

/// What a bench has said, and its report in both forms.
pub struct Reported {
    pub text: String,
    pub json: Value,
    pub page: String,
}

/// Runs a bench to its end.
#[track_caller]
pub fn reported(bench: &mut Command) -> Reported {
    let out = folder();
    let [json, html] = ["report.json", "report.html"].map(|name| out.path().join(name));
    bench.arg("--json").arg(&json).arg("--html").arg(&html);
    let run = peer::run(bench, BENCH_TIMEOUT).success();
    Reported {
        text: run.stdout_text(),
        json: serde_json::from_slice(&fs::read(&json).expect("a file")).expect("JSON"),
        page: fs::read_to_string(&html).expect("a page"),
    }
}

pub fn empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("a folder").count() == 0
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A program called `name` in `folder` that does what `script` says.
pub fn fake(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("room");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
}

pub fn figure<'a>(json: &'a Value, name: &str) -> &'a Value {
    let figures = json["figures"].as_array().expect("an array");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {json:#}"))
}

#[track_caller]
pub fn is_number(value: &Value) {
    assert!(value.as_f64().is_some_and(|number| number > 0.0), "{value}");
}

/// Values that make no sense, each refused on one line.
pub fn what_no_bench_takes_is_refused(verb: &[&str], alone: &[&str], dir: &Path) {
    for (option, text) in [
        ("--size=1M", "at least 16 MiB"),
        ("--size=16385K", "multiple of 1M"),
        ("--seconds=0", "more than 0"),
        ("--seconds=nan", "more than 0"),
        ("--dir=/nonexistent", "give a folder that can be written to"),
        ("--size=4096T", "give a smaller --size"),
        ("--json=/nonexistent/x.json", "nothing was measured"),
    ] {
        let mut command = command();
        command.args(verb).args(alone).arg(option);
        if !option.starts_with("--dir") {
            command.arg("--dir").arg(dir);
        }
        refused(peer::run(&mut command, BENCH_TIMEOUT), 1, text);
    }
}
