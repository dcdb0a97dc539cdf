//! Expectations, and whether they hold.

use std::fs;
use std::path::Path;

use cryptline_testkit::peer::Run;
use serde_json::Value;

/// The beginning of a warning that any command may give to users who may lock little memory. Root may lock all.
const KEYS_MAY_BE_SWAPPED: &str = "cryptline: warning: keys may be written to swap space";

/// One expectation, and where it stands.
pub struct Check {
    pub line: usize,
    pub expect: Expect,
}

#[derive(Clone, Debug)]
pub enum Expect {
    Exit(i32),
    /// Nothing on standard output, one line of ours on standard error with this in it.
    Refused(String),
    /// A line with this in it.
    Has(Stream, String),
    /// No line with this in it.
    HasNot(Stream, String),
    /// These lines and no others.
    All(Stream, Vec<String>),
    /// Standard output is JSON with this value at this place.
    Json(String, String),
    File(String, FileState),
    /// Contents of the folder besides the key and the program.
    Files(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Out,
    Err,
}

#[derive(Clone, Debug)]
pub enum FileState {
    /// As it was before the command.
    Unchanged,
    Absent,
    Same(String),
    Differs(String),
    Holds(Vec<u8>),
}

/// State to look at.
pub struct Seen<'a> {
    /// `None` after a word that runs nothing.
    pub run: Option<&'a Run>,
    pub folder: &'a Path,
    /// Files as they were before the command.
    pub before: &'a [(String, Option<Vec<u8>>)],
}

impl Check {
    /// Returns what is wrong: it does not hold, or it would hold of anything, as one that is spoiled shows.
    pub fn told(&self, seen: &Seen) -> Option<String> {
        let (holds, expected) = self.expect.seen(seen);
        if !holds {
            return Some(format!("expected {expected}"));
        }
        let spoiled = self.expect.spoiled()?;
        spoiled.seen(seen).0.then(|| format!("this looks at nothing: {spoiled:?} holds as well"))
    }
}

impl Expect {
    /// Another code, or a text that nobody says. There is none for what has no text: its opposite does not hold.
    fn spoiled(&self) -> Option<Self> {
        let mut other = self.clone();
        match &mut other {
            Self::Exit(code) => *code += 1,
            Self::Refused(text) | Self::Has(_, text) | Self::Files(text) | Self::Json(_, text) => text.push('\u{1}'),
            Self::All(_, lines) => lines.last_mut()?.push('\u{1}'),
            Self::File(_, FileState::Holds(bytes)) => bytes.push(1),
            Self::HasNot(..) | Self::File(..) => return None,
        }
        Some(other)
    }

    fn seen(&self, seen: &Seen) -> (bool, String) {
        let run = || seen.run.expect("the format gives these to commands alone");
        let text = |stream| match stream {
            Stream::Out => run().stdout_text(),
            Stream::Err => run().stderr_text(),
        };
        let folder = seen.folder.to_str().expect("a folder's name is text");
        let like = |line: &str, pattern: &str| like(line, &pattern.replace("$FOLDER", folder));
        match self {
            Self::Exit(code) => (run().status.code() == Some(*code), format!("exit code {code}")),
            Self::Refused(part) => {
                let said = text(Stream::Err);
                let mut lines = said.lines().filter(|line| is_root() || !line.starts_with(KEYS_MAY_BE_SWAPPED));
                let refusal = lines.next().filter(|line| line.starts_with("cryptline: ") && like(line, part));
                let ours = refusal.is_some() && lines.next().is_none() && run().stdout.is_empty();
                (ours, format!("nothing but one line on stderr, of cryptline, with `{part}`"))
            }
            Self::Has(stream, part) => {
                (text(*stream).lines().any(|line| like(line, part)), format!("a line of {stream} with `{part}`"))
            }
            Self::HasNot(stream, part) => {
                (!text(*stream).lines().any(|line| like(line, part)), format!("no line of {stream} with `{part}`"))
            }
            Self::All(stream, lines) => {
                let said = text(*stream);
                let whole = |line: &str| format!("\u{2}{line}\u{3}");
                let lines = if lines[..] == [String::new()] { &[] } else { &lines[..] };
                let same = said.lines().count() == lines.len()
                    && said.lines().zip(lines).all(|(line, pattern)| like(&whole(line), &whole(pattern)));
                (same, format!("this for all of {stream}:\n{}", lines.join("\n")))
            }
            Self::Json(path, value) => {
                let found = json(&text(Stream::Out), path);
                let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(&**value));
                let told = found.as_ref().map_or_else(|why| why.clone(), Value::to_string);
                (found.as_ref() == Ok(&value), format!("`{path}` to be {value}, but it is {told}"))
            }
            Self::Files(names) => {
                let found = listed(seen.folder);
                let mut names: Vec<_> = names.split_whitespace().collect();
                names.sort_unstable();
                (found == names, format!("these files: {names:?}, but there are {found:?}"))
            }
            Self::File(name, state) => state.seen(name, seen),
        }
    }
}

impl FileState {
    fn seen(&self, name: &str, seen: &Seen) -> (bool, String) {
        let bytes = |name: &str| fs::read(seen.folder.join(name)).ok();
        match self {
            Self::Unchanged => {
                let before = &seen.before.iter().find(|(other, _)| other == name).expect("it was read").1;
                (before.is_some() && *before == bytes(name), format!("{name} there and unchanged by this command"))
            }
            Self::Absent => (seen.folder.join(name).symlink_metadata().is_err(), format!("no {name}")),
            Self::Same(other) => {
                let same = bytes(name).is_some() && bytes(name) == bytes(other);
                (same, format!("{name} to be there with the bytes of {other}"))
            }
            Self::Differs(other) => {
                let both = bytes(name).zip(bytes(other));
                (both.is_some_and(|(one, two)| one != two), format!("{name} and {other} to be there and differ"))
            }
            Self::Holds(held) => {
                let found = bytes(name);
                let shown =
                    found.as_ref().map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned());
                (
                    found.as_ref() == Some(held),
                    format!("{name} to hold `{}`, not {shown:?}", String::from_utf8_lossy(held)),
                )
            }
        }
    }
}

impl std::fmt::Display for Stream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if *self == Self::Out { "stdout" } else { "stderr" })
    }
}

/// Tells if the pattern's pieces, between its `[..]`, are in the line in their order.
fn like(line: &str, pattern: &str) -> bool {
    let mut rest = Some(line);
    for piece in pattern.split("[..]") {
        rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, after)| after);
    }
    rest.is_some()
}

/// The value at a path such as `keyslots.0.kdf.type`.
fn json(text: &str, path: &str) -> Result<Value, String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    for part in path.split('.') {
        let inner = match part.parse::<usize>() {
            Ok(index) if value.is_array() => value.get_mut(index),
            _ => value.get_mut(part),
        };
        value = inner.ok_or_else(|| format!("not there: nothing is called `{part}`"))?.take();
    }
    Ok(value)
}

fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder of the case");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !["key", "bin"].contains(&name.as_str())).collect();
    names.sort();
    names
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
