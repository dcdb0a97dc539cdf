//! The style rules that neither rustfmt nor clippy checks. Function length and `// SAFETY:` comments
//! are clippy's (`clippy.toml`, `[workspace.lints]`).
//!
//! | rule | where |
//! |---|---|
//! | at most 600 lines | Rust files |
//! | starts with `//!`, after an optional SPDX line | Rust files |
//! | no `unsafe` code; `#![forbid(unsafe_code)]` at the root | crates other than `sys`, `cipher`, `capi` and `python` |
//! | the same, but `deny` at the root and one file excepted | `testkit`, for its counting allocator |
//! | nothing left to do later: no placeholder macros or marks | Rust files |
//! | no test called `test_…` | Rust files |
//! | a doc comment begins with none of `VAGUE` | Rust files |
//! | no answer is no yes: none of `UNKNOWN_AS_YES` | functions below a comment that begins with `// Guard:` |
//! | the worst fault is kept, not the first: no `get_or_insert` of a fault | Rust files |
//! | one type name, one meaning (`tidy/names.rs`) | crates and tools |
//! | what is made durable is so by way of `durable.rs`, where tests see it | `cryptline`, but for the medium that a file is |
//! | a message names no option of the program, and no command line of it with options | crates that others use as well: `LIBRARIES` |
//! | no space at a line's end, no CR, a line end at the end | every text file |
//! | no path of this machine, no registry's host | every text file |

mod names;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::step::Failed;
use names::TypeNames;

const LINES_MAX: usize = 600;
/// A bigger file belongs elsewhere.
const TEXT_MAX_BYTES: u64 = 1 << 20;
/// Folders that are not source, by their path in the workspace.
const NOT_SOURCE: &[&str] = &[
    ".git",
    "target",
    "fuzz/target",
    "simulator/target",
    "simulator/mistakes",
    "fuzz/corpus",
    "fuzz/corpus-run",
    "fuzz/artifacts",
];
/// Written by tools, in the tools' own style.
const GENERATED: &[&str] =
    &["Cargo.lock", "bench/xts/Cargo.lock", "fuzz/Cargo.lock", "python/Cargo.lock", "simulator/Cargo.lock"];
/// The crates, and the two files, that may hold `unsafe` code: an allocator that counts, and the C
/// interface of a library that is measured against. `capi` and `python` touch memory that their callers name.
const UNSAFE_PLACES: &[&str] = &[
    "crates/sys/",
    "crates/cipher/",
    "crates/capi/src/",
    "python/src/",
    "crates/testkit/src/alloc.rs",
    "bench/xts/src/aws_lc.rs",
    "bench/xts/src/linux.rs",
    "simulator/src/sim/",
];
/// Attribute of each crate's root, and the root that has to make an exception.
const FORBID: &str = "#![forbid(unsafe_code)]";
const DENY: (&str, &str) = ("crates/testkit/src/lib.rs", "#![deny(unsafe_code)]");
/// Calls that take an answer that is not there for one that allows.
const UNKNOWN_AS_YES: &[&str] = &["is_none_or(", "unwrap_or(true)", "map_or(true"];
const GUARD: &str = "// Guard:";
// In pieces, so that this file keeps its own rules.
const FIRST_FAULT: &str = concat!("get_or_insert", "(fault)");
/// Syncs that are made again where they were interrupted, and then say yes though a write was lost.
const REPEATED_SYNCS: &[&str] = &[concat!(".sync", "_all("), concat!(".sync", "_data(")];
/// Syncs that a test does not see, the crate that has none, and its files that may.
const UNSEEN_SYNCS: &[&str] =
    &[concat!("sys::sync", "_all("), concat!("sys::sync", "_data("), concat!("fs::f", "sync(")];
const SEEN_SYNCS: (&str, &[&str]) =
    ("crates/cryptline/src/", &["crates/cryptline/src/durable.rs", "crates/cryptline/src/medium.rs"]);
/// Words with which a doc comment says nothing of the item that the signature does not say.
const VAGUE: &[&str] = &["What ", "Who ", "That ", "Whether ", "How it ", "It "];
/// Crates whose messages users of every program read.
const LIBRARIES: &[&str] =
    &["crates/cipher/", "crates/cryptline/", "crates/engine/", "crates/luks/", "crates/sys/", "crates/tokens/"];
const LEFT_FOR_LATER: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("pypi", ".org"),
];

/// Checks every source file and prints all that is wrong.
pub fn run() -> Result<(), Failed> {
    let root = crate::root();
    let here = machine_paths(&root);
    let files = source_files(&root).map_err(|error| Failed(error.to_string()))?;
    let mut findings = Vec::new();
    let mut names = TypeNames::default();
    for path in &files {
        let bytes = fs::read(root.join(path)).map_err(|error| Failed(format!("{path}: {error}")))?;
        // Images and other data are not for reading.
        if let Ok(text) = String::from_utf8(bytes) {
            findings.extend(check(path, &text, &here));
            if path.ends_with(".rs") {
                names.add(path, &text);
            }
        }
    }
    findings.extend(names.findings());
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{} files are tidy", files.len());
            Ok(())
        }
        count => Err(Failed(format!("{count} findings"))),
    }
}

