//! Opening an emulated zoned device on a file, and making its state file where there is none.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::ZonedDevice;
use crate::base::{DirectMode, Image};
use crate::gate::Gate;
use crate::zone::journal::{self, LoadedJournal, StateError, ZoneJournal};
use crate::zone::{LayoutError, Saved, ZoneLayout, ZoneTable};
use crate::{Device, OpenError};

/// Settings of the zones as a user gives them. Bytes, where it is not a count; `None` for what the state file says, and
/// for the usual in a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneOptions {
    /// From zone to zone. A new device needs it.
    pub zone_size: Option<u64>,
    /// Usable part of a sequential zone; usually all.
    pub capacity: Option<u64>,
    /// How many zones are conventional; usually none.
    pub conventional: Option<u32>,
    /// Zones open at a time; usually any number.
    pub max_open: Option<u32>,
    /// Zones open or closed at a time; usually any number.
    pub max_active: Option<u32>,
    /// The unit of writes; usually 4096.
    pub write_granularity: Option<u32>,
}

/// An emulated zoned device on a file, and what is to be said of it.
pub struct ZonedFile {
    /// The device.
    pub device: ZonedDevice,
    /// How its zones lie.
    pub layout: ZoneLayout,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
}

impl ZoneOptions {
    /// The layout of a new device of `size` bytes.
    ///
    /// Errors: no zone size, or what [`ZoneLayout`] refuses.
    pub fn layout(&self, size: u64) -> Result<ZoneLayout, LayoutError> {
        let missing = || LayoutError("a new zoned device needs zone-size=SIZE".to_owned());
        let mut layout = ZoneLayout::new(size, self.zone_size.ok_or_else(missing)?)?;
        layout.capacity = self.capacity.unwrap_or(layout.capacity);
        layout.conventional = self.conventional.unwrap_or(0);
        layout.max_open = self.max_open.unwrap_or(0);
        layout.max_active = self.max_active.unwrap_or(0);
        layout.write_granularity = self.write_granularity.unwrap_or(layout.write_granularity);
        layout.check()
    }

    /// Where the options say something else than `layout`: the option's name, and both values.
    fn difference(&self, layout: &ZoneLayout) -> Option<(&'static str, u64, u64)> {
        let count = |option: Option<u32>| option.map(u64::from);
        // Limits that can not be reached are none, here as there.
        let limits = self.layout(layout.size()).unwrap_or(*layout);
        let limit = |option: Option<u32>, limit: u32| option.map(|_| u64::from(limit));
        [
            ("zone-size", self.zone_size, layout.zone_size),
            ("zone-capacity", self.capacity, layout.capacity),
            ("conventional", count(self.conventional), u64::from(layout.conventional)),
            ("max-open", limit(self.max_open, limits.max_open), u64::from(layout.max_open)),
            ("max-active", limit(self.max_active, limits.max_active), u64::from(layout.max_active)),
            ("granularity", count(self.write_granularity), u64::from(layout.write_granularity)),
        ]
        .into_iter()
        .find_map(|(name, said, is)| said.filter(|said| *said != is).map(|said| (name, said, is)))
    }
}

impl ZonedFile {
    /// Opens the file at `path` with its state in `PATH.zones`, which is made where it is missing
    /// and the sequential zones hold no data.
    ///
    /// Errors: a state that is missing, damaged or of another layout than `options`; what
    /// [`Image::open`] refuses. A state that is damaged in both copies can be opened `read_only`.
    pub fn open(path: &Path, options: &ZoneOptions, read_only: bool, direct: DirectMode) -> Result<Self, OpenError> {
        let image = Image::open(path, read_only)?;
        if image.is_block_device() {
            return Err(OpenError::WrongKind {
                path: path.to_owned(),
                what: "a block device, and zones are emulated over files only",
            });
        }
        let state_path = state_path(path);
        let (loaded, file) = match open_state(&state_path, read_only)? {
            Some(file) => (load(&file, &state_path)?, Some(file)),
            None => make_state(&image, options, &state_path, read_only)?,
        };
        let layout = loaded.layout;
        if let Some((name, said, is)) = options.difference(&layout) {
            let is_new = |saved: &Saved| saved.pointer == 0;
            let or =
                if loaded.saved.iter().all(is_new) { ", or remove the file: no zone holds anything yet" } else { "" };
            return Err(OpenError::Geometry(format!(
                "{} was made with {name}={is}, not {said}; leave {name} out{or}",
                state_path.display()
            )));
        }
        if image.size() != layout.size() {
            return Err(OpenError::Geometry(format!(
                "{} has {} bytes and its zones have {}; is the file cut short?",
                path.display(),
                image.size(),
                layout.size()
            )));
        }
        let warnings = findings(&loaded, &state_path, read_only)?;
        let journal = match file.filter(|_| !read_only) {
            None => None,
            Some(file) => {
                let opened = ZoneJournal::open(Box::new(file), &loaded);
                Some(opened.map_err(|error| unusable(&state_path, &error))?)
            }
        };
        let lower = image.into_device(layout.write_granularity, direct)?;
        if lower.traits().geometry.size != layout.size() {
            return Err(OpenError::Blocks(format!("{} is not whole blocks", path.display())));
        }
        let saved = |index: u32| {
            let place = usize::try_from(index).unwrap_or(usize::MAX);
            loaded.saved.get(place).copied().unwrap_or_default()
        };
        let table = ZoneTable::load(layout, saved);
        Ok(Self { device: ZonedDevice::new(Gate::new(lower), table, journal)?, layout, warnings })
    }
}

