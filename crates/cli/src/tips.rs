//! Tips for a command line that is wrong: for words of other programs, and none that destroys anything.
//!
//! Clap proposes whatever looks alike. For `decrypt` that is `encrypt`, for `luksClose` it is `luksKillSlot`, and for
//! `--fork` it is `--force`: a tip that is followed without a thought must cost nobody a disk.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::verb;

/// Words of cryptsetup's after which something is gone, beside the verbs whose rows say so.
const DESTROYING_WORDS: &[&str] = &["luksFormat", "luksKillSlot"];
/// Options that overwrite, cut short or ask no more.
const DESTROYING_OPTIONS: &[&str] = &["--force", "--shrink", "--replace", "--token-replace", "--batch-mode", "--lazy"];
/// Words that people type because another program has them, with what to do here.
const ANSWERS: &[(&[&str], &str)] = &[
    (
        &["decrypt"],
        "`cryptline copy DISK OUT.raw` writes the decrypted disk to a file; `cryptline serve` and `cryptline mount` \
         give it to programs without a copy",
    ),
    (
        &["reencrypt", "luksReencrypt"],
        "cryptline does not encrypt a volume again in place; `cryptline copy OLD NEW --encrypt` makes a new one under a new key",
    ),
    (
        &["close", "luksClose", "remove", "stop"],
        "`cryptline detach` removes a block device or ends a mount, and a signal (SIGTERM) stops any other server",
    ),
    (
        &["status", "list", "ps"],
        "`cryptline devices` lists block devices, `cryptline ctl SOCKET list` the exports of a server, and \
         `cryptline top SOCKET` shows what they do",
    ),
    (
        &["luksSuspend", "luksResume"],
        "cryptline does not suspend a volume; end its server (`cryptline detach`, SIGTERM), which forgets the key, and \
         start it again",
    ),
    (&["refresh"], "what a server does is set when it starts; stop it and start it again with other options"),
    (&["dump"], "`cryptline info` shows a header, `cryptline luksDump` in cryptsetup's words"),
    (&["format", "mkfs"], "`cryptline create` makes a volume"),
    (&["luksConvert"], "`cryptline header convert` changes LUKS1 to LUKS2 and back"),
    (&["connect", "export"], "`cryptline serve` serves the decrypted disk over NBD"),
];
/// Hint on what to do instead of giving a volume a name.
const NO_NAMES: &str = "volumes have no names here; `cryptline attach DEVICE` makes a block device of it";

/// The error with a tip that helps, or none.
pub fn mended(mut error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            keep_harmless(&mut error, ContextKind::SuggestedSubcommand, destroys);
            if let Some(answer) = text(&error, ContextKind::InvalidSubcommand).and_then(|word| answer(&word)) {
                error.remove(ContextKind::SuggestedSubcommand);
                add(&mut error, answer);
            }
        }
        ErrorKind::UnknownArgument => {
            keep_harmless(&mut error, ContextKind::SuggestedArg, |word| DESTROYING_OPTIONS.contains(&word));
            let is_word = text(&error, ContextKind::InvalidArg).is_some_and(|word| !word.starts_with('-'));
            let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
            if is_word && usage.contains("cryptline check ") {
                add(&mut error, NO_NAMES);
            }
        }
        ErrorKind::ValueValidation => return plain(error),
        _ => {}
    }
    error
}

