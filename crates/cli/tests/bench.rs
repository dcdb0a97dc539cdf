//! `bench`: what it prints, that its JSON is what docs/bench-json.md promises, and that a browser
//! opens its page. How fast anything is, is not asserted.

#[allow(dead_code, clippy::duplicate_mod, reason = "a part of it is used")]
#[path = "it/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::*;
use cryptline_testkit::peer::{self, run};
use serde_json::Value;

/// As short as can be: numbers of no worth, but numbers.
const INLINE: [&str; 5] = ["bench", "inline", "--size=16M", "--runs=2", "--seconds=0.02"];
const SWEEP: [&str; 9] = [
    "bench",
    "sweep",
    "--size=8M",
    "--rounds=1",
    "--seconds=0.02",
    "--block-sizes=4k,1M",
    "--depths=1",
    "--streams=1",
    "--directions=read,write",
];
const SUBBLOCK: [&str; 6] = ["bench", "subblock", "--size=8M", "--runs=1", "--seconds=0.2", "--jobs=2"];
const SUBBLOCK_FIGURES: [&str; 3] =
    ["shared_over_exclusive_xts", "shared_over_exclusive_cbc", "aligned_cost_of_locking"];
const ZONED: [&str; 5] = ["bench", "zoned", "--zone-size=1M", "--runs=2", "--seconds=0.001"];
const ZONED_FIGURES: [&str; 4] = [
    "encrypted_over_plain_zoned_4k_qd1",
    "encrypted_over_plain_zoned_128k_qd16",
    "inline_over_resequenced_pool",
    "auto_over_resequenced_pool",
];
const MEDIA: [&str; 4] = ["bench", "media", "--size=1M", "--runs=3"];
const MEDIA_FIGURES: [&str; 4] =
    ["onstack_over_memcpy", "heap_over_onstack", "allocations_per_io", "btt_write_over_plain"];
const INLINE_FIGURES: [&str; 4] =
    ["inline_over_plain_null", "queue_over_plain_null", "inline_over_queue_aes", "inline_over_model"];
const SWEEP_FIGURES: [&str; 7] = [
    "auto_over_best_min",
    "auto_p99_over_best_max",
    "best_over_itself_min",
    "best_p99_over_itself_max",
    "auto_over_inline_1m_qd1",
    "inline_p99_loaded_over_idle",
    "queue_p99_loaded_over_idle",
];

fn json_of(bench: &[&str], options: &[&str]) -> Value {
    let run = cryptline(bench.iter().chain(options).chain(&["--json=-"]));
    serde_json::from_str(&run.success().stdout_text()).expect("JSON")
}

fn array<'a>(json: &'a Value, name: &str) -> &'a [Value] {
    json[name].as_array().expect("an array")
}

/// Names of the members of an object and of those inside it, as the table of the page has them.
fn members(json: &Value, prefix: &str, names: &mut BTreeSet<String>) {
    match json {
        Value::Object(object) => {
            for (name, value) in object {
                let path = match prefix {
                    "" => name.clone(),
                    prefix => format!("{prefix}.{name}"),
                };
                // The page says what is in a latency in one line.
                if !value.is_object() || name == "latency" {
                    names.insert(path.clone());
                }
                if name != "latency" {
                    members(value, &path, names);
                }
            }
        }
        Value::Array(values) => {
            for value in values.iter().filter(|value| value.is_object()) {
                members(value, &format!("{prefix}[]"), names);
            }
        }
        _ => {}
    }
}

fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench-json.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|line| line.split_once('`'));
    // The tables of figures below have names of figures.
    let names = names.take_while(|(name, _)| *name != INLINE_FIGURES[0]);
    names.map(|(name, _)| name.to_owned()).collect()
}

fn figure<'a>(json: &'a Value, name: &str) -> &'a Value {
    let found = array(json, "figures").iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure {name} in {json}"))
}

#[track_caller]
fn is_number(value: &Value) {
    assert!(value.as_f64().expect("a number") > 0.0, "{value}");
}

