//! Sections that help texts have no place for: ENVIRONMENT, FILES and SEE ALSO.

use clap::Command;
use cryptline_cli::verb::{Entry, OPTION_FILES, OPTIONS, Verb, rows};

/// The sections of the page called `name`: of its verb, and of the options that it has.
pub fn of(name: &str, command: &Command, row: &Verb) -> String {
    let has = |ids: &[&str]| command.get_arguments().any(|arg| ids.iter().any(|id| arg.get_id() == id));
    let of_options = |all: &'static [(&[&str], Entry)]| all.iter().filter(|(ids, _)| has(ids)).map(|(_, entry)| *entry);
    // What is said of a verb holds for those below it.
    let is_above = |it: &&Verb| !it.name.is_empty() && row.name.starts_with(&format!("{} ", it.name));
    let files = rows().filter(is_above).flat_map(|it| it.files).chain(row.files).copied();
    list("ENVIRONMENT", row.environment.iter().copied().chain(of_options(OPTIONS)))
        + &list("FILES", files.chain(of_options(OPTION_FILES)))
        + &see_also(name, command, row)
}

fn list(title: &str, entries: impl Iterator<Item = Entry>) -> String {
    let one = |(name, text): Entry| format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(text));
    let all: String = entries.map(one).collect();
    if all.is_empty() { all } else { format!(".SH {title}\n{all}") }
}

/// The pages around it, and those of other programs.
fn see_also(name: &str, command: &Command, row: &Verb) -> String {
    let mut pages = Vec::new();
    let own = format!("-{}", command.get_name());
    pages.extend(name.strip_suffix(&own).map(|parent| format!("{parent}(1)")));
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    pages.extend(verbs.map(|verb| format!("{name}-{}(1)", verb.get_name())));
    pages.extend((!row.see.is_empty()).then(|| row.see.to_owned()));
    format!(".SH \"SEE ALSO\"\n{}\n", escaped(&pages.join(", ")))
}

fn escaped(text: &str) -> String {
    text.replace('-', "\\-")
}
