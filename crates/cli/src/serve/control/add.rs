//! `add`: a volume that comes as an open file, with its key in a pipe.
//!
//! The server may open nothing any more. So whoever has the right to opens the file, unlocks the header, and sends both
//! descriptors. Here everything is checked again: the header is read from that file, and the key compared with it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use cryptline::luks::KEY_LEN_MAX;
use cryptline::{Open, SecretBuf, keys};
use cryptline_engine::base::Image;
use cryptline_nbd::OfferError;
use cryptline_serve::nbd::Export;
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::commands::Control;
use super::wire::Add;
use crate::CliError;
use crate::serve::events;
use crate::serve::front::Served;

/// Most exports that are offered.
const EXPORTS_MAX: usize = 256;

impl Control {
    pub(super) fn add(&self, add: &Add, files: Vec<OwnedFd>) -> Result<Value, CliError> {
        let [image, key] = <[OwnedFd; 2]>::try_from(files).map_err(|files| {
            CliError::parameters(format!(
                "add takes two descriptors with its line: the open image, and a pipe with the volume key; {} came \
                 (`cryptline ctl SOCKET add TARGET` sends them)",
                files.len()
            ))
        })?;
        self.check_name(&add.name)?;
        let key = read_key(File::from(key))?;
        let image = Image::of_file(File::from(image), Path::new(&add.target), add.read_only);
        let open = Open::image(image.map_err(cryptline::Error::from)?)
            .key(&key[..])
            .read_only(add.read_only)
            .discards(add.allow_discards);
        drop(key);
        let volume = self.dispatch.apply(open).open()?;
        let served = Served::new(add.name.clone(), &volume, true)?;
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
                OfferError::DuplicateName(name) => taken(&name),
                error => CliError::parameters(error.to_string()),
            });
        }
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
        if names.any(|other| other == name) {
            return Err(taken(name));
        }
        Ok(())
    }
}

fn taken(name: &str) -> CliError {
    CliError::busy(format!(
        "there is an export {name:?} already; choose another name, or remove that one first"
    ))
}

/// The key, straight into key memory. It is all there already: nobody waits for it.
fn read_key(pipe: File) -> Result<SecretBuf, CliError> {
    let failed = |error: String| {
        CliError::parameters(format!(
            "cannot read the volume key: {error}; send the read end of a pipe, filled and closed at its other end"
        ))
    };
    let flags = rustix::fs::fcntl_getfl(&pipe);
    let nonblocking =
        flags.and_then(|flags| rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK));
    nonblocking.map_err(|error| failed(error.to_string()))?;
    let most = KEY_LEN_MAX as usize;
    let key = keys::read_up_to(pipe, 0, most + 1).map_err(|error| failed(error.to_string()))?;
    if key.is_empty() || key.len() > most {
        return Err(failed(format!("it has {} bytes", key.len())));
    }
    Ok(key)
}
