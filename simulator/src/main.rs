//! A deterministic simulator of the whole server: histories that seeds choose, each rule looked at, what fails shortened.
//!
//! ```text
//! simulator run [--seconds N] [--seed S] [--histories N] [--enough N] [--points]    new histories, on all processors;
//!                                                           and what they have reached, which must be everything
//! simulator replay SEED                                     one, with what happened in it, as short as it can be
//! simulator replay FILE                                     the same, of a history that was kept
//! simulator kept FOLDER                                     whether nothing is wrong in all that were kept
//! simulator careless                                        whether mistakes that are built in are found
//! simulator likeness                                        whether its sockets are like the system's
//! ```

mod actor;
mod audit;
mod below;
mod cells;
mod control;
mod copy;
mod disks;
mod guest;
mod history;
mod judge;
mod kept;
mod likeness;
mod machine_server;
mod media;
mod mount;
mod nbd_client;
mod nbd_server;
mod operator;
mod points;
mod program;
mod rbd;
mod run;
mod serving;
mod shrink;
mod sim;
mod stack;
mod under;
mod workers;
mod world;

use std::process::ExitCode;

use history::History;
use run::Outcome;

#[global_allocator]
static HEAP: sim::Heap = sim::Heap::new();

/// Exit codes of a worker: a history has failed; the simulation came to an end in itself.
const FAILED: u8 = 1;
const DIED: i32 = 3;

/// Ends the process, of which nothing more can be expected.
pub fn die(why: &str) -> ! {
    sim::bypass(|| {
        if workers::tells_all() {
            world::last_words().iter().for_each(|line| println!("{line}"));
        }
        println!("failed {} {}", workers::current(), why.replace('\n', "\\n"));
        std::process::exit(DIED)
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", options @ ..] => workers::run(options),
        ["worker", first, step, seconds, most] => workers::work(first, step, seconds, most),
        ["replay", what] => replay(what),
        ["kept", folder] => kept::look(folder),
        ["careless"] => kept::find_careless(),
        ["likeness"] => likeness::compare(),
        _ => {
            eprintln!(
                "usage: simulator run [--seconds N] [--seed S] [--histories N] [--enough N] [--points] | replay SEED|FILE | kept FOLDER | careless | likeness"
            );
            ExitCode::from(2)
        }
    }
}

/// The rule that the first finding is about: two findings are the same by that.
fn kind(outcome: &Outcome) -> Option<String> {
    outcome.findings.first().map(|finding| finding.split(':').next().unwrap_or_default().to_owned())
}

fn replay(what: &str) -> ExitCode {
    let history = match workers::number(what) {
        Some(seed) => History::of(seed),
        None => match kept::read(what.as_ref()) {
            Ok(kept) => kept.history,
            Err(why) => {
                eprintln!("simulator: {what:?} is neither a seed nor a history that was kept: {why}");
                return ExitCode::from(2);
            }
        },
    };
    let stage = workers::stage();
    workers::note_current(history.seed);
    let outcome = stage.run(&history);
    let Some(found) = kind(&outcome) else {
        println!("seed {:#x}: nothing is wrong; hash {:#018x}, {:?}", history.seed, outcome.hash, outcome.lasted);
        return ExitCode::SUCCESS;
    };
    if outcome.is_spoilt {
        outcome.log.iter().chain(&outcome.findings).for_each(|line| println!("{line}"));
        return ExitCode::from(FAILED);
    }
    let history = shrink::shortest(history, |history| kind(&stage.run(history)).as_ref() == Some(&found));
    let outcome = stage.run(&history);
    println!("{}\n", shrink::tell(&history));
    outcome.log.iter().for_each(|line| println!("{line}"));
    println!();
    outcome.findings.iter().for_each(|line| println!("{line}"));
    match kept::keep(history, outcome.findings) {
        Ok(path) => println!("\nkept as {}", path.display()),
        Err(why) => eprintln!("simulator: the history cannot be kept: {why}"),
    }
    ExitCode::from(FAILED)
}
