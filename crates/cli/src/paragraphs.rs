//! Notes of help texts: a paragraph becomes one line, which is then broken where the terminal ends and nowhere else.

/// `notes` with each paragraph in one line. Lines that begin with a space, such as examples and lists, stay as they are.
pub fn joined(notes: &str) -> String {
    let mut text = String::new();
    let mut goes_on = false;
    for line in notes.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if !text.is_empty() {
            text.push(if goes_on && is_prose { ' ' } else { '\n' });
        }
        text.push_str(line);
        goes_on = is_prose;
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::verb::program;

    /// Columns that lists in notes are made for.
    const LIST_WIDTH: usize = 80;

    #[test]
    fn paragraphs_are_joined_and_examples_are_not() {
        let notes = "Examples:\n  one\n  two\n\nA paragraph\nof two lines.\nNo more.\n\nCodes:\n  0  success\nThe end.";
        let expected =
            "Examples:\n  one\n  two\n\nA paragraph of two lines. No more.\n\nCodes:\n  0  success\nThe end.";
        assert_eq!(joined(notes), expected);
        assert_eq!(joined(expected), expected);
    }

    /// Lines of prose that end although the first word of the next, which goes on, had room. Indented ones are no prose.
    fn broken_badly(help: &str, width: usize) -> Vec<String> {
        let lines: Vec<_> = help.lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair.iter().all(|line| !line.is_empty() && !line.starts_with(' ')));
        let bad = pairs.filter(|pair| {
            let next = pair[1].split(' ').next().unwrap_or_default();
            pair[0].chars().count() + 1 + next.chars().count() <= width
        });
        bad.map(|pair| pair.join(" | ")).collect()
    }

    /// Rows of lists, whose second column would go on below the first.
    fn rows_cut(help: &str) -> Vec<&str> {
        let is_row = |line: &&str| line.trim_start().contains("   ") && line.starts_with("  ");
        help.lines().filter(is_row).filter(|line| line.chars().count() > LIST_WIDTH).collect()
    }

    fn check(command: &Command, width: usize) {
        let mut rendered = command.clone().term_width(width);
        for help in [rendered.render_help(), rendered.render_long_help()] {
            let bad = broken_badly(&help.to_string(), width);
            assert!(bad.is_empty(), "{} at {width}: {bad:#?}", command.get_name());
        }
        for verb in command.get_subcommands() {
            check(verb, width);
        }
    }

    #[test]
    fn rows_of_lists_fit_a_usual_terminal() {
        fn check(command: &Command) {
            let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert_eq!(rows_cut(&notes), [""; 0], "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&program());
        assert_eq!(rows_cut(&format!("  a   {}", "b".repeat(80))).len(), 1);
    }

    #[test]
    fn notes_are_broken_only_where_the_terminal_ends() {
        let mut program = program();
        program.build();
        for width in [60, 80, 100] {
            check(&program, width);
        }
    }
}
