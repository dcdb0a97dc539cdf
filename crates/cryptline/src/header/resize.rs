//! More room for a volume, or less.
//!
//! ```text
//! where the header says "up to the end"   the file is made longer or cut; the header stays
//! where it says how long the data is      longer: the file first, then the header; shorter: the header first
//! ```
//!
//! So whatever is cut off on the way, the volume lies inside its file, and the same again finishes it. A file that only
//! becomes longer is not locked: servers that have it open notice.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cryptline_engine::base::Image;
use cryptline_luks::{Segment, SegmentPolicy};

use super::lock::Lock;
use super::{Header, Opened};
use crate::base::Source;
use crate::create::{Progress, look};
use crate::error::{Error, ErrorKind, Problem};
use crate::open::read_header;
use crate::size::human;
use crate::target::Target;
use crate::{Result, Warning};

/// Whether a volume may become smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shrink {
    /// It may not.
    #[default]
    Refuse,
    /// Where nothing lies behind its new end.
    Unused,
    /// Whatever is lost.
    Lose,
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
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// Why a volume keeps its size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// There would be no room for the header and a sector.
    TooSmall {
        /// The least that there must be, in bytes.
        least: u64,
    },
    /// It would become smaller, which was not asked for.
    Smaller {
        /// Its size, in bytes.
        size: u64,
    },
    /// Something lies behind its new end.
    InUse {
        /// The least size that loses nothing, in bytes.
        least: u64,
    },
    /// It is no file of its own.
    NotAFile {
        /// Its size, in bytes.
        size: u64,
    },
    /// Somebody else has changed it meanwhile.
    Changed,
}

impl ResizeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::InUse { .. } | Self::Changed => ErrorKind::Busy,
            _ => ErrorKind::Parameters,
        }
    }
}

impl std::error::Error for ResizeError {}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { least } => write!(f, "header and data need at least {least} bytes"),
            Self::Smaller { size } => write!(f, "it has {} ({size} bytes) now", human(*size)),
            Self::InUse { least } => write!(
                f,
                "something was written behind that place; {least} bytes are the least that lose nothing"
            ),
            Self::NotAFile { size } => write!(
                f,
                "its size, {size} bytes, is not that of a file of its own, so it is not changed here"
            ),
            Self::Changed => f.write_str("somebody else has changed it meanwhile; try again"),
        }
    }
}

/// What is to be done.
struct Plan {
    /// The file, where it is one of its own.
    file: Option<PathBuf>,
    /// Bytes of the file or device, now and then.
    sizes: [u64; 2],
    /// The first byte behind the data, now and then.
    ends: [u64; 2],
    /// The new length of the last segment, where the header says it and it is another.
    length: Option<u64>,
}

impl Plan {
    fn new(
        last: &Segment,
        file: Option<PathBuf>,
        sizes: [u64; 2],
    ) -> std::result::Result<Self, ResizeError> {
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
}

impl Header {
    /// Makes the file of the volume as large as that, header included, and the volume with it; without a size, the
    /// volume as large as there is room. What is new reads as noise until it is written.
    ///
    /// # Errors
    /// A volume that would become smaller; one that is no file of its own and has another size; a header that must be
    /// left alone.
    pub fn resize(mut self, size: Option<u64>, shrink: Shrink) -> Result<Resized> {
        let target = self.given.take_source()?;
        let elsewhere = self
            .header
            .take()
            .map(|path| Source::Target(Target::Path(path)));
        let header = elsewhere.as_ref().unwrap_or(&target);
        let name = target.to_string();
        let failed = |error| Problem::Resize(error).on(&name);
        let segments = segments_of(header, elsewhere.is_some())?;
        let last = segments
            .last()
            .ok_or_else(|| failed(ResizeError::Changed))?;
        let (file, has) = place_of(&target)?;
        let plan = Plan::new(last, file, [has, size.unwrap_or(has)]).map_err(failed)?;
        if plan.is_smaller() && shrink == Shrink::Refuse {
            return Err(failed(ResizeError::Smaller { size: has }));
        }
        let warnings = if plan.is_smaller() {
            self.make_smaller(&plan, header, elsewhere.is_some(), shrink)
        } else {
            make_larger(&plan, header)
        };
        let warnings = warnings.map_err(|error| error.on(&name))?;
        let now = segments_of(header, elsewhere.is_some())?;
        Ok(Resized {
            size: plan.sizes[1],
            data_size: data_size(&now, plan.sizes[1]),
            before: data_size(&segments, has),
            is_fixed: last.size.is_some(),
            warnings,
        })
    }

