//! More room for a volume, or less.
//!
//! ```text
//! where the header says "up to the end"   the file is made longer or cut; the header stays
//! where it says how long the data is      longer: the file first, then the header; shorter: the header first
//! ```
//!
//! So whatever is cut off on the way, the volume lies inside its file, and the same again finishes it. A file that only
//! becomes longer is not locked: servers that have it open notice. Everything else that changes is opened
//! first and compared with what was planned, and what was written behind the new end, or where the volume grows to, is
//! not given up unless that was said.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use cryptline_luks::{DataSegment, SegmentPolicy};

use super::lock::Lock;
use super::{Header, OpenedHeader};
use crate::base::BaseSource;
use crate::bytes::WindowBytes;
use crate::create::{Progress, look};
use crate::durable;
use crate::error::{Error, ErrorKind, Problem};
use crate::keys::with_keys;
use crate::open::read_header;
use crate::size::human;
use crate::target::Target;
use crate::{Result, Warning};

/// How large a volume is to be, and what that may cost.
#[derive(Clone, Debug, Default)]
pub struct ResizeOptions {
    /// Bytes of its file or device, header included. `None`: as many as there are.
    pub size: Option<u64>,
    /// Allows it to become smaller.
    pub shrink: bool,
    /// Accepts the loss of what was written behind its new end, or where it grows to.
    pub force: bool,
}

/// A volume with its new size.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resized {
    /// Bytes of its file or device, header included.
    pub size: u64,
    /// Bytes of the clear disk.
    pub data_size: u64,
    /// Bytes of the clear disk before.
    pub before: u64,
    /// The header says how large it is, so programs that have it open keep the old size.
    pub is_fixed: bool,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

/// Why a volume keeps its size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// There would be no room for the header and a sector.
    #[error("header and data need at least {least} bytes")]
    TooSmall {
        /// The least that there must be, in bytes.
        least: u64,
    },
    /// Would become smaller, which was not asked for.
    #[error("it has {} ({size} bytes) now", human(*size))]
    Smaller {
        /// Its size, in bytes.
        size: u64,
    },
    /// Something lies behind its new end.
    #[error("something was written behind that place; {least} bytes are the least that lose nothing")]
    InUse {
        /// The least size that loses nothing, in bytes.
        least: u64,
    },
    /// Something lies where it would grow to.
    #[error("it ends at byte {end}, and something was written behind that place, where it would grow to")]
    Taken {
        /// Its end now, in bytes from the beginning of its file or device.
        end: u64,
    },
    /// Not a file of its own.
    #[error("its size, {size} bytes, is not that of a file of its own, so it is not changed here")]
    NotAFile {
        /// Its size, in bytes.
        size: u64,
    },
    /// Somebody else has changed it meanwhile.
    #[error("somebody else has changed it meanwhile; try again")]
    Changed,
}

impl ResizeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::InUse { .. } | Self::Taken { .. } | Self::Changed => ErrorKind::Busy,
            _ => ErrorKind::Parameters,
        }
    }
}

/// The parts of a volume.
struct VolumeParts {
    target: BaseSource,
    /// Holder of the header, where that is not the target.
    header: Option<BaseSource>,
}

/// The same while they are changed.
struct OpenParts {
    data: OpenedHeader,
    header: Option<OpenedHeader>,
}

/// Change that is to be made.
struct ResizePlan {
    /// The file, where it is one of its own.
    file: Option<PathBuf>,
    /// Bytes of the file or device, now and then.
    sizes: [u64; 2],
    /// The first byte behind the data, now and then.
    ends: [u64; 2],
    /// The new length of the last segment, where the header says it and it is another.
    length: Option<u64>,
}

impl VolumeParts {
    /// Nothing of it is decrypted, so it may be in clear.
    fn policy(&self) -> SegmentPolicy {
        SegmentPolicy { allow_null_cipher: true, detached: self.header.is_some() }
    }

    /// Where the data is.
    fn segments(&self) -> Result<Vec<DataSegment>> {
        Ok(self.read()?.1)
    }

    /// The header, and where the data is.
    fn read(&self) -> Result<(cryptline_luks::LuksHeader, Vec<DataSegment>)> {
        let look = self.holder().look()?;
        let header = read_header(look.reader()?, look.size, &look.name)?;
        let segments = header.segments(self.policy()).map_err(|error| Problem::Luks(error).on(&look.name))?;
        Ok((header, segments))
    }

    fn holder(&self) -> &BaseSource {
        self.header.as_ref().unwrap_or(&self.target)
    }

    /// A regular file that is the target, and the bytes of the target.
    fn file(&self) -> Result<(Option<PathBuf>, u64)> {
        let look = self.target.look()?;
        let file = match &self.target {
            BaseSource::Target(Target::Path(path)) if look.device_number.is_none() => Some(path.clone()),
            _ => None,
        };
        Ok((file, look.size))
    }