/// Words of Rust's number parsers, with those of a person.
const OF_NUMBERS: &[(&str, &str)] = &[
    ("invalid digit found in string", "use a whole number"),
    ("cannot parse integer from empty string", "use a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "use a number"),
    ("cannot parse float from empty string", "use a number"),
];

/// The error about a value that is no number, or one out of range, in words that say which to use.
fn plain(error: Error) -> Error {
    let Some(cause) = std::error::Error::source(&error).map(ToString::to_string) else {
        return error;
    };
    let better = match OF_NUMBERS.iter().find(|(theirs, _)| *theirs == cause) {
        Some((_, ours)) => (*ours).to_owned(),
        None => match cause.split_once(" is not in ").and_then(|(_, range)| range.split_once("..")) {
            Some((least, most)) => match most.trim_start_matches('=') {
                "" | "18446744073709551615" => format!("use a whole number from {least} up"),
                most => format!("use a whole number from {least} to {most}"),
            },
            None => return error,
        },
    };
    let text = error.to_string();
    match text.strip_prefix("error: ").and_then(|text| text.rsplit_once(&cause)) {
        Some((before, after)) => Error::raw(ErrorKind::ValueValidation, format!("{before}{better}{after}")),
        None => error,
    }
}

fn answer(word: &str) -> Option<&'static str> {
    ANSWERS.iter().find(|(words, _)| words.contains(&word)).map(|(_, answer)| *answer)
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

fn add(error: &mut Error, tip: &'static str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

/// Tells if something is gone after a verb of this name, whichever it is below.
fn destroys(word: &str) -> bool {
    let is_row = |row: &verb::Verb| row.destroys && row.name.split(' ').next_back() == Some(word);
    DESTROYING_WORDS.contains(&word) || verb::rows().any(is_row)
}

/// Leaves out of what clap proposes the words that destroy.
fn keep_harmless(error: &mut Error, kind: ContextKind, destroys: impl Fn(&str) -> bool) {
    let proposed = match error.get(kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => return,
    };
    let (destroys, harmless): (Vec<_>, Vec<_>) = proposed.into_iter().partition(|word| destroys(word));
    if destroys.is_empty() {
        return;
    }
    error.remove(kind);
    if !harmless.is_empty() {
        error.insert(kind, ContextValue::Strings(harmless));
    } else if let Some(ContextValue::StyledStrs(_)) = error.get(ContextKind::Suggested) {
        // Space for a tip, without one.
        error.remove(ContextKind::Suggested);
    }
    // An option that is proposed stands there, too.
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let usage = destroys.iter().fold(usage.to_string(), |usage, word| usage.replace(&format!(" {word}"), ""));
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::verb::program;

    fn said(words: &[&str]) -> String {
        let words = std::iter::once(&"cryptline").chain(words);
        mended(program().try_get_matches_from(words).unwrap_err()).to_string()
    }

    fn verbs_below(verb: &Command, found: &mut Vec<(Vec<String>, String)>, path: &[String]) {
        for below in verb.get_subcommands() {
            found.push((path.to_vec(), below.get_name().to_owned()));
            let path = [path, &[below.get_name().to_owned()]].concat();
            verbs_below(below, found, &path);
        }
    }

    /// Every verb and every option with one letter left out.
    #[test]
    fn no_tip_destroys() {
        let (mut verbs, mut tips) = (Vec::new(), 0);
        verbs_below(&program(), &mut verbs, &[]);
        for (path, name) in &verbs {
            for left_out in 1..name.len() {
                let word = [&name[..left_out], &name[left_out + 1..]].concat();
                let words: Vec<_> = path.iter().map(String::as_str).chain([word.as_str()]).collect();
                let Err(error) = program().try_get_matches_from(std::iter::once("cryptline").chain(words)) else {
                    continue;
                };
                let said = mended(error).to_string();
                let tip = said.lines().find(|line| line.contains("similar")).unwrap_or_default();
                tips += usize::from(!tip.is_empty());
                let mut quoted = tip.split('\'').skip(1).step_by(2);
                assert!(!quoted.any(destroys), "{path:?} {word}: {tip}");
            }
        }
        assert!(tips > 100, "{tips}");
        for (verb, option) in [("copy", "--force"), ("serve", "--force"), ("resize", "--shrink"), ("detach", "--lazy")]
        {
            let said = said(&[verb, &option[..option.len() - 1]]);
            assert!(!said.contains(&format!("'{option}'")) && !said.contains(&format!(" {option} ")), "{said}");
        }
    }

    #[test]
    fn words_that_destroy_exist() {
        let program = program();
        let mut verbs = Vec::new();
        verbs_below(&program, &mut verbs, &[]);
        for verb in DESTROYING_WORDS {
            assert!(verbs.iter().any(|(_, name)| name == verb), "{verb}");
        }
    }

    #[test]
    fn words_of_other_programs_have_an_answer() {
        for (words, answer) in ANSWERS {
            for word in *words {
                let found = said(&[word]);
                assert!(found.contains(&format!("tip: {answer}")) && !found.contains("similar"), "{word}: {found}");
            }
        }
        let found = said(&["check", "disk.img", "name"]);
        assert!(found.contains(NO_NAMES), "{found}");
    }

    #[test]
    fn numbers_are_asked_for_in_words() {
        for (words, wrong) in [
            (["--port=abc", "x"], "invalid value 'abc' for '--port <PORT>': use a whole number\n"),
            (["--port=", "x"], "use a whole number\n"),
            (["--port=65536", "x"], "use a whole number from 0 to 65535\n"),
            (
                ["--max-connections=0", "x"],
                "invalid value '0' for '--max-connections <N>': use a whole number from 1 to ",
            ),
            (["--kdf-time-limit=0", "x"], "use a whole number from 1 up\n"),
            (["--kdf-time-limit=99999999999999999999", "x"], "the number is too large\n"),
        ] {
            let found = said(&[&["serve"], &words[..]].concat());
            assert!(found.contains(wrong) && found.starts_with("error: ") && found.contains("--help"), "{found}");
            assert!(!found.contains("digit") && !found.contains(".."), "{found}");
        }
    }

    #[test]
    fn harmless_tips_stay() {
        for (words, tip) in [(["serv"], "'serve'"), (["attch"], "'attach'"), (["luksDum"], "'luksDump'")] {
            let found = said(&words);
            assert!(found.contains(tip), "{found}");
        }
        let found = said(&["serve", "--read-onl"]);
        assert!(found.contains("'--read-only'"), "{found}");
    }
}
