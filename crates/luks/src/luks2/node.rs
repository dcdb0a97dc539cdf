//! JSON values that know their path, so that an error says where it is.

use base64ct::{Base64, Encoding};
use serde_json::{Map, Value};

use crate::error::quote;

/// Deepest nesting of the JSON (json-c's own limit, which cryptsetup inherits).
const DEPTH_MAX: usize = 32;

/// A value and the way to it, for example `keyslots.0.area.offset`.
#[derive(Clone, Debug)]
pub(crate) struct JsonNode<'a> {
    path: String,
    value: &'a Value,
}

/// Description of a defect, with the path.
pub(crate) type Reason = String;

/// Parses the JSON area of a header copy: one object, zero-terminated, then only zeros. What is no UTF-8 in it, as other
/// programs write it into tokens, is replaced: whoever writes the JSON back must keep the bytes.
pub(crate) fn parse_area(area: &[u8]) -> Result<Value, Reason> {
    let Some(end) = area.iter().position(|&byte| byte == 0) else {
        return Err("the JSON area has no terminating zero".into());
    };
    let (json, rest) = area.split_at(end);
    if rest.iter().any(|&byte| byte != 0) {
        return Err("the JSON area has other bytes after the JSON".into());
    }
    if json.first() != Some(&b'{') {
        return Err("the JSON does not start with '{'".into());
    }
    let json = String::from_utf8_lossy(json);
    if depth(&json) > DEPTH_MAX {
        return Err(format!("the JSON is nested deeper than {DEPTH_MAX}"));
    }
    serde_json::from_str(&json).map_err(|error| format!("the JSON is malformed: {error}"))
}

/// Deepest nesting of brackets outside strings.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl<'a> JsonNode<'a> {
    pub fn root(value: &'a Value) -> Self {
        let path = String::new();
        Self { path, value }
    }

    /// A reason that starts with the path.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Reason {
        let path = if self.path.is_empty() { "JSON" } else { &self.path };
        format!("{path}: {what}")
    }

    pub fn get(&self, key: &str) -> Result<Self, Reason> {
        self.find(key)?.ok_or_else(|| self.wrong(format_args!("no \"{key}\"")))
    }

    /// The member `key`, if there is one. Fails when this is no object.
    pub fn find(&self, key: &str) -> Result<Option<Self>, Reason> {
        Ok(self.object()?.get(key).map(|value| self.child(key, value)))
    }

    /// The members of an object whose keys are the numbers 0 to `max - 1`, in their order.
    pub fn numbered(&self, max: u32) -> Result<Vec<(u32, Self)>, Reason> {
        let mut members = Vec::new();
        for (key, value) in self.object()? {
            let number =
                number(key, max).ok_or_else(|| self.wrong(format_args!("{} is no valid number", quote(key))))?;
            members.push((number, self.child(key, value)));
        }
        members.sort_by_key(|&(number, _)| number);
        Ok(members)
    }

    /// An array of the numbers of existing things, as strings, each once.
    pub fn references(&self, exists: impl Fn(u32) -> bool) -> Result<Vec<u32>, Reason> {
        let numbers = self.mentions(exists)?;
        let twice = |(index, number): (usize, &u32)| numbers[..index].contains(number);
        if numbers.iter().enumerate().any(twice) {
            return Err(self.wrong("something is named twice"));
        }
        Ok(numbers)
    }

    /// An array of the numbers of existing things, as strings.
    pub fn mentions(&self, exists: impl Fn(u32) -> bool) -> Result<Vec<u32>, Reason> {
        let known = |text: &&str| number(text, u32::MAX).filter(|&number| exists(number));
        let numbers = self
            .strings()?
            .into_iter()
            .map(|text| known(&text).ok_or_else(|| self.wrong(format_args!("{} does not exist", quote(text)))));
        numbers.collect()
    }

    /// Tells if this is an object whose member `key` is this text.
    pub fn says(&self, key: &str, text: &str) -> bool {
        self.value.get(key).and_then(Value::as_str) == Some(text)
    }

    /// An array of strings.
    pub fn strings(&self) -> Result<Vec<&'a str>, Reason> {
        let array = self.value.as_array().ok_or_else(|| self.wrong("not an array"))?;
        let strings = array.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
        strings.ok_or_else(|| self.wrong("not an array of strings"))
    }

    /// A string that is not empty.
    pub fn string(&self) -> Result<&'a str, Reason> {
        self.value.as_str().filter(|text| !text.is_empty()).ok_or_else(|| self.wrong("not a string, or an empty one"))
    }

    /// A JSON number that fits 32 bits.
    pub fn u32(&self) -> Result<u32, Reason> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.wrong("not a number from 0 to 4294967295"))
    }

    /// A 64-bit number, which LUKS2 keeps as a string of decimal digits.
    pub fn u64(&self) -> Result<u64, Reason> {
        let text = self.value.as_str().unwrap_or("");
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| self.wrong("not a string with a 64-bit decimal number"))
    }

    pub fn base64(&self) -> Result<Vec<u8>, Reason> {
        Base64::decode_vec(self.string()?).map_err(|_| self.wrong("not base64"))
    }

    fn object(&self) -> Result<&'a Map<String, Value>, Reason> {
        self.value.as_object().ok_or_else(|| self.wrong("not an object"))
    }

    fn child(&self, key: &str, value: &'a Value) -> Self {
        let path = match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        Self { path, value }
    }
}

/// A decimal number below `max`, without sign or leading zeros.
fn number(text: &str, max: u32) -> Option<u32> {
    let number: u32 = text.parse().ok().filter(|&number| number < max)?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_are_no_nesting() {
        assert_eq!(depth(r#"{"[[\"[[":[{}]}"#), 3);
    }

    #[test]
    fn deep_json_is_refused_without_recursion() {
        let mut area = b"{\"a\":".to_vec();
        area.extend(vec![b'['; 1 << 20]);
        area.push(0);
        assert!(parse_area(&area).unwrap_err().contains("deeper than 32"));
    }

    #[test]
    fn json_that_is_not_utf8_can_be_read() {
        let json = parse_area(b"{\"a\":\"caf\xe9\"}\0").unwrap();
        assert_eq!(json["a"], "caf\u{fffd}");
    }

    #[test]
    fn only_plain_decimal_numbers_are_ids() {
        assert_eq!(number("31", 32), Some(31));
        for text in ["32", "-1", "+1", "01", "", " 1", "0x1"] {
            assert_eq!(number(text, 32), None, "{text}");
        }
    }
}