/// The paths that must not be written down: this checkout's and the user's home.
fn machine_paths(root: &Path) -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    [format!("{}/", root.display()), format!("{home}/")].into_iter().filter(|path| path.len() > 2).collect()
}

/// Every finding in one file, as `path:line: what`.
fn check(path: &str, text: &str, machine_paths: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut report = |line: usize, what: String| findings.push(format!("{path}:{line}: {what}"));
    if !text.is_empty() && !text.ends_with('\n') {
        report(text.lines().count(), "no line end at the end of the file".to_owned());
    }
    for (line, number) in text.split('\n').zip(1..) {
        if line.ends_with([' ', '\t', '\r']) {
            report(number, "space at the end of the line".to_owned());
        }
        let named = machine_paths.iter().map(String::as_str).chain(HOSTS.iter().copied());
        for name in named.filter(|name| line.contains(name)) {
            report(number, format!("names {name:?}, which belongs to a machine or registry"));
        }
    }
    if path.ends_with(".rs") {
        check_rust(path, text, &mut report);
    }
    findings
}

fn check_rust(path: &str, text: &str, report: &mut impl FnMut(usize, String)) {
    let may_be_unsafe = UNSAFE_PLACES.iter().any(|allowed| path.starts_with(allowed));
    let lines = text.lines().count();
    if lines > LINES_MAX {
        report(lines, format!("{lines} lines; at most {LINES_MAX}"));
    }
    let mut head = text.lines().skip_while(|line| line.starts_with("// SPDX-License-Identifier:"));
    if !head.next().is_some_and(|line| line.starts_with("//!")) {
        report(1, "does not start with `//!` and what the file is for".to_owned());
    }
    if path.ends_with("src/lib.rs") && !may_be_unsafe {
        let attribute = if path == DENY.0 { DENY.1 } else { FORBID };
        if !text.contains(attribute) {
            report(1, format!("no `{attribute}`"));
        }
    }
    let syncs_are_seen = path.starts_with(SEEN_SYNCS.0) && !SEEN_SYNCS.1.contains(&path);
    let is_shipped = path.starts_with("crates/") && path.contains("/src/") && !path.contains("test");
    let is_of_library = is_shipped && LIBRARIES.iter().any(|library| path.starts_with(library));
    let mut guard = None;
    for (line, number) in text.lines().zip(1..) {
        let code = line.split("//").next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with(GUARD) {
            guard = Some(indent);
        } else if guard == Some(indent) && code.trim_start().starts_with('}') {
            guard = None;
        } else if let (Some(_), Some(word)) = (guard, UNKNOWN_AS_YES.iter().find(|word| code.contains(**word))) {
            report(number, format!("{word:?} in a guard: match the case without an answer"));
        }
        if code.contains(FIRST_FAULT) {
            report(number, "the first fault hides a worse one: compare them".to_owned());
        }
        if is_shipped && REPEATED_SYNCS.iter().any(|sync| code.contains(sync)) {
            report(number, "a sync that is repeated where it was interrupted: use cryptline_sys's".to_owned());
        }
        if syncs_are_seen && UNSEEN_SYNCS.iter().any(|sync| code.contains(sync)) {
            report(number, "a sync that no test sees: make it by `durable`".to_owned());
        }
        if !may_be_unsafe && is_unsafe(code) {
            report(number, "unsafe code outside `sys`, `cipher` and the bindings".to_owned());
        }
        if let Some(mark) = LEFT_FOR_LATER.iter().find(|mark| line.contains(**mark)) {
            report(number, format!("{mark:?}: do it, or open an issue"));
        }
        let doc = ["/// ", "//! "].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        if let Some(word) = VAGUE.iter().find(|word| doc.is_some_and(|doc| doc.starts_with(**word))) {
            report(number, format!("a doc comment with {word:?}: begin with a noun or a verb in the third person"));
        }
        if is_of_library && names_option(line) {
            report(
                number,
                "an option in a library's message: the program's table adds it (cli/src/error.rs)".to_owned(),
            );
        }
        if code.trim_start().starts_with("fn test_") {
            report(number, "name the test after the behaviour, without `test_`".to_owned());
        }
    }
}

/// Tells if a line outside comments names an option of the program: one by itself, or behind its name. Other programs'
/// command lines, between backticks, have their own.
fn names_option(line: &str) -> bool {
    let has_option = |text: &str| {
        let found = text.match_indices("--").map(|(at, _)| text[at + 2..].chars().next());
        found.flatten().any(|next| next.is_ascii_lowercase())
    };
    let is_comment = line.trim_start().starts_with("//");
    let mut parts = line.split('`').enumerate();
    !is_comment && parts.any(|(n, part)| (n % 2 == 0 || part.starts_with("cryptline ")) && has_option(part))
}

