//! Tokens of clevis: one byte that says how long the shares are that its pins give, the shares, and the JSON.

/// Tries one input.
pub fn target(input: &[u8]) {
    let Some((&len, rest)) = input.split_first() else {
        return;
    };
    let (share, token) = rest.split_at(rest.len().min(len.into()));
    if let Ok(token) = std::str::from_utf8(token) {
        cryptline::fuzzing::clevis_token(token, share);
    }
}
