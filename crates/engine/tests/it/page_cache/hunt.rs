//! The search for a history that breaks a promise.

use std::time::Duration;

use cryptline_testkit::suite::{Watchdog, noise};

use super::careless::{Mistake, careless};
use super::history::{Habits, History, Scope};
use super::stack::Stack;

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

/// The seed, and the number of histories, that the environment asks for; and what ends the test where they hang.
pub fn asked_for(usual: usize, usual_seed: u64) -> (u64, usize, Watchdog) {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let seed = number("CRYPTLINE_SEED").unwrap_or(usual_seed);
    let cases = number("CRYPTLINE_CASES").map_or(usual, |cases| usize::try_from(cases).expect("few"));
    let times = u32::try_from(cases.div_ceil(usual)).expect("few");
    (seed, cases, Watchdog::start(Duration::from_secs(200) * times))
}

/// Runs so many histories over a stack that must keep its promises, and judges how `hunt` ends.
pub fn keeps_its_promises(cases: usize, usual_seed: u64, hunt: impl FnOnce(u64, usize) -> Result<usize, Broken>) {
    let (seed, cases, _watchdog) = asked_for(cases, usual_seed);
    match hunt(seed, cases) {
        Ok(kept) => assert!(cases < 100 || kept > cases / 4, "nothing was promised"),
        Err(Broken { count, seed, story }) => {
            panic!("a promise was broken in history {count}, CRYPTLINE_SEED={seed}:\n{story}")
        }
    }
}

/// The histories would see each mistake that was made once, in `most`; and see none in `few` where there is none.
pub fn finds_known_mistakes(few: usize, most: usize, hunt: impl Fn(&Stack, usize) -> Result<usize, Broken>) {
    let _watchdog = Watchdog::start(Duration::from_secs(200));
    let quiet = Habits::QUIET;
    for (mistake, habits) in [
        (Mistake::ForgivesNoSpace, Habits { durable: true, ..quiet }),
        (Mistake::AsksItsOwnFileOnly, Habits { restless: true, foreign: true, ..quiet }),
        (Mistake::BelievesTheFirst, Habits { hasty: true, ..quiet }),
        (Mistake::FlushesNothing, quiet),
        (Mistake::BelievesTheNext, quiet),
    ] {
        let over = |mistake| Stack { habits, ..careless(mistake) };
        let kept = hunt(&over(Mistake::None), few);
        let kept = kept.unwrap_or_else(|broken| panic!("{habits:?}:\n{}", broken.story));
        assert!(kept > few / 2, "{habits:?}: only {kept} writes were promised");
        let Err(broken) = hunt(&over(mistake), most) else { panic!("{mistake:?} was not found") };
        println!("{mistake:?} after {} histories:\n{}\n", broken.count, broken.story);
    }
}

/// The first history is that of the seed itself.
pub fn seed_of(seed: u64, count: usize) -> u64 {
    match count {
        0 => seed,
        _ => noise(seed.wrapping_add(count as u64)),
    }
}