/// `PATH.zones`.
fn state_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".zones");
    PathBuf::from(name)
}

fn open_state(path: &Path, read_only: bool) -> Result<Option<File>, OpenError> {
    match File::options().read(true).write(!read_only).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::system("open", path, error)),
    }
}

fn load(file: &File, path: &Path) -> Result<LoadedJournal, OpenError> {
    let metadata = file.metadata();
    let len = metadata.map_err(|error| OpenError::system("stat", path, error))?;
    journal::load(file, len.len()).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &StateError) -> OpenError {
    OpenError::Geometry(format!("zone state {}: {error}", path.display()))
}

/// Makes a state with all zones empty, where that can be true. A file for it is made where the
/// device is to be written.
fn make_state(
    image: &Image,
    options: &ZoneOptions,
    state_path: &Path,
    read_only: bool,
) -> Result<(LoadedJournal, Option<File>), OpenError> {
    let path = image.path().display();
    let layout = options.layout(image.size()).map_err(|error| {
        OpenError::Geometry(format!("{path} has no zone state ({} is missing): {error}", state_path.display()))
    })?;
    let sequential = layout.start_of(layout.conventional);
    if has_data(image.file(), sequential) {
        return Err(OpenError::Geometry(format!(
            "{path} has data behind byte {sequential} and no zone state ({} is missing); restore that, or use an empty file for a new device",
            state_path.display()
        )));
    }
    if read_only {
        return Ok((LoadedJournal::new(layout), None));
    }
    let file = create(state_path, &layout).map_err(|error| OpenError::system("make", state_path, error))?;
    Ok((load(&file, state_path)?, Some(file)))
}

/// Tells if anything is allocated from `offset` on. Where the file system can not tell, it says that there is.
fn has_data(file: &File, offset: u64) -> bool {
    let found = rustix::fs::seek(file, SeekFrom::Data(offset));
    !matches!(found, Err(Errno::NXIO))
}

/// Makes the state file whole or not at all. Until then it has a name that no other file has.
fn create(path: &Path, layout: &ZoneLayout) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().prefix(".cryptline-").permissions(all).tempfile_in(folder)?;
    journal::create(file.as_file(), layout)?;
    cryptline_sys::sync_all(file.as_file())?;
    let file = file.persist_noclobber(path)?;
    cryptline_sys::sync_all(File::open(folder)?)?;
    Ok(file)
}

fn findings(loaded: &LoadedJournal, path: &Path, read_only: bool) -> Result<Vec<String>, OpenError> {
    let mut warnings = Vec::new();
    if !loaded.lost.is_empty() {
        let ranges: Vec<_> =
            (loaded.lost.iter()).map(|zones| format!("{} to {}", zones.start, zones.end.saturating_sub(1))).collect();
        let lost = format!(
            "zone state {}: the records of zones {} are damaged in both copies",
            path.display(),
            ranges.join(", ")
        );
        if !read_only {
            return Err(OpenError::Damaged(format!(
                "{lost}; restore the file from a backup, or open it read-only to copy the data"
            )));
        }
        warnings.push(format!("{lost}; all of these zones can be read, written or not"));
    } else if loaded.to_repair > 0 && !read_only {
        warnings.push(format!(
            "zone state {}: of {} blocks one copy was older or damaged, as a crash can leave it; both are the same again",
            path.display(),
            loaded.to_repair
        ));
    }
    Ok(warnings)
}
