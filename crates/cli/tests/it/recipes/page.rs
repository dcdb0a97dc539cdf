//! Contents of a page that are to be tried: its fenced blocks, with what the comment before each says.
//!
//! ````text
//! ## Title
//! <!-- tried: disk, as nobody -->
//! ```console
//! $ command                 goes on where it ends with a backslash
//! ...what it prints...      `...` is anything
//! ```
//! ````

use std::fs;
use std::path::Path;

/// One fenced block.
#[derive(Debug)]
pub struct Block {
    /// The title of its section.
    pub title: String,
    /// Text that follows the opening fence.
    pub language: String,
    /// The comment `<!-- tried: a, b -->` in the line before it.
    pub marks: Vec<String>,
    pub text: String,
}

/// A command, and lines that it prints.
#[derive(Debug)]
pub struct Step {
    pub command: String,
    pub prints: Vec<String>,
}

/// The blocks of a page of the repository, from its top.
pub fn blocks(page: &str) -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(page)).expect("the page is there");
    let (mut title, mut before) = (String::new(), "");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut title);
        } else if let Some(language) = line.strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| *line != "```");
            blocks.push(Block {
                title: title.clone(),
                language: language.to_owned(),
                marks: marks(before),
                text: inside.map(|line| format!("{line}\n")).collect(),
            });
        }
        before = line;
    }
    blocks
}

fn marks(comment: &str) -> Vec<String> {
    let Some(words) = comment.strip_prefix("<!-- tried") else {
        return Vec::new();
    };
    let words = words.trim_start_matches(':').trim_end_matches("-->");
    words.split(',').map(|word| word.trim().to_owned()).collect()
}

impl Block {
    pub fn says(&self, mark: &str) -> bool {
        self.marks.iter().any(|found| found == mark)
    }

    /// Its commands. Lines that begin with `#` are for people.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            if let (true, Some(step)) = (goes_on, steps.last_mut()) {
                step.command += "\n";
                step.command += line;
            } else if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), prints: Vec::new() });
            } else if !line.is_empty() && !line.starts_with('#') {
                let step = steps.last_mut().expect("a command before what it prints");
                step.prints.push(line.to_owned());
                continue;
            }
            goes_on = line.ends_with('\\');
        }
        steps
    }
}

impl Step {
    /// Tells if `found` has the lines that are to be printed, in their order.
    pub fn is_what(&self, found: &str) -> bool {
        let mut lines = found.lines();
        self.prints.iter().all(|wanted| lines.any(|line| is_like(line.trim_end(), wanted)))
    }
}

/// Tells if `line` is `wanted`, in which `...` is anything.
fn is_like(line: &str, wanted: &str) -> bool {
    let mut parts = wanted.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        None => rest.is_empty(),
        Some(part) => part.is_empty() || line.ends_with(part),
    }
}

#[test]
fn dots_in_what_is_printed_are_anything() {
    for (line, wanted, like) in [
        ("text", "text", true),
        ("text", "tex", false),
        ("a text here", "...text...", true),
        ("a text here", "...text", false),
        ("a text", "...text", true),
        ("a test", "a...st", true),
        ("b test", "a...st", false),
    ] {
        assert_eq!(is_like(line, wanted), like, "{line} {wanted}");
    }
}
