//! Steps of a making, in the one order in which they become durable, whatever is made and wherever.
//!
//! | step | what is done | when |
//! |---|---|---|
//! | `Refuse` | nothing has changed | always |
//! | `Apart` | separate header written and flushed, without a name | header apart |
//! | `Clear` | old separate header aside; old header wiped, flushed | there, header |
//! | `Begin` | whole header, flushed, and the first record; else the noise of its key slots | new, header or resumed |
//! | `Fill` | contents (and records), flush | contents |
//! | `Compare` | contents read again under the key; what is filled as it is, opened anew | verify |
//! | `Head` | key slots, flush; rest of the header, flush; its first 4096 bytes, flush; or a table, a backup | header inside, not resumed |
//! | `Size` | cut to its size, synced | new |
//! | `Check` | header or table opened as a user would; a header on a device wiped where that fails | header, table |
//! | `Name` | old separate header aside, data named, header named, old header removed | new, or header apart |
//!
//! So there is no volume before its data is durable and compared, in a file none under its name before it was opened, and
//! whatever ends it on the way, nothing that opens is left on a device. Clear bytes that go onto a device or into a volume are
//! written over what is there and nowhere else, so nothing is cleared for them: an old header that they do not reach still
//! opens onto its own data.
//!
//! Tables (`btt.rs`) and backups of headers (`header/backup.rs`) have nothing to be filled, compared or resumed, and a table is
//! stored in mapped memory, in an order of its own. They take their steps themselves, on a [`Draft`] as all that is new.

use std::io::{Seek, Write};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use cryptline_luks::format::wipe_old_copies;

use super::draft::Aside;
use super::prepared::{Prepared, PriorContents};
use super::{Create, Draft, Durable, Observer, Progress, unreadable};
use crate::base::{Access, Base, BaseDevice, BaseSource};
use crate::bytes::GateBytes;
use crate::copy::{
    Copy, CopyJournal, CopyRecord, CopyRemains, CopyTrouble, Moved, ResumeError, SourceRoom, Transfer, Zeros, file_gate,
};
use crate::error::{Error, Problem};
use crate::keys::with_keys;
use crate::{Gate, Result, Warning, Zeroes};

/// Bytes of zeros in one write.
const WIPED_AT_ONCE: usize = 1 << 20;

/// Step of a making. They come in this order, and those that are of no use are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MakingStep {
    /// The last moment at which nothing has changed.
    Refuse,
    /// A header in a file of its own is written, which has no name yet.
    Apart,
    /// An old header is put aside, or wiped.
    Clear,
    /// A new file gets what comes before its contents.
    Begin,
    /// The contents are copied.
    Fill,
    /// They are read again.
    Compare,
    /// The header is written, its beginning last.
    Head,
    /// A new file gets its size.
    Size,
    /// The header is opened.
    Check,
    /// Names what is new.
    Name,
}

/// Something that is about to be made.
pub(crate) struct Making<'a> {
    pub name: String,
    pub site: Site<'a>,
    pub header: Option<HeaderToMake<'a>>,
    pub contents: Option<&'a Copy>,
    pub resumed: Option<Resumed>,
    pub observer: Option<&'a Observer>,
}

/// Place where it is made.
pub(crate) enum Site<'a> {
    /// A new file of this size, or as large as its contents make it.
    New { draft: Draft, size: u64, grows: bool },
    /// A device that is there.
    There { device: BaseDevice, target: &'a BaseSource },
    /// A device or a volume that is there, filled as it is. It is opened anew to be read.
    AsIs { gate: Option<Gate>, again: &'a dyn Fn() -> Result<Gate>, warnings: Vec<Warning> },
}

/// Header to be made, and who knows how.
pub(crate) struct HeaderToMake<'a> {
    pub create: &'a Create,
    pub prepared: Prepared,
}

/// Copy that can go on later, or does.
pub(crate) struct Resumed {
    /// The last record of an earlier run.
    pub last: Option<CopyRecord>,
    pub size: u64,
    pub source: [u8; 32],
    /// Space on disk is reserved for all of it.
    pub reserves: bool,
}

/// Result of a making.
pub(crate) struct Made {
    /// Bytes of the clear disk of a new volume.
    pub data_size: u64,
    pub moved: Option<Moved>,
    pub warnings: Vec<Warning>,
}

