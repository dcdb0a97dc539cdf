//! Words, numbers and hexadecimal digits of a table line.

use std::fmt::Write as _;

use zeroize::Zeroizing;

/// Words of a line as the kernel splits them: a backslash takes the next character as it is.
pub(super) fn split_words(line: &str) -> Vec<Zeroizing<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(word_len(rest));
        words.push(unescape(word));
        rest = after.trim_start_matches(is_space);
    }
    words
}

/// Bytes up to the first white space that no backslash protects.
fn word_len(text: &str) -> usize {
    let mut protected = false;
    let end = text.char_indices().find(|&(_, character)| {
        let ends = !protected && is_space(character);
        protected = !protected && character == '\\';
        ends
    });
    end.map_or(text.len(), |(at, _)| at)
}

fn unescape(word: &str) -> Zeroizing<String> {
    // All its room at once, since a string that grows leaves copies of a key behind.
    let mut plain = Zeroizing::new(String::with_capacity(word.len()));
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.push(characters.next().unwrap_or('\\')),
            character => plain.push(character),
        }
    }
    plain
}

/// The inverse for one word.
pub(super) fn escape(word: &str) -> String {
    let special = |character: char| is_space(character) || character == '\\';
    let escaped = word.chars().map(|c| {
        if special(c) {
            format!("\\{c}")
        } else {
            c.to_string()
        }
    });
    escaped.collect()
}

/// `isspace` of C.
pub(super) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

pub(super) fn decode_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks_exact(2) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(bytes)
}

pub(super) fn encode_hex(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        let _ = write!(*text, "{byte:02x}");
    }
    text
}

/// Digits only: no sign, no space.
pub(super) fn parse_u64(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

pub(super) fn parse_u32(text: &str) -> Option<u32> {
    parse_u64(text).and_then(|value| u32::try_from(value).ok())
}
