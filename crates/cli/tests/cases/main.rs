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
    Trial::test(case.name.clone(), move || play::play(&case).map_err(Failed::from))
}
