//! What a tang server answers: HTTP, and the keys in it with their signatures.

/// Tries one input.
pub fn target(answer: &[u8]) {
    cryptline::fuzzing::tang_answer(answer);
}
