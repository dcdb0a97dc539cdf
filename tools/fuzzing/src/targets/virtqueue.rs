//! Virtqueues, split and packed, whose driver writes whatever it likes wherever it likes: chains, indirect tables,
//! indices, and the buffer from which the next server goes on.

use cryptline_serve::vhost_user::probe;

/// Tries one input.
pub fn target(data: &[u8]) {
    probe::exercise(data);
}
