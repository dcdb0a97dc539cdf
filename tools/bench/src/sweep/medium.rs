//! What the volumes of a sweep lie on.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cryptline::size;
use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::layer::{DelayDevice, DelaySpec};

use crate::contents::Contents;
use crate::error::{Error, Of as _, Result, fail};
use crate::volume::{SECTOR_SIZE, ram};

/// Written at a time.
const CHUNK: usize = 1 << 20;

/// `--medium`: RAM, RAM that is as slow as the delay says, or a file that is made here or in this
/// folder.
#[derive(Default)]
pub struct Medium {
    delay: Option<(String, DelaySpec)>,
    file: Option<PathBuf>,
}

impl Medium {
    /// What a word stands for.
    pub fn parse(word: &str) -> Result<Self> {
        let mut medium = Self::default();
        if word == "ram" {
            return Ok(medium);
        }
        if let Some(spec) = word.strip_prefix("delay:") {
            let delay = DelaySpec::from_str(spec).of(format_args!("--medium {word}"))?;
            medium.delay = Some((spec.to_owned(), delay));
            return Ok(medium);
        }
        let path = PathBuf::from(word);
        match fs::metadata(&path) {
            Ok(found) if !found.is_dir() => {
                fail!("--medium {word}: it exists, and the sweep would overwrite it; name a new file or a folder")
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable(&path, &error)),
            _ => {
                medium.file = Some(path);
                Ok(medium)
            }
        }
    }

    /// For people.
    pub fn describe(&self, bytes: u64) -> String {
        let bytes = size::human(bytes);
        match (&self.file, &self.delay) {
            (Some(path), _) => format!("a file of {bytes} at {}", path.display()),
            (None, Some((spec, _))) => format!("RAM, {bytes}, as slow as {spec}"),
            (None, None) => format!("RAM, {bytes}"),
        }
    }

    /// The medium with `bytes` bytes of data on it.
    pub fn open(&self, bytes: u64) -> Result<Gate> {
        let gate = match &self.file {
            Some(path) => new_file(path, bytes)?,
            None => ram(bytes, bytes, "")?,
        };
        // Untouched memory is one page of zeros and an unwritten file a hole: both are faster than data.
        let _sum = Contents::new(1).write_to(&gate, CHUNK)?;
        Ok(match &self.delay {
            Some((_, delay)) => Gate::new(DelayDevice::new(gate, delay.clone())),
            None => gate,
        })
    }
}

/// A new file without a name: it is gone when this program ends, however it ends.
fn new_file(path: &Path, bytes: u64) -> Result<Gate> {
    let named =
        if path.is_dir() { path.join(format!(".cryptline-bench-{}", std::process::id())) } else { path.to_owned() };
    let file = File::create_new(&named).map_err(|error| unusable(path, &error))?;
    let opened =
        file.set_len(bytes).map_err(|error| unusable(path, &error)).and_then(|()| Ok(Image::open(&named, false)?));
    // Ours, or it would not have been made; and an open file lives on without a name.
    let removed = fs::remove_file(&named);
    let device = opened?.into_device(SECTOR_SIZE, DirectMode::Auto)?;
    removed.map_err(|error| unusable(path, &error))?;
    Ok(Gate::new(device))
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error(format!("--medium {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use cryptline_engine::BackendChoice;
    use cryptline_engine::blocking::Blocking;

    use super::*;

    #[test]
    fn what_is_there_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("precious");
        fs::write(&path, "data").expect("room");
        let word = path.to_string_lossy().into_owned();
        let error = Medium::parse(&word).map(drop).expect_err("it is there");
        assert!(error.to_string().contains("it exists"), "{error}");
        // And not even where it comes between the check and the start.
        let error = new_file(&path, 8192).map(drop);
        assert!(error.is_err());
        assert_eq!(fs::read(&path).expect("still there"), b"data");
    }

    #[test]
    fn a_file_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("new")] {
            let medium = Medium::parse(&path.to_string_lossy()).expect("usable");
            let gate = medium.open(3 << 20).expect("made");
            assert_eq!(gate.geometry().size, 3 << 20);
            let mut end = vec![0; 4096];
            let mut reader = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
            reader.read_at((3 << 20) - 4096, &mut end).expect("data");
            assert!(end.iter().any(|&byte| byte != 0), "a hole");
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        }
    }
}
