//! Holders of a mount that is in use, as far as this user may know: processes by their open files and folders, and loop
//! devices. Only names are read, never the mount itself, whose server may hang.

use std::fs;
use std::path::{Path, PathBuf};

use cryptline_sys::loop_backing_file;

/// Holders that are named; the rest is counted.
const NAMED: usize = 3;

/// Returns who holds what is mounted on `point`, a path from the root without links; nothing if that is not known.
pub fn of(point: &Path) -> Option<String> {
    let mut holders = loops(point);
    holders.extend(processes(point));
    let more = holders.len().saturating_sub(NAMED);
    holders.truncate(NAMED);
    let named = holders.join(", ");
    match (holders.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, _) => Some(format!("{named} and {more} more")),
    }
}

fn loops(point: &Path) -> Vec<String> {
    let backed = |disk: &PathBuf| loop_backing_file(disk).is_some_and(|file| file.starts_with(point));
    let name = |disk: PathBuf| Some(format!("/dev/{}", disk.file_name()?.to_string_lossy()));
    entries(Path::new("/sys/block")).filter(backed).filter_map(name).collect()
}

fn processes(point: &Path) -> Vec<String> {
    let mounts = fs::read_link("/proc/self/ns/mnt").ok();
    let own = std::process::id();
    let mut found = Vec::new();
    for process in entries(Path::new("/proc")) {
        let id = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let Some(id) = id.filter(|id| *id != own) else { continue };
        // The same path in another container is another place.
        if fs::read_link(process.join("ns/mnt")).ok() == mounts && holds(&process, point) {
            let name = fs::read(process.join("comm")).unwrap_or_default();
            found.push(format!("{} (process {id})", String::from_utf8_lossy(&name).trim_end()));
        }
    }
    found
}

fn holds(process: &Path, point: &Path) -> bool {
    let links = ["cwd", "root"].map(|link| process.join(link));
    let mut links = links.into_iter().chain(entries(&process.join("fd")));
    links.any(|link| fs::read_link(link).is_ok_and(|held| held.starts_with(point)))
}

/// Returns what is in a folder; nothing where it may not be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn process_that_works_in_a_folder_is_named_and_nobody_holds_another() {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().canonicalize().unwrap();
        let (held, other) = (point.join("held"), point.join("held too"));
        fs::create_dir(&held).unwrap();
        fs::create_dir(&other).unwrap();
        let mut process = Command::new("cat").current_dir(&held).stdin(Stdio::piped()).spawn().unwrap();
        let (named, nobody) = (of(&held), of(&other));
        drop(process.stdin.take());
        process.wait().unwrap();
        assert_eq!(named, Some(format!("cat (process {})", process.id())));
        assert_eq!(nobody, None);
        assert_eq!(of(&held), None);
    }
}
