//! `add`: a volume that comes as an open file, with its key in a pipe.
//!
//! The server may open nothing any more. So whoever has the right to opens the file, unlocks the header, and sends both
//! descriptors, and a third with cryptsetup's lock of whoever uses the volume. Here everything is checked again: the
//! header is read from that file, and the key compared with it.
//!
//! Locks belong to open files, so both go along. The file cannot be opened again, so its descriptor is the device's
//! only one, of which syncs are asked one at a time (`base/syncs.rs`, rule 3).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cryptline::luks::KEY_LEN_MAX;
use cryptline::{HeaderRules, Open, SecretBuf, keys};
use cryptline_engine::base::Image;
use cryptline_nbd::OfferError;
use cryptline_serve::nbd::Export;
use cryptline_serve::stats::ExportStats;
use cryptline_sys::lock;
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::commands::ServerControl;
use super::wire::Add;
use crate::CliError;
use crate::serve::events;
use crate::serve::front::ServedVolume;

/// Most exports that are offered.
const EXPORTS_MAX: usize = 256;
/// Waited for an image's medium. The session is free for other commands then.
const ADDED_WITHIN: Duration = Duration::from_secs(60);
/// Images that are being added at a time: each may have a medium that never answers.
const ADDING_MAX: usize = 16;

/// Device and inode of an image: the same for all who have opened it.
type ImagePlace = (u64, u64);

/// Images that were added, each open while its export is there, and those that are being added.
#[derive(Default)]
pub struct AddedImages(Mutex<Vec<Added>>);

struct Added {
    image: ImagePlace,
    /// Of its export, once there is one.
    stats: Option<Arc<ExportStats>>,
}

/// An image that nobody else adds until this is dropped, nor later if it was [kept](Self::keep). Reading its header may
/// take for ever, so nobody waits for that.
struct Adding<'a> {
    all: &'a AddedImages,
    image: ImagePlace,
}

impl AddedImages {
    /// Not where the image is open already, by an export of which `is_there` is true, or is being added.
    fn begin(&self, image: ImagePlace, is_there: impl Fn(&Arc<ExportStats>) -> bool) -> Result<Adding<'_>, CliError> {
        let mut added = lock(&self.0);
        added.retain(|added| added.stats.as_ref().is_none_or(&is_there));
        match added.iter().find(|added| added.image == image) {
            Some(Added { stats: Some(_), .. }) => {
                Err(CliError::busy("this server has that image open already; remove its export first"))
            }
            Some(_) => Err(CliError::busy("this server is about to open that image; wait until it is listed")),
            None if added.iter().filter(|added| added.stats.is_none()).count() >= ADDING_MAX => Err(CliError::busy(
                format!("{ADDING_MAX} images are being added, whose media do not answer; check those"),
            )),
            None => {
                added.push(Added { image, stats: None });
                Ok(Adding { all: self, image })
            }
        }
    }
}

impl Adding<'_> {
    /// Its export is there.
    fn keep(self, stats: Arc<ExportStats>) {
        let mut added = lock(&self.all.0);
        if let Some(added) = added.iter_mut().find(|added| added.image == self.image) {
            added.stats = Some(stats);
        }
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        lock(&self.all.0).retain(|added| added.image != self.image || added.stats.is_some());
    }
}

