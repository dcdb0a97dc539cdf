//! The format of the files: cases, rows, steps, expectations. What cannot be understood, and what could never fail, is
//! an error with its line.

use cryptline_testkit::peer::PEERS;

use crate::check::{Check, Expect, FileState, Stream};

/// Words that begin a step of set-up.
const WORDS: [&str; 11] =
    ["volume", "file", "fill", "poke", "edit", "json", "header", "loop", "user", "server", "stop"];

/// One test.
pub struct Case {
    /// `file::case`, and `/row` for one with rows.
    pub name: String,
    /// The file's name without its ending.
    pub file: String,
    /// Programs without which it is skipped.
    pub peers: Vec<&'static str>,
    pub steps: Vec<Step>,
}

/// A command or a word, and what is expected of it.
pub struct Step {
    pub line: usize,
    pub action: Action,
    /// Standard input, or what the file holds besides.
    pub input: Vec<u8>,
    pub checks: Vec<Check>,
}

pub enum Action {
    /// A line for the shell.
    Run(String),
    /// One of [`WORDS`], and what follows it.
    Word(&'static str, String),
}

type Lines<'a> = Vec<(usize, &'a str)>;

/// The cases of a file.
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut blocks: Vec<(usize, &str, Lines, Lines)> = Vec::new();
    // What stands before the first case begins each of them.
    let mut before = Lines::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim_end)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(name) = text.strip_prefix("case ") {
            blocks.push((line, name, before.clone(), Lines::new()));
            continue;
        }
        let Some((_, _, body, rows)) = blocks.last_mut() else {
            before.push((line, text));
            continue;
        };
        match text.strip_prefix("| ") {
            Some(row) => rows.push((line, row)),
            None if !rows.is_empty() => return Err(at(file, line, "rows are the end of a case")),
            None => body.push((line, text)),
        }
    }
    let mut cases = Vec::new();
    for (line, name, body, rows) in blocks {
        if rows.is_empty() {
            let owned: Vec<_> = body.iter().map(|(line, text)| (*line, (*text).to_owned())).collect();
            cases.push(case(file, line, name.to_owned(), &owned)?);
        }
        for (line, row) in rows {
            let row = format!("{row} ").replace(" | |", " |  |").replace(" | |", " |  |");
            let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
            let body = filled(file, line, &body, &cells)?;
            cases.push(case(file, line, format!("{name}/{}", cells[0]), &body)?);
        }
    }
    for (index, case) in cases.iter().enumerate() {
        if cases[..index].iter().any(|other| other.name == case.name) {
            return Err(format!("{file}.case: there are two called `{}`", case.name));
        }
    }
    Ok(cases)
}

/// The lines with the row's cells for `{1}`, `{2}`, ...; ` ;; ` in a cell begins a new line.
fn filled(file: &str, row: usize, body: &Lines, cells: &[&str]) -> Result<Vec<(usize, String)>, String> {
    let mut lines = Vec::new();
    let mut used = vec![false; cells.len()];
    for (line, text) in body {
        let mut text = (*text).to_owned();
        for (number, cell) in (1..).zip(cells) {
            let column = format!("{{{number}}}");
            used[number - 1] |= text.contains(&column);
            text = text.replace(&column, cell);
        }
        lines.extend(text.split(" ;; ").map(|text| (*line, text.to_owned())));
    }
    // The first one may be the row's name alone.
    match used.iter().skip(1).position(|used| !used) {
        Some(column) => Err(at(file, row, &format!("no line has a place for column {{{}}}", column + 2))),
        None => Ok(lines),
    }
}

fn at(file: &str, line: usize, told: &str) -> String {
    format!("{file}.case:{line}: {told}")
}

fn case(file: &str, line: usize, name: String, body: &[(usize, String)]) -> Result<Case, String> {
    let mut case =
        Case { name: format!("{file}::{name}"), file: file.to_owned(), peers: Vec::new(), steps: Vec::new() };
    for (line, text) in body {
        add(&mut case, *line, text).map_err(|told| at(file, *line, &told))?;
    }
    if case.steps.iter().all(|step| step.checks.is_empty()) {
        return Err(at(file, line, "it expects nothing, so it cannot fail"));
    }
    for step in &mut case.steps {
        let is_run = !matches!(step.action, Action::Word(word, _) if word != "stop");
        let has_code = step.checks.iter().any(|check| matches!(check.expect, Expect::Exit(_)));
        if is_run && !has_code {
            step.checks.insert(0, Check { line: step.line, expect: Expect::Exit(0) });
        }
    }
    Ok(case)
}

