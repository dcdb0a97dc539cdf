//! `bench rbd`: a whole report, by a cluster of its own. How fast anything is, is not asserted.

#[allow(dead_code, clippy::duplicate_mod, reason = "a part of it is used")]
#[path = "it/common/mod.rs"]
mod common;

use std::time::Duration;

use common::*;
use cryptline_testkit::peer::{self, run};
use serde_json::Value;

const FIGURES: [&str; 6] = [
    "rbd_over_librbd_luks2_4k_qd32",
    "rbd_over_librbd_luks2_1m_write",
    "rbd_encrypted_over_raw_4k_qd32",
    "rbd_added_cpu_over_librbd_luks2",
    "rbd_512_write_over_plain",
    "rbd_used_over_live_after_fstrim",
];
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn heavy_each_way_is_measured_with_a_cluster_of_its_own() {
    let peers = ["ceph-authtool", "ceph-mon", "ceph-osd", "ceph", "rbd"];
    if peer::require_all(peers).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = command();
    bench.args(["bench", "rbd", "--size=16M", "--rounds=1", "--json=-"]);
    bench.arg("--seconds=0.05").env("TMPDIR", folder.path());
    let measured = run(&mut bench, TIMEOUT).success();
    let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    assert_eq!(report["bench"], "rbd");
    assert_eq!(report["rows"].as_array().expect("rows").len(), 15);
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().map(|figure| &figure["name"]).collect();
    assert_eq!(names, FIGURES);
    for figure in figures {
        // In so short a time, noise can hide what is added.
        let may_be_noise = figure["name"] == "rbd_added_cpu_over_librbd_luks2";
        let is_there = figure["value"].as_f64().is_some_and(|it| it > 0.0);
        assert!(may_be_noise || is_there, "{figure}");
        assert!(figure["goal"].is_null(), "16 MiB are too little: {figure}");
        // No speed, so it is the same however short the load is.
        let is_space = figure["name"] == "rbd_used_over_live_after_fstrim";
        let is_freed = figure["value"].as_f64().is_some_and(|it| it <= 1.1);
        assert!(!is_space || is_freed, "{figure}");
    }
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "the cluster's folder is left");
}

#[test]
fn what_is_not_installed_is_named() {
    let nothing = tempfile::tempdir().expect("a folder");
    let mut alone = command();
    alone.args(["bench", "rbd"]).env("PATH", nothing.path());
    refused(run(&mut alone, TIMEOUT), 1, "ceph-mon, ceph-osd and ceph-common");
    let odd = ["bench", "rbd", "--size=1M"];
    refused(cryptline(odd), 1, "multiple of 16 MiB");
}
