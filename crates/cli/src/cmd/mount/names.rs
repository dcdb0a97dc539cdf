//! Names of the files in a mounted folder: no disk has that of another, or of what describes another.

use std::cell::RefCell;
use std::ffi::OsString;

use cryptline_serve::fuse::{MountedOver, info_name};

use crate::CliError;
use crate::serve::names::free_name;

/// The longest name of a disk: `.info` comes behind it.
const NAME_MAX: usize = 250;
/// Of a target's name no more than so many bytes are taken: a number may come behind it.
const OWN_MAX: usize = 240;

/// Names for targets.
pub struct Names<'a> {
    given: &'a [String],
    taken: RefCell<Vec<String>>,
}

impl<'a> Names<'a> {
    /// Those that were `given` for the first of the `targets`.
    pub fn new(given: &'a [String], targets: &[OsString], over: MountedOver) -> Result<Self, CliError> {
        if over == MountedOver::File && targets.len() > 1 {
            return Err(CliError::parameters(
                "several disks need an empty folder as their MOUNTPOINT; over a file there is room for one",
            ));
        }
        // A table is one disk.
        if given.len() > targets.len().max(1) {
            return Err(CliError::parameters("more --name than TARGETs; use one for each, in their order"));
        }
        for (index, name) in given.iter().enumerate() {
            let is_odd = ["", ".", ".."].contains(&name.as_str()) || name.contains(['/', '\0']);
            if is_odd || name.len() > NAME_MAX {
                return Err(CliError::parameters(format!(
                    "--name {name:?}: use the name of a file, without a slash and with {NAME_MAX} bytes at most"
                )));
            }
            if clashes(&given[..index], name) {
                return Err(CliError::parameters(format!(
                    "--name {name:?}: another disk or its description is called that; choose another name"
                )));
            }
        }
        Ok(Self { given, taken: RefCell::new(given.to_vec()) })
    }

    /// The name for a target by its number and the last part of its path.
    pub fn choose(&self, index: usize, file: String) -> String {
        if let Some(given) = self.given.get(index) {
            return given.clone();
        }
        // Many programs take a colon for something else, and an export may be called like a path.
        let is_odd = ["", ".", ".."].contains(&file.as_str()) || file.contains([':', '/']) || file.len() > OWN_MAX;
        let own = if is_odd { "disk".to_owned() } else { file };
        let mut taken = self.taken.borrow_mut();
        let name = free_name(&own, NAME_MAX, |name| clashes(&taken, name));
        taken.push(name.clone());
        name
    }
}

fn clashes(taken: &[String], name: &str) -> bool {
    let info = info_name(name);
    let is_same = |it: &String| it == name || *it == info || info_name(it) == name;
    taken.iter().any(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn no_file_is_called_as_another() {
        let given = texts(&["mine"]);
        let files = ["x", "a", "a", "a.info", "ram:1M", "b:c", "mine", "a-2"];
        let names = Names::new(&given, &files.map(OsString::from), MountedOver::Folder).unwrap();
        let files = files.iter().enumerate();
        let chosen: Vec<_> = files.map(|(index, file)| names.choose(index, (*file).to_owned())).collect();
        let expected = ["mine", "a", "a-2", "a.info-2", "disk", "disk-2", "mine-2", "a-2-2"];
        assert_eq!(chosen, expected);
        let long = "x".repeat(OWN_MAX + 1);
        assert_eq!(names.choose(9, long), "disk-3");
    }

    #[test]
    fn given_names_that_cannot_be_are_refused_with_the_next_step() {
        let targets = ["one", "two"].map(OsString::from);
        for (given, next) in [
            (&["a", "b", "c"][..], "one for each"),
            (&["a/b"], "without a slash"),
            (&["."], "without a slash"),
            (&["a", "a"], "choose another"),
            (&["a", "a.info"], "choose another"),
            (&["a.info", "a"], "choose another"),
        ] {
            let given = texts(given);
            let refused = Names::new(&given, &targets, MountedOver::Folder).err().unwrap();
            assert!(refused.to_string().contains(next), "{refused}");
        }
        let refused = Names::new(&[], &targets, MountedOver::File).err().unwrap();
        assert!(refused.to_string().contains("empty folder"), "{refused}");
        assert!(Names::new(&texts(&["t"]), &[], MountedOver::File).is_ok(), "a table");
    }
}
