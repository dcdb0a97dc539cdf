//! Programs and libraries that only the next Debian has, and that run on this one: unpacked once into the user's cache
//! folder and never installed.
//!
//! ```text
//! ${XDG_CACHE_HOME:-$HOME/.cache}/cryptline/next-release-1/<name>/
//!     usr/…              the files of the packages
//!     SHA256SUMS         of all of them, checked at every use
//! ```
//!
//! apt checks the packages' signatures when they are downloaded. A folder appears by rename, complete or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::kernel::{at, locked_cache, sums};
use crate::peer;

/// Where they are kept, which changes with what is kept.
const PLACE: &str = "next-release-1";
/// The release after this one.
const RELEASE: &str = "trixie";

/// The root of `packages`, kept under `name`; `None` after a `SKIP` line where they are not to be had.
///
/// # Panics
/// When they are missing and `CI=true`.
#[must_use]
pub fn next_release(name: &str, packages: &[&str]) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        peer::skip_everywhere("packages of the next Debian are taken for x86-64 only");
        return None;
    }
    cached_or_fetched(name, packages).inspect_err(|why| peer::skip(why)).ok()
}

fn cached_or_fetched(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let (cache, _lock) = locked_cache(PLACE)?;
    let folder = cache.join(name);
    if !folder.is_dir() {
        fetch(&cache, packages, &folder)?;
    }
    let expected = fs::read_to_string(folder.join("SHA256SUMS")).map_err(at(&folder))?;
    if sums(&folder)? == expected {
        return Ok(folder);
    }
    let folder = folder.display();
    Err(format!("the cached packages in {folder} are damaged; remove that folder"))
}

fn fetch(cache: &Path, packages: &[&str], folder: &Path) -> Result<(), String> {
    let apt = Apt::of_next_release(cache, RELEASE)?;
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache);
    let work = work.map_err(at(cache))?;
    let wanted: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
    apt.unpack(&wanted, work.path())?;
    let unpacked = work.path().join("unpacked");
    fs::write(unpacked.join("SHA256SUMS"), sums(&unpacked)?).map_err(at(&unpacked))?;
    fs::rename(&unpacked, folder).map_err(at(folder))
}
