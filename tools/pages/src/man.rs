//! One man page for the program, one for each verb, and one for each verb of a verb.

use std::io;

use clap::Command;
use clap_mangen::Man;
use cryptline_cli::paragraphs::joined;
use cryptline_cli::verb::{Group, Verb, below, row};

use crate::sections;

/// File name and text of every page: one for the program, one for each verb, and one for each verb
/// of a verb. `date` is that of the release, as 2026-01-31, or empty.
///
/// # Errors
/// None that is known: the pages are made in memory.
pub fn pages(program: Command, date: &str) -> io::Result<Vec<(String, String)>> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut commands = Vec::new();
    with_verbs(&program, "", &mut commands);
    commands.into_iter().map(|(command, row)| page(command, row, date)).collect()
}

/// A command, and those below it that are no secret; `name` has its words.
fn with_verbs(command: &Command, name: &str, all: &mut Vec<(Command, &'static Verb)>) {
    let row = row(name).unwrap_or(&Verb::EMPTY);
    if !command.is_hide_set() || row.group == Some(Group::Topics) {
        all.push((command.clone(), row));
        command.get_subcommands().for_each(|verb| with_verbs(verb, &below(name, verb), all));
    }
}

fn page(command: Command, row: &Verb, date: &str) -> io::Result<(String, String)> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let more = sections::of(name, &command, row);
    let name = format!("{name}.1");
    let has_verbs = command.has_subcommands();
    let page = Man::new(command)
        .date(date)
        .source(concat!("cryptline ", env!("CARGO_PKG_VERSION")))
        .manual("cryptline manual");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    text.extend_from_slice(filled(&joined(row.notes)).as_bytes());
    page.render_options_section(&mut text)?;
    if has_verbs {
        page.render_subcommands_section(&mut text)?;
    }
    let examples: String = row.examples.lines().map(|line| format!("  {line}\n")).collect();
    text.extend_from_slice(section("EXAMPLES", &examples).as_bytes());
    let exit = if row.exit.is_empty() { String::new() } else { format!("{}.", row.exit) };
    text.extend_from_slice(section("EXIT STATUS", &exit).as_bytes());
    text.extend_from_slice(more.as_bytes());
    Ok((name, tidy(&String::from_utf8_lossy(&text))))
}

fn section(title: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(".SH \"{title}\"\n{}", filled(text)) }
}

/// Paragraphs filled, examples and lists line for line.
fn filled(text: &str) -> String {
    let mut section = String::new();
    let mut is_filled = true;
    for line in text.lines() {
        // A paragraph begins with a space of its own.
        if line.is_empty() && is_filled {
            continue;
        }
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if is_prose {
            section.push_str(if is_filled { ".PP\n" } else { ".fi\n.PP\n" });
        } else if is_filled {
            section.push_str(".nf\n");
        }
        is_filled = is_prose;
        // A dot or an apostrophe at its start would be a request to roff.
        if line.starts_with(['.', '\'']) {
            section.push_str("\\&");
        }
        section.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
        section.push('\n');
    }
    section.push_str(if is_filled { "" } else { ".fi\n" });
    section.replace("\n\n.fi\n", "\n.fi\n")
}

/// No space at a line's end, one line end at the end.
fn tidy(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}
