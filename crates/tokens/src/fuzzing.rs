//! Inputs of the fuzz targets: everything that a server, a TPM or a token's author can say, without them.

use std::collections::VecDeque;
use std::time::Instant;

use cryptline::SecretBuf;

use crate::{clevis, tpm};

/// An answer of a tang server that was asked for its keys.
pub fn tang_answer(answer: &[u8]) {
    clevis::advertised(answer);
}

/// A token of clevis, whose shares are these if it has any.
pub fn clevis_token(token: &str, share: &[u8]) {
    let Ok(share) = SecretBuf::copy_of(share) else {
        return;
    };
    clevis::opened_with(token, &share);
}

/// A token of a TPM that gives these replies; `pin` opens it.
pub fn tpm_replies(token: &str, pin: Option<&[u8]>, replies: Vec<Vec<u8>>) {
    let pin = pin.map(SecretBuf::copy_of).transpose();
    let mut line = ScriptedPeer(replies.into());
    tpm::opened_by(token, &mut line, pin.ok().flatten().as_ref());
}

/// The replies of a TPM that is to seal something.
pub fn tpm_seals(replies: Vec<Vec<u8>>) {
    tpm::sealed_by(&mut ScriptedPeer(replies.into()));
}

/// Says what it has to say, and then no more.
struct ScriptedPeer(VecDeque<Vec<u8>>);

impl tpm::TpmLink for ScriptedPeer {
    fn exchange(&mut self, _: &[u8], _: Instant) -> Result<Vec<u8>, String> {
        self.0.pop_front().ok_or_else(|| "no more".to_owned())
    }
}
