//! `bench peers`: a whole report or none, whatever servers do. How fast anything is, is not asserted.

#[allow(dead_code, clippy::duplicate_mod, reason = "a part of it is used")]
#[path = "it/common/mod.rs"]
mod common;
#[path = "it/common/reports.rs"]
mod reports;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::*;
use cryptline_testkit::peer;
use reports::*;
use serde_json::Value;

/// What this program can measure alone.
const ALONE: [&str; 3] = ["--servers=cryptline,cryptline-plain,null", "--generators=lean,lean-many", "--no-pin"];
const FIGURES: [&str; 6] = [
    "encrypted_over_plain_nbd_4k",
    "over_best_peer_4k_randread",
    "p99_over_best_peer_4k_randread",
    "over_qemu_1m_read",
    "nbd_chain_over_plain_128k",
    "nbd_chain_over_nbdkit_luks_4k_qd32",
];
/// These need longer turns than ours.
const ONE_AT_A_TIME: [&str; 5] = [
    "over_nbdkit_luks_4k_qd1",
    "over_nbdkit_plain_4k_qd1",
    "p50_over_nbdkit_plain_4k_qd1",
    "cpu_over_nbdkit_luks_4k_qd1",
    "cpu_asleep_over_nbdkit_luks_4k_qd1",
];

/// The bench with its images in `dir`.
fn bench(dir: &Path) -> Command {
    quick_bench("peers", dir)
}

/// Every row says who did what how fast, and all have the same contents.
#[track_caller]
fn check_rows(json: &Value, count: usize) {
    let rows = json["rows"].as_array().expect("an array");
    assert_eq!(rows.len(), count);
    let mut sums = BTreeSet::new();
    for row in rows {
        assert_eq!(row["front"], "nbd");
        is_number(&row["bytes_per_second"]);
        is_number(&row["latency"]["p99_us"]);
        assert_eq!(row["samples"].as_array().expect("an array").len(), 1);
        let is_null = row["server"].as_str().expect("a name").contains("null");
        assert_eq!(row["sha256"].is_null(), is_null, "{row}");
        sums.extend(row["sha256"].as_str().map(str::to_owned));
    }
    assert_eq!(sums.len(), 1);
}

