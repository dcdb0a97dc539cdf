//! cryptsetup's command line, for programs that call it: by a link of that name, or with that name in front of it.
//!
//! ```text
//! line      options before or after the word, short or long ─► a word, its options and its places
//! words     what works on a header: the same verbs, with their options alone
//! mapping   open, close, status, resize: `attach`, with a link under /dev/mapper
//! texts     cryptsetup's sentences for what callers look for, and its exit codes
//! ```
//!
//! Another parser than that of the verbs, which have no options in front of them. What cannot be is refused by its
//! name, never passed over.

mod line;
mod mapping;
mod names;
mod texts;
mod words;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::harden::protect_process;
use crate::output;
use line::CryptsetupLine;

/// Name of the program that is answered for.
const NAME: &str = "cryptsetup";

/// Arguments behind the name, if this is a command line of cryptsetup's.
pub fn arguments(all: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = all.split_first()?;
    if Path::new(program).file_name() == Some(OsStr::new(NAME)) {
        return Some(rest.to_vec());
    }
    let (verb, rest) = rest.split_first()?;
    (verb == NAME).then(|| rest.to_vec())
}

/// Answers as cryptsetup does.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    protect_process();
    let line = match CryptsetupLine::parse(arguments) {
        Ok(line) => line,
        Err(refused) => {
            output::say_bare(&refused.to_string());
            return ExitCode::from(refused.exit_code());
        }
    };
    if line.has("version") {
        println_or_not(&format!("{NAME} 2.6.1 (cryptline {})", env!("CARGO_PKG_VERSION")));
        return ExitCode::SUCCESS;
    }
    if line.has("help") || line.has("usage") {
        println_or_not(texts::HELP);
        return ExitCode::SUCCESS;
    }
    let code = act(&line);
    if line.has("verbose") {
        println_or_not(&texts::ended(code));
    }
    code
}

fn act(line: &CryptsetupLine) -> ExitCode {
    let done = line.check().and_then(|()| match line.word() {
        "open" if !line.has("test-passphrase") => mapping::open(line),
        "close" => mapping::close(line),
        "status" => mapping::status(line),
        "resize" => mapping::resize(line),
        _ => words::run(line),
    });
    done.unwrap_or_else(|error| {
        output::say_bare(&texts::of(&error, line));
        ExitCode::from(texts::code_of(&error))
    })
}

/// A reader that is gone is no failure.
fn println_or_not(text: &str) {
    let _ = output::print(&format!("{text}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_answers_by_its_name_or_its_verb_alone() {
        let of = |line: &str| {
            let all: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            arguments(&all).map(|rest| rest.len())
        };
        assert_eq!(of("/usr/lib/cryptline/cryptsetup luksOpen d x"), Some(3));
        assert_eq!(of("cryptsetup"), Some(0));
        assert_eq!(of("cryptline cryptsetup -v isLuks d"), Some(3));
        assert_eq!(of("cryptline open cryptsetup"), None);
        assert_eq!(of("cryptline"), None);
    }
}
