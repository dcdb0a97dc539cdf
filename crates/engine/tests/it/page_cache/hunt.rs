//! The search for a history that breaks a promise.

use cryptline_testkit::suite::noise;

use super::history::{History, Scope};

/// A broken promise: after how many histories it was found, and how it comes about.
pub struct Broken {
    pub count: usize,
    pub seed: u64,
    pub story: String,
}

/// Runs up to `cases` histories, the first of them that of `seed`. Else how many writes were promised.
///
/// `run` lets a history happen and tells so many, or which promise was broken.
pub fn hunt(
    scope: &Scope,
    seed: u64,
    cases: usize,
    run: impl Fn(&History, &mut Vec<String>) -> Result<usize, String>,
) -> Result<usize, Broken> {
    let mut kept = 0;
    let mut log = Vec::new();
    for count in 0..cases {
        let seed = seed_of(seed, count);
        let history = History::draw(seed, scope);
        log.clear();
        match run(&history, &mut log) {
            Ok(promised) => kept += promised,
            Err(_) => {
                let shortest = history.shorten(|shorter| run(shorter, &mut Vec::new()).is_err());
                log.clear();
                let wrong = run(&shortest, &mut log);
                let wrong = wrong.err().unwrap_or("not every time".to_owned());
                return Err(Broken { count: count + 1, seed, story: format!("{}\n{wrong}", log.join("\n")) });
            }
        }
    }
    Ok(kept)
}

/// The first history is that of the seed itself.
pub fn seed_of(seed: u64, count: usize) -> u64 {
    match count {
        0 => seed,
        _ => noise(seed.wrapping_add(count as u64)),
    }
}
