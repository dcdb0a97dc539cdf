//! One text for each JSON value, as RFC 8785 has it, of what a header may say: ASCII names, and integers that every program
//! reads alike.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::quote;

/// Integers above this are not the same number in every program.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The canonical text of `value`; or why it has none.
pub(super) fn text_of(value: &Value) -> Result<String, String> {
    let mut text = String::new();
    write(value, &mut text)?;
    Ok(text)
}

/// Recursive: what has been read is nested no deeper than headers may be.
fn write(value: &Value, out: &mut String) -> Result<(), String> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_none_or(|size| size > INTEGER_MAX) {
                return Err(format!("the number {} is no integer below 2^53", quote(&number.to_string())));
            }
            out.push_str(&number.to_string());
        }
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(value, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            if let Some(name) = members.keys().find(|name| !name.is_ascii()) {
                return Err(format!("the name {} is not ASCII", quote(name)));
            }
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// Tells if `json` says only one thing: it is UTF-8, and no object has a name twice, of which programs would take one or
/// the other. What is no JSON is no matter of this.
pub(crate) fn is_unambiguous(json: &[u8]) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(json);
    match Once.deserialize(&mut reader) {
        Ok(()) => true,
        Err(error) => !error.is_data() && std::str::from_utf8(json).is_ok(),
    }
}

/// Reads a value, and refuses a name that an object has already.
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(Once)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("a name twice"));
            }
            members.next_value_seed(Once)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(json: &str) -> Result<String, String> {
        text_of(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn order_spaces_and_escapes_make_no_difference() {
        let one = canonical(r#"{ "b" : [1, -2, true, null], "a\u0062" : "\u00e9\/\u0001\b\u007f\"" }"#).unwrap();
        assert_eq!(one, "{\"ab\":\"é/\\u0001\\b\u{7f}\\\"\",\"b\":[1,-2,true,null]}");
        assert_eq!(canonical(&one).unwrap(), one);
    }

    #[test]
    fn numbers_and_names_that_programs_read_differently_have_no_canonical_form() {
        for json in ["1.5", "1e2", "[1.0]", "9007199254740992", "-9007199254740992", "-0", r#"{"é":1}"#] {
            canonical(json).unwrap_err();
        }
        for json in ["9007199254740991", "-9007199254740991"] {
            assert_eq!(canonical(json).unwrap(), json);
        }
    }

    #[test]
    fn names_given_twice_are_found_however_they_are_written() {
        for json in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#, "{\"a\":\"\u{0}\"}", "{}"] {
            let doubled = json.matches('a').count() + json.matches("u0061").count() > 1;
            assert_eq!(is_unambiguous(json.as_bytes()), !doubled, "{json}");
        }
        assert!(!is_unambiguous(b"{\"a\":\"caf\xe9\"}"));
    }
}
