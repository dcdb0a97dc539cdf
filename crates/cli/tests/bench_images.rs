//! `bench images`: a whole report or none. How fast anything is, is not asserted.

#[allow(dead_code, clippy::duplicate_mod, reason = "a part of it is used")]
#[path = "it/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::*;
use cryptline_testkit::peer::{self, run};
use serde_json::Value;

const FIGURES: [&str; 9] = [
    "create_from_over_cp",
    "create_from_over_nbdcopy_serve",
    "create_from_over_qemu_img_luks",
    "create_from_over_cryptsetup_reencrypt",
    "copy_out_over_cp",
    "create_from_cpu_over_nbdcopy_serve",
    "sparse_copy_seconds",
    "sparse_copy_mib",
    "header_cut_points",
];
const TIMEOUT: Duration = Duration::from_secs(300);

fn bench(dir: &Path) -> Command {
    let mut command = command();
    command.args(["bench", "images", "--size=4M", "--rounds=1", "--json=-"]);
    command.arg("--dir").arg(dir);
    command
}

#[test]
fn every_way_is_measured_and_nothing_is_left() {
    // Which reencrypts as root only.
    let is_root = rustix::process::geteuid().is_root();
    let peers = ["nbdcopy", "qemu-img", "cryptsetup"];
    if peer::require_all(peers).is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let measured = run(&mut bench(dir.path()), TIMEOUT).success();
    let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    assert_eq!(report["bench"], "images");
    assert_eq!(report["rows"].as_array().expect("rows").len(), 6 + usize::from(is_root));
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().map(|figure| &figure["name"]).collect();
    assert_eq!(names, FIGURES);
    for figure in figures {
        assert!(
            figure["value"].as_f64().is_some_and(|it| it > 0.0)
                || !is_root && figure["name"] == "create_from_over_cryptsetup_reencrypt",
            "{figure}"
        );
        // Headers are as large as ever.
        if figure["name"] == "header_cut_points" {
            assert_eq!(figure["value"], 1.0, "{figure}");
            let note = figure["note"].as_str().expect("how many");
            let tried = note.split(' ').next().expect("a number");
            assert!(tried.parse::<u32>().is_ok_and(|it| it > 200), "{note}");
        } else {
            assert!(figure["goal"].is_null(), "4 MiB are too little: {figure}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

#[test]
fn what_is_not_installed_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut alone = bench(dir.path());
    let measured = run(alone.env("PATH", dir.path()), TIMEOUT).success();
    let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    for figure in report["figures"].as_array().expect("figures") {
        let is_ours =
            figure["name"].as_str().is_some_and(|name| name.starts_with("sparse") || name.starts_with("header"));
        assert_eq!(figure["value"].is_null(), !is_ours, "{figure}");
    }
    let warnings = report["warnings"].to_string();
    for package in ["coreutils", "cryptsetup-bin", "libnbd-bin", "qemu-utils"] {
        assert!(warnings.contains(package), "{warnings}");
    }
    let odd = ["bench", "images", "--size=1000448"];
    refused(cryptline(odd), 1, "multiple of 1M");
}
