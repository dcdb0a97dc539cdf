//! The packages that the program is linked from, as Cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::portable::Build;
use crate::step::{Failed, output};

/// Where the graph begins.
const PROGRAM: &str = "cryptline-cli";

/// One package.
pub struct Component {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub licence: String,
    pub repository: Option<String>,
    /// SHA-256 of the package as it was downloaded; none for our own.
    pub checksum: Option<String>,
    /// Its source.
    pub folder: PathBuf,
    /// Places of those it needs, in the list that it is in.
    pub needs: Vec<usize>,
    /// Set if it is a member of this workspace.
    pub is_ours: bool,
}

/// The program first, then all that is linked into it. What runs only while it is built is not among them.
pub fn of_the_program(build: &Build) -> Result<Vec<Component>, Failed> {
    let mut cargo = crate::step::cargo_command();
    cargo.args(["metadata", "--format-version=1", "--locked"]);
    cargo.args(["--manifest-path=crates/cli/Cargo.toml", "--filter-platform", build.target]);
    if let Some(features) = build.features {
        cargo.args(["--no-default-features", "--features", features]);
    }
    let text = output(&mut cargo)?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| Failed(format!("`cargo metadata` says what is no JSON: {error}")))?;
    let lock =
        fs::read_to_string(crate::root().join("Cargo.lock")).map_err(|error| Failed(format!("Cargo.lock: {error}")))?;
    components(&metadata, &checksums(&lock))
        .ok_or_else(|| Failed("`cargo metadata` has not the form it had".to_owned()))
}

fn components(metadata: &Value, checksums: &Checksums<'_>) -> Option<Vec<Component>> {
    let by_id = |list: &'static str, parent: &'_ Value| -> Option<BTreeMap<String, Value>> {
        let values = parent[list].as_array()?.iter();
        let named = values.map(|value| Some((value["id"].as_str()?.to_owned(), value.clone())));
        named.collect()
    };
    let packages = by_id("packages", metadata)?;
    let nodes = by_id("nodes", &metadata["resolve"])?;
    let (first, _) = packages.iter().find(|(_, package)| package["name"] == PROGRAM)?;
    let mut order = vec![first.clone()];
    let mut seen = BTreeSet::from([first.clone()]);
    let mut edges = Vec::new();
    let mut next = 0;
    while let Some(id) = order.get(next).cloned() {
        let mut needs = linked(nodes.get(&id)?)?;
        needs.retain(|id| !packages.get(id).is_some_and(is_macro));
        for id in &needs {
            if seen.insert(id.clone()) {
                order.push(id.clone());
            }
        }
        edges.push(needs);
        next += 1;
    }
    let place = |id: &String| order.iter().position(|other| other == id);
    let found = order.iter().zip(&edges).map(|(id, needs)| {
        let needs: Option<Vec<_>> = needs.iter().map(place).collect();
        component(packages.get(id)?, needs?, checksums)
    });
    found.collect()
}

/// Returns what a node of the graph needs when the program runs.
fn linked(node: &Value) -> Option<Vec<String>> {
    let needed = node["deps"].as_array()?.iter().filter(|need| {
        let kinds = need["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    });
    needed.map(|need| need["pkg"].as_str().map(str::to_owned)).collect()
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array();
    targets.is_some_and(|targets| targets.iter().any(|target| target["kind"][0] == "proc-macro"))
}

fn component(package: &Value, needs: Vec<usize>, checksums: &Checksums<'_>) -> Option<Component> {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let (name, version) = (text("name")?, text("version")?);
    let checksum = checksums.get(&(&*name, &*version)).map(|&sum| sum.to_owned());
    Some(Component {
        // Packages from before SPDX expressions say "or" by a slash.
        licence: text("license")?.replace('/', " OR "),
        repository: text("repository"),
        checksum,
        folder: Path::new(&text("manifest_path")?).parent()?.to_owned(),
        needs,
        is_ours: package["source"].is_null(),
        name,
        version,
    })
}

/// By name and version.
type Checksums<'lock> = BTreeMap<(&'lock str, &'lock str), &'lock str>;

/// Reads what `Cargo.lock` says of the packages that were downloaded.
fn checksums(lock: &str) -> Checksums<'_> {
    let of = |entry| -> Option<_> {
        let value = |key: &str| {
            let lines = str::lines(entry);
            let line = lines.filter_map(|line| line.strip_prefix(key)).next()?;
            line.strip_prefix(" = \"")?.strip_suffix('"')
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::USUAL;

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"one\"\n\
                    version = \"1.2.3\"\nsource = \"registry\"\nchecksum = \"abc\"\ndependencies = [\n \"own\",\n]\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&("one", "1.2.3")], "abc");
    }

    #[test]
    fn what_only_builds_or_tests_the_program_is_not_in_it() {
        let components = of_the_program(&USUAL).unwrap();
        assert_eq!(components[0].name, PROGRAM);
        let has = |name: &str| components.iter().any(|component| component.name == name);
        assert!(has("cryptline-engine") && has("ring") && has("clap_builder"));
        for other in ["cryptline-testkit", "cc", "syn", "clap_derive", "proptest"] {
            assert!(!has(other), "{other}");
        }
    }
}
