//! Words, numbers and hexadecimal digits of a table line.

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
    let escaped = word.chars().map(|c| if special(c) { format!("\\{c}") } else { c.to_string() });
    escaped.collect()
}

/// `isspace` of C.
pub(super) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// An odd last digit is ignored, as the kernel does.
pub(super) fn decode_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let len = text.len() / 2;
    let mut bytes = Zeroizing::new(vec![0; len]);
    base16ct::mixed::decode(&text.as_bytes()[..2 * len], &mut bytes).ok()?;
    Some(bytes)
}

pub(super) fn encode_hex(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(base16ct::lower::encode_string(bytes))
}

/// Digits only: no sign, no space.
pub(super) fn parse_u64(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

pub(super) fn parse_u32(text: &str) -> Option<u32> {
    parse_u64(text).and_then(|value| u32::try_from(value).ok())
}