    /// For what the plan changes. Nobody may have the data open while a part of it goes.
    fn open(&self, plan: &ResizePlan) -> Result<OpenParts> {
        let alone = plan.is_smaller();
        let is_left_alone = self.header.is_some() && !alone && plan.sizes[0] == plan.sizes[1];
        let data = OpenedHeader::beside(&self.target, is_left_alone, !alone)?;
        let header = self.header.as_ref().filter(|_| plan.length.is_some());
        let header = header.map(|header| OpenedHeader::of(header, false)).transpose()?;
        Ok(OpenParts { data, header })
    }
}

impl OpenParts {
    /// Returns what has the header, where that is changed.
    fn holder(&self) -> &OpenedHeader {
        self.header.as_ref().unwrap_or(&self.data)
    }
}

impl ResizePlan {
    fn new(last: &DataSegment, file: Option<PathBuf>, sizes: [u64; 2]) -> std::result::Result<Self, ResizeError> {
        let [has, wanted] = sizes;
        let sector = u64::from(last.sector_size);
        let least = last.offset.saturating_add(sector);
        if wanted < least {
            return Err(ResizeError::TooSmall { least });
        }
        let takes = file.is_some() || (last.size.is_some() && wanted <= has);
        if wanted != has && !takes {
            return Err(ResizeError::NotAFile { size: has });
        }
        let room = wanted - last.offset;
        let room = room - room % sector;
        Ok(Self {
            file,
            sizes,
            ends: match last.size {
                None => sizes,
                Some(size) => [last.offset.saturating_add(size), last.offset + room],
            },
            length: last.size.filter(|size| *size != room).map(|_| room),
        })
    }

    /// The file, where it becomes shorter.
    fn cut(&self) -> Option<&Path> {
        let [has, wanted] = self.sizes;
        self.file.as_deref().filter(|_| wanted < has)
    }

    fn is_smaller(&self) -> bool {
        self.cut().is_some() || self.ends[1] < self.ends[0]
    }

    /// Returns what is lost behind the new end.
    fn lost(&self) -> Range<u64> {
        let has = self.sizes[0];
        let to = self.cut().map_or(self.ends[0].min(has), |_| has);
        self.ends[1]..to
    }

    /// Returns what is there already of what becomes a part of the volume.
    fn taken(&self) -> Range<u64> {
        self.ends[0]..self.ends[1].min(self.sizes[0])
    }
}

impl Header {
    /// Makes the file of the volume as large as that, header included, and the volume with it; without a size, the
    /// volume as large as there is room. What is new reads as noise until it is written.
    ///
    /// # Errors
    /// A volume that would become smaller; one that is no file of its own and has another size; what was written where
    /// it ends or grows to; a header that must be left alone.
    pub fn resize(mut self, options: &ResizeOptions) -> Result<Resized> {
        let target = self.given.take_source()?;
        let header = self.header.take().map(|path| BaseSource::Target(Target::Path(path)));
        let places = VolumeParts { target, header };
        let name = places.target.to_string();
        let failed = |error| Problem::Resize(error).on(&name);
        let (found, segments) = places.read()?;
        self.demand_of(&places, &found)?;
        let last = segments.last().ok_or_else(|| failed(ResizeError::Changed))?;
        let (file, has) = places.file()?;
        let plan = ResizePlan::new(last, file, [has, options.size.unwrap_or(has)]).map_err(failed)?;
        if plan.is_smaller() && !options.shrink {
            return Err(failed(ResizeError::Smaller { size: has }));
        }
        self.check_ivs(&plan, last).map_err(|error| Problem::Luks(error).on(&name))?;
        let warnings = if plan.length.is_some() || plan.cut().is_some() {
            self.change(&plan, &places, &segments, options.force)
        } else {
            plan.file.as_deref().map(|path| lengthen(path, plan.sizes)).transpose().map(|_| Vec::new())
        };
        let warnings = warnings.map_err(|error| error.on(&name))?;
        let now = places.segments()?;
        Ok(Resized {
            size: plan.sizes[1],
            data_size: data_size(&now, plan.sizes[1]),
            before: data_size(&segments, has),
            is_fixed: last.size.is_some(),
            warnings,
        })
    }

    /// Checks what is demanded of the header that says where the data is.
    fn demand_of(&self, places: &VolumeParts, header: &cryptline_luks::LuksHeader) -> Result<()> {
        if self.given.rules().is_empty() {
            return Ok(());
        }
        let opened = OpenedHeader::beside(places.holder(), true, true)?;
        with_keys(|| self.demand(&opened, header)).map(drop)
    }

    /// Refuses to grow a volume to where its IVs repeat, unless its cipher is accepted.
    fn check_ivs(&self, plan: &ResizePlan, last: &DataSegment) -> std::result::Result<(), cryptline_luks::Error> {
        let Some(cipher) = &last.cipher else { return Ok(()) };
        let sectors = last.iv_tweak.saturating_add(plan.ends[1].saturating_sub(last.offset) / 512);
        let is_accepted = self.given.accepted_ciphers().iter().any(|word| word == cipher.as_str());
        if plan.ends[1] <= plan.ends[0] || is_accepted || !cipher.wraps(sectors) {
            return Ok(());
        }
        Err(cryptline_luks::Error::RepeatedIvs(cipher.as_str().to_owned()))
    }

