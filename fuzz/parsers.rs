//! All targets in one program: `FUZZ_TARGET` says which one runs.
#![no_main]

use std::sync::LazyLock;

use cryptline_fuzzing::targets::TARGETS;
use libfuzzer_sys::fuzz_target;

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let chosen = TARGETS.iter().find(|(target, _)| *target == name);
    chosen.unwrap_or_else(|| panic!("FUZZ_TARGET={name} is not the name of a target")).1
});

fuzz_target!(|data: &[u8]| CHOSEN(data));
