//! The whole stack over the page-cache model: what an OK flush or an OK durable write promised is
//! there afterwards, whatever the kernel, other programs and the power supply do meanwhile.
//!
//! A failure prints the shortest history that fails, and a seed: `CRYPTLINE_SEED=<seed>` runs the same
//! history again.
//!
//! A base gets 2,000 histories: the slowest of the mistakes that were made once needs 850 (`known_mistakes_are_found`
//! prints how many each takes). Layers over it get as many as are cheap, and 100 at least: a layer that drops the
//! durability of a write, or a flush of one of its devices, is found within 20. `CRYPTLINE_CASES` sets
//! another number for all: 10,000 at night.

mod answers;
mod careless;
mod history;
mod hunt;
mod promises;
mod stack;
mod stacks;
mod surround;
mod world;
mod zoned;

use std::time::{SystemTime, UNIX_EPOCH};

use careless::forgetful;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::Exclusion;
use cryptline_testkit::suite::devices::{
    AES_512, AES_512_SECOND, AES_4096, AUTO, CBC_4096, INLINE, QUEUE, QUEUE_FLAGS,
};
use cryptline_testkit::suite::noise;
use history::Habits;
use hunt::Broken;
use stack::Stack;

/// Lets histories happen to a stack.
fn hunt(stack: &Stack, seed: u64, cases: usize) -> Result<usize, Broken> {
    hunt::hunt(&stack.scope(), seed, cases, |history, log| stack.run(history, log))
}

fn usual_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    noise(since.as_secs() ^ u64::from(since.subsec_nanos()))
}

/// Runs histories over a stack that must keep its promises.
fn keeps_its_promises(stack: &Stack, cases: usize) {
    hunt::keeps_its_promises(cases, usual_seed(), |seed, cases| hunt(stack, seed, cases));
}

/// A test for each stack, and how many histories it gets.
macro_rules! promises_are_kept {
    ($($name:ident: $cases:expr, $stack:expr;)+) => { $(
        #[test]
        fn $name() {
            let stack: Option<Stack> = $stack.into();
            if let Some(stack) = stack {
                keeps_its_promises(&stack, $cases);
            }
        }
    )+ };
}

promises_are_kept! {
    file_through_the_cache: 2_000, stacks::file(Habits::ALL);
    file_of_one_patient_client: 2_000, stacks::file(Habits { durable: true, ..Habits::QUIET });
    file_of_one_hasty_client: 2_000, stacks::file(Habits { foreign: false, restless: false, ..Habits::ALL });
    file_that_others_sync: 2_000, stacks::file(Habits { hasty: false, ..Habits::ALL });
    file_whose_failures_only_the_gate_remembers: 2_000, forgetful();
    file_by_direct_io: 2_000, stacks::direct_file(Habits::ALL);
    file_by_direct_io_of_patient_clients: 2_000, stacks::direct_file(Habits { hasty: false, ..Habits::ALL });
    file_in_memory: 2_000, stacks::file_in_memory(Habits::ALL);
    file_in_memory_of_patient_clients: 2_000, stacks::file_in_memory(Habits { hasty: false, ..Habits::ALL });
    xts_in_512: 1_000, stacks::encrypted(&AES_512, 512, Exclusion::Shared, INLINE);
    xts_in_4096: 500, stacks::encrypted(&AES_4096, 4096, Exclusion::Shared, INLINE);
    xts_in_512_of_4096: 500, stacks::encrypted(&AES_4096, 512, Exclusion::Shared, INLINE);
    xts_with_helpers: 150, stacks::encrypted(&AES_512, 512, Exclusion::Shared, AUTO);
    xts_with_workers: 400, stacks::encrypted(&AES_512, 512, Exclusion::Shared, QUEUE);
    xts_with_bound_workers: 250, stacks::encrypted(&AES_512, 512, Exclusion::Shared, QUEUE_FLAGS);
    xts_with_holes: 500, stacks::sparse(&AES_512);
    cbc_in_4096: 500, stacks::encrypted(&CBC_4096, 4096, Exclusion::Shared, INLINE);
    cbc_with_helpers: 100, stacks::encrypted(&CBC_4096, 4096, Exclusion::Shared, AUTO);
    cbc_with_workers: 250, stacks::encrypted(&CBC_4096, 4096, Exclusion::Shared, QUEUE);
    cbc_in_512_of_4096: 250, stacks::encrypted(&CBC_4096, 512, Exclusion::Shared, INLINE);
    cbc_in_512_of_4096_exclusive: 150, stacks::encrypted(&CBC_4096, 512, Exclusion::Exclusive, INLINE);
    cbc_in_512_of_4096_with_helpers: 100, stacks::encrypted(&CBC_4096, 512, Exclusion::Shared, AUTO);
    linear_over_two_files: 1_000, stacks::linear(None, Habits::ALL);
    linear_over_two_files_of_patient_clients: 1_000, stacks::linear(None, Habits { hasty: false, ..Habits::ALL });
    linear_over_two_files_under_two_keys: 500, stacks::linear(Some([&AES_512, &AES_512_SECOND]), Habits::ALL);
    linear_of_two_keys_over_one_file: 500, stacks::two_keys(INLINE);
    linear_of_two_keys_with_workers: 250, stacks::two_keys(QUEUE);
    pmem: 500, stacks::pmem();
    btt_in_512: 50, stacks::btt(512);
    btt_in_4096: 50, stacks::btt(4096);
    cbc_in_1024_of_4096_with_workers: 150, stacks::encrypted(&CBC_4096, 1024, Exclusion::Shared, QUEUE);
}

fn zones_keep_their_promises(mode: Option<DispatchMode>, cases: usize) {
    let (seed, cases, _watchdog) = hunt::asked_for(cases, usual_seed());
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

#[test]
fn known_mistakes_are_found() {
    hunt::finds_known_mistakes(2_000, 20_000, |stack, cases| hunt(stack, noise(7), cases));
}
