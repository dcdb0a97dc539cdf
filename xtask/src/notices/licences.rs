//! `THIRD-PARTY.txt`: whose work is in the program, and the texts that go along with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::components::Component;
use crate::step::Failed;

const START: &str = "\
cryptline is licensed under MIT or Apache-2.0, at your option. It contains the work of others, under the licences below.

Rust's standard library: MIT OR Apache-2.0. Its parts are listed in RUST-LIBRARY.html, where that file is next to this one.
In statically linked programs, musl (https://musl.libc.org): MIT, Copyright (c) 2005-2020 Rich Felker, et al.
";
const RULE: &str = "--------------------------------------------------------------------------------";
/// How the files are called that packages have for this, in capital letters.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// More is no text of a licence.
const TEXT_MAX: u64 = 256 << 10;
/// Below a package's folder.
const DEPTH_MAX: usize = 4;

/// The whole file: the list, then each text once.
pub fn file(components: &[Component]) -> Result<String, Failed> {
    let others: Vec<_> = components.iter().filter(|one| !one.is_ours).collect();
    let mut file = START.to_owned();
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for one in &others {
        let who = format!("{} {}", one.name, one.version);
        let from = one.repository.as_deref().unwrap_or("no repository is named");
        let _infallible = write!(file, "\n{who}: {}\n  {from}\n", one.licence);
        for text in texts_of(one)? {
            let users = texts.entry(text).or_default();
            if users.last() != Some(&who) {
                users.push(who.clone());
            }
        }
    }
    for (text, users) in &texts {
        let users = users.join(", ");
        let _infallible = write!(file, "\n{RULE}\nOf {users}:\n\n{text}\n");
    }
    Ok(file)
}

/// The texts that a package brings. Where it has none and leaves the choice, it is taken under Apache-2.0.
fn texts_of(component: &Component) -> Result<Vec<String>, Failed> {
    let mut paths = Vec::new();
    find(&component.folder, 0, &mut paths)
        .map_err(|error| Failed(format!("{}: {error}", component.folder.display())))?;
    if paths.is_empty() && component.licence.split(" OR ").any(|one| one == "Apache-2.0") {
        paths.push(crate::root().join("LICENSE-APACHE"));
    }
    if paths.is_empty() {
        let Component { name, licence, .. } = component;
        return Err(Failed(format!("{name} ({licence}) brings no text of its licence")));
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).map_err(|error| Failed(format!("{}: {error}", path.display())));
        Ok(normal(&String::from_utf8_lossy(&bytes?)))
    };
    paths.iter().map(read).collect()
}

fn find(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if kind.is_dir() && depth < DEPTH_MAX {
            find(&entry.path(), depth + 1, found)?;
        }
        let is_text = kind.is_file() && entry.metadata()?.len() <= TEXT_MAX;
        if is_text && !name.ends_with(".RS") && NAMES.iter().any(|start| name.starts_with(start)) {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// The same text for what differs only in white space at the ends of lines.
fn normal(text: &str) -> String {
    let lines: Vec<_> = text.trim_matches('\n').lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notices::components::of_the_program;
    use crate::portable::USUAL;

    #[test]
    fn every_package_in_the_program_is_named_and_brings_a_text() {
        let components = of_the_program(&USUAL).unwrap();
        let file = file(&components).unwrap();
        let (list, texts) = file.split_once(RULE).unwrap();
        for one in components.iter().filter(|one| !one.is_ours) {
            let who = format!("{} {}", one.name, one.version);
            assert!(list.contains(&format!("\n{who}: ")), "{who}");
            assert!(texts.contains(&who), "{who}");
        }
        assert!(texts.contains("Permission is hereby granted, free of charge"));
        // Each text once, for all who have it.
        let apache = texts.matches("TERMS AND CONDITIONS FOR USE, REPRODUCTION").count();
        assert!(apache * 3 < components.len(), "{apache}");
    }

    #[test]
    fn package_without_a_text_and_without_a_choice_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = Component {
            name: "one".to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT".to_owned(),
            repository: None,
            checksum: None,
            folder: folder.path().to_owned(),
            needs: Vec::new(),
            is_ours: false,
        };
        let Failed(why) = file(std::slice::from_ref(&one)).unwrap_err();
        assert_eq!(why, "one (MIT) brings no text of its licence");
        one.licence = "MIT OR Apache-2.0".to_owned();
        assert!(file(&[one]).unwrap().contains("Apache License"));
    }
}
