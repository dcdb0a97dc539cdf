//! The tests of a door: nextest runs those of its profile (`.config/nextest.toml`).
//!
//! ```text
//! nextest ─┬─ stderr ─► shown as it comes; from its summary on kept for the very end
//!          └─ junit.xml ─► the slowest tests; SKIP lines ─► all in skips.txt?
//! ```

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;

use cryptline_peers as peer;

use crate::step::{Failed, cannot_run, cargo, cargo_command, skips, succeeds, watch};

const SHOWN: usize = 20;
/// Skips that CI allows, and why.
const ALLOWED: &str = include_str!("../skips.txt");
/// Output of the runner from its summary on.
static SUMMARY: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Known facts about tests that have run.
#[derive(Default, Debug, PartialEq)]
pub struct Ran {
    /// Seconds and names.
    pub tests: Vec<(f64, String)>,
    /// Whole `SKIP` lines.
    pub skips: Vec<String>,
}

/// Builds what a profile runs, whichever it is.
pub fn build() -> Result<(), Failed> {
    if has_nextest() {
        cargo(&["nextest", "run", "--workspace", "--locked", "--no-run"])
    } else {
        cargo(&["test", "--workspace", "--locked", "--no-run"])
    }
}

/// Runs the tests of a profile, with variables in their environment.
pub fn run(profile: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), Failed> {
    if !has_nextest() {
        cannot_run("the choice of tests", "cargo-nextest is missing: cargo install --locked cargo-nextest")?;
        return cargo(&["test", "--workspace", "--locked", "--all-targets"]);
    }
    // Most tests wait for other programs most of their time.
    let threads = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut nextest = cargo_command();
    nextest.args(["nextest", "run", "--workspace", "--locked", "--profile", profile]);
    nextest.arg(format!("--test-threads={threads}")).args(arguments);
    nextest.envs(variables.iter().copied()).env("CARGO_TERM_COLOR", "never").stderr(Stdio::piped());
    let _none_yet = std::fs::remove_file(report(profile));
    watch(&mut nextest, show).map_err(|Failed(why)| Failed(format!("tests failed: {why}")))
}

fn has_nextest() -> bool {
    succeeds("cargo", &["nextest", "--version"])
}

/// Shows what the runner says, but for its summary and the rule before that.
fn show(runner: &mut Child) {
    let Some(said) = runner.stderr.take() else { return };
    let kept = keep_summary(BufReader::new(said), &mut std::io::stderr());
    if let Ok(mut summary) = SUMMARY.lock() {
        *summary = kept;
    }
}

/// Passes on all lines before the summary and the rule above it, and gives the others.
fn keep_summary(mut said: impl BufRead, shown: &mut impl Write) -> Vec<u8> {
    let (mut kept, mut line) = (Vec::new(), Vec::new());
    let mut is_summary = false;
    while let Ok(1..) = said.read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        is_summary |= text.trim_start().starts_with("Summary [");
        if !is_summary {
            // A rule was no last one.
            let _closed = shown.write_all(&std::mem::take(&mut kept));
        }
        if is_summary || (text.starts_with('─') && text.trim_end().chars().all(|c| c == '─')) {
            kept.append(&mut line);
        } else {
            let _closed = shown.write_all(&std::mem::take(&mut line));
        }
    }
    kept
}

/// Shows what was kept. Nothing comes after it.
pub fn show_summary() {
    if let Ok(mut summary) = SUMMARY.lock() {
        let _closed = std::io::stderr().write_all(&std::mem::take(&mut *summary));
    }
}

fn report(profile: &str) -> PathBuf {
    crate::target().join("nextest").join(profile).join("junit.xml")
}

/// Returns what the tests of a profile did when they ran last.
pub fn ran(profile: &str) -> Ran {
    read(&std::fs::read_to_string(report(profile)).unwrap_or_default())
}