    /// Does what was planned if all is still as it was then. The volume never ends behind its file: a file becomes
    /// longer before the header says so, and shorter after it.
    fn change(
        &self,
        plan: &ResizePlan,
        places: &VolumeParts,
        segments: &[DataSegment],
        force: bool,
    ) -> Result<Vec<Warning>> {
        let opens = places.open(plan)?;
        let holder = opens.holder();
        let edit = plan.length.map(|_| holder.load()).transpose()?;
        let now = match &edit {
            Some(edit) => holder.on(edit.header().segments(places.policy()))?,
            None => places.segments()?,
        };
        if opens.data.base.size() != plan.sizes[0] || now != segments {
            return Err(Problem::Resize(ResizeError::Changed).into());
        }
        if !force {
            self.refuse_data(&opens.data, plan)?;
        }
        let change = edit.as_ref().zip(plan.length).map(|(edit, length)| holder.on(edit.set_data_size(length)));
        let change = change.transpose()?;
        let file = plan.file.as_ref().and_then(|_| opens.data.base.file());
        if !plan.is_smaller() {
            file.map_or(Ok(()), |file| set_size(file, plan.sizes))?;
        }
        let edited = change.map(|change| with_keys(|| self.commit_sealed(holder, change, None)));
        let edited = edited.transpose()?;
        if plan.is_smaller() {
            file.map_or(Ok(()), |file| set_size(file, plan.sizes))?;
        }
        Ok(edited.map_or_else(Vec::new, |edited| edited.warnings))
    }

    fn refuse_data(&self, data: &OpenedHeader, plan: &ResizePlan) -> Result<()> {
        if plan.lost().is_empty() && plan.taken().is_empty() {
            return Ok(());
        }
        self.tell(Progress::Looking)?;
        let found = found(data, plan, |progress| self.tell(progress));
        self.tell(Progress::Looked)?;
        match found? {
            Some(error) => Err(Problem::Resize(error).into()),
            None => Ok(()),
        }
    }
}

/// Returns what speaks against it.
fn found(
    data: &OpenedHeader,
    plan: &ResizePlan,
    tell: impl Fn(Progress<'_>) -> Result<()>,
) -> Result<Option<ResizeError>> {
    let unread = |source| cannot("read", source);
    let (lost, taken, base) = (plan.lost(), plan.taken(), &data.base);
    let start = base.start();
    let inside = |range: &Range<u64>| start + range.start..start + range.end;
    let file = base.file().filter(|file| is_regular(file));
    if !lost.is_empty() {
        let last = match file {
            Some(file) => look::end_of_data(file, inside(&lost)).map(|it| it.map(|at| at - start)),
            None => look::end_of_bytes(&mut base.reader()?, lost.clone()),
        };
        // A multiple of all sectors behind the new end keeps whole sectors in front of it, too.
        let (end, has) = (lost.start, plan.sizes[0]);
        let least = |last: u64| (end + (last - end).next_multiple_of(4096)).min(has);
        if let Some(last) = last.map_err(unread)? {
            return Ok(Some(ResizeError::InUse { least: least(last) }));
        }
    }
    if taken.is_empty() {
        return Ok(None);
    }
    let is_taken = match file {
        Some(file) => look::file_has_data(file, &[inside(&taken)]).map_err(unread)?,
        None => {
            let mut window = WindowBytes::new(base.reader()?, taken.clone());
            // Only the header is written.
            let known = |_, len| look::KnownPart { len, zeros: false };
            let tell = |bytes, of| tell(Progress::LookedAt { bytes, of });
            look::device_holds(&mut window, 0, known, tell)?.is_some()
        }
    };
    let end = taken.start;
    Ok(is_taken.then_some(ResizeError::Taken { end }))
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// Where nothing else changes. Servers that have the file open keep their lock.
fn lengthen(path: &Path, sizes: [u64; 2]) -> Result<()> {
    if sizes[0] == sizes[1] {
        return Ok(());
    }
    let file = File::options().write(true).open(path);
    set_size(&file.map_err(|source| cannot("open", source))?, sizes)
}

/// Two of us do not undo each other's work.
fn set_size(file: &File, [has, wanted]: [u64; 2]) -> Result<()> {
    if has == wanted {
        return Ok(());
    }
    let _lock = Lock::to_change(file)?;
    let found = file.metadata().map_err(|source| cannot("open", source))?;
    if !found.is_file() || found.len() != has {
        return Err(Problem::Resize(ResizeError::Changed).into());
    }
    file.set_len(wanted).and_then(|()| durable::sync_all(file)).map_err(|source| cannot("resize", source))
}

fn cannot(action: &'static str, source: io::Error) -> Error {
    Problem::Io { action, source }.into()
}

/// Of a file that was cut short, what is left is not asked for.
fn data_size(segments: &[DataSegment], size: u64) -> u64 {
    segments.iter().map(|segment| segment.data_size(size)).map(|size| size.unwrap_or(0)).sum()
}

#[cfg(test)]
#[path = "resize_tests.rs"]
pub(super) mod tests;
