//! A walk through all kinds of errors of the libraries: what a person reads says what to do next, or the reason why it
//! does not is here.
//!
//! The kinds are those that the sources list, so one that is new fails here until it is among the samples.

use std::collections::BTreeSet;

use super::*;

/// Kinds whose text names no step, and why.
const NO_STEP: &[(&str, &str)] = &[
    ("Problem::Target", "each text says how a target is named"),
    ("Problem::Zones", "each text names the size to use"),
    ("Problem::Tang", "the server's answer is all that is known"),
    ("Problem::Pins", "each text says what is wrong with the configuration"),
    ("Problem::Tpm", "each text says what the TPM lacks"),
    ("Problem::Cipher", "the texts are the kernel's, with the values that are possible"),
    ("Problem::CopyFault", "the system's error; the two with a remedy have it"),
    ("Problem::CopyStopped", "whoever has stopped it knows"),
    ("CopyError::NoPlace", "it lists the places"),
    ("CopyError::Unread", "whoever has ended the reader knows"),
    ("Problem::Draft", "the system's error; those with a remedy have it"),
    ("Problem::Io", "the system's error"),
    ("Problem::NoReport", "the system's error"),
    ("Problem::Keys", "the text is that of whoever was asked"),
    ("LuksError::Parameters", "each text names the values that are possible"),
    ("LuksError::BackupDiffers", "each text says in what, and what would be lost"),
    ("LuksError::Io", "the system's error"),
    ("SealError::NoCanonicalForm", "each text says what about the header forbids it"),
    ("OpenError::System", "the system's error"),
    ("OpenError::Geometry", "each text says which size or block to change"),
    ("OpenError::Remote", "each text is about that server, and says what it wants"),
    ("BttError::Refused", "the table is another program's"),
    ("BttError::TooMany", "nobody has made one"),
    ("BttError::Medium", "the system's error"),
    ("PartitionError::NotThere", "it lists the partitions"),
    ("PartitionError::Container", "it lists the partitions"),
    ("PartitionError::Io", "the system's error"),
    ("RulesError::BadPolicy", "each text says which line is wrong"),
    ("RulesError::Read", "the system's error"),
    ("RulesError::Write", "the system's error"),
    ("RulesError::SealKey", "the error of the key"),
    ("RulesError::State", "each text says what is wrong with the file"),
    ("AttachError::Lane", "the error of the device"),
    ("AttachError::System", "the system's error"),
];

/// Words of which a next step has one.
const STEPS: &[&str] = &[
    "`",
    "--",
    "use ",
    "Use ",
    "choose ",
    "leave ",
    "leaves ",
    "remove ",
    "restore ",
    "wait ",
    "stop ",
    "name ",
    "make ",
    "try ",
    "Try ",
    "add ",
    "free ",
    "move ",
    "sync ",
    "put ",
    "open it ",
    "give it ",
    "raise ",
    "write for example ",
    "copy it ",
    "compare ",
    "change it ",
    "finish ",
    "convert ",
    "seal it ",
    "seal the header ",
    "serve it ",
    "resize ",
    "let ",
    "it takes Linux ",
    "check the spelling",
    "a backup of ",
    "the kernel may ",
    "reopen ",
    "unset ",
    "is needed, as in ",
    "cut short?",
    "failing?",
    "choose plain64",
    "need a mode ",
    "the cipher name is longer ",
];

/// The kinds of an enum as its source lists them.
fn kinds_in(source: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let kinds = lines.filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()));
    kinds.map(|line| line.chars().take_while(char::is_ascii_alphanumeric).collect()).collect()
}

fn kind_of(error: &impl fmt::Debug) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn begins_a_word(text: &str, step: &str) -> bool {
    text.match_indices(step).any(|(at, _)| !text[..at].ends_with(char::is_alphabetic))
}

/// All samples of an enum, each with all that is said of it.
struct Samples {
    name: &'static str,
    source: &'static str,
    said: Vec<(String, String)>,
}

impl Samples {
    fn of<E: fmt::Debug>(name: &'static str, source: &'static str, all: Vec<E>, say: impl Fn(E) -> String) -> Self {
        let said = all.into_iter().map(|error| (kind_of(&error), say(error))).collect();
        Self { name, source, said }
    }

    /// Kinds that say no next step and are not listed, or the other way around.
    fn wrong(&self) -> Vec<String> {
        let sampled: BTreeSet<_> = self.said.iter().map(|(kind, _)| kind.clone()).collect();
        assert_eq!(sampled, kinds_in(self.source, self.name_in_source()), "samples of {}", self.name);
        let wrong = self.said.iter().filter(|(kind, said)| {
            let is_listed = NO_STEP.iter().any(|(name, _)| *name == format!("{}::{kind}", self.name));
            STEPS.iter().any(|step| begins_a_word(said, step)) == is_listed
        });
        wrong.map(|(kind, said)| format!("{}::{kind}: {said}", self.name)).collect()
    }

    fn name_in_source(&self) -> &'static str {
        if self.name == "LuksError" { "Error" } else { self.name }
    }
}

/// All that is said of a problem, by verbs that open, copy, or change a header.
fn said(problem: Problem) -> String {
    let error = cryptline::Error::from(problem);
    let plain = error.to_string();
    let advice = match error.problem() {
        Problem::Luks(header) => [luks_advice(header), header_advice(header)].concat(),
        problem => [advice(problem), copy_advice(problem).unwrap_or_default()].concat(),
    };
    let (words, usual) = words(&error);
    format!("{plain}\n{words}\n{advice}{usual}")
}

#[path = "error_samples_tests.rs"]
mod samples;

#[test]
fn every_error_says_what_to_do_next_or_has_a_reason_why_not() {
    let all = samples::all();
    let wrong: Vec<_> = all.iter().flat_map(Samples::wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, _) in NO_STEP {
        let exists =
            all.iter().any(|samples| samples.said.iter().any(|(kind, _)| *name == format!("{}::{kind}", samples.name)));
        assert!(exists, "{name} is listed and is no kind");
    }
}
