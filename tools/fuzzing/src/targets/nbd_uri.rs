//! NBD URIs: what parses prints to a URI of the same meaning.

use cryptline_nbd::NbdUri;

/// Tries one input.
pub fn target(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(uri) = text.parse::<NbdUri>() {
        let printed = uri.to_string();
        assert_eq!(printed.parse(), Ok(uri), "{printed}");
    }
}