impl Making<'_> {
    pub fn run(mut self) -> Result<Made> {
        self.refuse()?;
        let apart = self.put_apart()?;
        let aside = self.clear(apart.as_ref())?;
        let resumed = self.resumed.take();
        let moved = self.fill(resumed)?;
        let apart = match self.site {
            Site::There { .. } => apart.map(Draft::found_by_its_data).transpose()?,
            Site::New { .. } | Site::AsIs { .. } => apart,
        };
        self.compare(moved.as_ref())?;
        let data_size = match self.site {
            Site::New { .. } => self.finish_file(apart.as_ref(), moved.as_ref())?,
            Site::There { .. } | Site::AsIs { .. } => self.finish_place(apart.as_ref())?,
        };
        let warnings = self.publish(apart, aside)?;
        Ok(Made { data_size, moved, warnings })
    }

    fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.map_or(Ok(()), |observer| observer(progress))
    }

    fn step(&self, step: MakingStep) -> Result<()> {
        self.tell(Progress::Step(step))
    }

    /// Where the contents begin.
    fn start(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.prepared.start)
    }

    /// The header, where it is to be with the data.
    fn inside(&self) -> Option<&HeaderToMake<'_>> {
        self.header.as_ref().filter(|header| !header.prepared.is_apart)
    }

    fn refuse(&self) -> Result<()> {
        self.step(MakingStep::Refuse)?;
        if let (Site::There { .. } | Site::AsIs { .. }, Some(copy)) = (&self.site, self.contents) {
            // What cannot be opened, or has no room, is refused while all is as it was.
            copy.check_room(&self.lay(Zeroes::Decrypt)?, &self.name)?;
            copy.refuse_stopped(&self.name)?;
        }
        Ok(())
    }

    /// Opens what takes the contents: each time anew, with a cipher of its own.
    fn lay(&self, zeroes: Zeroes) -> Result<Gate> {
        let base = match &self.site {
            Site::New { draft, grows, .. } if self.header.is_none() => return file_gate(draft.image(false)?, *grows),
            Site::New { draft, .. } => Base::from(draft.image(false)?),
            Site::There { device, .. } => BaseSource::Device(device.gate.clone()).open(Access::default())?,
            Site::AsIs { gate, .. } => return Ok(gate.clone().expect("it is open")),
        };
        match &self.header {
            Some(header) => header.create.volume(base, &self.name, &header.prepared, zeroes),
            None => Err(Problem::NoPlace(self.name.clone()).into()),
        }
    }

    fn put_apart(&self) -> Result<Option<Draft>> {
        let Some(HeaderToMake { create, prepared }) = &self.header else {
            return Ok(None);
        };
        let Some(path) = create.header.as_deref().filter(|_| prepared.is_apart) else {
            return Ok(None);
        };
        self.step(MakingStep::Apart)?;
        create.header_apart(prepared, path).map(Some)
    }

    /// An old header would open onto what is neither the old data nor the new. In a new file there is none.
    fn clear(&self, apart: Option<&Draft>) -> Result<Option<Aside>> {
        let (Site::There { device, target }, Some(header)) = (&self.site, &self.header) else {
            return Ok(None);
        };
        self.step(MakingStep::Clear)?;
        let mut bytes = GateBytes::new(&device.gate)?;
        let aside = apart.map(Draft::set_aside).transpose()?.flatten();
        // Data may lie anywhere behind it, as what was there before does where there are no contents.
        let len = if self.contents.is_some() { header.prepared.start } else { header.prepared.slots as u64 };
        if let Err(error) = self.zero(&mut bytes, device.gate.size(), len, target) {
            match aside {
                // The old data is all there.
                Some(aside) if !bytes.is_written() => aside.put_back(),
                _ if bytes.is_written() && apart.is_none() => header.create.wipe(&mut bytes),
                _ => {}
            }
            return Err(error);
        }
        Ok(aside)
    }

    /// Overwrites the first `len` bytes, which may be many: as far as an offset that was asked for. The second copy of an
    /// old header may lie behind them.
    fn zero(&self, bytes: &mut GateBytes, size: u64, len: u64, target: &BaseSource) -> Result<()> {
        wipe_old_copies(bytes, size).map_err(|error| Problem::Luks(error).on(target))?;
        bytes.rewind().map_err(|error| unreadable(error, target))?;
        let piece = vec![0; WIPED_AT_ONCE];
        let mut left = len;
        while left > 0 {
            if self.is_stopped() {
                return Err(self.failed(CopyTrouble::Stopped));
            }
            let len = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            bytes.write_all(&piece[..len]).map_err(|error| unreadable(error, target))?;
            left -= len as u64;
        }
        bytes.flush().map_err(|error| unreadable(error, target))
    }

    fn fill(&self, resumed: Option<Resumed>) -> Result<Option<Moved>> {
        let journal = self.begin(resumed)?;
        let Some(copy) = self.contents else {
            return Ok(None);
        };
        let gate = self.lay(Zeroes::Decrypt)?;
        self.step(MakingStep::Fill)?;
        let start = self.start();
        let (grow, zeros) = match &self.site {
            Site::New { draft, grows, .. } => {
                let grow = |room: u64| {
                    draft.file().set_len(start + room).map_err(CopyTrouble::Grow)?;
                    gate.grow();
                    Ok(())
                };
                let zeros = if self.header.is_some() { copy.holes.written_as() } else { Zeros::Skip };
                (grows.then_some(grow), zeros)
            }
            // What else is there is not known to be zeros, nor that it stays so.
            Site::There { .. } => (None, Zeros::Write),
            Site::AsIs { .. } => (None, Zeros::Make),
        };
        let tell = |progress: Progress<'_>| self.tell(progress);
        let mut transfer = Transfer::new(copy, &gate, zeros, &tell);
        transfer.grow = grow.as_ref().map(|grow| grow as _);
        transfer.again = journal.as_ref();
        transfer.run().map(Some).map_err(|trouble| self.failed(trouble))
    }

    /// Writes what comes before the contents of a new file. Of a copy that can go on later that is the whole header, since
    /// the next run takes the volume key from it; nothing tells of one that was not made durable, since the first record
    /// comes behind it. Else it is the place of the key slots: megabytes of noise, which open nothing without the rest, and
    /// which the flush that ends the copy makes durable.
    fn begin(&self, resumed: Option<Resumed>) -> Result<Option<CopyJournal<'_>>> {
        let Site::New { draft, size, .. } = &self.site else {
            return Ok(None);
        };
        if resumed.is_some() || self.inside().is_some() {
            self.step(MakingStep::Begin)?;
        }
        let Some(resumed) = resumed else {
            if let Some(header) = self.inside() {
                draft.write(|file| header.prepared.put_key_slots(file, PriorContents::IsZeros))?;
            }
            return Ok(None);
        };
        let room = SourceRoom { start: self.start(), end: *size };
        let journal = match resumed.last {
            Some(record) => CopyJournal::go_on(draft.file(), room, record),
            None => {
                let first = || match self.inside() {
                    Some(header) => header.prepared.put(Durable(draft.file()), PriorContents::IsZeros),
                    None => Ok(()),
                };
                CopyJournal::begin(draft.file(), room, resumed.size, resumed.source, first)
            }
        };
        let journal = journal.map_err(|error| self.failed(CopyTrouble::Grow(error)))?;
        if resumed.reserves {
            draft.reserve(*size)?;
        }
        self.refuse_another(&journal, draft)?;
        Ok(Some(journal))
    }

    /// Refuses to go on where what was copied is not from this source.
    fn refuse_another(&self, journal: &CopyJournal<'_>, draft: &Draft) -> Result<()> {
        let Some((copy, from)) = self.contents.and_then(|copy| Some((copy, copy.source.gate()?))) else {
            return Ok(());
        };
        let gate = self.lay(copy.holes.read_as())?;
        if journal.agrees(from, &gate, copy.backend)? {
            return Ok(());
        }
        let part = draft.path().to_owned();
        Err(Problem::Resume(ResumeError::Changed { part }).on(&self.name))
    }

    /// Compares what is there with what was read of the source, before there is a header: what is found to be wrong must
    /// not open.
    fn compare(&mut self, moved: Option<&Moved>) -> Result<()> {
        let Some((copy, moved)) = self.contents.filter(|copy| copy.verify).zip(moved) else {
            return Ok(());
        };
        self.step(MakingStep::Compare)?;
        if let Site::AsIs { gate, again, .. } = &mut self.site {
            // As long as it is open to be written, nobody else opens it.
            drop(gate.take());
            *gate = Some(again()?);
        }
        let gate = self.lay(copy.holes.read_as())?;
        moved.compare(&gate, copy, &|progress| self.tell(progress)).map_err(|trouble| self.failed(trouble))
    }

    fn finish_file(&self, apart: Option<&Draft>, moved: Option<&Moved>) -> Result<u64> {
        let Site::New { draft, size, grows } = &self.site else {
            return Ok(0);
        };
        if let Some(header) = self.inside().filter(|_| !draft.is_kept()) {
            self.step(MakingStep::Head)?;
            draft.write(|file| header.prepared.put_copies(file, PriorContents::IsZeros))?;
        }
        // Without its records, what is kept would begin anew.
        self.refuse_stopped()?;
        self.step(MakingStep::Size)?;
        let size = match (&self.header, moved) {
            (None, Some(moved)) => moved.bytes,
            (Some(header), Some(moved)) if *grows => {
                let data = moved.bytes.next_multiple_of(header.prepared.sector).max(header.prepared.sector);
                header.create.check_data_size(data, &self.name)?;
                header.prepared.start + data
            }
            _ => *size,
        };
        draft.set_size(size, false)?;
        draft.sync()?;
        let data_size = match (&self.header, apart) {
            (None, _) => 0,
            (Some(header), Some(apart)) => {
                self.check(header, apart)?;
                size.saturating_sub(header.prepared.start)
            }
            (Some(header), None) => self.check(header, draft)?,
        };
        if !draft.is_kept() {
            self.refuse_stopped()?;
        }
        Ok(data_size)
    }

    /// Opens the header in a file that nobody has seen yet.
    fn check(&self, header: &HeaderToMake<'_>, file: &Draft) -> Result<u64> {
        self.step(MakingStep::Check)?;
        let HeaderToMake { create, prepared } = header;
        self.tell(Progress::Checking)?;
        let image = file.image(true)?;
        // Lets the next reads come from the disk and not from memory, where the system does so.
        let _ = rustix::fs::fadvise(image.file(), 0, NonZeroU64::new(prepared.start), rustix::fs::Advice::DontNeed);
        let name = &self.name;
        with_keys(|| {
            let opened = create.try_opening(image.file(), image.size(), prepared);
            opened.map_err(|why| Problem::DoesNotOpen(why).on(name))
        })
    }

    fn finish_place(&self, apart: Option<&Draft>) -> Result<u64> {
        let (Site::There { device, target }, Some(header)) = (&self.site, &self.header) else {
            return Ok(0);
        };
        if let Some(apart) = apart {
            self.check(header, apart)?;
            return Ok(header.prepared.data_on(device.gate.size()));
        }
        let finished = self.put_in_place(device, target, header);
        finished.inspect_err(|_| {
            if let Ok(mut bytes) = GateBytes::new(&device.gate) {
                header.create.wipe(&mut bytes);
            }
        })
    }

    fn put_in_place(&self, device: &BaseDevice, target: &BaseSource, header: &HeaderToMake<'_>) -> Result<u64> {
        self.step(MakingStep::Head)?;
        let HeaderToMake { create, prepared } = header;
        let put = prepared.put(GateBytes::new(&device.gate)?, PriorContents::IsUnknown);
        put.map_err(|error| unreadable(error, target))?;
        self.step(MakingStep::Check)?;
        self.tell(Progress::Checking)?;
        with_keys(|| {
            let bytes = GateBytes::new(&device.gate)?;
            let opened = create.try_opening(bytes, device.gate.size(), prepared);
            opened.map_err(|why| Problem::DoesNotOpenInPlace(why).on(target))
        })
    }

    /// Gives what is new its name, and returns what is to be said of its place.
    fn publish(self, apart: Option<Draft>, aside: Option<Aside>) -> Result<Vec<Warning>> {
        if apart.is_some() || matches!(self.site, Site::New { .. }) {
            self.step(MakingStep::Name)?;
        }
        match self.site {
            Site::New { draft, .. } => publish_both(draft, apart).map(|()| Vec::new()),
            Site::There { device, .. } => {
                apart.map_or(Ok(()), Draft::publish)?;
                if let Some(aside) = aside {
                    aside.remove();
                }
                Ok(device.warnings)
            }
            Site::AsIs { warnings, .. } => Ok(warnings),
        }
    }

    fn is_stopped(&self) -> bool {
        self.contents.is_some_and(|copy| copy.stop.load(Ordering::Relaxed))
    }

    fn refuse_stopped(&self) -> Result<()> {
        if self.is_stopped() { Err(self.failed(CopyTrouble::Stopped)) } else { Ok(()) }
    }

    /// Why it has ended, and what is left. Nobody should go on with a copy that is wrong already.
    fn failed(&self, trouble: CopyTrouble) -> Error {
        let left = match &self.site {
            Site::There { .. } | Site::AsIs { .. } => CopyRemains::Part(self.name.clone()),
            Site::New { draft, .. } if !draft.is_kept() => CopyRemains::Nothing,
            Site::New { draft, .. } => match trouble {
                CopyTrouble::Changed | CopyTrouble::Differs { .. } => {
                    draft.remove();
                    CopyRemains::Nothing
                }
                _ => CopyRemains::Kept,
            },
        };
        let source = self.contents.map_or("", |copy| copy.source.name());
        trouble.into_error(source, &self.name, left)
    }
}

/// Gives the data its name, and then the header: as within one file, what has no header is no volume. Data that has
/// its name gets its header even where that name may not be durable: nothing else has its key. An old header is out
/// of the way meanwhile, since it would open onto what is not its data.
pub(super) fn publish_both(data: Draft, header: Option<Draft>) -> Result<()> {
    let Some(header) = header else {
        return data.publish();
    };
    let header = header.found_if_cut_off()?;
    let aside = header.set_aside()?;
    let published = data.publish();
    let is_replaced = match &published {
        Ok(()) => true,
        Err(error) => matches!(error.problem(), Problem::NameNotDurable(_)),
    };
    if is_replaced {
        header.publish()?;
    }
    match aside {
        Some(aside) if is_replaced => aside.remove(),
        Some(aside) => aside.put_back(),
        None => {}
    }
    published
}

#[cfg(test)]
#[path = "making_tests.rs"]
mod tests;