impl ServerControl {
    /// Adds a volume on a thread of its own, which is left behind where the medium does not answer.
    pub(super) fn add_within_limit(self: &Arc<Self>, add: Add, files: Vec<OwnedFd>) -> Result<Value, CliError> {
        let (tell, told) = mpsc::channel();
        let (control, target) = (Arc::clone(self), add.target.clone());
        // Nobody listens any more where it took too long.
        let work = move || drop(tell.send(control.add(&add, files)));
        std::thread::Builder::new().name("add".to_owned()).spawn(work).map_err(CliError::no_thread)?;
        match told.recv_timeout(ADDED_WITHIN) {
            Ok(added) => added,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(CliError::device(format!(
                "{target}: its medium has not answered so far; check it: once it answers, the export is there (see `list`)"
            ))),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(CliError::device(format!("{target}: opening it failed; the server's standard error says why")))
            }
        }
    }

    fn add(&self, add: &Add, files: Vec<OwnedFd>) -> Result<Value, CliError> {
        let count = files.len();
        let mut files = files.into_iter();
        let (Some(image), Some(key), in_use, None) = (files.next(), files.next(), files.next(), files.next()) else {
            return Err(CliError::parameters(format!(
                "add takes two descriptors with its line: the open image, and a pipe with the volume key, and \
                 of a LUKS2 volume the lock of who uses it; {count} came (`cryptline ctl SOCKET add TARGET` sends them)"
            )));
        };
        self.check_name(&add.name)?;
        let key = read_key(File::from(key))?;
        let image = File::from(image);
        let adding = self.begin(place_of(&image)?)?;
        read_through_cache(&image)?;
        let image = Image::of_file(image, Path::new(&add.target), add.read_only);
        let mut open = Open::image(image.map_err(cryptline::Error::from)?)
            .key(&key[..])
            .read_only(add.read_only)
            .discards(add.allow_discards);
        for spec in &add.accept_cipher {
            open = open.accept_cipher(spec);
        }
        if let Some(measure) = &add.expect_measure {
            let measure = Some(cryptline::parse_measure(measure).map_err(CliError::parameters)?);
            open = open.header_rules(HeaderRules { measure, ..HeaderRules::default() });
        }
        if let Some(in_use) = in_use {
            open = open.in_use(in_use);
        }
        drop(key);
        let volume = self.how.dispatch.apply(open).open()?;
        let served = ServedVolume::new(add.name.clone(), &volume, true)?;
        events::opened(&volume);
        events::watch_latch(&served.info.source, &served.gate);
        let export = Export {
            name: add.name.clone(),
            description: add.description.clone(),
            gate: served.gate.clone(),
            minimum_block: served.info.logical_block,
            stats: served.stats.clone(),
        };
        let (size, stats) = (volume.size(), served.stats.clone());
        self.volumes.add(served);
        if let Err(error) = self.server.exports().add(export) {
            self.volumes.forget(&stats);
            return Err(match error {
                OfferError::DuplicateName(name) => self.taken(&name),
                error => CliError::parameters(error.to_string()),
            });
        }
        adding.keep(stats);
        let warnings = volume.warnings().iter().map(crate::error::warning);
        Ok(json!({
            "name": add.name,
            "size": size,
            "uris": self.uris(&add.name),
            "warnings": warnings.collect::<Vec<_>>(),
        }))
    }

    /// Before anything costs time.
    fn check_name(&self, name: &str) -> Result<(), CliError> {
        let exports = self.server.exports().status();
        if exports.len() >= EXPORTS_MAX {
            return Err(CliError::busy(format!(
                "there are {EXPORTS_MAX} exports already; remove one, or start another server"
            )));
        }
        let mut names = exports.iter().map(|status| &status.export.name);
        let is_default = name.is_empty() && self.server.exports().default_name().is_some();
        if is_default || names.any(|other| other == name) {
            return Err(self.taken(name));
        }
        Ok(())
    }

    fn taken(&self, name: &str) -> CliError {
        let default = self.server.exports().default_name();
        let what = match default.filter(|default| name.is_empty() && !default.is_empty()) {
            Some(default) => format!("the empty name means export {default:?}"),
            None => format!("there is an export {name:?} already"),
        };
        CliError::busy(format!("{what}; choose another name, or remove that one first"))
    }

    /// Its lock keeps out whoever opens it again, but not a client that sends the same open file again; and taking that
    /// lock again could weaken it.
    fn begin(&self, image: ImagePlace) -> Result<Adding<'_>, CliError> {
        let is_there = |stats: &Arc<ExportStats>| {
            let exports = self.server.exports().status();
            exports.iter().any(|status| Arc::ptr_eq(&status.export.stats, stats))
        };
        self.added.begin(image, is_there)
    }
}

/// For the header. O_DIRECT is the open file's, and stays when an export that had it is gone.
fn read_through_cache(image: &File) -> Result<(), CliError> {
    let read = || {
        let flags = rustix::fs::fcntl_getfl(image)?;
        // What is not open at all (O_PATH) is refused later.
        if flags.contains(OFlags::DIRECT) && !flags.contains(OFlags::PATH) {
            rustix::fs::fcntl_setfl(image, flags - OFlags::DIRECT)
        } else {
            Ok(())
        }
    };
    read().map_err(|error: rustix::io::Errno| {
        CliError::parameters(format!("cannot read the image through the page cache: {error}"))
    })
}

fn place_of(image: &File) -> Result<ImagePlace, CliError> {
    let metadata = image.metadata().map_err(|error| CliError::parameters(format!("cannot stat the image: {error}")))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The key, straight into key memory. It is all there already: nobody waits for it.
fn read_key(pipe: File) -> Result<SecretBuf, CliError> {
    let failed = |error: String| {
        CliError::parameters(format!(
            "cannot read the volume key: {error}; send the read end of a pipe, filled and closed at its other end"
        ))
    };
    let flags = rustix::fs::fcntl_getfl(&pipe);
    let nonblocking = flags.and_then(|flags| rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK));
    nonblocking.map_err(|error| failed(error.to_string()))?;
    let most = KEY_LEN_MAX as usize;
    let key = keys::read_up_to(pipe, 0, most + 1).map_err(|error| failed(error.to_string()))?;
    if key.is_empty() || key.len() > most {
        return Err(failed(format!("it has {} bytes", key.len())));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_added_once_at_a_time_and_others_wait_for_none_that_is_being_added() {
        let (all, stats) = (AddedImages::default(), ExportStats::new(false));
        let is_there = |_: &_| true;
        let adding = all.begin((1, 1), is_there).unwrap();
        let other = all.begin((1, 2), is_there).unwrap();
        assert!(all.begin((1, 1), is_there).is_err());
        drop(adding);
        let again = all.begin((1, 1), is_there).expect("it could not be opened, and may be tried again");
        again.keep(Arc::clone(&stats));
        drop(other);
        assert!(all.begin((1, 1), is_there).is_err());
        assert!(all.begin((1, 1), |gone| !Arc::ptr_eq(gone, &stats)).is_ok(), "its export is gone");
    }

    #[test]
    fn images_whose_media_do_not_answer_are_not_piled_up() {
        let all = AddedImages::default();
        let begin = |inode| all.begin((1, inode), |_| true);
        let mut adding: Vec<_> = (0..ADDING_MAX as u64).map(|inode| begin(inode).unwrap()).collect();
        assert!(begin(99).is_err());
        adding.pop();
        assert!(begin(99).is_ok());
    }
}
