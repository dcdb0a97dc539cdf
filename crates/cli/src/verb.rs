//! A verb is a row: all that is said of it beside its options.
//!
//! ```text
//! clap's derive (options, one line of what it is)  ─┐
//!                                                   ├─► program ─► help, man pages, completions
//! row (group, examples, notes, exit codes, ...)    ─┘
//! ```
//!
//! The row stands in the file of the verb, above its options, and is listed here.

use std::ffi::OsString;

use clap::{Command, CommandFactory};

use crate::cmd;
use crate::command_line::{self, Cli};
use crate::paragraphs::joined;

/// A variable of the environment or a file, and what it is for.
pub type Entry = (&'static str, &'static str);

/// Another name of a verb, in whose place the verb is put before the command line is parsed.
#[derive(Debug)]
pub struct Word {
    /// As it is typed.
    pub name: &'static str,
    /// Option that makes the verb do the same; empty where it does without.
    pub option: &'static str,
    /// Set if it is cryptsetup's, with whose short options it may be typed.
    pub is_cryptsetups: bool,
}

impl Word {
    /// A name that means the verb as it is.
    pub const fn new(name: &'static str) -> Self {
        Self { name, option: "", is_cryptsetups: false }
    }

    /// A name that means the verb with an option.
    pub const fn with(name: &'static str, option: &'static str) -> Self {
        Self { name, option, is_cryptsetups: false }
    }

    /// A name that cryptsetup has.
    pub const fn cryptsetups(name: &'static str) -> Self {
        Self { name, option: "", is_cryptsetups: true }
    }
}

/// Row of a verb.
#[derive(Debug)]
pub struct Verb {
    /// Its words behind the program's name, which has none.
    pub name: &'static str,
    /// Older names, which no list has.
    pub words: &'static [Word],
    /// Where the list of verbs has it; `None` for those that it has not, and below another verb.
    pub group: Option<Group>,
    /// Set if the short help has it as well.
    pub is_main: bool,
    /// Command lines, and above some of them a comment.
    pub examples: &'static str,
    /// Paragraphs about it, and lists, whose lines begin with spaces.
    pub notes: &'static str,
    /// Exit codes, each followed by its meaning.
    pub exit: &'static str,
    /// Variables that it reads. Options have theirs in [`OPTIONS`].
    pub environment: &'static [Entry],
    /// Files that it reads or keeps.
    pub files: &'static [Entry],
    /// Other pages.
    pub see: &'static str,
    /// Set if no key comes near it, so its memory needs no protection.
    pub keyless: bool,
    /// Set if something is gone afterwards: it is never proposed for a word that looks alike.
    pub destroys: bool,
}

impl Verb {
    /// Says nothing yet.
    pub const EMPTY: Self = Self {
        name: "",
        words: &[],
        group: None,
        is_main: false,
        examples: "",
        notes: "",
        exit: "",
        environment: &[],
        files: &[],
        see: "",
        keyless: false,
        destroys: false,
    };

    /// The end of its help.
    fn end_of_help(&self) -> String {
        let mut parts = Vec::new();
        if !self.examples.is_empty() {
            let lines: String = self.examples.lines().map(|line| format!("\n  {line}")).collect();
            parts.push(format!("Examples:{lines}"));
        }
        if !self.notes.is_empty() {
            parts.push(joined(self.notes));
        }
        if !self.exit.is_empty() {
            parts.push(format!("Exit codes: {}.", self.exit));
        }
        parts.join("\n\n")
    }
}

/// Part of the list of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Those that give the decrypted disk to somebody.
    Use,
    /// Those that make, fill and show volumes.
    Volumes,
    /// Those that change headers.
    Keys,
    /// All others.
    Tools,
    /// Pages of help, which the list leaves out.
    Topics,
}

const LISTED: [(Group, &str); 4] = [
    (Group::Use, "Use a volume"),
    (Group::Volumes, "Make, copy and inspect volumes"),
    (Group::Keys, "Manage keys and headers"),
    (Group::Tools, "Other commands"),
];

pub(crate) const NOTIFY_SOCKET: Entry = ("NOTIFY_SOCKET", "Where the server says that clients can connect");
pub(crate) const XDG: Entry =
    ("XDG_RUNTIME_DIR", "For users other than root: where it is kept what is known of their devices");
pub(crate) const LOCALE: Entry = ("LC_ALL, LC_CTYPE, LANG, TERM", "Whether a recovery key is also drawn as a QR code");
pub(crate) const CPU: Entry = (
    "CRYPTLINE_CPU",
    "Implementation of AES-XTS to use in place of the fastest that the processor has; a wrong one is an error that lists them",
);
pub(crate) const CEPH: Entry =
    ("/etc/ceph/ceph.conf", "The cluster of targets rbd:POOL/IMAGE, unless ?conf=PATH names another");
pub(crate) const DEVICES: Entry =
    ("/run/cryptline, $XDG_RUNTIME_DIR/cryptline", "What is known of the devices of root and of a user; never a key");
