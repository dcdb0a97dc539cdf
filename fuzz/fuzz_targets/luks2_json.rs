//! The JSON of LUKS2 headers, wrapped into two whole copies so that every input gets to the
//! parser.
#![no_main]

use cryptline_fuzz::{Disk, luks2_with_json, use_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    if let Some(image) = luks2_with_json(json) {
        use_header(Disk::new(image, 64 << 20));
    }
});