#[test]
fn the_json_has_the_members_that_its_page_has() {
    for (bench, figures, options) in [
        (&INLINE[..], &INLINE_FIGURES[..], &["--helpers=1"][..]),
        (&SWEEP[..], &SWEEP_FIGURES[..], &["--helpers=1"]),
        (&SUBBLOCK[..], &SUBBLOCK_FIGURES[..], &["--depth=16"]),
        (&MEDIA[..], &MEDIA_FIGURES[..], &[]),
        (&ZONED[..], &ZONED_FIGURES[..], &["--pool=3"]),
    ] {
        let json = json_of(bench, options);
        let mut found = BTreeSet::new();
        members(&json, "", &mut found);
        assert_eq!(found, documented());
        let names: Vec<_> = array(&json, "figures").iter().map(|figure| figure["name"].clone()).collect();
        assert_eq!(names, figures);
        for name in figures {
            let unit = if *name == "allocations_per_io" { "allocations" } else { "ratio" };
            assert_eq!(figure(&json, name)["unit"], unit);
        }
        for row in array(&json, "rows") {
            let rate = row["bytes_per_second"].as_f64().expect("a number");
            assert!(rate > 0.0, "{row}");
            assert!(row["spread"].as_f64().expect("a number") >= 0.0, "{row}");
        }
        let command = array(&json, "commands")[0].as_str().expect("text");
        assert!(command.starts_with(&format!("cryptline {}", bench.join(" "))), "{command}");
    }
}

#[test]
fn tables_fit_a_terminal_and_goals_are_for_those_who_ask() {
    for bench in [&INLINE[..], &ZONED, &MEDIA] {
        let [plain, asked] = [&[][..], &["--goals"]].map(|options: &[&str]| {
            let run = cryptline(bench.iter().chain(options));
            run.success().stdout_text()
        });
        for text in [&plain, &asked] {
            // A machine and a folder may have long names.
            let lines = text.lines().filter(|line| line.contains(' '));
            let longest = lines.map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest <= 100), "{text}");
        }
        assert!(!plain.contains("at least") && !plain.contains("at most"), "{plain}");
        let answers = ["at least", "at most", "no goal"];
        assert!(answers.iter().any(|answer| asked.contains(answer)), "{asked}");
    }
}

#[test]
fn inline_measures_plain_and_both_ciphers_by_every_mode() {
    let json = json_of(&INLINE, &[]);
    assert_eq!(json["bench"], "inline");
    assert_eq!(json["medium"], "RAM, 16 MiB");
    let found: BTreeSet<(Option<&str>, Option<&str>)> =
        array(&json, "rows").iter().map(|row| (row["cipher"].as_str(), row["dispatch"].as_str())).collect();
    let mut wanted = BTreeSet::from([(None, None)]);
    for cipher in ["cipher_null-ecb", "aes-xts-plain64"] {
        for mode in ["inline", "queue", "auto"] {
            wanted.insert((Some(cipher), Some(mode)));
        }
    }
    assert_eq!(found, wanted);
    for name in INLINE_FIGURES {
        is_number(&figure(&json, name)["value"]);
    }
    assert_eq!(figure(&json, "queue_over_plain_null")["goal"], Value::Null);
    assert_eq!(figure(&json, "inline_over_plain_null")["goal"], 0.97);
}

#[test]
fn every_way_reads_the_same_bytes_and_the_report_says_which() {
    let json = json_of(&INLINE, &[]);
    let sums: BTreeSet<&str> = array(&json, "rows").iter().map(|row| row["sha256"].as_str().expect("a sum")).collect();
    assert_eq!(sums.len(), 1, "{sums:?}");
    assert!(sums.iter().all(|sum| sum.len() == 64));
}

#[test]
fn inline_measures_the_same_over_nbd() {
    let json = json_of(&INLINE, &["--front=nbd"]);
    let rows = array(&json, "rows");
    assert_eq!(rows.len(), 7);
    let sum = &rows[0]["sha256"];
    assert_eq!(sum.as_str().expect("a sum").len(), 64);
    for row in rows {
        assert_eq!(row["front"], "nbd");
        assert_eq!(row["sha256"], *sum);
        is_number(&row["bytes_per_second"]);
    }
    // The goals are for calls in this process.
    for name in INLINE_FIGURES {
        assert_eq!(figure(&json, name)["met"], Value::Null);
    }
    assert_eq!(figure(&json, "inline_over_model")["value"], Value::Null);
    is_number(&figure(&json, "inline_over_plain_null")["value"]);
}

