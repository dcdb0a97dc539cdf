//! Where copies go that make no volume: a new file, a device as it is, a volume that is there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image};

use super::journal::{CopyJournal, FoundTraces, ResumeError};
use super::transfer::{Moved, Transfer};
use super::{Copied, Copy, CopyError, CopyRemains, CopyTrouble};
use crate::base::{Access, BaseDevice, BaseSource};
use crate::create::{Draft, Making, Resumed, Site, what_is_there};
use crate::error::Problem;
use crate::target::Target;
use crate::{Open, Result, Warning};

impl Copy {
    /// Into what `target` names, as clear bytes: a new file, made aside and durable before it gets its name; or a
    /// device that is there, whose other contents are looked for first.
    ///
    /// # Errors
    /// Any problem with either side. A file is as it was before then, a device may have a part of the copy.
    pub fn into_target(self, target: impl AsRef<OsStr>) -> Result<Copied> {
        let target = Target::parse(target)?;
        self.source.refuse_same(&target)?;
        match &target {
            Target::Path(path) if is_file_or_new(path)? => self.into_file(path),
            target if self.resume.is_some() => Err(Problem::Resume(ResumeError::Destination).on(target)),
            target if target.is_memory() => Err(Problem::Copy(CopyError::NoPlace).on(target)),
            Target::Table(_) | Target::Zoned(_) => Err(Problem::Copy(CopyError::NoPlace).on(&target)),
            _ => self.into_device(&BaseSource::Target(target)),
        }
    }

    /// Into a new file, as clear bytes.
    ///
    /// # Errors
    /// Any problem with either side; there is no new file then.
    pub fn into_file(self, path: impl AsRef<Path>) -> Result<Copied> {
        let path = path.as_ref();
        let name = path.display().to_string();
        self.source.refuse_same(&Target::Path(path.to_owned()))?;
        self.refuse_zones(None, &name)?;
        let (site, resumed) = match &self.resume {
            Some(how) => {
                let (draft, resumed) = self.find(path, self.replace, how)?;
                (Site::New { draft, size: resumed.size, grows: false }, Some(resumed))
            }
            None => {
                let draft = Draft::told(path, self.replace, |progress| self.tell(progress))?;
                let known = self.source.size();
                let size = known.unwrap_or(FIRST).next_multiple_of(512);
                draft.set_size(size, false)?;
                (Site::New { draft, size, grows: known.is_none() }, None)
            }
        };
        self.make(name, site, resumed)
    }

    fn make(mut self, name: String, site: Site<'_>, resumed: Option<Resumed>) -> Result<Copied> {
        let observer = self.observer.as_ref();
        let made = Making { name, site, header: None, contents: Some(&self), resumed, observer }.run()?;
        let moved = made.moved.expect("there are contents");
        Ok(self.copied(moved, made.warnings))
    }

    /// Returns the file of a copy that can go on later, and what there is of it.
    pub(crate) fn find(&self, path: &Path, replace: bool, how: &str) -> Result<(Draft, Resumed)> {
        let name = path.display().to_string();
        let source = self.source.fingerprint(how).zip(self.source.size());
        let no_source = || Problem::Resume(ResumeError::Source).on(self.source.name());
        let (source, size) = source.ok_or_else(no_source)?;
        let draft = Draft::kept(path, replace)?;
        let found = CopyJournal::find(draft.file(), size, source);
        let kept = |error| CopyTrouble::Grow(error).into_error(self.source.name(), &name, CopyRemains::Kept);
        let last = match found.map_err(kept)? {
            FoundTraces::Same(record) => Some(record),
            FoundTraces::Nothing => None,
            FoundTraces::Another => {
                let part = draft.path().to_owned();
                return Err(Problem::Resume(ResumeError::Changed { part }).on(&name));
            }
        };
        Ok((draft, Resumed { last, size, source, reserves: false }))
    }

    /// Onto a device that is there already, as clear bytes.
    pub(crate) fn into_device(self, target: &BaseSource) -> Result<Copied> {
        let device = target.open_device(Access::default())?;
        let name = target.to_string();
        self.check_room(&device.gate, &name)?;
        if !self.replace {
            self.refuse_contents(&device, &name)?;
        }
        let read_only = Access { read_only: true, ..Access::default() };
        let again = || target.open_device(read_only).map(|device| device.gate);
        let BaseDevice { gate, warnings, .. } = device;
        self.make(name, Site::AsIs { gate: Some(gate), again: &again, warnings }, None)
    }

