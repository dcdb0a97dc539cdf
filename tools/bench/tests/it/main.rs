//! Every plan as a user starts it: its figures, that its JSON is what docs/bench-json.md promises, that a browser draws its
//! page, and a whole report or none, whatever others do. How fast anything is, is not asserted.
//!
//! One quick run of each plan that needs no server is in the ordinary run; those of servers, clusters and a browser take
//! longer and are left to the nightly run.

mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cryptline_peers::{self as peer, Run};
use serde_json::Value;

/// A plan of servers first makes its images.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Command that is started as the docs and this list have it; numbers of no worth, but numbers.
const INLINE: [&str; 4] = ["inline", "--size=16M", "--runs=2", "--seconds=0.02"];
const SWEEP: [&str; 8] = [
    "sweep",
    "--size=8M",
    "--rounds=1",
    "--seconds=0.02",
    "--block-sizes=4k,1M",
    "--depths=1",
    "--streams=1",
    "--directions=read,write",
];
const SUBBLOCK: [&str; 6] = ["subblock", "--size=8M", "--runs=1", "--seconds=0.2", "--jobs=2", "--depth=16"];
const ZONED: [&str; 5] = ["zoned", "--size=1M", "--runs=2", "--seconds=0.001", "--pool=3"];
const MEDIA: [&str; 3] = ["media", "--size=1M", "--runs=3"];

fn bench<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cryptline-bench"));
    command.args(words).env_remove("CRYPTLINE_CPU");
    command
}

/// The program that is measured, beside the one that measures; where it was not built, that is said.
fn program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_cryptline-bench")).with_file_name("cryptline");
    if !program.exists() {
        peer::skip(&format!("{} is not there (cargo build)", program.display()));
        return None;
    }
    Some(program)
}

#[track_caller]
fn json_of(words: &[&str], options: &[&str]) -> Value {
    let run = peer::run(&mut bench(words.iter().chain(options).copied().chain(["--json=-"])), TIMEOUT);
    serde_json::from_str(&run.success().stdout_text()).expect("JSON")
}

#[track_caller]
fn array<'a>(json: &'a Value, name: &str) -> &'a [Value] {
    json[name].as_array().expect("an array")
}

#[track_caller]
fn figure<'a>(json: &'a Value, name: &str) -> &'a Value {
    let found = array(json, "figures").iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure {name} in {json}"))
}

#[track_caller]
fn is_number(value: &Value) {
    assert!(value.as_f64().expect("a number") > 0.0, "{value}");
}

/// One line on standard error, and nothing measured.
#[track_caller]
fn refused(run: Run, text: &str) {
    let run = run.exited_with(1);
    let said = run.stderr_text();
    assert!(
        said.starts_with("cryptline-bench: ") && said.lines().count() == 1 && said.contains(text),
        "{text}: {said}"
    );
    assert_eq!(run.stdout_text(), "");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The page, from one heading to the next.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench-json.md");
    fs::read_to_string(page).expect("the page is there")
}

/// The first cells of the tables of a text.
fn names(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|line| Some(line.split_once('`')?.0.to_owned())).collect()
}

/// The figures of a plan, as the page has them. A name is for ever: whoever compares reports of years finds them by it.
#[track_caller]
fn figures_of(bench: &str) -> BTreeSet<String> {
    let (page, head) = (page(), format!("## Figures of `{bench}`\n"));
    let (_, section) = page.split_once(&head).unwrap_or_else(|| panic!("{head}"));
    names(section.split("\n## ").next().expect("a section"))
}

/// Every figure of the page: in the report of its plan.
#[track_caller]
fn has_every_figure(json: &Value) {
    let bench = json["bench"].as_str().expect("a plan");
    let name_of = |figure: &Value| figure["name"].as_str().expect("a name").to_owned();
    assert_eq!(array(json, "figures").iter().map(name_of).collect::<BTreeSet<_>>(), figures_of(bench), "{bench}");
    for figure in array(json, "figures") {
        let unit = figure["unit"].as_str().expect("a unit");
        let name = name_of(figure);
        let is_ratio = if bench == "scale" {
            name.contains("_over_")
        } else {
            !["allocations_per_io", "sparse_copy_seconds", "sparse_copy_mib"].contains(&&*name)
        };
        assert_eq!(unit == "ratio", is_ratio, "{figure}");
        let sentence = figure["sentence"].as_str().expect("words");
        assert!(sentence.ends_with('.') && !sentence.contains("_over_") && !sentence.contains("{}"), "{sentence}");
    }
}