#[test]
fn a_sweep_has_a_row_for_each_point_and_mode_and_for_the_loaded_part() {
    let json = json_of(&SWEEP, &["--hog=1"]);
    let rows = array(&json, "rows");
    let count = |hogs: u64, block: u64, direction: &str| {
        let wanted = |row: &&Value| row["hogs"] == hogs && row["block"] == block && row["direction"] == direction;
        rows.iter().filter(wanted).count()
    };
    // The loaded part has its own rows without hogs.
    assert_eq!(count(0, 4096, "read"), 3 + 3);
    assert_eq!(count(1, 4096, "read"), 3);
    for direction in ["read", "write"] {
        assert_eq!(count(0, 1 << 20, direction), 3);
    }
    assert_eq!(rows.len(), 12 + 6);
    for row in rows {
        let latency = &row["latency"];
        let values =
            ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(|name| latency[name].as_f64().expect("a number"));
        assert!(values.is_sorted(), "{row}");
    }
    for name in [
        "auto_over_best_min",
        "auto_p99_over_best_max",
        "best_over_itself_min",
        "best_p99_over_itself_max",
        "queue_p99_loaded_over_idle",
    ] {
        is_number(&figure(&json, name)["value"]);
    }
}

#[test]
fn subblock_measures_both_policies_with_both_ciphers_on_both_media_and_what_locking_costs() {
    let json = json_of(&SUBBLOCK, &["--depth=16"]);
    let rows = array(&json, "rows");
    for cipher in ["aes-xts-plain64", "aes-cbc-essiv:sha256"] {
        for policy in ["exclusive", "shared"] {
            for medium in ["writes of 100us", "RAM"] {
                let name = format!("{policy}, {cipher}, {medium}");
                assert!(rows.iter().any(|row| row["name"] == *name), "no {name}");
            }
        }
    }
    let whole = |row: &&Value| row["block"] == 4096;
    assert_eq!((rows.len(), rows.iter().filter(whole).count()), (10, 2));
    is_number(&figure(&json, "shared_over_exclusive_xts")["value"]);
    is_number(&figure(&json, "shared_over_exclusive_cbc")["value"]);
    assert!(figure(&json, "aligned_cost_of_locking")["value"].is_f64());
    // The goal is for the load of the ext4 commit.
    assert_eq!(figure(&json, "shared_over_exclusive_xts")["goal"], Value::Null);
}

#[test]
fn figures_that_the_options_leave_out_say_so() {
    let json = json_of(&SWEEP, &["--dispatch=inline", "--hog=0"]);
    for name in SWEEP_FIGURES {
        let figure = figure(&json, name);
        assert_eq!(figure["value"], Value::Null, "{figure}");
        assert_eq!(figure["met"], Value::Null, "{figure}");
        assert!(figure["note"].as_str().expect("why").contains("needs"), "{figure}");
    }
}

#[test]
fn a_sweep_runs_over_slow_ram_and_over_a_file_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let before = fs::read_dir(folder.root()).expect("a folder").count();
    let narrow = ["--block-sizes=64k", "--hog=0", "--cipher=cipher_null-ecb,aes-xts-plain64"];
    for (medium, text) in [
        ("delay:read=50us,write=20us".to_owned(), "as slow as read=50us,write=20us"),
        (folder.root().display().to_string(), "a file of 8 MiB"),
    ] {
        let medium = format!("--medium={medium}");
        let options: Vec<&str> = narrow.iter().copied().chain([medium.as_str()]).collect();
        let bench: Vec<&str> = SWEEP.iter().copied().filter(|option| !option.contains("block")).collect();
        let json = json_of(&bench, &options);
        assert!(json["medium"].as_str().expect("text").contains(text), "{json}");
        assert_eq!(array(&json, "rows").len(), 2 * 2 * 3);
    }
    assert_eq!(fs::read_dir(folder.root()).expect("a folder").count(), before);
}

