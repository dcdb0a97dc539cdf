//! Replies of a TPM: one byte that says what it is asked for, and replies with their lengths in front. Without the key
//! of the session, nothing that it can say is a secret; so what is done behind the check of an HMAC is not reached.

/// As systemd and `token bind` write them; the second has a PIN, the third a key that stays in the TPM.
const TOKENS: [&str; 4] = [
    include_str!("../tokens/plain.json"),
    include_str!("../tokens/pin.json"),
    include_str!("../tokens/stays.json"),
    include_str!("../tokens/rsa.json"),
];
/// Other requests: to seal something, or with a token that comes first in the replies.
const SEAL: u8 = 4;

/// Tries one input.
pub fn target(input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else {
        return;
    };
    let mut replies = replies(rest);
    match (what, TOKENS.get(usize::from(what))) {
        (_, Some(token)) => cryptline_tokens::fuzzing::tpm_replies(token, Some(b"1234"), replies),
        (SEAL, None) => cryptline_tokens::fuzzing::tpm_seals(replies),
        (_, None) if !replies.is_empty() => {
            let token = String::from_utf8_lossy(&replies.remove(0)).into_owned();
            cryptline_tokens::fuzzing::tpm_replies(&token, None, replies);
        }
        _ => {}
    }
}

fn replies(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut replies = Vec::new();
    while let Some((len, rest)) = input.split_at_checked(2) {
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        let (reply, rest) = rest.split_at(rest.len().min(len));
        replies.push(reply.to_vec());
        input = rest;
    }
    replies
}