/// Reads what nextest writes: each test is an element with its name, time and what it said.
fn read(junit: &str) -> Ran {
    let mut ran = Ran::default();
    for test in junit.split("<testcase ").skip(1) {
        let (head, said) = test.split_once('>').unwrap_or((test, ""));
        let attribute = |name: &str| {
            let (_, value) = head.split_once(&format!("{name}=\""))?;
            value.split_once('"').map(|(value, _)| plain(value))
        };
        let seconds = attribute(" time").and_then(|time| time.parse().ok()).unwrap_or(0.0);
        let name = attribute("name").unwrap_or_default();
        let program = attribute("classname").unwrap_or_default();
        ran.tests.push((seconds, format!("{program} {name}")));
        let lines = said.lines().map(|line| line.rsplit_once("<system-err>").map_or(line, |(_, line)| line));
        let lines = lines.map(|line| line.rsplit_once("<system-out>").map_or(line, |(_, line)| line));
        ran.skips.extend(lines.filter(|line| line.starts_with("SKIP")).map(|line| {
            let line = plain(line.split("</system-").next().unwrap_or(line));
            // Some say only why.
            line.replace("SKIP: ", &format!("SKIP {name}: "))
        }));
    }
    ran.tests.sort_by(|one, other| other.0.total_cmp(&one.0));
    ran.skips.sort_unstable();
    ran.skips.dedup();
    ran
}

fn plain(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&amp;", "&")
}

impl Ran {
    /// The slowest tests.
    pub fn table(&self) -> String {
        let mut table = "slowest tests, wall seconds\n".to_owned();
        for (seconds, name) in self.tests.iter().take(SHOWN) {
            let _infallible = writeln!(table, "{seconds:>8.1}  {name}");
        }
        table
    }

    /// Fails in CI where a test or a step was skipped that is not on the list.
    pub fn check_skips(&self) -> Result<(), Failed> {
        if self.tests.is_empty() && peer::in_ci() {
            return Err(Failed("the runner's report has no tests".to_owned()));
        }
        let all = [&self.skips[..], &skips()].concat();
        println!("{} skipped", all.len());
        let new = unknown(&all, ALLOWED);
        for line in &new {
            println!("not in xtask/skips.txt: {line}");
        }
        if new.is_empty() || !peer::in_ci() {
            return Ok(());
        }
        Err(Failed(format!("{} new SKIP lines; with CI=true that is a failure: {}", new.len(), new.join("; "))))
    }
}

/// The lines that contain none of the allowed texts.
fn unknown<'a>(lines: &'a [String], allowed: &str) -> Vec<&'a str> {
    let allowed: Vec<_> = allowed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let lines = lines.iter().map(String::as_str);
    lines.filter(|line| !allowed.iter().any(|text| line.contains(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_skips_are_those_of_the_report() {
        let junit = r#"<testsuites time="9.0"><testsuite name="a">
            <testcase name="fast" classname="cryptline-a::it" timestamp="x" time="0.004">
                <system-err>SKIP fast: &lt;nothing&gt; here
SKIP: twice</system-err>
            </testcase>
            <testcase name="slow" classname="cryptline-a" timestamp="x" time="61.5">
                <system-out>said SKIP
                </system-out>
            </testcase></testsuite></testsuites>"#;
        let ran = read(junit);
        let tests = [(61.5, "cryptline-a slow".to_owned()), (0.004, "cryptline-a::it fast".to_owned())];
        assert_eq!(ran.tests, tests);
        assert_eq!(ran.skips, ["SKIP fast: <nothing> here", "SKIP fast: twice"]);
    }

    #[test]
    fn summary_is_kept_and_what_comes_before_is_passed_on() {
        let before = "────────\n Nextest run\n PASS [ 0.1s] a\n says Summary: no\n";
        let after = "──────\n     Summary [ 1.0s] 2 tests run\n     FAIL [ 0.5s] b\n────\nerror: test run failed\n";
        let mut shown = Vec::new();
        let kept = keep_summary(format!("{before}{after}").as_bytes(), &mut shown);
        assert_eq!(String::from_utf8_lossy(&shown), before);
        assert_eq!(String::from_utf8_lossy(&kept), after);
    }

    #[test]
    fn a_skip_that_is_not_on_the_list_is_new() {
        let lines = ["SKIP one: no ublk here".to_owned(), "SKIP two: no nbd here".to_owned()];
        assert_eq!(unknown(&lines, "# why\n\nno ublk here\n"), ["SKIP two: no nbd here"]);
    }

    #[test]
    fn the_list_allows_nothing_by_an_empty_or_short_text() {
        let texts = ALLOWED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for text in texts {
            assert!(text.len() > 8 && text.trim() == text, "{text:?} would allow too much");
        }
    }
}
