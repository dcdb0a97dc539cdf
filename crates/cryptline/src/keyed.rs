//! A target with the key file that opens it: `TARGET?key-file=PATH`.
//!
//! It stands among the parameters of a part or of an NBD URI, if there are any. Bytes that would end it are
//! percent-encoded, as in any URI: `%26` for `&`, `%3F` for `?`, `%25` for `%`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::target::Target;

const KEY: &str = "key-file";

/// A target, and the file whose bytes are its passphrase.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// What is opened.
    pub of: Target,
    /// The key file.
    pub key_file: PathBuf,
    /// All of it as it was written, for messages.
    pub(crate) text: String,
}

impl fmt::Display for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `text` without its key file, and that; `None` where it has none.
///
/// `is_uri` says that others' parameters may stand among ours.
pub(crate) fn split(text: &str, is_uri: bool) -> Result<Option<(String, PathBuf)>, String> {
    let parts = if is_uri { text.split_once('?') } else { text.rsplit_once('?') };
    let Some((named, query)) = parts else {
        return Ok(None);
    };
    let value_of = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == KEY).then(|| value.to_owned())
    };
    let mut others = Vec::new();
    let mut found = None;
    for pair in query.split('&') {
        match value_of(pair) {
            None => others.push(pair),
            Some(value) if value.is_empty() => return Err(format!("{KEY} names no file")),
            Some(value) if found.is_none() => found = Some(value),
            Some(_) => return Err(format!("{KEY} is given twice; give it once")),
        }
    }
    let Some(value) = found else {
        return Ok(None);
    };
    let is_known = |pair: &&str| {
        let key = pair.split_once('=').map_or(*pair, |(key, _)| key);
        is_uri || ["partition", "offset", "length"].contains(&key)
    };
    if let Some(other) = others.iter().find(|pair| !is_known(pair)) {
        return Err(format!("unknown '{other}'; {KEY} stands beside ?partition=N or ?offset=SIZE&length=SIZE"));
    }
    let rest = match others.as_slice() {
        [] => named.to_owned(),
        others => format!("{named}?{}", others.join("&")),
    };
    let path = OsString::from_vec(percent_decode_str(&value).collect());
    Ok(Some((rest, path.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_is_split_from_what_it_opens() {
        for (text, is_uri, expected) in [
            ("a.img", false, None),
            ("a?b", false, None),
            ("a?partition=1", false, None),
            ("a.img?key-file=k", false, Some(("a.img", "k"))),
            ("a?b?key-file=/x/y", false, Some(("a?b", "/x/y"))),
            ("a?key-file=1%26%3f%25", false, Some(("a", "1&?%"))),
            ("a?partition=1&key-file=k", false, Some(("a?partition=1", "k"))),
            ("a?offset=1M&key-file=k&length=1M", false, Some(("a?offset=1M&length=1M", "k"))),
            ("nbd://h/e?key-file=k", true, Some(("nbd://h/e", "k"))),
            ("nbd+unix:///e?key-file=k&socket=/s", true, Some(("nbd+unix:///e?socket=/s", "k"))),
        ] {
            let expected = expected.map(|(rest, key)| (rest.to_owned(), PathBuf::from(key)));
            assert_eq!(split(text, is_uri), Ok(expected), "{text}");
        }
    }

    #[test]
    fn key_files_that_make_no_sense_are_refused() {
        for (query, what) in [
            ("key-file", "names no file"),
            ("key-file=", "names no file"),
            ("key-file=a&key-file=b", "given twice"),
            ("key-file=a&x=1", "unknown 'x=1'"),
        ] {
            let why = split(&format!("a?{query}"), false).unwrap_err();
            assert!(why.contains(what), "{query}: {why}");
        }
    }
}
