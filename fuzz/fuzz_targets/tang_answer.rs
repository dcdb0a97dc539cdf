//! What a tang server answers: HTTP, and the keys in it with their signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| cryptline::fuzzing::tang_answer(answer));
