//! cryptsetup's short options, which are long ones here: `-h` is help, and others mean other things with other verbs.

use std::ffi::OsString;

use clap::Subcommand;

use super::VerbWord;
use crate::verb::{find, in_our_words, program, rows};

const LONG: [(u8, &str); 9] = [
    (b'c', "--cipher"),
    (b'd', "--key-file"),
    (b'h', "--hash"),
    (b'i', "--iter-time"),
    (b'l', "--keyfile-size"),
    (b'o', "--offset"),
    (b's', "--key-size"),
    (b'S', "--key-slot"),
    (b'T', "--tries"),
];

/// The arguments of a command line that begins with one of cryptsetup's words, with its options in full.
pub fn in_full(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let word = arguments.get(1).cloned().unwrap_or_default();
    let is_word = rows().flat_map(|row| row.words).any(|known| known.is_cryptsetups && word == known.name);
    if !is_word && !word.to_str().is_some_and(VerbWord::has_subcommand) {
        return arguments;
    }
    let (ours, _) = in_our_words(arguments[..2].to_vec());
    let has_hash = find(&program(), &ours[1..]).get_arguments().any(|it| it.get_long() == Some("hash"));
    // cryptsetup takes it as often as it is given.
    let mut is_quiet = false;
    arguments.retain(|argument| argument != "-q" || !std::mem::replace(&mut is_quiet, true));
    let options = arguments[2..].iter_mut();
    for argument in options.take_while(|argument| *argument != "--") {
        // Help elsewhere.
        if argument == "-h" && !has_hash {
            continue;
        }
        if let Some(full) = argument.to_str().and_then(in_full_of) {
            *argument = full.into();
        }
    }
    arguments
}

fn in_full_of(argument: &str) -> Option<String> {
    let (letter, value) = argument.strip_prefix('-')?.split_at_checked(1)?;
    let letter = letter.bytes().next()?;
    let (_, long) = LONG.iter().find(|(short, _)| *short == letter)?;
    match value {
        "" => Some((*long).to_owned()),
        value => Some(format!("{long}={value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let words = text.split(' ').map(OsString::from).collect();
        let full = in_full(words);
        let words: Vec<_> = full.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn short_options_of_cryptsetup_are_known_behind_its_words_only() {
        assert_eq!(
            line("cryptline luksFormat -q -h sha512 -S5 -q -d - disk"),
            "cryptline luksFormat -q --hash sha512 --key-slot=5 --key-file - disk"
        );
        assert_eq!(line("cryptline luksOpen -T1 x"), "cryptline luksOpen --tries=1 x");
        assert_eq!(line("cryptline serve -d -h"), "cryptline serve -d -h");
        for help in ["open -h", "luksOpen -h", "luksDump -h"] {
            let help = format!("cryptline {help}");
            assert_eq!(line(&help), help);
        }
        assert_eq!(line("cryptline luksFormat -- -s"), "cryptline luksFormat -- -s");
        assert_eq!(line("cryptline luksDump --hash"), "cryptline luksDump --hash");
    }
}
