//! The runner itself: what is wrong is seen, and told so that it can be found.

use libtest_mimic::Trial;

use crate::{format, play};

/// A name, a file of cases, and what comes of it: an empty text if it passes.
const OWN: &[(&str, &str, &[&str])] = &[
    ("what_holds_passes", "case a\n$ printf 'a b\\n'; echo c >&2\n? 0\n> a[..]b\n>= a b\n>- c\n! c\n!= c\n!- a", &[]),
    (
        "a_wrong_code_is_told_with_place_and_output",
        "case a\n$ echo said; exit 3\n? 4",
        &["own.case:3: expected exit code 4\n$ sh -c ", "(exit 3 after ", "-- stdout:\nsaid\n", "(own::a)"],
    ),
    ("success_is_expected_where_nothing_is_said", "case a\n$ false\n>= ", &["own.case:2: expected exit code 0"]),
    ("a_missing_line_is_told", "case a\n$ echo one\n> two", &["own.case:3: expected a line of stdout with `two`"]),
    ("pieces_have_an_order", "case a\n$ echo one two\n> two[..]one", &["own.case:3: expected a line"]),
    (
        "all_that_fails_is_told",
        "case a\n$ echo a\n> b\n! c",
        &["own.case:3: ", "own.case:4: expected a line of stderr"],
    ),
    ("more_lines_than_expected", "case a\n$ echo a; echo b\n>= a", &["own.case:3: expected this for all of stdout"]),
    ("a_whole_line_is_whole", "case a\n$ echo ab\n>= a", &["own.case:3: "]),
    ("what_must_not_be_said", "case a\n$ echo a >&2\n!- a", &["own.case:3: expected no line of stderr with `a`"]),
    ("a_refusal_is_one_line_of_ours", "case a\n$ echo a >&2; exit 1\n? 1 a", &["own.case:3: expected nothing but"]),
    (
        "a_changed_file_is_told",
        "case a\nfile f x\n$ echo y >f\n= f unchanged\n= f holds y\\n\n= f absent",
        &["own.case:4: expected f there and unchanged by this command", "own.case:6: expected no f"],
    ),
    ("a_file_that_never_was_is_not_unchanged", "case a\n$ true\n= f unchanged", &["own.case:3: "]),
    (
        "files_are_compared",
        "case a\nfile f x\nfile g x\n$ true\n= f is g\n= f is not g\n= files f g",
        &["own.case:6: "],
    ),
    ("files_left_are_told", "case a\nfile f x\n$ true\n= files", &["expected these files: [], but there are [\"f\"]"]),
    (
        "json_is_looked_up",
        "case a\n$ echo '{\"a\":[{\"b\":\"c\"}]}'\n. a.0.b c\n. a.0 {\"b\":\"d\"}\n. x 1",
        &["own.case:4: expected `a.0` to be {\"b\":\"d\"}, but it is {\"b\":\"c\"}", "nothing is called `x`"],
    ),
    ("input_and_rows", "case a\n$ cat\n< a\\x62\n>= {1}\n| ab\n| b", &["own.case:4: ", "(own::a/b)"]),
    (
        "lines_as_they_stand",
        "case a\nfile f x\n+  \\n\n$ cat f -\n+ y\n>= x \\n\n>= z",
        &["own.case:6: ", "x \\n\ny\n"],
    ),
    ("nothing_expected", "case a\n$ true", &["own.case:1: it expects nothing, so it cannot fail"]),
    ("an_unknown_word", "case a\nvolum f luks2\n$ true\n? 0", &["own.case:2: `volum` is not known"]),
    ("an_expectation_of_nothing", "case a\n> f", &["own.case:2: there is no command yet"]),
    ("an_expectation_of_a_word", "case a\nfile f x\n? 0", &["own.case:3: this is said of commands"]),
    ("what_stands_first_begins_each", "file f x\ncase a\n$ cat f\n>= x\ncase b\n$ cat f\n>= y", &["own.case:7: "]),
    ("an_unknown_sign", "case a\n$ true\n~ f", &["own.case:3: `~` is not known"]),
    ("a_pattern_of_anything", "case a\n$ true\n> [..]", &["own.case:3: any text has that"]),
    (
        "a_column_without_a_place",
        "case a\n$ echo {1}\n? 0\n| a | b",
        &["own.case:4: no line has a place for column {2}"],
    ),
    ("a_place_without_a_column", "case a\n$ echo {1}\n? 0", &["own.case:2: no row has a column {1}"]),
    ("two_of_one_name", "case a\n$ true\n? 0\ncase a\n$ true\n? 0", &["there are two called `own::a`"]),
    ("set_up_that_fails", "case a\nvolume f luks9\n$ true\n? 0", &["own.case:2: `luks9` is no kind of volume"]),
];

pub fn trials() -> Vec<Trial> {
    let trial = |(name, text, expected): &'static (&str, &str, &[&str])| {
        Trial::test(format!("runner::{name}"), move || {
            let told = match format::parse("own", text) {
                Ok(cases) => cases.iter().find_map(|case| play::play(case).err()).unwrap_or_default(),
                Err(told) => told,
            };
            let missing = expected.iter().find(|part| !told.contains(**part));
            match missing {
                Some(part) => Err(format!("{part:?} is not in:\n{told}").into()),
                None if expected.is_empty() && !told.is_empty() => Err(told.into()),
                None => Ok(()),
            }
        })
    };
    OWN.iter().map(trial).collect()
}
