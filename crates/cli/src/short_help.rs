//! `-h`: of a verb with many options, those that most people need. `--help` has all.

use clap::Command;

/// Most options that `-h` shows.
const OPTIONS_MAX: usize = 15;

/// Shown by `-h` of a verb that has more options than that.
const ESSENTIAL: &[&str] = &[
    // Where the disk goes to.
    "unix",
    "port",
    "ip_addr",
    "export_name",
    "run",
    "background",
    "tls",
    "tls_certificates",
    "socket_path",
    "num_queues",
    "driver",
    "foreground",
    "allow_other",
    // The volume and its key.
    "read_only",
    "allow_discards",
    "kind",
    "partition",
    "key_file",
    "passphrase_fd",
    // Running it.
    "user",
];

/// And by that of `create`.
const OF_A_NEW_VOLUME: &[&str] = &["size", "from", "force", "label", "pbkdf"];

/// The program with a short `-h`.
pub fn shortened(program: Command) -> Command {
    shortened_below("", program)
}

/// `path` is what is typed before its subcommands.
fn shortened_below(path: &str, command: Command) -> Command {
    command.mut_subcommands(|verb| {
        let path = format!("{path} {}", verb.get_name());
        let count = verb.get_arguments().filter(|arg| !arg.is_hide_set()).count();
        if count <= OPTIONS_MAX {
            return shortened_below(&path, verb);
        }
        let advice = format!("These are the most used options; `cryptline help{path}` has all.");
        let is_new = verb.get_name() == "create";
        let verb = verb.mut_args(|arg| {
            let id = arg.get_id().as_str();
            let is_shown = arg.is_positional()
                || arg.is_required_set()
                || ESSENTIAL.contains(&id)
                || is_new && OF_A_NEW_VOLUME.contains(&id);
            arg.hide_short_help(!is_shown)
        });
        // What stands there is for the long help, too, where that has nothing of its own.
        let long = verb.get_after_long_help().or(verb.get_after_help());
        let verb = match long.cloned() {
            Some(long) => verb.after_long_help(long),
            None => verb.after_long_help(""),
        };
        shortened_below(&path, verb.after_help(advice))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command_line::Cli;

    /// Options begin in the third column, or in the seventh without a short name; what is said of them is further right.
    fn lines_of_options(help: &str) -> usize {
        help.lines().filter(|line| line.starts_with("  -") || line.starts_with("      --")).count()
    }

    fn check(verb: &mut Command) {
        let short = verb.render_help().to_string();
        let count = lines_of_options(&short);
        assert!(count <= OPTIONS_MAX + 1, "{count}:\n{short}");
        let long = verb.render_long_help().to_string();
        for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let option = arg.get_long().map(|long| format!("--{long}"));
            assert!(option.is_none_or(|option| long.contains(&option)), "{}: {arg}", verb.get_name());
        }
        verb.get_subcommands_mut().for_each(check);
    }

    #[test]
    fn the_short_help_of_every_verb_is_short_and_the_long_one_has_everything() {
        let mut program = shortened(Cli::command());
        program.build();
        check(&mut program);
    }

    #[test]
    fn the_long_help_has_the_examples_and_not_the_advice() {
        fn check(before: &Command, after: &mut Command) {
            let long = after.render_long_help().to_string();
            assert!(!long.contains("most used options"), "{long}");
            let notes = before.get_after_long_help().or(before.get_after_help());
            let notes = notes.map(ToString::to_string).unwrap_or_default();
            // It is wrapped at another place.
            let begin: Vec<_> = notes.split_whitespace().take(5).collect();
            let words: Vec<_> = long.split_whitespace().collect();
            let is_there = notes.is_empty() || words.windows(5).any(|it| it == begin);
            assert!(is_there, "{notes}\n---\n{long}");
            for verb in before.get_subcommands() {
                check(verb, after.find_subcommand_mut(verb.get_name()).unwrap());
            }
        }
        let (before, mut after) = (Cli::command(), shortened(Cli::command()));
        after.build();
        check(&before, &mut after);
    }

    #[test]
    fn advice_names_the_whole_verb() {
        let mut program = shortened(Cli::command());
        program.build();
        let key = program.find_subcommand_mut("key").unwrap();
        let help = key.find_subcommand_mut("add").unwrap().render_help();
        assert!(help.to_string().contains("`cryptline help key add`"), "{help}");
    }

    #[test]
    fn what_is_essential_exists() {
        let program = Cli::command();
        for id in ESSENTIAL.iter().chain(OF_A_NEW_VOLUME) {
            let has = |verb: &Command| verb.get_arguments().any(|arg| arg.get_id() == id);
            assert!(program.get_subcommands().any(has), "{id}");
        }
    }
}
