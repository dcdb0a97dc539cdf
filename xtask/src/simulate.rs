//! The simulator (`simulator/README.md`): histories that were kept, mistakes that must be found, and new histories.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::step::{Failed, cargo_command, output, run as run_command};

/// New histories of a landing, and the seconds that they may take.
const LANDING: (u64, u64) = (100_000, 300);
/// Seconds of new histories in a night.
const NIGHT: u64 = 60 * 60;
/// Seconds within which a mistake must be found.
const MISTAKE: u64 = 60;

/// The share of a landing.
pub fn run() -> Result<(), Failed> {
    let (most, seconds) = LANDING;
    look(seconds, Some(most))
}

/// New histories for an hour, and each mistake that is kept as a patch.
pub fn night() -> Result<(), Failed> {
    look(NIGHT, None)?;
    mistakes()
}

fn look(seconds: u64, most: Option<u64>) -> Result<(), Failed> {
    let folder = crate::root().join("simulator");
    let format = ["fmt", "--check", "--manifest-path"];
    run_command(cargo_command().args(format).arg(folder.join("Cargo.toml")))?;
    let program = build(&folder, &crate::target().join("simulator"), &[])?;
    run_command(Command::new(&program).arg("kept").arg(folder.join("seeds")))?;
    run_command(Command::new(&program).arg("careless"))?;
    run_command(Command::new(&program).arg("likeness"))?;
    let mut new = Command::new(&program);
    new.args(["run", "--seconds", &seconds.to_string(), "--seed", &first_seed()?]);
    match most {
        Some(most) => new.args(["--histories", &most.to_string()]),
        // In so many, everything must happen that is counted.
        None => new.arg("--points"),
    };
    run_command(&mut new)
}

/// Another one for each commit.
fn first_seed() -> Result<String, Failed> {
    let hash = output(Command::new("git").args(["rev-parse", "HEAD"]))?;
    Ok(format!("0x{}", hash.get(..16).unwrap_or("1")))
}

/// For a simulator that is built again after a small change: it is a fourth slower, and there within seconds.
const AGAIN: [(&str, &str); 4] = [
    ("CARGO_INCREMENTAL", "1"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

/// The simulator below `target`, built in a way that `settings` change.
fn build(folder: &Path, target: &Path, settings: &[(&str, &str)]) -> Result<PathBuf, Failed> {
    let mut cargo = cargo_command();
    cargo.env("CARGO_INCREMENTAL", "0").envs(settings.iter().copied());
    cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(target);
    run_command(cargo.arg("--manifest-path").arg(folder.join("Cargo.toml")))?;
    Ok(target.join("release/cryptline-simulator"))
}

/// Makes each mistake of `simulator/mistakes` in a copy of the last commit, and looks whether it is found.
pub fn mistakes() -> Result<(), Failed> {
    let (patches, place) = (crate::root().join("simulator/mistakes"), crate::target().join("mistakes"));
    let tree = place.join("tree");
    let unreadable = |error: std::io::Error| Failed(format!("{}: {error}", patches.display()));
    let entries = std::fs::read_dir(&patches).map_err(unreadable)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.sort();
    let _ = std::fs::remove_dir_all(&tree);
    run_command(Command::new("git").args(["clone", "--quiet", "."]).arg(&tree))?;
    let mut missed = Vec::new();
    for (number, patch) in (1..).zip(&paths) {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy();
        println!("mistake {name}, {number} of {}", paths.len());
        let apply =
            |how: &[&str]| run_command(Command::new("git").arg("-C").arg(&tree).arg("apply").args(how).arg(patch));
        apply(&[]).map_err(|Failed(why)| {
            Failed(format!("{name} applies no more, so nobody knows whether it is found: {why}"))
        })?;
        let program = build(&tree.join("simulator"), &place.join("target"), &AGAIN)?;
        let began = Instant::now();
        let found = finds(&program, &tree)?;
        println!(
            "mistake {name}: {} after {:.1} s",
            if found { "found" } else { "NOT found" },
            began.elapsed().as_secs_f64()
        );
        if !found {
            missed.push(name.into_owned());
        }
        apply(&["--reverse"])?;
    }
    if missed.is_empty() && !paths.is_empty() {
        println!("all of {} mistakes are found", paths.len());
        return Ok(());
    }
    Err(Failed(format!("the simulator does not find: {}", missed.join(", "))))
}

/// Tells if a simulator finds something wrong: in a history that was kept, or in a new one within a minute.
fn finds(program: &Path, tree: &Path) -> Result<bool, Failed> {
    let mut kept = Command::new(program);
    kept.arg("kept").arg(tree.join("simulator/seeds"));
    let mut new = Command::new(program);
    new.args(["run", "--enough", "1", "--seconds", &MISTAKE.to_string(), "--seed", &first_seed()?]);
    // Any other end is none of the simulator's.
    let has_found = |command: &mut Command| command.status().is_ok_and(|status| status.code() == Some(1));
    Ok(has_found(&mut kept) || has_found(&mut new))
}
