//! Rows and verbs belong together, and the examples are command lines that the program takes.

use std::ffi::OsStr;

use clap::FromArgMatches as _;

use super::*;

/// Names of all verbs, with those below them.
fn names() -> Vec<String> {
    fn collect(command: &Command, name: &str, found: &mut Vec<String>) {
        found.push(name.to_owned());
        command.get_subcommands().for_each(|verb| collect(verb, &below(name, verb), found));
    }
    let mut found = Vec::new();
    collect(&program(), "", &mut found);
    found
}

#[test]
fn every_row_is_of_a_verb_and_every_verb_that_is_shown_has_a_row() {
    let names = names();
    for row in rows() {
        assert!(names.contains(&row.name.to_owned()), "{}", row.name);
        assert_eq!(rows().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
        assert!(row.group.is_none() || !row.name.is_empty() && !row.name.contains(' '), "{}", row.name);
    }
    for verb in program().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        assert!(row(verb.get_name()).is_some(), "{}", verb.get_name());
    }
}

#[test]
fn long_help_lists_every_verb_of_a_group_once_below_its_title() {
    let help = grouped(program()).render_long_help().to_string();
    for (group, title) in LISTED {
        let (_, list) = help.split_once(&format!("{title}:\n")).unwrap_or_else(|| panic!("no {title}: {help}"));
        let list = list.split("\n\n").next().unwrap_or_default();
        for row in rows().filter(|row| row.group == Some(group)) {
            let has = |list: &str| list.lines().filter(|line| line.starts_with(&format!("  {} ", row.name))).count();
            assert_eq!((has(list), has(&help)), (1, 1), "{}: {help}", row.name);
        }
    }
    assert!(help.contains("\n  -h, --help") && help.contains("Examples:") && help.contains("Exit codes"), "{help}");
}

#[test]
fn older_names_are_taken_for_verbs_and_are_none() {
    let ours = |line: &str| {
        let (words, name) = in_our_words(line.split(' ').map(OsString::from).collect());
        let words: Vec<_> = words.iter().map(|word| word.to_str().expect("text")).collect();
        (words.join(" "), name)
    };
    for (typed, expected, name) in [
        ("x umount /mnt --lazy", "x detach /mnt --lazy", Some("umount")),
        ("x recover --replace d", "x attach --recover --replace d", Some("recover")),
        ("x erase -q d", "x key erase -q d", Some("erase")),
        ("x help erase", "x help key erase", Some("erase")),
        ("x help zones", "x help info", Some("zones")),
        ("x info zones", "x info zones", None),
        ("x luksAddKey d", "x key add d", Some("luksAddKey")),
        ("x luksOpen d", "x check --open d", Some("luksOpen")),
        ("x serve", "x serve", None),
        ("x", "x", None),
    ] {
        assert_eq!(ours(typed), (expected.to_owned(), name));
    }
    let (program, mut count) = (program(), 0);
    for word in rows().flat_map(|row| row.words) {
        assert!(program.find_subcommand(word.name).is_none(), "{}", word.name);
        let (words, _) = in_our_words(["x", word.name].map(OsString::from).to_vec());
        let error = program.clone().try_get_matches_from([words, vec!["--help".into()]].concat()).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{}", word.name);
        count += 1;
    }
    assert!(count > 14);
}

/// Options by which a key comes.
#[test]
fn verbs_that_take_keys_are_protected() {
    fn takes_key(command: &Command) -> bool {
        let is_key = |arg: &clap::Arg| ["key_file", "volume_key_file", "seal_key"].contains(&arg.get_id().as_str());
        command.get_arguments().any(is_key) || command.get_subcommands().any(takes_key)
    }
    let program = program();
    for row in rows().filter(|row| row.keyless) {
        assert!(!program.find_subcommand(row.name).is_none_or(takes_key), "{}", row.name);
    }
    assert!(program.get_subcommands().filter(|verb| takes_key(verb)).count() > 10);
}

/// Command lines of this program in a line for a shell: its words up to where the shell's own begin.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut quote, mut letters) = (None, line.chars().peekable());
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '&' | ';' | '(' | ')') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, '<' | '>') => {
                // With the number of a descriptor before it, and a file behind it.
                word = None;
                while letters.next_if(|next| *next == ' ').is_some() {}
                while letters.next_if(|next| ![' ', ')'].contains(next)).is_some() {}
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    let ours = commands.into_iter().filter_map(|words| {
        let at = words.iter().position(|word| word == "cryptline")?;
        let end = words.iter().position(|word| word == "]").unwrap_or(words.len());
        Some(words[at..end].to_vec())
    });
    ours.collect()
}

#[test]
fn examples_are_command_lines_that_the_program_takes() {
    let mut count = 0;
    for row in rows() {
        for line in row.examples.replace("\\\n", "").lines().filter(|line| !line.starts_with('#')) {
            for command in commands(line) {
                count += 1;
                let parsed = |of: Command| of.try_get_matches_from(&command).and_then(|it| Cli::from_arg_matches(&it));
                let whole = parsed(program());
                let whole = whole.unwrap_or_else(|error| panic!("{}: {line}\n{command:?}\n{error}", row.name));
                // The same where only the options of its verb are described.
                let alone = parsed(Cli::of_verb(command.get(1).map(OsStr::new))).expect(line);
                assert_eq!(format!("{alone:?}"), format!("{whole:?}"), "{line}");
            }
        }
    }
    assert!(count > 150, "{count}");
}

#[test]
fn commands_are_found_in_lines_for_a_shell() {
    for (line, expected) in [
        ("cryptline a 'b c' > f", vec![vec!["cryptline", "a", "b c"]]),
        ("mount $(cryptline a --k=\"x\\\"y\" d) /mnt", vec![vec!["cryptline", "a", "--k=x\"y", "d"]]),
        ("x | cryptline a - 3<f && cryptline b &", vec![vec!["cryptline", "a", "-"], vec!["cryptline", "b"]]),
        ("nbdcopy -- [ cryptline a ] b", vec![vec!["cryptline", "a"]]),
        ("umount /mnt", vec![]),
    ] {
        assert_eq!(commands(line), expected, "{line}");
    }
}