/// Understands one line.
fn add(case: &mut Case, line: usize, text: &str) -> Result<(), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if let Some(column) = ["{1}", "{2}", "{3}", "{4}", "{5}", "{6}"].into_iter().find(|column| text.contains(column)) {
        return Err(format!("no row has a column {column}"));
    }
    let mut step = |action| case.steps.push(Step { line, action, input: Vec::new(), checks: Vec::new() });
    if let Some(known) = WORDS.into_iter().find(|known| *known == word) {
        step(Action::Word(known, rest.to_owned()));
    } else if word == "$" {
        step(Action::Run(rest.to_owned()));
    }
    match word {
        "peer" | "$" | "server" => {
            let listed = |word: &str| PEERS.iter().map(|info| info.name).find(|name| *name == word);
            for word in rest.split_whitespace() {
                match listed(word) {
                    Some(peer) if !case.peers.contains(&peer) => case.peers.push(peer),
                    None if text.starts_with("peer") => return Err(format!("{word} is not in testkit's PEERS")),
                    _ => {}
                }
            }
        }
        "" | "#" => {}
        _ if WORDS.contains(&word) => {}
        "<" => last(case)?.input.extend(unescaped(rest)?),
        "+" => last(case)?.input.extend(format!("{rest}\n").into_bytes()),
        "?" | ">" | ">-" | ">=" | "!" | "!-" | "!=" | "." | "=" => expectation(last(case)?, line, word, rest)?,
        _ => return Err(format!("`{word}` is not known")),
    }
    Ok(())
}

fn last(case: &mut Case) -> Result<&mut Step, String> {
    case.steps.last_mut().ok_or_else(|| "there is no command yet".to_owned())
}

fn expectation(step: &mut Step, line: usize, word: &str, rest: &str) -> Result<(), String> {
    let text = |stream| {
        let letters = rest.replace("[..]", "");
        if letters.trim().is_empty() { Err("any text has that".to_owned()) } else { Ok((stream, rest.to_owned())) }
    };
    if word != "=" && matches!(step.action, Action::Word(word, _) if word != "stop") {
        return Err("this is said of commands".to_owned());
    }
    let stream = if word.starts_with('>') { Stream::Out } else { Stream::Err };
    let expect = match word {
        "?" => {
            let (code, refusal) = rest.split_once(' ').unwrap_or((rest, ""));
            let code = code.parse().map_err(|_| format!("`{code}` is no exit code"))?;
            step.checks.push(Check { line, expect: Expect::Exit(code) });
            if refusal.is_empty() {
                return Ok(());
            }
            Expect::Refused(refusal.to_owned())
        }
        ">" | "!" => text(stream).map(|(stream, text)| Expect::Has(stream, text))?,
        ">-" | "!-" => text(stream).map(|(stream, text)| Expect::HasNot(stream, text))?,
        ">=" | "!=" => match step.checks.last_mut() {
            Some(Check { expect: Expect::All(same, lines), .. }) if *same == stream => {
                lines.push(rest.to_owned());
                return Ok(());
            }
            _ => Expect::All(stream, vec![rest.to_owned()]),
        },
        "." => {
            let (path, value) = rest.split_once(' ').ok_or("`. PATH VALUE`")?;
            Expect::Json(path.to_owned(), value.to_owned())
        }
        _ => {
            let (name, state) = rest.split_once(' ').unwrap_or((rest, ""));
            file_state(name, state)?
        }
    };
    step.checks.push(Check { line, expect });
    Ok(())
}

fn file_state(name: &str, state: &str) -> Result<Expect, String> {
    if name == "files" {
        return Ok(Expect::Files(state.to_owned()));
    }
    let (word, rest) = state.split_once(' ').unwrap_or((state, ""));
    let state = match (word, rest) {
        ("unchanged", "") => FileState::Unchanged,
        ("absent", "") => FileState::Absent,
        ("is", other @ "not") => return Err(format!("`{other}` what?")),
        ("is", rest) if !rest.is_empty() => match rest.strip_prefix("not ") {
            Some(other) => FileState::Differs(other.to_owned()),
            None => FileState::Same(rest.to_owned()),
        },
        ("holds", rest) => FileState::Holds(unescaped(rest)?),
        _ => return Err(format!("`{state}` is no state of a file")),
    };
    Ok(Expect::File(name.to_owned(), state))
}

/// Text with `\n`, `\t`, `\\` and `\xNN` for bytes.
pub fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (byte, used) = match rest {
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => {
                let digits = String::from_utf8_lossy(&[*high, *low]).into_owned();
                (u8::from_str_radix(&digits, 16).map_err(|_| format!("\\x{digits}"))?, 3)
            }
            _ => return Err(format!("an odd \\ in `{text}`")),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    Ok(bytes)
}
