//! Where copies go that make no volume: a new file, a device as it is, a volume that is there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::{Gate, OpenError};

use super::journal::{CopyJournal, ResumeError};
use super::transfer::{Moved, Transfer};
use super::worker::Zeros;
use super::{Copied, Copy, CopyError, CopyRemains, CopyTrouble};
use crate::base::{Access, BaseDevice, BaseSource};
use crate::create::{Draft, Progress, what_is_there};
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
    pub fn into_file(mut self, path: impl AsRef<Path>) -> Result<Copied> {
        let path = path.as_ref();
        let name = path.display().to_string();
        self.source.refuse_same(&Target::Path(path.to_owned()))?;
        self.refuse_zones(None, &name)?;
        if let Some(how) = self.resume.take() {
            return self.into_file_again(path, &how);
        }
        let draft = Draft::new(path, self.replace)?;
        self.tell(Progress::Unfinished(draft.path()))?;
        let known = self.source.size();
        draft.set_size(known.unwrap_or(FIRST).next_multiple_of(512), false)?;
        let gate = draft_gate(&draft, known.is_none())?;
        let grow = |room: u64| {
            let grown = draft.file().set_len(room).map_err(CopyTrouble::Grow);
            grown.map(|()| {
                gate.grow();
            })
        };
        let tell = |progress: Progress<'_>| self.tell(progress);
        let transfer =
            Transfer { grow: known.is_none().then_some(&grow), ..Transfer::new(&self, &gate, Zeros::Skip, &tell) };
        let failed = |trouble: CopyTrouble| trouble.into_error(self.source.name(), &name, CopyRemains::Nothing);
        let moved = transfer.run().map_err(failed)?;
        drop(gate);
        // What was written behind the end of a stream was hashed, too.
        if self.verify {
            let gate = file_gate(Image::open(draft.path(), true)?, false)?;
            self.compare(&gate, &moved).map_err(failed)?;
        }
        draft.set_size(moved.bytes, false)?;
        draft.sync()?;
        self.refuse_stopped(&name)?;
        draft.publish(self.replace)?;
        Ok(self.copied(moved, Vec::new()))
    }

    /// The same, going on where an earlier one has ended.
    fn into_file_again(mut self, path: &Path, how: &str) -> Result<Copied> {
        let name = path.display().to_string();
        let refused = |error: ResumeError| Problem::Resume(error).on(&name);
        let source = self.source.fingerprint(how).zip(self.source.size());
        let no_source = || Problem::Resume(ResumeError::Source).on(self.source.name());
        let (source, size) = source.ok_or_else(no_source)?;
        let draft = Draft::kept(path, self.replace)?;
        let part = || draft.path().to_owned();
        let journal = CopyJournal::open(draft.file(), size, source);
        let journal = journal.map_err(|error| CopyTrouble::Grow(error).into_kept(&self, &name))?;
        let journal = journal.ok_or_else(|| refused(ResumeError::Changed { part: part() }))?;
        let gate = draft_gate(&draft, false)?;
        if let Some(from) = self.source.gate()
            && !journal.agrees(from, &gate, self.backend)?
        {
            return Err(refused(ResumeError::Changed { part: part() }));
        }
        let tell = |progress: Progress<'_>| self.tell(progress);
        let transfer = Transfer::new(&self, &gate, Zeros::Skip, &tell);
        let moved = transfer.again(&journal).run();
        drop(gate);
        let compared = moved.and_then(|moved| {
            if self.verify {
                let image = Image::open(draft.path(), true).map_err(CopyTrouble::Open)?;
                let gate = file_gate(image, false).map_err(CopyTrouble::Told)?;
                self.compare(&gate, &moved)?;
            }
            Ok(moved)
        });
        let moved = match compared {
            Ok(moved) => moved,
            Err(trouble) => return Err(draft.not_kept(trouble, &self, &name)),
        };
        if self.stop.load(Ordering::Relaxed) {
            return Err(Problem::CopyStopped(CopyRemains::Kept).on(name));
        }
        draft.set_size(moved.bytes, false)?;
        draft.sync()?;
        draft.publish(self.replace)?;
        Ok(self.copied(moved, Vec::new()))
    }

    /// Onto a device that is there already, as clear bytes.
    pub(crate) fn into_device(mut self, target: &BaseSource) -> Result<Copied> {
        let device = target.open_device(Access::default())?;
        let name = target.to_string();
        self.check_room(&device.gate, &name)?;
        if !self.replace {
            self.refuse_contents(&device, &name)?;
        }
        let moved = self.transfer(&device.gate, Zeros::Make, &name)?;
        let BaseDevice { gate, warnings, .. } = device;
        drop(gate);
        if self.verify {
            let access = Access { read_only: true, ..Access::default() };
            let again = target.open_device(access)?;
            let compared = self.compare(&again.gate, &moved);
            compared
                .map_err(|trouble| trouble.into_error(self.source.name(), &name, CopyRemains::Part(name.clone())))?;
        }
        Ok(self.copied(moved, warnings))
    }

    /// Into the clear disk of a volume that is there. `open` says how to open it, again for verifying. Only a volume
    /// of which nothing was ever written is filled without [`replace`](Self::replace). Holes are [kept](crate::Holes::Keep) where
    /// the medium can have any.
    ///
    /// # Errors
    /// Any problem with either side. The volume may have a part of the copy then.
    pub fn into_volume(mut self, open: impl Fn() -> Result<Open>) -> Result<Copied> {
        let open = || open().map(|to| self.holes.kept_in(to));
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
        let moved = self.transfer(volume.gate(), Zeros::Make, &name)?;
        let warnings = volume.warnings().to_vec();
        drop(volume);
        if self.verify {
            let again = open()?.read_only(true).open()?;
            let compared = self.compare(again.gate(), &moved);
            compared
                .map_err(|trouble| trouble.into_error(self.source.name(), &name, CopyRemains::Part(name.clone())))?;
        }
        Ok(self.copied(moved, warnings))
    }

    /// Copies to what is there already.
    fn transfer(&self, dest: &Gate, zeros: Zeros, name: &str) -> Result<Moved> {
        let tell = |progress: Progress<'_>| self.tell(progress);
        let moved = Transfer::new(self, dest, zeros, &tell).run();
        moved.map_err(|trouble| trouble.into_error(self.source.name(), name, CopyRemains::Part(name.to_owned())))
    }

    /// Reads the copy again.
    fn compare(&self, gate: &Gate, moved: &Moved) -> std::result::Result<(), CopyTrouble> {
        moved.compare(gate, self, &|progress| self.tell(progress))
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

/// The bytes of a draft, as long as it is the file of that name.
fn draft_gate(draft: &Draft, grows: bool) -> Result<Gate> {
    let image = Image::open(draft.path(), false)?;
    if !draft.is(image.file()) {
        let busy = OpenError::busy(draft.path());
        return Err(Problem::Device(busy).into());
    }
    file_gate(image, grows)
}

/// The bytes of a file that nobody else knows.
fn file_gate(image: Image, grows: bool) -> Result<Gate> {
    let granularity = if image.size().is_multiple_of(4096) { 4096 } else { 512 };
    let device = image.into_device(granularity, DirectMode::Auto)?;
    Ok(Gate::new(if grows { device.growing() } else { device }))
}
