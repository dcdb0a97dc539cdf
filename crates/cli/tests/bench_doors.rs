//! `bench doors`: a whole report or none, whatever servers do. How fast anything is, is not asserted.

#[allow(dead_code, clippy::duplicate_mod, reason = "a part of it is used")]
#[path = "it/common/mod.rs"]
mod common;
#[path = "it/common/reports.rs"]
mod reports;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::*;
use cryptline_testkit::peer;
use reports::*;
use serde_json::Value;

const RATIOS: [&str; 7] = [
    "vhost_over_qsd_luks_4k_qd32",
    "vhost_over_qsd_luks_128k",
    "vhost_encrypted_over_plain_4k_qd32",
    "vhost_encrypted_over_plain_128k",
    "vhost_over_nbd_4k_qd1",
    "fuse_over_qsd_luks_4k_qd32",
    "fuse_over_qsd_luks_1m",
];
const ALLOCATIONS: &str = "allocations_per_io";
const QSD: &str = "qemu-storage-daemon";
/// What this program measures alone, where nothing can be mounted too.
const ALONE: [&str; 2] = ["--fronts=vhost-user,nbd", "--no-pin"];

fn bench(dir: &Path) -> Command {
    quick_bench("doors", dir)
}

/// Whether this machine lets us mount; where not, that is said.
fn can_mount() -> bool {
    let mut device = fs::File::options();
    if let Err(error) = device.read(true).write(true).open("/dev/fuse") {
        peer::skip(&format!("/dev/fuse cannot be used: {error}"));
        return false;
    }
    rustix::process::geteuid().is_root() || peer::require("fusermount3").is_some()
}

#[track_caller]
fn check_rows(json: &Value, count: usize) {
    let rows = json["rows"].as_array().expect("an array");
    assert_eq!(rows.len(), count);
    for row in rows {
        is_number(&row["bytes_per_second"]);
        is_number(&row["latency"]["p99_us"]);
        assert_eq!(row["samples"].as_array().expect("an array").len(), 1);
        assert_eq!(row["sha256"], rows[0]["sha256"]);
    }
}

/// Requests take no memory, where that can be counted.
#[track_caller]
fn check_allocations(json: &Value, fronts: &[&str]) {
    let allocations = figure(json, ALLOCATIONS);
    assert_eq!(allocations["unit"], "allocations");
    let note = allocations["note"].as_str().expect("a note");
    if allocations["value"].is_null() {
        assert!(note.starts_with("could not be measured: "), "{note}");
        return;
    }
    assert_eq!(allocations["value"], 0.0, "{allocations}");
    assert_eq!(allocations["met"], true);
    for front in fronts {
        assert!(note.contains(front), "no {front} in {note}");
    }
}

#[test]
fn heavy_the_shortest_run_gives_every_figure() {
    if peer::require(QSD).is_none() || !can_mount() {
        return;
    }
    let dir = folder();
    let Reported { text, json, page } = reported(&mut bench(dir.path()));
    assert!(empty(dir.path()), "something was left behind");

    check_rows(&json, 12);
    for name in RATIOS {
        let figure = figure(&json, name);
        is_number(&figure["value"]);
        assert_eq!(figure["unit"], "ratio");
        // One short round on a small disk is no proof of anything.
        assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
        assert!(text.contains(name) && page.contains(name), "no {name}");
    }
    check_allocations(&json, &["vhost-user", "nbd", "fuse"]);
    let commands = json["commands"].to_string();
    for part in [
        "vhost-user --exit-with-parent",
        "serve --exit-with-parent",
        "mount --foreground",
        "type=vhost-user-blk",
        "type=fuse",
        "cipher_null-ecb",
    ] {
        assert!(commands.contains(part), "no {part} in {commands}");
    }
}