    /// First the header, then the file: the volume never ends behind it.
    fn make_smaller(
        &self,
        plan: &Plan,
        header: &Source,
        is_detached: bool,
        shrink: Shrink,
    ) -> Result<Vec<Warning>> {
        // Nobody may have it open while a part of it goes.
        let is_shared = is_detached || plan.cut().is_none();
        let opened = plan
            .length
            .map(|_| Opened::beside(header, false, is_shared));
        let opened = opened.transpose()?;
        let image = plan.cut().filter(|_| is_detached || opened.is_none());
        let image = image.map(|path| Image::open(path, false)).transpose()?;
        let file = match (&image, &opened) {
            (Some(image), _) => Some(image.file()),
            (None, Some(opened)) if !is_shared => opened.base.file(),
            _ => None,
        };
        if let Some(file) = file {
            let len = file.metadata().map_err(|source| cannot("open", source))?;
            if len.len() != plan.sizes[0] {
                return Err(Problem::Resize(ResizeError::Changed).into());
            }
            if shrink == Shrink::Unused {
                self.refuse_data(file, plan)?;
            }
        }
        let warnings = match (&opened, plan.length) {
            (Some(opened), Some(length)) => set_length(opened, length)?,
            _ => Vec::new(),
        };
        if let Some(file) = file {
            set_size(file, plan.sizes[1])?;
        }
        Ok(warnings)
    }

    fn refuse_data(&self, file: &File, plan: &Plan) -> Result<()> {
        self.tell(Progress::Looking)?;
        let least = least_kept(file, plan);
        self.tell(Progress::Looked)?;
        match least.map_err(|source| cannot("read", source))? {
            Some(least) => Err(Problem::Resize(ResizeError::InUse { least }).into()),
            None => Ok(()),
        }
    }
}

/// First the file, then the header.
fn make_larger(plan: &Plan, header: &Source) -> Result<Vec<Warning>> {
    // A header that is in use is refused before anything is done.
    let opened = plan.length.map(|_| Opened::of(header, false)).transpose()?;
    if let Some(path) = &plan.file {
        lengthen(path, plan.sizes)?;
    }
    match (&opened, plan.length) {
        (Some(opened), Some(length)) => set_length(opened, length),
        _ => Ok(Vec::new()),
    }
}

fn set_length(opened: &Opened, length: u64) -> Result<Vec<Warning>> {
    let edit = opened.load()?;
    let change = opened.on(edit.set_data_size(length))?;
    Ok(opened.commit(change, None)?.warnings)
}

/// Two of us do not undo each other's work; servers that have it open keep their lock.
fn lengthen(path: &Path, [has, wanted]: [u64; 2]) -> Result<()> {
    if has == wanted {
        return Ok(());
    }
    let file = File::options().write(true).open(path);
    let file = file.map_err(|source| cannot("open", source))?;
    let _lock = Lock::take(&file)?;
    let found = file.metadata().map_err(|source| cannot("open", source))?;
    if !found.is_file() || found.len() != has {
        return Err(Problem::Resize(ResizeError::Changed).into());
    }
    set_size(&file, wanted)
}

fn set_size(file: &File, size: u64) -> Result<()> {
    let done = file.set_len(size).and_then(|()| file.sync_all());
    done.map_err(|source| cannot("resize", source))
}

fn cannot(action: &'static str, source: io::Error) -> Error {
    Problem::Io { action, source }.into()
}

/// The least size that keeps what is written behind the new end; `None` where nothing is.
fn least_kept(file: &File, plan: &Plan) -> io::Result<Option<u64>> {
    let ([has, _], [_, end]) = (plan.sizes, plan.ends);
    let last = look::end_of_data(file, end..has)?;
    // A multiple of all sectors behind the new end keeps whole sectors in front of it, too.
    Ok(last.map(|last| (end + (last - end).next_multiple_of(4096)).min(has)))
}

/// A regular file that is the target, and the bytes of the target.
fn place_of(target: &Source) -> Result<(Option<PathBuf>, u64)> {
    let look = target.look()?;
    let file = match target {
        Source::Target(Target::Path(path)) if look.device_number.is_none() => Some(path.clone()),
        _ => None,
    };
    Ok((file, look.size))
}

/// Where the data is. Nothing of it is decrypted, so it may be in clear.
fn segments_of(header: &Source, detached: bool) -> Result<Vec<Segment>> {
    let look = header.look()?;
    let read = read_header(look.reader()?, look.size, &look.name)?;
    let policy = SegmentPolicy {
        allow_null_cipher: true,
        detached,
    };
    let segments = read.segments(policy);
    segments.map_err(|error| Problem::Luks(error).on(&look.name))
}

/// Of a file that was cut short, what is left is not asked for.
fn data_size(segments: &[Segment], size: u64) -> u64 {
    let sizes = segments.iter().map(|segment| segment.data_size(size));
    sizes.map(|size| size.unwrap_or(0)).sum()
}
