//! The table of actors in docs/actors.md: each cell names tests that there are, or says why there is none.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const BECAUSE: &str = "not defended, because ";

/// Functions that are marked as tests.
fn tests(text: &str) -> BTreeSet<String> {
    let (mut names, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        is_test |= line == "#[test]";
        // More attributes and comments may come between.
        if line.starts_with('#') || line.starts_with("//") {
            continue;
        }
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('));
        names.extend(name.filter(|_| is_test).map(|(name, _)| name.to_owned()));
        is_test = false;
    }
    names
}

/// Names of tests, and what cases are called.
fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, names);
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        match path.extension().and_then(OsStr::to_str) {
            Some("rs") => names.extend(tests(&text)),
            Some("case") => names.extend(text.lines().filter_map(|line| line.strip_prefix("case ")).map(str::to_owned)),
            _ => {}
        }
    }
}

#[test]
fn only_what_is_marked_as_a_test_counts_as_one() {
    let text = "#[test]\n#[ignore]\n// A word.\nfn first() {}\n\nfn helper() {}\n    #[test]\n    fn second() {}\n";
    assert_eq!(tests(text).into_iter().collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
fn each_cell_of_the_table_of_actors_names_a_test_or_says_why_there_is_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        ["src", "tests"].map(|part| path.join(part)).iter().filter(|part| part.is_dir()).for_each(|part| {
            collect(part, &mut names);
        });
    }
    let text = fs::read_to_string(root.join("docs/actors.md")).expect("a document");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 13, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        for cell in &cells[1..] {
            let named: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
            let is_told = cell.split_once(BECAUSE).is_some_and(|(_, why)| !why.is_empty());
            assert!(is_told || !named.is_empty(), "an empty cell in {}", cells[0]);
            // What is not defended may name anything.
            let tests = if is_told { &named[..0] } else { &named[..] };
            let missing: Vec<_> = tests.iter().filter(|name| !names.contains(**name)).collect();
            assert!(missing.is_empty(), "{}: there is no test {missing:?}", cells[0]);
        }
    }
}