/// Names of the members of an object and of those inside it, as the table of the page has them.
fn members(json: &Value, prefix: &str, names: &mut BTreeSet<String>) {
    match json {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
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
            values
                .iter()
                .filter(|value| value.is_object())
                .for_each(|value| members(value, &format!("{prefix}[]"), names));
        }
        _ => {}
    }
}

#[test]
fn the_json_has_the_members_that_its_page_has_and_every_figure() {
    let page = page();
    let documented = names(page.split("\n## ").next().expect("the first table"));
    for words in [&INLINE[..], &SWEEP, &SUBBLOCK, &MEDIA, &ZONED] {
        let json = json_of(words, &[]);
        let mut found = BTreeSet::new();
        members(&json, "", &mut found);
        assert_eq!(found, documented);
        has_every_figure(&json);
        for row in array(&json, "rows") {
            is_number(&row["bytes_per_second"]);
            assert!(row["spread"].as_f64().expect("a number") >= 0.0, "{row}");
        }
        let names: BTreeSet<_> = array(&json, "rows").iter().map(|row| row["name"].to_string()).collect();
        assert_eq!(names.len(), array(&json, "rows").len(), "no two rows have the same name");
        let command = array(&json, "commands")[0].as_str().expect("text");
        assert!(command.starts_with(&format!("cryptline-bench {}", words.join(" "))), "{command}");
    }
}

