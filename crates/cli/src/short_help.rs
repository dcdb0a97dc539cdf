//! `-h`: one page that fits a terminal, of what most people need. `--help` has all.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use crate::verb::row;

/// Lines of the page, in a terminal of [`WIDTH`] columns.
const LINES_MAX: usize = 26;
const WIDTH: usize = 80;

/// Options that stay where not all have room, the most important ones first.
const ESSENTIAL: &[&str] = &[
    // The volume and its key.
    "key_file",
    "read_only",
    "kind",
    // Where the disk goes to.
    "unix",
    "port",
    "socket_path",
    "run",
    "background",
    "foreground",
    "allow_other",
    "num_queues",
    "driver",
    "encrypt",
    "partition",
    "ip_addr",
    "tls",
    "tls_certificates",
    "export_name",
    "user",
    "allow_discards",
    "passphrase_fd",
];

/// And before them where a volume is made; elsewhere options of these names are about something else.
const OF_A_NEW_VOLUME: &[&str] = &["size", "from", "force", "label", "pbkdf"];

/// Tells if a short help is asked for by these words.
pub fn is_asked_for(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    options.into_iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('h'))
}

/// The program with a page for the verb that the words name, in place of its `-h`.
pub fn shortened(program: Command, words: &[OsString]) -> Command {
    let name = program.get_name().to_owned();
    shortened_at(program, words.get(1..).unwrap_or_default(), &name)
}

/// `path` is what is typed up to here.
fn shortened_at(command: Command, words: &[OsString], path: &str) -> Command {
    let named = words.iter().enumerate().find_map(|(at, word)| {
        let verb = command.find_subcommand(word)?;
        Some((at, verb.get_name().to_owned()))
    });
    match named {
        Some((at, verb)) => {
            let path = format!("{path} {verb}");
            command.mut_subcommand(verb, |verb| shortened_at(verb, &words[at + 1..], &path))
        }
        None => page(command, path),
    }
}

/// The verb with all that has room.
fn page(command: Command, path: &str) -> Command {
    if fits(&command) {
        return command;
    }
    let page = command
        .after_help(format!("`{path} --help` has all options, examples and notes."))
        .mut_args(|arg| {
            let text = arg.get_help().map(first_clause);
            let arg = arg.help_heading(None::<&str>);
            match text {
                Some(text) => arg.help(text),
                None => arg,
            }
        })
        .mut_subcommands(|verb| {
            let text = verb.get_about().map(first_clause);
            match text {
                Some(text) => verb.about(text),
                None => verb,
            }
        });
    let mut options: Vec<_> = page.get_arguments().filter(|arg| may_go(arg)).map(|arg| arg.get_id().clone()).collect();
    let is_new = page.get_name() == "create";
    let essential: Vec<_> = OF_A_NEW_VOLUME.iter().filter(|_| is_new).chain(ESSENTIAL).collect();
    options.sort_by_key(|id| essential.iter().position(|it| id == *it).unwrap_or(essential.len()));
    let verbs = page.get_subcommands().map(|verb| verb.get_name().to_owned());
    let verbs: Vec<_> = verbs.filter(|name| !row(name).is_some_and(|row| row.is_main)).collect();
    let without = options.into_iter().rev().map(Omission::Option).chain(verbs.into_iter().rev().map(Omission::Verb));
    without.fold(page, |page, part| if fits(&page) { page } else { part.hidden(page) })
}

/// Something that can be left out of a page.
enum Omission {
    Option(clap::Id),
    Verb(String),
}

impl Omission {
    fn hidden(self, page: Command) -> Command {
        match self {
            Self::Option(id) => page.mut_arg(id, |arg| arg.hide(true)),
            Self::Verb(name) => page.mut_subcommand(name, |verb| verb.hide(true)),
        }
    }
}

fn may_go(arg: &Arg) -> bool {
    !arg.is_positional() && !arg.is_required_set() && !arg.is_hide_set()
}

fn fits(command: &Command) -> bool {
    let help = command.clone().term_width(WIDTH).render_help().to_string();
    help.lines().count() <= LINES_MAX
}

/// `text` up to where it begins to explain itself.
fn first_clause(text: &StyledStr) -> String {
    let text = text.to_string();
    let ends = ["; ", ". ", ": ", " ["].iter().filter_map(|mark| text.find(mark));
    // `tpm2: PCRs ...` begins with what it is for.
    let end = ends.filter(|end| text[..*end].contains(' ')).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::{program, rows};

    /// Each verb by its words, with those below it.
    fn verbs() -> Vec<Vec<OsString>> {
        fn collect(command: &Command, path: &[OsString], found: &mut Vec<Vec<OsString>>) {
            found.push(path.to_vec());
            for verb in command.get_subcommands() {
                collect(verb, &[path, &[verb.get_name().into()]].concat(), found);
            }
        }
        let mut found = Vec::new();
        collect(&program(), &["cryptline".into()], &mut found);
        found
    }

    fn shown(words: &[OsString], option: &str) -> String {
        let words = [words, &[option.into()]].concat();
        let program = program().term_width(WIDTH);
        let program = if is_asked_for(&words) { shortened(program, &words) } else { program };
        program.try_get_matches_from(words).unwrap_err().to_string()
    }

    #[test]
    fn page_of_every_verb_fits_a_terminal() {
        let verbs = verbs();
        assert!(verbs.len() > 60, "{}", verbs.len());
        for words in verbs {
            let page = shown(&words, "-h");
            let lines = page.lines().count();
            assert!((5..=LINES_MAX).contains(&lines), "{lines} lines of {words:?}:\n{page}");
        }
    }

    #[test]
    fn long_help_has_every_option() {
        for words in verbs() {
            let mut program = program();
            let verb = words[1..].iter().try_fold(&mut program, |verb, name| verb.find_subcommand_mut(name)).unwrap();
            let long = shown(&words, "--help");
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let option = arg.get_long().map(|long| format!("--{long}"));
                assert!(option.is_none_or(|option| long.contains(&option)), "{words:?}: {arg}");
            }
        }
    }

    #[test]
    fn pages_have_the_essential_options_and_name_the_long_help() {
        for (verb, options) in [
            ("serve", &["--key-file", "--read-only", "--unix", "--port", "--run", "--background"][..]),
            ("create", &["--size", "--from", "--key-file"]),
            ("mount", &["--foreground", "--allow-other", "--read-only"]),
            ("copy", &["--encrypt", "--key-file"]),
        ] {
            let page = shown(&["cryptline".into(), verb.into()], "-h");
            for option in options {
                assert!(page.contains(option), "{option}: {page}");
            }
            assert!(page.contains(&format!(" {verb} --help` has all options")), "{page}");
        }
        let page = shown(&["cryptline".into(), "key".into(), "rotate".into()], "-h");
        assert!(page.contains("`cryptline key rotate --help`"), "{page}");
        let page = shown(&["cryptline".into()], "-h");
        assert!(rows().filter(|row| row.is_main).all(|row| page.contains(&format!("\n  {} ", row.name))), "{page}");
    }

    #[test]
    fn what_is_essential_exists() {
        let program = program();
        for id in ESSENTIAL.iter().chain(OF_A_NEW_VOLUME) {
            let has = |verb: &Command| verb.get_arguments().any(|arg| arg.get_id() == id);
            assert!(program.get_subcommands().any(has), "{id}");
        }
    }
}