#[test]
fn the_table_has_every_way_and_every_figure() {
    let text = cryptline(INLINE).success().stdout_text();
    for word in ["plain", "inline, null cipher", "queue, aes-xts-plain64", "auto, aes-xts-plain64", "model: copy alone"]
    {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    for figure in INLINE_FIGURES {
        assert!(text.contains(figure), "{figure} is not in: {text}");
    }
    let text = cryptline(SWEEP).success().stdout_text();
    for word in ["Reads, aes-xts-plain64, 1 stream", "Writes", "auto / best", "inline, loaded"] {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn media_has_every_way_that_a_medium_has_and_a_table_no_bare_copy() {
    let json = json_of(&MEDIA, &[]);
    let found: BTreeSet<(&str, &str)> = array(&json, "rows")
        .iter()
        .map(|row| {
            let name = row["name"].as_str().expect("a name");
            (name, row["direction"].as_str().expect("a direction"))
        })
        .collect();
    let mut wanted = BTreeSet::new();
    for direction in ["read", "write"] {
        for name in ["ram, memcpy", "pmem, memcpy"] {
            wanted.insert((name, direction));
        }
        for name in [
            "ram, on-stack request",
            "ram, heap request",
            "pmem, on-stack request",
            "pmem, heap request",
            "BTT over ram, on-stack request",
            "BTT over ram, heap request",
            "BTT over pmem, on-stack request",
            "BTT over pmem, heap request",
        ] {
            wanted.insert((name, direction));
        }
    }
    assert_eq!(found, wanted);
    for row in array(&json, "rows") {
        assert_eq!(array(row, "samples").len(), 3);
    }
    // Blocks that caches hold: the goals are for others.
    let over_memcpy = figure(&json, "onstack_over_memcpy");
    is_number(&over_memcpy["value"]);
    assert_eq!(over_memcpy["met"], Value::Null);
    is_number(&figure(&json, "btt_write_over_plain")["value"]);
}

#[test]
fn only_requests_from_the_heap_allocate_where_that_can_be_counted() {
    let json = json_of(&MEDIA, &[]);
    let allocations = figure(&json, "allocations_per_io");
    for row in array(&json, "rows") {
        let name = row["name"].as_str().expect("a name");
        match (&row["allocations"], name.ends_with("heap request")) {
            // The system does not let programs count.
            (Value::Null, _) => assert_eq!(allocations["value"], Value::Null),
            (count, true) => assert_eq!(*count, 1.0, "{row}"),
            (count, false) => assert_eq!(*count, 0.0, "{row}"),
        }
    }
    if allocations["value"] != Value::Null {
        assert_eq!(allocations["met"], true, "{allocations}");
    }
}

#[test]
fn media_leaves_no_file_behind() {
    let folder = Folder::new();
    let on = format!("--on={}", folder.root().display());
    let before = fs::read_dir(folder.root()).expect("a folder").count();
    let json = json_of(&MEDIA, &[&on, "--warm"]);
    let medium = json["medium"].as_str().expect("text");
    assert!(medium.contains(&on["--on=".len()..]), "{medium}");
    let after = fs::read_dir(folder.root()).expect("a folder").count();
    assert_eq!(before, after);
}

#[test]
fn zoned_has_every_way_under_every_load_on_both_media() {
    let json = json_of(&ZONED, &[]);
    let rows = array(&json, "rows");
    let names: BTreeSet<&str> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(names.len(), 2 * 8 * 4);
    for name in [
        "plain, RAM, 4k, QD 1, 1 zone",
        "encrypted, slow, 128k, QD 16, 8 zones",
        "auto, slow, 128k, QD 1, 1 zone",
        "pool, RAM, 4k, QD 16, 8 zones",
    ] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    for row in rows {
        assert_eq!(row["direction"], "write");
        assert_eq!(row["pattern"], "sequential");
        let plain = row["name"].as_str().expect("a name").starts_with("plain");
        assert_eq!(row["cipher"].is_null(), plain, "{row}");
    }
    for name in ZONED_FIGURES {
        is_number(&figure(&json, name)["value"]);
    }
    let judged = figure(&json, "encrypted_over_plain_zoned_4k_qd1");
    assert!(judged["goal"].is_null(), "{judged}");
    let note = judged["note"].as_str().expect("a note");
    assert!(note.starts_with("no goal: too few rounds"), "{note}");
}

#[test]
fn with_json_on_standard_output_the_table_is_on_standard_error() {
    let run = cryptline(INLINE.iter().chain(&["--json=-"])).success();
    assert!(serde_json::from_str::<Value>(&run.stdout_text()).is_ok());
    assert!(run.stderr_text().contains("inline, null cipher"));
}

#[test]
fn what_makes_no_sense_is_one_line_and_nothing_is_measured() {
    for (bench, option, text) in [
        ("inline", "--size=0", "--size 0"),
        ("inline", "--size=5000", "--size 5000"),
        ("inline", "--size=1000T", "of memory"),
        ("inline", "--cipher=rot13", "--cipher rot13"),
        ("inline", "--cipher=cipher_null-ecb", "measured anyway"),
        ("inline", "--seconds=0", "--seconds 0"),
        ("inline", "--helpers=100000", "--helpers 100000"),
        ("inline", "--json=/no/such/folder/x.json", "--json"),
        ("inline", "--html=/", "--html"),
        ("sweep", "--dispatch=outline", "inline, queue and auto are"),
        ("sweep", "--helpers=100000", "--helpers 100000"),
        ("sweep", "--size=1000T", "of memory"),
        ("sweep", "--size=0", "--size"),
        ("sweep", "--block-sizes=0", "--block-sizes 0"),
        ("sweep", "--depths=0", "--depths 0"),
        ("sweep", "--medium=delay:never", "--medium delay:never"),
        ("sweep", "--medium=/etc/passwd", "it exists"),
        ("sweep", "--html=/no/such/folder/x.html", "--html"),
        ("zoned", "--zone-size=3M", "--zone-size 3145728"),
        ("zoned", "--zone-size=4k", "--zone-size 4096"),
        ("zoned", "--zone-size=128T", "of memory"),
        ("zoned", "--seconds=0", "--seconds 0"),
        ("zoned", "--slow=never", "--slow never"),
        ("zoned", "--cipher=rot13", "--cipher rot13"),
        ("media", "--size=0", "--size 0"),
        ("media", "--size=1000001", "--size 1000001"),
        ("media", "--size=1000T", "of memory"),
        ("media", "--on=/etc/passwd", "--on /etc/passwd"),
        ("media", "--json=/no/such/folder/x.json", "--json"),
    ] {
        refused(cryptline(["bench", bench, option]), 1, text);
    }
}

#[test]
fn a_bench_that_fails_writes_no_report() {
    let folder = Folder::new();
    let (json, html) = (folder.path("report.json"), folder.path("report.html"));
    let mut command = command();
    command.args(["bench", "sweep", "--depths=0"]);
    command.arg("--json").arg(&json).arg("--html").arg(&html);
    refused(run(&mut command, std::time::Duration::from_secs(60)), 1, "--depths");
    assert!(!json.exists() && !html.exists());
}

#[test]
fn a_browser_opens_the_page_and_draws_its_plots() {
    let Some(chromium) = peer::require("chromium") else {
        return;
    };
    let folder = Folder::new();
    for (bench, plots, text) in [
        (&INLINE[..], 2, "inline_over_model"),
        (&SWEEP[..], 9, "auto_over_best_min"),
        (&MEDIA[..], 2, "onstack_over_memcpy"),
        (&ZONED[..], 2, "inline_over_resequenced_pool"),
    ] {
        let page = folder.path("report.html");
        let option = format!("--html={}", page.display());
        cryptline(bench.iter().copied().chain([option.as_str()])).success();
        let profile = format!("--user-data-dir={}", folder.path("profile").display());
        let headless = ["--headless", "--no-sandbox", "--disable-gpu", profile.as_str()];
        let address = format!("file://{}", page.display());
        let dom = chromium.run(headless.iter().copied().chain(["--dump-dom", address.as_str()]));
        let dom = dom.success().stdout_text();
        assert_eq!(dom.matches("</svg>").count(), plots, "{dom}");
        assert!(dom.contains(text), "{dom}");
        let picture = folder.path("page.png");
        let option = format!("--screenshot={}", picture.display());
        let size = "--window-size=1200,2400";
        let shot = chromium.run(headless.iter().copied().chain([size, option.as_str(), address.as_str()]));
        shot.success();
        // An empty page of this size is a few KiB.
        let drawn = fs::metadata(&picture).expect("a picture").len();
        assert!(drawn > 50_000, "{drawn} bytes");
    }
}
