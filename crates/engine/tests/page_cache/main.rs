//! The whole stack over the page-cache model: what an OK flush or an OK durable write promised is
//! there afterwards, whatever the kernel, other programs and the power supply do meanwhile.
//!
//! A failure prints the shortest history that fails, and a seed: `CRYPTLINE_SEED=<seed>` runs the same
//! history again. `CRYPTLINE_CASES` sets how many histories each stack gets.

mod history;
mod promises;
mod stacks;
mod world;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cryptline_testkit::suite::{Watchdog, noise};
use history::History;
use world::Stack;

/// A broken promise: after how many histories it was found, and how it comes about.
struct Broken {
    count: usize,
    seed: u64,
    story: String,
}

/// Runs up to `cases` histories, the first of them that of `seed`. Else how many writes were promised.
fn hunt(stack: &Stack, seed: u64, cases: usize) -> Result<usize, Broken> {
    let scope = stack.scope();
    let mut kept = 0;
    let mut log = Vec::new();
    for count in 0..cases {
        let seed = match count {
            0 => seed,
            _ => noise(seed.wrapping_add(count as u64)),
        };
        let history = History::draw(seed, &scope);
        log.clear();
        match stack.run(&history, &mut log) {
            Ok(promised) => kept += promised,
            Err(_) => {
                let shortest =
                    history.shorten(|shorter| stack.run(shorter, &mut Vec::new()).is_err());
                log.clear();
                let wrong = stack.run(&shortest, &mut log);
                let wrong = wrong.err().unwrap_or("not every time".to_owned());
                return Err(Broken {
                    count: count + 1,
                    seed,
                    story: format!("{}\n{wrong}", log.join("\n")),
                });
            }
        }
    }
    Ok(kept)
}

/// Runs histories over a stack that must keep its promises.
fn keeps_its_promises(stack: &Stack, cases: usize) {
    let _watchdog = Watchdog::start(Duration::from_secs(230));
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("CRYPTLINE_SEED")
        .unwrap_or_else(|| noise(since.as_secs() ^ u64::from(since.subsec_nanos())));
    let cases = number("CRYPTLINE_CASES").map_or(cases, |cases| usize::try_from(cases).unwrap());
    match hunt(stack, seed, cases) {
        Ok(kept) => assert!(cases < 100 || kept > cases / 4, "nothing was promised"),
        Err(Broken { count, seed, story }) => {
            panic!("a promise was broken in history {count}, CRYPTLINE_SEED={seed}:\n{story}")
        }
    }
}

#[test]
fn file_through_the_cache() {
    keeps_its_promises(&stacks::file(false), 30_000);
}

#[test]
fn old_numbers() {
    use history::Habits;
    let quiet = Habits::QUIET;
    for (name, habits) in [
        (
            "item 1",
            Habits {
                durable: true,
                ..quiet
            },
        ),
        (
            "item 2",
            Habits {
                restless: true,
                foreign: true,
                ..quiet
            },
        ),
        (
            "overtaking",
            Habits {
                hasty: true,
                ..quiet
            },
        ),
        ("all", Habits::ALL),
    ] {
        let mut counts = Vec::new();
        for seed in 1..=5 {
            let mut stack = stacks::file(false);
            stack.habits = habits;
            match hunt(&stack, noise(seed), 30_000) {
                Ok(kept) => println!("{name}: none in 30000, kept {kept}"),
                Err(broken) => {
                    counts.push(broken.count);
                    if seed == 1 {
                        println!("{name}:\n{}\n", broken.story);
                    }
                }
            }
        }
        println!("{name}: {counts:?}");
    }
}
