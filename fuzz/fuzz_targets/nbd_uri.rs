//! NBD URIs: what parses prints to a URI of the same meaning.
#![no_main]

use cryptline_nbd::NbdUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(uri) = text.parse::<NbdUri>() {
        let printed = uri.to_string();
        assert_eq!(printed.parse(), Ok(uri), "{printed}");
    }
});
