//! Comparison of JSON with what comes of it when it is parsed and written again.

/// A piece of JSON between white space.
#[derive(PartialEq, Eq)]
enum JsonToken<'a> {
    /// A bracket, comma or colon; a number or word, character for character.
    Bare(&'a str),
    /// A string, whatever of it is escaped.
    Text(String),
}

/// Tells if both texts have the same tokens: no number was rounded, nothing that was named twice was lost.
pub(super) fn says_the_same(text: &str, other: &str) -> bool {
    match (tokens(text), tokens(other)) {
        (Some(tokens), Some(others)) => tokens == others,
        _ => false,
    }
}

/// `None` for what is no JSON.
fn tokens(text: &str) -> Option<Vec<JsonToken<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' => string_len(rest)?,
            '{' | '}' | '[' | ']' | ',' | ':' => 1,
            _ => rest.find(|c: char| c.is_whitespace() || "{}[],:\"".contains(c)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(len);
        tokens.push(match first {
            '"' => JsonToken::Text(serde_json::from_str(token).ok()?),
            _ => JsonToken::Bare(token),
        });
        rest = after.trim_start();
    }
    Some(tokens)
}

/// Bytes of the string that `text` begins with, quotation marks included.
fn string_len(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> bool {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        says_the_same(text, &value.to_string())
    }

    #[test]
    fn spaces_and_escapes_may_differ() {
        assert!(kept(r#"{ "a" : [1, -2, "x\/y\u00e4\"", true, null, 1.5] }"#));
    }

    #[test]
    fn numbers_that_are_rounded_and_names_given_twice_are_found() {
        assert!(!kept(r#"{"a":123456789012345678901234567890}"#));
        assert!(!kept(r#"{"a":1e2}"#));
        assert!(!kept(r#"{"a":1,"a":2}"#));
    }
}
