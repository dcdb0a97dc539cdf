//! Words and names in JSON that need not be UTF-8: text where they are, otherwise an array of their bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde::{Deserialize, Serialize};

/// A word as JSON has it.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum JsonWord {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<OsString> for JsonWord {
    fn from(word: OsString) -> Self {
        word.into_string().map_or_else(|word| Self::Bytes(word.into_vec()), Self::Text)
    }
}

impl From<JsonWord> for OsString {
    fn from(word: JsonWord) -> Self {
        match word {
            JsonWord::Text(text) => text.into(),
            JsonWord::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// Several of them, for serde.
pub mod names {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, JsonWord, OsString, Serialize};

    /// Writes them.
    pub fn serialize<S: Serializer>(names: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        names.iter().cloned().map(JsonWord::from).collect::<Vec<_>>().serialize(to)
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        Ok(Vec::<JsonWord>::deserialize(from)?.into_iter().map(OsString::from).collect())
    }
}

/// The name of a file, for serde.
pub mod name {
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    use super::{Deserialize, JsonWord, OsString, Serialize};

    /// Writes it.
    pub fn serialize<S: Serializer>(name: &Path, to: S) -> Result<S::Ok, S::Error> {
        JsonWord::from(name.as_os_str().to_owned()).serialize(to)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from(JsonWord::deserialize(from)?).into())
    }
}