/// Tells if the keyword opens a block, a function, an implementation or an attribute here.
fn is_unsafe(code: &str) -> bool {
    let uses = ["{", "fn ", "impl ", "impl<", "trait ", "extern "];
    code.match_indices("unsafe").any(|(at, word)| {
        let starts = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"');
        let rest = &code[at + word.len()..];
        let block = rest.starts_with(' ') && uses.iter().any(|after| rest.trim_start().starts_with(after));
        starts && (block || rest.starts_with('('))
    })
}

/// The files of the workspace as relative paths, sorted.
fn source_files(root: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let name = path.to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !NOT_SOURCE.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file() && !GENERATED.contains(&name.as_str()) && entry.metadata()?.len() <= TEXT_MAX_BYTES
            {
                files.push(name);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(path, text, &["/somewhere/here/".to_owned()])
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        let text = "//! Purpose.\n\n#![forbid(unsafe_code)]\n\nfn is_unsafe() {} // unsafe { }\n";
        assert_eq!(findings("crates/engine/src/lib.rs", text), [""; 0]);
        let licensed = format!("// SPDX-License-Identifier: MIT\n{text}");
        assert_eq!(findings("crates/engine/src/lib.rs", &licensed), [""; 0]);
    }

    #[test]
    fn every_rule_has_a_finding() {
        let cases = [
            ("a.rs", "fn main() {}\n", "a.rs:1: does not start with"),
            ("a.rs", "//! A.\nlet x = unsafe { y };\n", "a.rs:2: unsafe code"),
            ("a.rs", "//! A.\npub unsafe fn x();\n", "a.rs:2: unsafe code"),
            ("a.rs", "//! A.\n#[unsafe(no_mangle)]\n", "a.rs:2: unsafe code"),
            ("a.rs", concat!("//! A.\nto", "do!();\n"), "a.rs:2: \"to"),
            ("a.rs", concat!("//! A.\n// TO", "DO later\n"), "a.rs:2: \"TO"),
            ("a.rs", "//! A.\nfn test_x() {}\n", "a.rs:2: name the test"),
            ("a.rs", "//! A.\n    /// Whether x.\n", "a.rs:2: a doc comment with"),
            (
                "a.rs",
                "//! A.\n// Guard: x.\nfn a() {\n    x.is_none_or(b);\n}\nfn b() { x.is_none_or(b) }\n",
                "a.rs:4: \"is_none",
            ),
            ("a.rs", "//! A.\n// Guard: x.\nfn a() {\n    {\n    }\n    x.map_or(true, b);\n}\n", "a.rs:6: \"map_or"),
            ("a.rs", concat!("//! A.\nx.get_or_insert", "(fault);\n"), "a.rs:2: the first fault"),
            (
                "crates/cryptline/src/a.rs",
                concat!("//! A.\ncryptline_sys::sync", "_all(x)?;\n"),
                "crates/cryptline/src/a.rs:2: a sync that no test",
            ),
            (
                "crates/x/src/a.rs",
                concat!("//! A.\nx.sync", "_all()?;\n"),
                "crates/x/src/a.rs:2: a sync that is repeated",
            ),
            ("crates/luks/src/a.rs", "//! A.\nlet x = \"use --force\";\n", "crates/luks/src/a.rs:2: an option"),
            ("crates/luks/src/a.rs", "//! A.\n\"run `cryptline a --b`\"\n", "crates/luks/src/a.rs:2: an option"),
            ("crates/x/src/lib.rs", "//! A.\n", "crates/x/src/lib.rs:1: no `#![forbid"),
            ("a.md", "trailing \n", "a.md:1: space"),
            ("a.md", "carriage return\r\n", "a.md:1: space"),
            ("a.md", "no end", "a.md:1: no line end"),
            ("a.md", "see /somewhere/here/x\n", "a.md:1: names"),
            ("a.md", concat!("from crates", ".io\n"), "a.md:1: names"),
        ];
        for (path, text, expected) in cases {
            let found = findings(path, text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text:?}: {found:?}");
        }
        let long = "//! A.\n".repeat(LINES_MAX + 1);
        assert_eq!(findings("a.rs", &long), ["a.rs:601: 601 lines; at most 600"]);
    }

    #[test]
    fn options_of_other_programs_are_named_by_libraries() {
        let text = "//! A.\n/// `--force`.\nlet x = \"`wipefs --offset 0`, x -- y\";\nx--;\n";
        assert_eq!(findings("crates/luks/src/a.rs", text), [""; 0]);
        assert_eq!(findings("crates/cli/src/a.rs", "//! A.\nlet x = \"--force\";\n"), [""; 0]);
    }

    #[test]
    fn unsafe_code_is_allowed_where_it_lives() {
        let text = "//! A.\nlet x = unsafe { y };\n";
        assert_eq!(findings("crates/sys/src/ring.rs", text), [""; 0]);
    }
}
