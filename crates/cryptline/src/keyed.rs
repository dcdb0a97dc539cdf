//! A target with what opens it: `TARGET?key-file=PATH`, `TARGET?passphrase-command=CMD`, `TARGET?accept-cipher=SPEC`; and
//! rules for its header, such as `TARGET?require-signed-header&header-policy=PATH`.
//!
//! They stand among the parameters of a part or of an NBD URI, if there are any. Bytes that would end them are
//! percent-encoded, as in any URI: `%26` for `&`, `%3F` for `?`, `%25` for `%`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::rules::HeaderRules;
use crate::target::Target;

const KEY: &str = "key-file";
const COMMAND: &str = "passphrase-command";
const ACCEPT: &str = "accept-cipher";

/// A target, and what it is opened with.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// Target to open.
    pub of: Target,
    /// The key file, whose bytes are the passphrase.
    pub key_file: Option<PathBuf>,
    /// The command that prints the passphrase. Nothing here runs it: that is for a program whose user has typed it.
    pub passphrase_command: Option<String>,
    /// Ciphers that are accepted, though nothing vouches for them ([`accept_cipher`](crate::Open::accept_cipher)).
    pub accepted_ciphers: Vec<String>,
    /// Rules for its header.
    pub rules: HeaderRules,
    /// All of it as it was written, for messages.
    pub(crate) text: String,
}

impl fmt::Display for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parameters of a target that it is opened with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct With {
    key_file: Option<PathBuf>,
    passphrase_command: Option<String>,
    accepted_ciphers: Vec<String>,
    rules: HeaderRules,
}

impl With {
    /// Returns the parameters together with the target that they open. `text` is all of it as it was written.
    pub fn of(self, of: Target, text: String) -> Target {
        let Self { key_file, passphrase_command, accepted_ciphers, rules } = self;
        Target::Keyed(Box::new(Keyed { of, key_file, passphrase_command, accepted_ciphers, rules, text }))
    }

    /// Takes a parameter, if it is one of these.
    fn take(&mut self, pair: &str) -> Result<bool, String> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = || percent_decode_str(value).collect::<Vec<u8>>();
        match key {
            KEY if value.is_empty() => Err(format!("{KEY} names no file")),
            KEY | COMMAND if self.key_file.is_some() || self.passphrase_command.is_some() => {
                Err(format!("{KEY} and {COMMAND} are one key, which is given twice; use it once"))
            }
            KEY => {
                self.key_file = Some(OsString::from_vec(decoded()).into());
                Ok(true)
            }
            COMMAND => match String::from_utf8(decoded()) {
                Ok(line) if !line.trim().is_empty() => {
                    self.passphrase_command = Some(line);
                    Ok(true)
                }
                _ => Err(format!("{COMMAND} names no command")),
            },
            ACCEPT => match String::from_utf8(decoded()) {
                Ok(word) if !word.is_empty() => {
                    self.accepted_ciphers.push(word);
                    Ok(true)
                }
                _ => Err(format!("{ACCEPT} names no cipher")),
            },
            _ => self.rules.take(key, &decoded()),
        }
    }
}

/// `text` without what it is opened with, and that; `None` where it has nothing such.
///
/// `is_uri` says that others' parameters may stand among ours.
pub(crate) fn split(text: &str, is_uri: bool) -> Result<Option<(String, With)>, String> {
    let parts = if is_uri { text.split_once('?') } else { text.rsplit_once('?') };
    let Some((named, query)) = parts else {
        return Ok(None);
    };
    let mut others = Vec::new();
    let mut with = With::default();
    for pair in query.split('&') {
        if !with.take(pair)? {
            others.push(pair);
        }
    }
    if with == With::default() {
        return Ok(None);
    }
    let is_known = |pair: &&str| {
        let key = pair.split_once('=').map_or(*pair, |(key, _)| key);
        is_uri || ["partition", "offset", "length"].contains(&key)
    };
    if let Some(other) = others.iter().find(|pair| !is_known(pair)) {
        let ours = match &with {
            With { key_file: Some(_), .. } => KEY,
            With { passphrase_command: Some(_), .. } => COMMAND,
            With { rules, .. } if !rules.is_empty() => "a rule for the header",
            _ => ACCEPT,
        };
        return Err(format!("unknown '{other}'; {ours} stands beside ?partition=N or ?offset=SIZE&length=SIZE"));
    }
    let rest = match others.as_slice() {
        [] => named.to_owned(),
        others => format!("{named}?{}", others.join("&")),
    };
    Ok(Some((rest, with)))
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
            let with = |key: &str| With { key_file: Some(key.into()), ..With::default() };
            let expected = expected.map(|(rest, key)| (rest.to_owned(), with(key)));
            assert_eq!(split(text, is_uri), Ok(expected), "{text}");
        }
    }

    #[test]
    fn accepted_ciphers_are_split_from_what_they_are_accepted_of() {
        for (text, rest, key_file, ciphers) in [
            ("a?accept-cipher=aes-cbc-essiv:sha256", "a", None, &["aes-cbc-essiv:sha256"][..]),
            ("a?accept-cipher=x&partition=1&accept-cipher=y%26&key-file=k", "a?partition=1", Some("k"), &["x", "y&"]),
        ] {
            let (found, with) = split(text, false).unwrap().unwrap();
            assert_eq!(found, rest);
            assert_eq!(with.key_file, key_file.map(PathBuf::from));
            assert_eq!(with.accepted_ciphers, ciphers);
        }
    }

    #[test]
    fn passphrase_command_is_split_from_what_it_opens() {
        let (rest, with) = split("a?partition=1&passphrase-command=pass show 'x' %26%26 true", false).unwrap().unwrap();
        assert_eq!(rest, "a?partition=1");
        assert_eq!(with.passphrase_command.as_deref(), Some("pass show 'x' && true"));
    }

    #[test]
    fn key_files_that_make_no_sense_are_refused() {
        for (query, what) in [
            ("key-file", "names no file"),
            ("key-file=", "names no file"),
            ("key-file=a&key-file=b", "given twice"),
            ("key-file=a&x=1", "unknown 'x=1'; key-file"),
            ("accept-cipher=a&x=1", "unknown 'x=1'; accept-cipher"),
            ("accept-cipher", "names no cipher"),
            ("accept-cipher=%ff", "names no cipher"),
            ("passphrase-command=%20", "names no command"),
            ("passphrase-command=a&key-file=b", "given twice"),
            ("passphrase-command=a&x=1", "unknown 'x=1'; passphrase-command"),
        ] {
            let why = split(&format!("a?{query}"), false).unwrap_err();
            assert!(why.contains(what), "{query}: {why}");
        }
    }
}
