//! The lines of the control protocol, for both sides: QEMU's QMP without its greeting. docs/control.md describes them.
//!
//! ```text
//! client  {"execute": "remove", "arguments": {"name": "data"}, "id": 1}
//! server  {"return": {"closed": true, "connections": 0}, "id": 1}
//!    or   {"error": {"class": "parameters", "desc": "there is no export \"data\""}, "id": 1}
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::CliError;
use crate::error::Kind;

/// Longest line that a server reads, in bytes.
pub const LINE_MAX: usize = 64 * 1024;
/// Most descriptors that come with a line.
pub const FILES_MAX: usize = 8;

/// Command of a client.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControlRequest {
    pub execute: String,
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// Comes back with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
}

/// Outcome of it: one of both.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ControlReply {
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub returned: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ControlFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
}

/// Why nothing did.
#[derive(Debug, Deserialize, Serialize)]
pub struct ControlFailure {
    /// The kind of failure, as exit codes tell it.
    pub class: String,
    pub desc: String,
}

/// Of `flush` and `resize`: one export, or all.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Whose {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Of `list` and `stats`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Of `remove`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    pub name: String,
    /// Its clients are made to leave.
    #[serde(default)]
    pub now: bool,
}

/// Of `add`, whose line brings two descriptors, the image and a pipe with the volume key, and perhaps a third, the lock
/// that keeps others from reencrypting it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Name of the image; nothing is opened by it.
    pub target: String,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub allow_discards: bool,
    /// Ciphers of the header that the client believes, having seen the key slot; the key alone proves none.
    #[serde(default)]
    pub accept_cipher: Vec<String>,
    /// Measurement of the header that the client has checked by its rules: the server must find the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_measure: Option<String>,
}

/// The kinds of failures by their names.
const CLASSES: [(&str, Kind); 5] = [
    ("parameters", Kind::Parameters),
    ("key", Kind::NoKey),
    ("memory", Kind::Memory),
    ("device", Kind::Device),
    ("busy", Kind::Busy),
];

impl ControlFailure {
    /// Returns what a client is told.
    pub fn of(error: &CliError) -> Self {
        let mut classes = CLASSES.iter();
        let class = classes.find(|(_, kind)| *kind == error.kind());
        Self { class: class.map_or("device", |(class, _)| class).to_owned(), desc: error.to_string() }
    }

    /// Returns what it is at the client.
    pub fn into_error(self) -> CliError {
        let mut classes = CLASSES.iter();
        let kind = classes.find(|(class, _)| *class == self.class);
        CliError::new(kind.map_or(Kind::Device, |(_, kind)| *kind), self.desc)
    }
}

/// Returns what a line or its arguments say. No array does for an object.
///
/// # Errors
/// Description of what is wrong with it.
pub fn parse<T: for<'de> Deserialize<'de>>(line: &[u8]) -> serde_json::Result<T> {
    let members: Map<String, Value> = serde_json::from_slice(line)?;
    serde_json::from_value(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_kind_on_the_way() {
        for (_, kind) in CLASSES {
            let there = ControlFailure::of(&CliError::new(kind, "why"));
            let here = there.into_error();
            assert_eq!((here.kind(), here.to_string()), (kind, "why".to_owned()));
        }
        let other = ControlFailure { class: "of a later version".to_owned(), desc: String::new() };
        assert_eq!(other.into_error().kind(), Kind::Device);
    }

    #[test]
    fn requests_are_objects_with_known_members() {
        let read = |line: &str| parse::<ControlRequest>(line.as_bytes());
        let whole = read(r#"{"execute": "list", "arguments": {}, "id": [1]}"#).unwrap();
        assert_eq!((whole.execute.as_str(), whole.id.is_some()), ("list", true));
        assert!(read(r#"{"execute": "list"}"#).unwrap().id.is_none());
        for wrong in [
            "",
            "list",
            "[\"list\", {}, 1]",
            "{\"execute\": 1}",
            "{\"execute\": \"list\", \"exec\": 1}",
            "{\"execute\": \"list\", \"arguments\": []}",
            "{\"execute\": \"list\"} {}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read(&"[".repeat(LINE_MAX)).is_err());
    }
}