    /// Into the clear disk of a volume that is there. `open` says how to open it, again for verifying. Only a volume
    /// of which nothing was ever written is filled without [`replace`](Self::replace). Holes are [kept](crate::Holes::Keep) where
    /// the medium can have any.
    ///
    /// # Errors
    /// Any problem with either side. The volume may have a part of the copy then.
    pub fn into_volume(self, open: impl Fn() -> Result<Open>) -> Result<Copied> {
        let holes = self.holes;
        let open = || open().map(|to| holes.kept_in(to));
        let to = open()?.writes(true);
        if self.resume.is_some() {
            return Err(Problem::Resume(ResumeError::Destination).into());
        }
        if let Some(target) = to.of_target() {
            self.source.refuse_same(target)?;
        }
        let volume = to.open()?;
        let name = volume.info().source.clone();
        self.check_room(volume.gate(), &name)?;
        let has_data = || volume.extents(0).any(|extent| !extent.is_ok_and(|it| it.hole));
        if !self.replace && has_data() {
            return Err(Problem::CopyOver.on(name));
        }
        let again = || Ok(open()?.read_only(true).open()?.gate().clone());
        let (gate, warnings) = (volume.gate().clone(), volume.warnings().to_vec());
        // The gate alone keeps it open, until it is opened anew.
        drop(volume);
        self.make(name, Site::AsIs { gate: Some(gate), again: &again, warnings }, None)
    }

    pub(crate) fn copied(&mut self, moved: Moved, more: Vec<Warning>) -> Copied {
        let mut warnings = self.source.take_warnings();
        warnings.extend(more);
        Copied { bytes: moved.bytes, skipped: moved.skipped, verified: self.verify, hashed: moved.hashed, warnings }
    }

    /// Refuses a destination that cannot take all of it, before anything is written.
    pub(crate) fn check_room(&self, dest: &Gate, name: &str) -> Result<()> {
        self.refuse_zones(Some(dest), name)?;
        if dest.geometry().read_only {
            return Err(Problem::CopyReadOnly.on(name));
        }
        let (has, needs) = (dest.size(), Transfer::needs(&self.source, dest));
        match needs {
            Some(needs) if needs > has => Err(Problem::CopyTooSmall { has, needs }.on(name)),
            _ => Ok(()),
        }
    }

    /// Zones want their writes in order, and reads that end with them.
    pub(crate) fn refuse_zones(&self, dest: Option<&Gate>, name: &str) -> Result<()> {
        let has_zones = |gate: &Gate| gate.geometry().zones.is_some();
        if dest.is_some_and(has_zones) {
            return Err(Problem::Copy(CopyError::Zones).on(name));
        }
        match self.source.gate() {
            Some(gate) if has_zones(gate) => Err(Problem::Copy(CopyError::Zones).on(self.source.name())),
            _ => Ok(()),
        }
    }

    /// The last moment at which nothing has happened.
    pub(crate) fn refuse_stopped(&self, name: &str) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Problem::CopyStopped(CopyRemains::Nothing).on(name));
        }
        Ok(())
    }

    fn refuse_contents(&self, device: &BaseDevice, name: &str) -> Result<()> {
        // Up to the end of the device, where only the end of a stream tells how much comes.
        let written = Transfer::needs(&self.source, &device.gate).unwrap_or(u64::MAX);
        let found = what_is_there(device, written, None, |progress| {
            self.refuse_stopped(name)?;
            self.tell(progress)
        });
        match found.map_err(|error| error.on(name))? {
            Some(what) => Err(Problem::Holds { what }.on(name)),
            None => Ok(()),
        }
    }
}

/// Room that a file of unknown size begins with.
const FIRST: u64 = 16 << 20;

/// A regular file, or nothing yet.
// Guard: a new file would take the place of a device that does not answer.
fn is_file_or_new(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Problem::Io { action: "look at", source }.on(path.display())),
    }
}

/// The bytes of a file that nobody else knows.
pub(crate) fn file_gate(image: Image, grows: bool) -> Result<Gate> {
    let granularity = if image.size().is_multiple_of(4096) { 4096 } else { 512 };
    let device = image.into_device(granularity, DirectMode::Auto)?;
    Ok(Gate::new(if grows { device.growing() } else { device }))
}