#[test]
fn the_text_is_sentences_and_a_table_that_fit_a_terminal_and_goals_are_for_those_who_ask() {
    for words in [&INLINE[..], &ZONED] {
        let run = |options: &[&str]| {
            let run = peer::run(&mut bench(words.iter().chain(options).copied()), TIMEOUT);
            run.success().stdout_text()
        };
        let [plain, asked] = [run(&[]), run(&["--goals"])];
        for text in [&plain, &asked] {
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
        for name in figures_of(words[0]) {
            assert!(asked.contains(&name) && !plain.contains(&name), "{name}: {plain}");
        }
        assert!(!plain.contains("goal") || words[0] == "zoned", "{plain}");
        assert!(["at least", "no goal"].iter().any(|answer| asked.contains(answer)), "{asked}");
    }
}

#[test]
fn inline_measures_plain_and_both_ciphers_by_every_mode_and_all_read_the_same() {
    let json = json_of(&INLINE, &[]);
    assert_eq!(json["medium"], "RAM, 16 MiB");
    let (rows, parts) = array(&json, "rows").split_at(7);
    let found: BTreeSet<_> = rows.iter().map(|row| (row["cipher"].as_str(), row["dispatch"].as_str())).collect();
    let mut wanted = BTreeSet::from([(None, None)]);
    for cipher in ["cipher_null-ecb", "aes-xts-plain64"] {
        wanted.extend(["inline", "queue", "auto"].map(|mode| (Some(cipher), Some(mode))));
    }
    assert_eq!(found, wanted);
    let sums: BTreeSet<&str> = rows.iter().map(|row| row["sha256"].as_str().expect("a sum")).collect();
    assert_eq!(sums.len(), 1, "{sums:?}");
    assert_eq!(parts.len(), 2);
    for row in rows.iter().filter(|row| row["dispatch"] == "queue") {
        assert!(row["name"].as_str().is_some_and(|name| name.ends_with("our imitation of dm-crypt's queues")), "{row}");
    }
    for name in figures_of("inline") {
        is_number(&figure(&json, &name)["value"]);
    }
    assert_eq!(figure(&json, "queue_over_plain_null")["goal"], Value::Null);
    assert_eq!(figure(&json, "inline_over_plain_null")["goal"], 0.97);
}

#[test]
fn a_sweep_has_a_row_for_each_point_and_mode() {
    let json = json_of(&SWEEP, &[]);
    let rows = array(&json, "rows");
    let count = |block: u64, direction: &str| {
        rows.iter().filter(|row| row["block"] == block && row["direction"] == direction).count()
    };
    for block in [4096, 1 << 20] {
        assert_eq!((count(block, "read"), count(block, "write")), (3, 3));
    }
    assert_eq!(rows.len(), 12);
    for row in rows {
        let latency = &row["latency"];
        let values =
            ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(|name| latency[name].as_f64().expect("a number"));
        assert!(values.is_sorted(), "{row}");
    }
    for name in figures_of("sweep") {
        is_number(&figure(&json, &name)["value"]);
    }
}

#[test]
fn figures_that_the_options_leave_out_say_so() {
    let json = json_of(&SWEEP, &["--dispatch=inline"]);
    for name in figures_of("sweep") {
        let figure = figure(&json, &name);
        assert_eq!((&figure["value"], &figure["met"]), (&Value::Null, &Value::Null), "{figure}");
        assert!(figure["note"].as_str().expect("why").contains("needs"), "{figure}");
    }
}

#[test]
fn a_sweep_runs_over_slow_ram() {
    let narrow = ["--block-sizes=64k", "--cipher=cipher_null-ecb,aes-xts-plain64", "--delay=read=50us,write=20us"];
    let words: Vec<&str> = SWEEP.iter().copied().filter(|option| !option.contains("block")).chain(narrow).collect();
    let json = json_of(&words, &[]);
    assert!(json["medium"].as_str().is_some_and(|text| text.contains("as slow as read=50us,write=20us")), "{json}");
    assert_eq!(array(&json, "rows").len(), 2 * 2 * 3);
}

#[test]
fn subblock_measures_both_policies_with_both_ciphers_on_both_media_and_what_locking_costs() {
    let json = json_of(&SUBBLOCK, &[]);
    let rows = array(&json, "rows");
    for cipher in ["aes-xts-plain64", "aes-cbc-essiv:sha256"] {
        for policy in ["exclusive", "shared"] {
            for medium in ["writes of 100us", "RAM"] {
                let name = format!("{policy}, {cipher}, {medium}");
                assert!(rows.iter().any(|row| row["name"] == *name), "no {name}");
            }
        }
    }
    assert_eq!((rows.len(), rows.iter().filter(|row| row["block"] == 4096).count()), (10, 2));
    is_number(&figure(&json, "shared_over_exclusive_xts")["value"]);
    is_number(&figure(&json, "shared_over_exclusive_cbc")["value"]);
    assert!(figure(&json, "aligned_cost_of_locking")["value"].is_f64());
    // The goal is for the load of the ext4 commit.
    assert_eq!(figure(&json, "shared_over_exclusive_xts")["goal"], Value::Null);
}

#[test]
fn media_has_every_way_that_a_medium_has_counts_allocations_and_leaves_no_file_behind() {
    let folder = folder();
    let json = json_of(&MEDIA, &[&format!("--on={}", folder.path().display())]);
    assert!(json["medium"].as_str().is_some_and(|medium| medium.contains(folder.path().to_str().expect("text"))));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let rows = array(&json, "rows");
    let names: BTreeSet<&str> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    let mut wanted = BTreeSet::new();
    for direction in ["read", "write"] {
        for medium in ["ram", "pmem", "BTT over ram", "BTT over pmem"] {
            // A bare copy into a table would destroy it.
            let ways = if medium.starts_with("BTT") {
                &["on-stack request", "heap request"][..]
            } else {
                &["memcpy", "on-stack request", "heap request"]
            };
            wanted.extend(ways.iter().map(|way| format!("{medium} {direction}, {way}")));
        }
    }
    assert_eq!(names, wanted.iter().map(String::as_str).collect());
    // Blocks that caches hold: the goals are for others.
    let over_memcpy = figure(&json, "onstack_over_memcpy");
    is_number(&over_memcpy["value"]);
    assert_eq!(over_memcpy["met"], Value::Null);
    is_number(&figure(&json, "btt_write_over_plain")["value"]);
    let allocations = figure(&json, "allocations_per_io");
    for row in rows {
        assert_eq!(array(row, "samples").len(), 3);
        match (&row["allocations"], row["name"].as_str().is_some_and(|name| name.ends_with("heap request"))) {
            // The system does not let programs count.
            (Value::Null, _) => assert_eq!(allocations["value"], Value::Null),
            (count, true) => assert_eq!(*count, 1.0, "{row}"),
            (count, false) => assert_eq!(*count, 0.0, "{row}"),
        }
    }
    assert!(allocations["value"].is_null() || allocations["met"] == true, "{allocations}");
}

#[test]
fn zoned_has_every_way_under_every_load_on_both_media() {
    let json = json_of(&ZONED, &[]);
    let rows = array(&json, "rows");
    assert_eq!(rows.len(), 2 * 8 * 4);
    for row in rows {
        assert_eq!((&row["direction"], &row["pattern"]), (&"write".into(), &"sequential".into()));
        let is_plain = row["name"].as_str().expect("a name").starts_with("plain");
        assert_eq!(row["cipher"].is_null(), is_plain, "{row}");
    }
    for name in figures_of("zoned") {
        is_number(&figure(&json, &name)["value"]);
    }
    let judged = figure(&json, "encrypted_over_plain_zoned_4k_qd1");
    assert!(judged["goal"].is_null(), "{judged}");
    assert!(judged["note"].as_str().expect("a note").starts_with("no goal: too few rounds"), "{judged}");
}

#[test]
fn with_json_on_standard_output_the_text_is_on_standard_error() {
    let run = peer::run(&mut bench(INLINE.iter().copied().chain(["--json=-"])), TIMEOUT).success();
    assert!(serde_json::from_str::<Value>(&run.stdout_text()).is_ok());
    assert!(run.stderr_text().contains("null cipher, inline"));
}

#[test]
fn what_makes_no_sense_is_one_line_and_nothing_is_measured() {
    for (plan, option, text) in [
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
        ("sweep", "--size=1000T", "of memory"),
        ("sweep", "--delay=never", "--delay never"),
        ("zoned", "--size=3M", "--size 3145728"),
        ("zoned", "--size=4k", "--size 4096"),
        ("zoned", "--size=128T", "of memory"),
        ("zoned", "--slow=never", "--slow never"),
        ("zoned", "--cipher=rot13", "--cipher rot13"),
        ("subblock", "--write=never", "--write never"),
        ("media", "--size=1000001", "--size 1000001"),
        ("media", "--size=1000T", "of memory"),
        ("media", "--on=/etc/passwd", "--on /etc/passwd"),
        ("rbd", "--size=1M", "multiple of 16 MiB"),
        ("images", "--size=1000448", "multiple of 1M"),
        ("doors", "--program=/no/such/program", "cargo build --release"),
    ] {
        refused(peer::run(&mut bench([plan, option]), TIMEOUT), text);
    }
    let folder = folder();
    let [json, html] = ["json", "html"].map(|name| folder.path().join(name));
    let mut command = bench(["sweep", "--depths=0"]);
    command.arg("--json").arg(&json).arg("--html").arg(&html);
    refused(peer::run(&mut command, TIMEOUT), "--depths");
    assert!(!json.exists() && !html.exists());
}

#[test]
fn a_browser_draws_every_row_and_sentence_and_nothing_is_wider_than_a_telephone() {
    let Some(chromium) = peer::require("chromium") else {
        return;
    };
    let folder = folder();
    let page = folder.path().join("report.html");
    let json = json_of(&INLINE, &[&format!("--html={}", page.display())]);
    // A page cannot be asked how wide it is but by a script of its own.
    let text = fs::read_to_string(&page).expect("a page");
    let probe =
        "<script>document.body.dataset.overflows = document.documentElement.scrollWidth > innerWidth;</script></body>";
    fs::write(&page, text.replace("</body>", probe)).expect("room");
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let address = format!("file://{}", page.display());
    let words =
        ["--headless", "--no-sandbox", "--disable-gpu", &profile, "--window-size=480,2000", "--dump-dom", &address];
    let dom = chromium.run(words).success().stdout_text();
    assert!(dom.contains("data-overflows=\"false\""), "{dom}");
    assert_eq!(dom.matches("class=\"track\"").count(), array(&json, "rows").len());
    for figure in array(&json, "figures") {
        let words = figure["sentence"].as_str().expect("words");
        let first: String = words.chars().take(30).collect();
        assert!(dom.contains(&first), "{first}");
    }
}
