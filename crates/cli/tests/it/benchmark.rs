//! `benchmark`: its JSON, which is what docs/benchmark-json.md promises. How fast anything is, is not asserted.

use std::collections::BTreeSet;

use crate::common::*;
use cryptline_testkit::peer;
use serde_json::Value;

/// As short as can be: numbers of no worth, but numbers.
const QUICK: [&str; 6] =
    ["benchmark", "--seconds=0.01", "--iter-time=1", "--pbkdf-memory=64", "--pbkdf-parallel=2", "--json"];

fn json_of(options: &[&str]) -> Value {
    let run = cryptline(QUICK.iter().chain(options));
    serde_json::from_str(&run.success().stdout_text()).expect("JSON")
}

fn rows<'a>(json: &'a Value, name: &str) -> &'a [Value] {
    json[name].as_array().expect("an array")
}

#[test]
fn aes_xts_has_a_row_for_each_key_sector_request_direction_and_number_of_threads() {
    let json = json_of(&["--cipher=aes-xts-plain64"]);
    let found: BTreeSet<_> = rows(&json, "ciphers")
        .iter()
        .map(|row| {
            assert_eq!(row["cipher"], "aes-xts-plain64");
            assert!(!row["backend"].as_str().expect("a name").is_empty());
            let number = |name: &str| row[name].as_u64().expect("a number");
            let direction = row["direction"].as_str().expect("a word").to_owned();
            let (key, sector, request) = (number("key_bits"), number("sector_size"), number("request"));
            (key, sector, request, number("threads"), direction)
        })
        .collect();
    let threads = BTreeSet::from([1, json["cores"].as_u64().expect("a number")]);
    let mut wanted = BTreeSet::new();
    for key in [256, 512] {
        for sector in [512, 4096] {
            for request in [4096, 65536] {
                for &threads in &threads {
                    for direction in ["encrypt", "decrypt"] {
                        wanted.insert((key, sector, request, threads, direction.to_owned()));
                    }
                }
            }
        }
    }
    assert_eq!(found, wanted);
    assert_eq!(rows(&json, "ciphers").len(), wanted.len());
    assert!(rows(&json, "kdfs").is_empty());
}

#[test]
fn everything_is_measured_when_nothing_is_asked_for() {
    let json = json_of(&[]);
    let has = |rows: &[Value], name: &str, value: &str| rows.iter().any(|row| row[name] == value);
    assert!(has(rows(&json, "ciphers"), "cipher", "aes-xts-plain64"));
    for row in rows(&json, "ciphers") {
        assert!(row["bytes_per_second"].as_f64().expect("a number") > 0.0, "{row}");
        assert!(row["spread"].as_f64().expect("a number") >= 0.0, "{row}");
    }
    let kdfs = rows(&json, "kdfs");
    for hash in ["sha1", "sha256", "sha512"] {
        assert!(has(kdfs, "hash", hash), "{hash}");
    }
    for row in kdfs {
        let rate = row["iterations_per_second"].as_f64();
        let took = row["took_ms"].as_f64();
        match row["kdf"].as_str().expect("a name") {
            "pbkdf2" => assert!(rate.is_some_and(|rate| rate > 0.0) && took.is_none(), "{row}"),
            _ => assert!(rate.is_none() && took.is_some_and(|took| took > 0.0), "{row}"),
        }
    }
    assert!(has(kdfs, "kdf", "argon2i"));
    let argon2id = kdfs.iter().find(|row| row["kdf"] == "argon2id").expect("a row");
    assert_eq!(argon2id["memory_kib"], 64);
    assert_eq!(argon2id["cpus"], 2);
    assert_eq!(argon2id["target_ms"], 1);
    assert!(argon2id["time"].as_u64().expect("a number") >= 4);
}

#[test]
fn every_member_of_the_json_is_documented_and_the_other_way_round() {
    if peer::require("cryptsetup").is_none() {
        return;
    }
    let mut members = BTreeSet::new();
    // No warnings, a comparison and a figure: a debug build has the first in any case.
    let some = ["--compare-cryptsetup", "--cipher=aes-xts-plain64", "--kdf=pbkdf2-sha256", "--kdf=argon2i"];
    collect(&json_of(&some), "", &mut members);
    let page = include_str!("../../../../docs/benchmark-json.md");
    let documented: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(members, documented);
}

#[test]
fn a_cheap_header_is_compared_without_a_goal() {
    if peer::require("cryptsetup").is_none() {
        return;
    }
    let json = json_of(&["--compare-cryptsetup", "--no-cipher", "--no-kdf"]);
    let figure = &json["figures"][0];
    assert_eq!(figure["name"], "argon2_over_cryptsetup");
    assert!(figure["value"].as_f64().expect("a number") > 0.0);
    assert_eq!((&figure["goal"], &figure["met"]), (&Value::Null, &Value::Null));
    let comparison = &json["comparison"];
    assert_eq!(comparison["memory_kib"], 64);
    assert_eq!(rows(comparison, "cryptline_ms").len(), 5);
    assert_eq!(rows(comparison, "cryptsetup_ms").len(), 5);
}

/// The names of all members, with the path that the documentation gives them.
fn collect(value: &Value, path: &str, members: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                collect(value, &path, members);
                members.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, &format!("{path}[]"), members);
            }
        }
        _ => {}
    }
}