#[test]
fn a_missing_peer_is_named_and_only_its_figures_are_missing() {
    let dir = folder();
    let mut command = bench(dir.path());
    command.args(ALONE).args(["--json=-"]).env("PATH", "");
    let run = peer::run(&mut command, BENCH_TIMEOUT).success();
    let json: Value = serde_json::from_str(&run.stdout_text()).expect("JSON");
    assert_eq!(json["bench"], "doors");
    check_rows(&json, 6);
    for name in RATIOS {
        let figure = figure(&json, name);
        let note = figure["note"].as_str().expect("a note");
        if name.starts_with("fuse_") {
            assert!(note.contains("--fronts"), "{note}");
        } else if name.contains("_qsd_") {
            assert!(note.contains("qemu-system-common"), "{note}");
        } else {
            is_number(&figure["value"]);
            continue;
        }
        assert_eq!(figure["value"], Value::Null);
        assert_eq!(figure["met"], Value::Null);
    }
    check_allocations(&json, &["vhost-user", "nbd"]);
    let warnings = json["warnings"].to_string();
    let named = format!("{QSD} (package qemu-system-common) is not installed");
    assert!(warnings.contains(&named), "{warnings}");
    assert!(!warnings.contains("--fronts"), "{warnings}");
    assert!(empty(dir.path()), "something was left behind");
}

#[test]
fn a_peer_that_fails_is_told_with_what_it_said_and_nothing_is_left_behind() {
    let (dir, bin) = (folder(), folder());
    fake(bin.path(), QSD, "echo 'qsd: no such thing' >&2; exit 3");
    let mut command = bench(dir.path());
    command.args(ALONE).env("PATH", bin.path());
    let run = peer::run(&mut command, BENCH_TIMEOUT);
    refused(run, 4, "qsd, vhost-user: ended with exit status: 3; it says: qsd: no such thing");
    assert!(empty(dir.path()));
}

#[test]
fn a_peer_with_other_contents_is_found_before_anything_is_measured() {
    let (dir, bin, out) = (folder(), folder(), folder());
    // Serves noise of the right size.
    let script = format!(
        "for word; do case $word in *addr.path=*) place=${{word#*addr.path=}}; place=${{place%%,*}};; esac; done\nexec '{}' vhost-user ram:16M --socket-path \"$place\"",
        env!("CARGO_BIN_EXE_cryptline")
    );
    fake(bin.path(), QSD, &script);
    let json = out.path().join("report.json");
    let mut command = bench(dir.path());
    command.args(ALONE).arg("--json").arg(&json);
    let run = peer::run(command.env("PATH", bin.path()), BENCH_TIMEOUT).exited_with(4);
    let said = run.stderr_text();
    assert!(said.contains("qsd, vhost-user: "), "{said}");
    assert!(said.contains("wrong data at byte "), "{said}");
    assert!(!json.exists());
    assert!(empty(dir.path()));
}

#[test]
fn a_signal_ends_the_servers_and_leaves_no_mount_behind() {
    if !can_mount() {
        return;
    }
    let dir = folder();
    let mut command = command();
    command.args(["bench", "doors", "--size=16M", "--rounds=10000", "--dir"]);
    command.arg(dir.path()).args(["--fronts=fuse", "--no-pin"]);
    is_ended_by_a_signal(command.env("PATH", ""), dir.path(), "disk");
}

#[test]
fn what_makes_no_sense_is_refused_on_one_line() {
    let dir = folder();
    what_no_bench_takes_is_refused(&["bench", "doors"], &ALONE, dir.path());
    for option in ["--fronts=gate", "--rounds=0"] {
        let run = cryptline(["bench", "doors", option]).exited_with(1);
        assert!(run.stderr_text().contains("invalid value"), "{run}");
    }
    let mut pinned = bench(dir.path());
    let run = peer::run(pinned.env("PATH", ""), BENCH_TIMEOUT);
    // With one processor nothing is pinned, and then this is no mistake.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        refused(run, 1, "taskset (package util-linux)");
    }
    assert!(empty(dir.path()));
}
