//! `completions`: a script that completes cryptline's command line in a shell.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Args, Command, ValueEnum, ValueHint};
use clap_complete::Shell as Generator;

use crate::CliError;
use crate::verb::{Group, Verb};

/// `completions`.
pub const VERB: Verb = Verb {
    name: "completions",
    group: Some(Group::Tools),
    examples: "\
cryptline completions bash > ~/.local/share/bash-completion/completions/cryptline
cryptline completions zsh > /usr/local/share/zsh/site-functions/_cryptline
cryptline completions fish > ~/.config/fish/completions/cryptline.fish",
    keyless: true,
    ..Verb::EMPTY
};

/// For which shell.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Shells of Linux, for which packages have a place for completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// fish
    Fish,
    /// Z shell
    Zsh,
}

/// Prints the script for the command line of `program`.
///
/// # Errors
/// When standard output takes no more.
pub fn run(args: &CompletionsArgs, program: Command) -> Result<(), CliError> {
    crate::output::print(&script(args.shell, program))
}

/// The script for `shell` and the command line of `program`.
pub fn script(shell: Shell, program: Command) -> String {
    // `help VERB` would have every verb a second time.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut shown = shown(&program);
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Fish => Generator::Fish,
        Shell::Zsh => Generator::Zsh,
    };
    let mut bytes = Vec::new();
    clap_complete::generate(generator, &mut shown, "cryptline", &mut bytes);
    let script = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        Shell::Bash => with_files_first(&script, &shown),
        Shell::Fish | Shell::Zsh => script,
    }
}

/// The command line without what help does not show: some shells would offer that, too.
fn shown(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(shown_argument);
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(shown);
    let shown = Command::new(kept(command.get_name())).disable_help_flag(true).disable_help_subcommand(true);
    let shown = shown.disable_version_flag(true).args(arguments).subcommands(verbs);
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}

/// All that a shell needs of an argument, which refers to no other one.
fn shown_argument(arg: &Arg) -> Arg {
    let action = match arg.get_action() {
        ArgAction::Help | ArgAction::Version => &ArgAction::SetTrue,
        action => action,
    };
    let mut shown = Arg::new(arg.get_id().clone()).action(action.clone());
    if let Some(short) = arg.get_short() {
        shown = shown.short(short);
    }
    if let Some(long) = arg.get_long() {
        shown = shown.long(kept(long));
    }
    if let Some(help) = arg.get_help() {
        shown = shown.help(help.clone());
    }
    if let Some(index) = arg.get_index() {
        shown = shown.index(index);
    }
    if !arg.get_action().takes_values() {
        return shown;
    }
    if let Some(names) = arg.get_value_names() {
        shown = shown.value_names(names.to_vec()).value_hint(hint(&names[0]));
    }
    let values: Vec<_> = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    let shown = if values.is_empty() { shown } else { shown.value_parser(PossibleValuesParser::new(values)) };
    match arg.get_num_args() {
        Some(count) => shown.num_args(count),
        None => shown,
    }
}

/// The text for as long as the program runs, which is no longer than it takes to print the script.
fn kept(text: &str) -> &'static str {
    Box::leak(text.into())
}

/// Completion of a value of this name: files, or nothing.
fn hint(name: &str) -> ValueHint {
    const FILES: &[&str] =
        &["FILE", "PATH", "TARGET", "SOCKET", "DEVICE", "SRC", "DST", "MOUNTPOINT", "IMAGE", "DISK", "MOUNT"];
    const FOLDERS: &[&str] = &["DIR", "FOLDER"];
    let is_one = |of: &[&str]| of.iter().any(|word| name.contains(word));
    match name {
        _ if is_one(FOLDERS) => ValueHint::DirPath,
        _ if is_one(FILES) => ValueHint::AnyPath,
        _ => ValueHint::Other,
    }
}

/// The script for Bash, in which a verb that takes a file offers files, and options behind a hyphen only.
fn with_files_first(script: &str, program: &Command) -> String {
    let mut text = String::with_capacity(script.len());
    // Whether the verb takes a file, of the part that describes one.
    let mut takes_files = false;
    for line in script.lines() {
        if let Some(path) = line.strip_prefix("        cryptline").and_then(|rest| rest.strip_suffix(')')) {
            takes_files = verb_at(program, path).is_some_and(has_file);
        }
        let offers_all = line.starts_with("            COMPREPLY=( $(compgen -W \"${opts}\"");
        match line.split_once(" || ${COMP_CWORD} -eq") {
            Some((before, _)) if takes_files => text.push_str(&format!("{before} ]] ; then")),
            // Nothing has Bash complete the name of a file.
            None if takes_files && offers_all => text.push_str("            COMPREPLY=()"),
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// The verb that the script calls so: `__subcmd__key__subcmd__add` behind the program's name. A hyphen is the same there.
fn verb_at<'a>(program: &'a Command, path: &str) -> Option<&'a Command> {
    const BETWEEN: &str = "__subcmd__";
    if path.is_empty() {
        return Some(program);
    }
    let path = path.strip_prefix(BETWEEN)?;
    program.get_subcommands().find_map(|verb| {
        let rest = path.strip_prefix(verb.get_name().replace('-', BETWEEN).as_str())?;
        verb_at(verb, rest)
    })
}

/// A verb with a word of a few in one of its places keeps the list of those.
fn has_file(verb: &Command) -> bool {
    let is_file = |arg: &Arg| matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::DirPath);
    let is_choice = |arg: &Arg| !arg.get_possible_values().is_empty();
    let places: Vec<_> = verb.get_positionals().collect();
    places.first().is_some_and(|first| is_file(first)) && !places.iter().any(|arg| is_choice(arg))
}
