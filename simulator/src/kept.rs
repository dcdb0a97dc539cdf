//! Histories that once have found something, as short as they can be, and mistakes that are built in.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::history::{Careless, History};
use crate::{FAILED, kind, sim, workers};

/// Histories in which a mistake that is built in must show, at the latest.
const HISTORIES: u64 = 2_000;

/// A history with its cause.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    /// The commit that it belongs to: others may draw something else from its seed.
    pub commit: String,
    /// Findings.
    pub found: Vec<String>,
    pub history: History,
}

pub fn read(path: &Path) -> io::Result<Kept> {
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

/// Writes a history beside the caller. Its path.
pub fn keep(history: History, found: Vec<String>) -> io::Result<PathBuf> {
    let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = git.ok().and_then(|git| String::from_utf8(git.stdout).ok()).unwrap_or_default();
    let path = PathBuf::from(format!("{:016x}.json", history.seed));
    let kept = Kept { commit: commit.trim().to_owned(), found, history };
    std::fs::write(&path, serde_json::to_vec_pretty(&kept).map_err(io::Error::other)?)?;
    Ok(path)
}

/// Lets all happen that are kept in a folder.
pub fn look(folder: &str) -> ExitCode {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<_> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(why) => {
            eprintln!("simulator: {folder}: {why}; name the folder with histories that were kept");
            return ExitCode::from(2);
        }
    };
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    if paths.is_empty() {
        eprintln!("simulator: {folder} has no histories; name the folder with histories that were kept");
        return ExitCode::from(2);
    }
    let stage = workers::stage();
    let mut has_failed = false;
    for path in &paths {
        let kept = match read(path) {
            Ok(kept) => kept,
            Err(why) => {
                println!("{}: not understood: {why}", path.display());
                has_failed = true;
                continue;
            }
        };
        workers::note_current(kept.history.seed);
        for finding in stage.run(&kept.history).findings {
            println!("{} (kept at {}): {finding}", path.display(), kept.commit);
            has_failed = true;
        }
    }
    println!("{} histories that were kept", paths.len());
    if has_failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// Looks for each mistake that is built in, until it is found by the rule that it breaks.
pub fn find_careless() -> ExitCode {
    let stage = workers::stage();
    let mut is_blind = false;
    for (careless, rule) in Careless::ALL {
        let mut histories = (0..HISTORIES).map(|number| {
            let history = History::of(sim::mix(&[number, 200]));
            History { careless: Some(careless), faults: Default::default(), ..history }
        });
        let found = histories.position(|history| kind(&stage.run(&history)).as_deref() == Some(rule));
        match found {
            Some(count) => println!("{careless:?} is found by {rule} in history {}", count + 1),
            None => {
                println!("{careless:?} is not found by {rule} in {HISTORIES} histories");
                is_blind = true;
            }
        }
    }
    if is_blind { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}