pub(crate) const LOCKS: Entry = ("/run/cryptsetup", "Locks of headers on block devices, shared with cryptsetup");
pub(crate) const UNIT: Entry = (
    "/etc/cryptline/NAME.conf, /etc/cryptline/NAME.cred",
    "Settings and key of the systemd units cryptline@NAME and cryptline-mount@NAME",
);
pub(crate) const FUSE: Entry = ("/etc/fuse.conf", "user_allow_other lets users other than root use --allow-other");

const PRIVATE_SOCKET: Entry =
    ("XDG_RUNTIME_DIR, TMPDIR", "Where the private socket of a server without an address of its own is made");

/// Variables of the environment that options with some names read.
pub const OPTIONS: &[(&[&str], Entry)] = &[
    (&["key_file"], CPU),
    (&["unix", "socket_path"], PRIVATE_SOCKET),
    (
        &["unix"],
        ("LISTEN_FDS, LISTEN_PID", "Sockets that systemd or another program passes; the server then prints nothing"),
    ),
    (&["unix", "socket_path"], NOTIFY_SOCKET),
    (&["tpm_device"], ("SYSTEMD_TPM2_DEVICE", "The TPM, where --tpm-device does not say which")),
];

/// The same for files.
pub const OPTION_FILES: &[(&[&str], Entry)] = &[(&["key_file"], CEPH)];

/// All rows: those of the program, of the verbs, and of the verbs below them.
const ROWS: &[&[Verb]] = &[
    &[
        command_line::PROGRAM,
        cmd::serve::VERB,
        cmd::vhost_user::VERB,
        cmd::mount::VERB,
        cmd::attach::VERB,
        cmd::detach::VERB,
        cmd::devices::VERB,
        cmd::info::VERB,
        cmd::check::VERB,
        cmd::create::VERB,
        cmd::copy::VERB,
        cmd::encrypt::VERB,
        cmd::resize::VERB,
        cmd::table::VERB,
        cmd::top::VERB,
        cmd::ctl::VERB,
        cmd::benchmark::VERB,
        cmd::testing::VERB,
        cmd::certs::VERB,
        cmd::completions::VERB,
    ],
    cmd::key::VERBS,
    cmd::token::VERBS,
    cmd::header::VERBS,
    cmd::btt::VERBS,
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Verb> {
    ROWS.iter().copied().flatten()
}

/// The row of a verb by its words, of the program for none.
pub fn row(name: &str) -> Option<&'static Verb> {
    rows().find(|row| row.name == name)
}

/// A command line that begins with another name of a verb, or asks for help about one, with the verb in its place; and
/// that name.
pub fn in_our_words(mut arguments: Vec<OsString>) -> (Vec<OsString>, Option<&'static str>) {
    let asks = arguments.get(1).is_some_and(|word| word == "help");
    let at = 1 + usize::from(asks);
    let mut words = rows().flat_map(|row| row.words.iter().map(move |word| (row, word)));
    let typed = arguments.get(at).cloned().unwrap_or_default();
    let Some((row, word)) = words.find(|(_, word)| typed == word.name) else {
        return (arguments, None);
    };
    let option = (!asks && !word.option.is_empty()).then_some(word.option);
    arguments.splice(at..=at, row.name.split(' ').chain(option).map(OsString::from));
    (arguments, Some(word.name))
}

/// The verb that words name, up to the first that names none.
pub fn find<'a>(program: &'a Command, words: &[OsString]) -> &'a Command {
    let mut found = program;
    for word in words {
        let Some(verb) = found.find_subcommand(word) else { break };
        found = verb;
    }
    found
}

/// The whole command line: options as derived, and what the rows say.
pub fn program() -> Command {
    described(Cli::command(), "")
}

/// `name` has the verb's words.
fn described(command: Command, name: &str) -> Command {
    let command = command.mut_subcommands(|verb| {
        let name = below(name, &verb);
        described(verb, &name)
    });
    let row = row(name);
    let is_of_program = !name.is_empty() && !name.contains(' ');
    let is_listed = row.and_then(|row| row.group).is_some_and(|group| group != Group::Topics);
    let command = command.hide(is_of_program && !is_listed);
    match row {
        Some(row) => command.after_help(row.end_of_help()),
        None => command,
    }
}

/// Words of a verb below that of some words.
pub fn below(name: &str, verb: &Command) -> String {
    [name, verb.get_name()].join(" ").trim_start().to_owned()
}

/// The program whose help has the verbs in groups.
pub fn grouped(program: Command) -> Command {
    let styles = program.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = program.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name().len()).max();
    let width = width.unwrap_or(0);
    let mut list = String::new();
    for (group, title) in LISTED {
        list += &format!("{header}{title}:{header:#}\n");
        let of_group = |verb: &&Command| row(verb.get_name()).is_some_and(|row| row.group == Some(group));
        for verb in program.get_subcommands().filter(of_group) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            list += &format!("  {literal}{:width$}{literal:#}  {about}\n", verb.get_name());
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    program.help_template(template)
}

#[cfg(test)]
#[path = "verb_tests.rs"]
mod tests;