#[test]
fn heavy_a_run_against_every_peer_gives_a_whole_report() {
    let needed = ["fio", "nbdkit", "qemu-nbd", "qemu-storage-daemon"];
    if peer::require_all(needed).is_none() {
        return;
    }
    let dir = folder();
    let mut command = bench(dir.path());
    command.arg("--jobs=4k-randread-qd32,128k-randread-qd16,1m-read-qd4,1m-write-qd4");
    let Reported { text, json, page } = reported(&mut command);
    assert!(empty(dir.path()), "something was left behind");
    assert!(page.contains("nbdkit-null"));

    check_rows(&json, 13 * 3 * 4);
    for name in FIGURES {
        let figure = figure(&json, name);
        is_number(&figure["value"]);
        // One short round on a small disk is no proof of anything.
        assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
    }
    let commands = json["commands"].to_string();
    for part in [
        "--key-file=",
        "cipher_null-ecb",
        "qemu-nbd --persistent",
        "driver=luks",
        "type=nbd",
        "--filter=luks",
        "nbdkit --foreground",
        "null size=",
        "--filter=luks nbd socket=",
        "--ioengine=nbd",
    ] {
        assert!(commands.contains(part), "no {part} in {commands}");
    }
    for part in ["of null", "4 KiB random reads, 32 in flight", "over_qemu_1m_read"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
}

#[test]
fn without_peers_only_their_figures_are_missing() {
    let dir = folder();
    let mut command = bench(dir.path());
    command.args(ALONE).env("PATH", "");
    let run = peer::run(command.args(["--json=-"]), BENCH_TIMEOUT).success();
    let json: Value = serde_json::from_str(&run.stdout_text()).expect("JSON");
    assert_eq!(json["bench"], "peers");
    assert_eq!(json["rows"].as_array().expect("an array").len(), 3 * 6 * 2);
    is_number(&figure(&json, FIGURES[0])["value"]);
    for name in FIGURES[1..].iter().chain(&ONE_AT_A_TIME) {
        let figure = figure(&json, name);
        assert_eq!(figure["value"], Value::Null);
        assert!(figure["note"].as_str().expect("why").starts_with("needs "));
    }
    assert!(empty(dir.path()), "something was left behind");
}

#[test]
fn kept_images_are_there_and_open() {
    let dir = folder();
    let mut command = bench(dir.path());
    command.args(ALONE).args(["--keep", "--jobs=4k-randread-qd1"]);
    let text = peer::run(&mut command, BENCH_TIMEOUT).success().stdout_text();
    let entries = fs::read_dir(dir.path()).expect("a folder");
    let kept: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let [kept] = &kept[..] else {
        panic!("{kept:?}");
    };
    assert!(text.contains(kept.to_str().expect("text")), "{text}");
    let run = cryptline([
        "open".as_ref(),
        "--check".as_ref(),
        kept.join("luks1.img").as_os_str(),
        "--key-file".as_ref(),
        kept.join("passphrase").as_os_str(),
    ]);
    run.success();
}

#[test]
fn a_missing_peer_is_named_with_its_package_and_nothing_is_measured() {
    let (dir, out) = (folder(), folder());
    let json = out.path().join("report.json");
    let mut command = bench(dir.path());
    command.arg("--json").arg(&json).env("PATH", "");
    let run = peer::run(&mut command, BENCH_TIMEOUT).exited_with(1);
    let said = run.stderr_text();
    for part in [
        "qemu-nbd (package qemu-utils)",
        "qemu-storage-daemon (package qemu-system-common)",
        "nbdkit (package nbdkit)",
        "fio (package fio)",
    ] {
        assert!(said.contains(part), "no {part} in: {said}");
    }
    refused(run, 1, "leave it out by --servers");
    assert!(!json.exists());
    assert!(empty(dir.path()));
}

#[test]
fn a_server_that_fails_is_told_with_what_it_said() {
    let (dir, bin) = (folder(), folder());
    fake(bin.path(), "nbdkit", "echo 'nbdkit: no such thing' >&2; exit 3");
    let mut command = bench(dir.path());
    command.args(["--servers=nbdkit", "--generators=lean", "--no-pin"]);
    let run = peer::run(command.env("PATH", bin.path()), BENCH_TIMEOUT);
    refused(run, 4, "nbdkit: ended with exit status: 3; it says: nbdkit: no such thing");
    assert!(empty(dir.path()));
}

#[test]
fn a_server_with_other_contents_is_found_before_anything_is_measured() {
    let (dir, bin, out) = (folder(), folder(), folder());
    // Serves noise of the right size.
    let script = format!(
        "for word; do case $word in --socket=*) socket=${{word#--socket=}};; esac; done\nexec '{}' serve ram:16M --unix \"$socket\"",
        env!("CARGO_BIN_EXE_cryptline")
    );
    fake(bin.path(), "qemu-nbd", &script);
    let json = out.path().join("report.json");
    let mut command = bench(dir.path());
    command.args(["--servers=cryptline,qemu-nbd", "--generators=lean", "--no-pin"]);
    command.arg("--json").arg(&json).env("PATH", bin.path());
    let run = peer::run(&mut command, BENCH_TIMEOUT);
    refused(run, 4, "qemu-nbd gives other bytes than were written");
    assert!(!json.exists());
    assert!(empty(dir.path()));
}

#[test]
fn a_signal_ends_the_servers_and_leaves_nothing_behind() {
    let dir = folder();
    let mut command = command();
    command.args(["bench", "peers", "--size=16M", "--rounds=10000", "--dir"]);
    command.arg(dir.path()).args(ALONE);
    is_ended_by_a_signal(&mut command, dir.path(), "socket");
}

#[test]
fn what_makes_no_sense_is_refused_on_one_line() {
    let dir = folder();
    what_no_bench_takes_is_refused(&["bench", "peers"], &ALONE, dir.path());
    for option in ["--servers=apache", "--jobs=nothing", "--generators=ab", "--rounds=0"] {
        let run = cryptline(["bench", "peers", option]).exited_with(1);
        assert!(run.stderr_text().contains("invalid value"), "{run}");
    }
    assert!(empty(dir.path()));
}
