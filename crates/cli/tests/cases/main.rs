//! Command lines as data: README.md in this folder says how the `.case` files are written. Each case, and each row of
//! one, is a test called `file::case`.

mod check;
mod format;
#[path = "../it/common/header.rs"]
mod header;
mod own;
mod play;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use format::Case;

/// With this in the environment each expectation is spoiled in turn, and a case passes if it then fails there.
const SPOIL: &str = "CASES_SPOIL";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = own::trials();
    for (name, text) in files() {
        match format::parse(&name, &text) {
            Ok(cases) => trials.extend(cases.into_iter().map(trial)),
            Err(told) => trials.push(Trial::test(format!("{name}::is_understood"), || Err(Failed::from(told)))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The names, without what follows the dot, and what is in them.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(folder).expect("the folder of the cases");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "case")).collect();
    paths.sort();
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("cases are text"))).collect()
}

fn trial(case: Case) -> Trial {
    let name = case.name.clone();
    let spoils = std::env::var_os(SPOIL).is_some();
    Trial::test(name, move || {
        let told = if spoils { each_expectation_matters(&case) } else { play::play(&case) };
        told.map_err(Failed::from)
    })
}

/// Plays the case once for each of its expectations, with that one spoiled: it must fail there.
fn each_expectation_matters(case: &Case) -> Result<(), String> {
    for (step, index) in case.checks() {
        let mut spoiled = case.clone();
        let check = &mut spoiled.steps[step].checks[index];
        let line = check.line;
        check.spoil();
        match play::play(&spoiled) {
            Ok(()) => return Err(format!("{}.case:{line}: it passes with this expectation spoiled", case.file)),
            Err(told) if told.starts_with(&format!("{}.case:{line}:", case.file)) => {}
            Err(told) => return Err(format!("spoiled at line {line}, it fails elsewhere:\n{told}")),
        }
    }
    Ok(())
}
