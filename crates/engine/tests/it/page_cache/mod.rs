//! The page-cache model below devices that the simulator does not have, and answers of a kernel one by one. Histories of
//! files, mappings and the layers over them are the simulator's (`simulator/README.md`).
//!
//! A failure of `zoned` prints the shortest history that fails, and a seed: `CRYPTLINE_SEED=<seed>` runs the same
//! history again. `CRYPTLINE_CASES` sets another number of histories: 10,000 at night.

mod answers;
mod bed;
mod zoned;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cryptline_engine::dispatch::DispatchMode;
use cryptline_testkit::suite::{Watchdog, noise};

fn zones_keep_their_promises(mode: Option<DispatchMode>, usual: usize) {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let usual_seed = noise(since.as_secs() ^ u64::from(since.subsec_nanos()));
    let seed = number("CRYPTLINE_SEED").unwrap_or(usual_seed);
    let cases = number("CRYPTLINE_CASES").map_or(usual, |cases| usize::try_from(cases).expect("few"));
    let times = u32::try_from(cases.div_ceil(usual)).expect("few");
    let _watchdog = Watchdog::start(Duration::from_secs(200) * times);
    let kept = zoned::hunt(&zoned::Zoned::new(mode), seed, cases);
    let kept = kept.unwrap_or_else(|story| panic!("a promise was broken {story}"));
    assert!(cases < 100 || kept > cases / 4, "nothing was promised");
}

#[test]
fn zones_in_order() {
    zones_keep_their_promises(None, 1_000);
}

#[test]
fn zones_encrypted() {
    zones_keep_their_promises(Some(DispatchMode::Inline), 500);
}

#[test]
fn zones_encrypted_with_helpers() {
    zones_keep_their_promises(Some(DispatchMode::Auto), 400);
}
