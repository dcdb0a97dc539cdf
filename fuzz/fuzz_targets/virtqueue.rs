//! Virtqueues, split and packed, whose driver writes whatever it likes wherever it likes: chains, indirect tables,
//! indices, and the buffer from which the next server goes on.
#![no_main]

use cryptline_serve::vhost_user::probe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| probe::exercise(data));
