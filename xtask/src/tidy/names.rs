//! One type name, one meaning: no name of a type is defined in two places of the program and its tools.
//!
//! Tests may repeat names. So may a module for another processor or build in place of the first (`TWINS`), and so may
//! the names that every crate has by convention.

use std::collections::BTreeMap;

/// Crates and tools whose names are compared; bindings are named after what they wrap.
const WHERE: &[&str] = &["crates/", "tools/", "xtask/"];
/// Named alike in every crate, as is usual in Rust.
const USUAL: &[&str] = &["Error", "Result"];
/// Files of which only one is compiled, and the ciphers' back ends, whose common code is written once, in macros, for
/// types of these names.
const TWINS: &[&str] =
    &["crates/cipher/src/xts/arm/", "crates/cipher/src/xts/x86/", "crates/engine/src/base/rbd/without.rs"];
const KEYWORDS: &[&str] = &["struct ", "enum ", "trait ", "union ", "type "];
const UNSAFE: &str = concat!("un", "safe ");

/// Definitions of all files so far.
#[derive(Default)]
pub struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Notes what the file at `path` defines.
    pub fn add(&mut self, path: &str, text: &str) {
        if !WHERE.iter().any(|folder| path.starts_with(folder)) || is_test(path) || is_twin(path) {
            return;
        }
        for (line, number) in text.lines().zip(1..) {
            if line.starts_with("#[cfg(test)]") && text.lines().nth(number).is_some_and(|next| next.ends_with(" {")) {
                break;
            }
            if let Some(name) = defined(line).filter(|name| !USUAL.contains(name)) {
                self.0.entry(name.to_owned()).or_default().push(format!("{path}:{number}"));
            }
        }
    }

    /// Every definition of a name that has another, as `path:line: why`.
    pub fn findings(&self) -> Vec<String> {
        let twice = self.0.iter().filter(|(_, places)| places.len() > 1);
        twice
            .map(|(name, places)| format!("{}: the type {name} has another meaning at {}", places[0], places[1]))
            .collect()
    }
}

fn is_test(path: &str) -> bool {
    let is_part =
        |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests") || part.ends_with("_tests.rs");
    path.starts_with("crates/testkit/") || path.split('/').any(is_part)
}

fn is_twin(path: &str) -> bool {
    TWINS.iter().any(|twin| path.starts_with(twin))
}

/// Name of the type that `line` defines, at any depth; associated types are none.
fn defined(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, item)| item),
        Some(rest) => rest.trim_start(),
        None => item,
    };
    let item = item.strip_prefix(UNSAFE).unwrap_or(item);
    let keyword = KEYWORDS.iter().find(|keyword| item.starts_with(**keyword))?;
    if *keyword == "type " && line.starts_with(' ') {
        return None;
    }
    let name = &item[keyword.len()..];
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
    let name = &name[..end];
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_two_meanings_is_found_and_a_test_may_repeat_one() {
        let mut names = TypeNames::default();
        names.add("crates/a/src/lib.rs", "pub struct Place;\n    pub(crate) enum Kind {\ntype Error = ();\n");
        names.add("crates/b/src/lib.rs", "impl X {\n    type Place = u8;\n}\nenum Other {}\npub type Error = ();\n");
        names.add("crates/b/src/b_tests.rs", "struct Place;\n");
        assert_eq!(names.findings(), [""; 0]);
        names.add("crates/b/src/deep.rs", "    pub trait Kind {}\n");
        let expected = "crates/a/src/lib.rs:2: the type Kind has another meaning at crates/b/src/deep.rs:1";
        assert_eq!(names.findings(), [expected]);
    }

    #[test]
    fn module_of_tests_at_the_end_of_a_file_is_not_looked_at() {
        let mut names = TypeNames::default();
        names.add("tools/a.rs", "struct One;\n#[cfg(test)]\nmod tests {\n    struct One;\n}\n");
        names.add("tools/b.rs", "#[cfg(test)]\nmod b_tests;\nstruct Two;\n");
        names.add("xtask/c.rs", "struct Two;\n");
        assert_eq!(names.findings().len(), 1);
    }
}
