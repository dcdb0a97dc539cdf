//! New volumes.
//!
//! ```text
//! in a file           made in a temporary file beside its place, made durable, opened again from disk, and
//!                     only then given its name: so there is a whole volume under that name or nothing new,
//!                     whatever happens in between
//! on a device, in     there is no second name to prepare it under, so what is there is looked at first; a
//! a partition, and    header that was begun and does not open again is wiped
//! behind an NBD URI,
//! in a Ceph image
//! ```

mod again;
mod apart;
mod btt;
mod draft;
mod fill;
pub(crate) mod look;
mod place;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline_engine::base::Image;
use cryptline_luks::format::{FormatOptions, LuksVersion, format, format_with_key};
use cryptline_luks::{KEY_LEN_MAX, KdfLimits, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;

pub use btt::{CreateBtt, CreatedBtt};

use crate::base::{Access, BaseDevice, BaseSource};
use crate::bytes::GateBytes;
use crate::copy::{Copied, Copy, Holes};
use crate::error::{Error, Problem};
use crate::given::Given;
use crate::info::BaseInfo;
use crate::keys::{Key, KeyRequest, Keys, Passphrase, with_keys};
use crate::medium::Medium;
use crate::setters::{setter_of_options, setters};
use crate::target::Target;
use crate::{Result, Warning};
pub(crate) use draft::{Draft, Durable};
pub(crate) use look::what_is_there;

/// No LUKS2 volume has larger cipher sectors, in bytes.
const LARGEST_SECTOR: u32 = 4096;
/// Bytes of each copy of a header that are wiped where it does not open again. Unless it is said, a copy has as many.
const WIPED: usize = 16 * 1024;

/// Event while a volume is made; for a progress bar, and for signal handlers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// This file is unfinished: whoever ends the process now should remove it.
    Unfinished(&'a Path),
    /// A header and its data will be replaced, one after the other. The old header is here while they are, and stays
    /// here where that is cut off.
    SetAside(&'a Path),
    /// The device's contents are being looked at.
    Looking,
    /// So much of what will be written was looked at.
    LookedAt {
        /// Bytes.
        bytes: u64,
        /// Bytes in all.
        of: u64,
    },
    /// The contents were looked at.
    Looked,
    /// The key slot is made, which takes as long as unlocking will.
    Deriving,
    /// The new volume is opened again.
    Checking,
    /// So much of the work is done.
    Done {
        /// Bytes done.
        bytes: u64,
        /// Bytes in all.
        of: u64,
    },
    /// So much was copied, and is durable.
    Copied {
        /// Bytes of the source.
        bytes: u64,
        /// Bytes in all, where that is known.
        of: Option<u64>,
    },
    /// So much of the copy was compared with the source.
    Compared {
        /// Bytes.
        bytes: u64,
        /// Bytes in all.
        of: u64,
    },
}

/// Takes what happens. What it returns as an error ends the making.
pub(crate) type Observer = Box<dyn Fn(Progress<'_>) -> Result<()> + Send + Sync>;

/// How to make a LUKS volume. What is not said is as `cryptsetup luksFormat` has it.
///
/// ```no_run
/// use cryptline::Create;
///
/// let made = Create::new("disk.img").size(1 << 30).passphrase("secret").create()?;
/// println!("{} bytes of decrypted disk", made.data_size);
/// # Ok::<(), cryptline::Error>(())
/// ```
pub struct Create {
    given: Given,
    size: Option<u64>,
    replace: bool,
    in_place: bool,
    preallocate: bool,
    format: FormatOptions,
    volume_key: Option<Arc<dyn Keys>>,
    header: Option<PathBuf>,
    copy: Option<Copy>,
    observer: Option<Observer>,
}

/// A volume that was made, and opened again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Created {
    /// Bytes of the clear disk; 0 for a detached header, whose data is elsewhere.
    pub data_size: u64,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
    /// Result of the copy that filled it.
    pub copied: Option<Copied>,
}

impl Create {
    /// A volume in the new file `target`, on a block device, on `pmem:PATH` or `btt:PATH`, in an export of an NBD server
    /// or in an image of a Ceph cluster.
    pub fn new(target: impl AsRef<OsStr>) -> Self {
        Self::at(Given::target(target))
    }

    /// A volume on anything that can be read and written.
    pub fn medium(medium: impl Medium) -> Self {
        Self::at(BaseSource::Medium(Arc::new(medium)).into())
    }

    fn at(given: Given) -> Self {
        Self {
            given,
            size: None,
            replace: false,
            in_place: false,
            preallocate: false,
            format: FormatOptions::default(),
            volume_key: None,
            header: None,
            copy: None,
            observer: None,
        }
    }

    setter_of_options!();

    setters! {
        /// Size of a file in bytes, header included. A device has its size already.
        fn size(bytes: u64) { size = Some(bytes) }

        /// Replaces a file that exists, or what is on the device.
        fn replace(yes: bool) { replace = yes }

        /// In a file that exists, as on a device: it keeps its size, and its other bytes.
        fn in_place(yes: bool) { in_place = yes }

        /// Sets what has the volume key, instead of a random one: [`FormatOptions::key_len`] bytes.
        fn volume_key(keys: impl Keys + 'static) { volume_key = Some(Arc::new(keys)) }

        /// Reserves the space of a file on disk now.
        fn preallocate(yes: bool) { preallocate = yes }

        /// Version, cipher, key slot, label and so on.
        fn format(options: FormatOptions) { format = options }

        /// The new passphrase, of which a copy is kept in key memory.
        ///
        /// Give a reference to memory that you wipe: what is passed by value, such as a `String`, is freed as it is.
        fn passphrase(passphrase: impl AsRef<[u8]>) { given.set_keys(Passphrase::new(passphrase)) }

        /// Where the new passphrase comes from. It is asked for once the place for the volume is known to be free.
        fn keys(keys: impl Keys + 'static) { given.set_keys(Ok(keys)) }

        /// Where the header goes: a new file. The target has only data, and where nothing is copied, is not touched.
        fn header(path: impl Into<PathBuf>) { header = Some(path.into()) }

        /// Told what happens. An error from it ends the making. A file is then as it was before; on a device, a
        /// header that was begun is wiped, and what it has overwritten is lost.
        fn on_progress(observer: impl Fn(Progress<'_>) -> Result<()> + Send + Sync + 'static) {
            observer = Some(Box::new(observer))
        }
    }

    /// Makes the volume, and opens it again.
    ///
    /// # Errors
    /// Any problem with the options, or with the place. A file is then as it was before, unless only its name could not
    /// be made durable ([`Problem::NameNotDurable`]), or its header has another ([`Problem::HeaderKept`]). On a device,
    /// a header that was begun is wiped, and what it has overwritten is lost.
    pub fn create(mut self) -> Result<Created> {
        let source = self.given.take_source()?;
        if !self.given.rules().is_empty() {
            let (volume, given) = ("a volume that is yet to be made", "rules for a header");
            return Err(Problem::Useless { volume, given }.on(&source));
        }
        self.refuse_over_data(&source)?;
        self.format.detached |= self.header.is_some();
        self.format.accepted_ciphers.extend_from_slice(self.given.accepted_ciphers());
        if self.format.key_len == 0 {
            // No header can hold such a key, not even for a cipher that takes none.
            let most = KEY_LEN_MAX as usize;
            return Err(Problem::VolumeKeyLength { most }.on(&source));
        }
        if let Some(copy) = self.copy.take() {
            // What shows which blocks are unused need not hide which key slots are.
            self.format.sparse |= copy.holes == Holes::Keep;
            return self.create_from(&source, copy);
        }
        let mut created = with_keys(|| match (&source, &self.header) {
            (_, Some(header)) => self.in_file(header),
            (BaseSource::Target(Target::Path(path)), _) if !self.in_place && !is_device(path) => self.in_file(path),
            (BaseSource::Target(Target::Path(path) | Target::Pmem(path) | Target::Btt(path)), _) => {
                self.put_in_place(&source, Some(path))
            }
            // Looked through as it is: where its bytes lie in a file is not known here.
            (BaseSource::Target(Target::Slice(slice)), _) if !slice.of.is_memory() => self.put_in_place(&source, None),
            (
                BaseSource::Target(Target::Nbd(_) | Target::Rbd(_))
                | BaseSource::Medium(_)
                | BaseSource::Device(_)
                | BaseSource::Image(_),
                _,
            ) => self.put_in_place(&source, None),
            (BaseSource::Target(target), _) => Err(Problem::NoPlace(target.to_string()).into()),
        })?;
        created.warnings.extend(Warning::of_key_memory());
        Ok(created)
    }

    fn in_file(&self, path: &Path) -> Result<Created> {
        let name = path.display().to_string();
        let size = match self.size {
            Some(size) => size,
            None if self.format.detached => self.format.header_len().map_err(|error| Problem::Luks(error).on(&name))?,
            None => return Err(Problem::NoSize.on(&name)),
        };
        let draft = Draft::new(path, self.replace)?;
        self.tell(Progress::Unfinished(draft.path()))?;
        let passphrase = self.new_passphrase(&name)?;
        draft.set_size(size, self.preallocate)?;
        self.tell(Progress::Deriving)?;
        let mut device = Durable(draft.file());
        let key = self
            .put_header(&mut device, size, &passphrase, &self.format, &name)?
            .map_err(|error| made_no_header(error, &name))?;
        draft.sync()?;
        self.tell(Progress::Checking)?;
        let image = Image::open(draft.path(), true)?;
        // Lets the next reads come from the disk and not from memory, where the system does so.
        let _ = rustix::fs::fadvise(image.file(), 0, None, rustix::fs::Advice::DontNeed);
        let data_size = self
            .try_opening(image.file(), image.size(), &passphrase, &key)
            .map_err(|why| Problem::DoesNotOpen(why).on(&name))?;
        drop(image);
        draft.publish(self.replace)?;
        Ok(Created { data_size, warnings: Vec::new(), copied: None })
    }

    /// On a device that is there already.
    fn put_in_place(&self, target: &BaseSource, path: Option<&Path>) -> Result<Created> {
        let (device, options) = self.open_place(target, path, None)?;
        let size = device.gate.geometry().size;
        let mut bytes = GateBytes::new(&device.gate)?;
        let passphrase = self.new_passphrase(&target.to_string())?;
        self.tell(Progress::Deriving)?;
        let mut make = || {
            let key = self
                .put_header(&mut bytes, size, &passphrase, &options, &target.to_string())?
                .map_err(|error| Problem::Luks(error).on(target))?;
            bytes.flush().map_err(|error| unreadable(error, target))?;
            self.tell(Progress::Checking)?;
            // By the same way, which there may be one of; nothing of what was written is kept in it.
            self.try_opening(&mut bytes, size, &passphrase, &key)
                .map_err(|why| Problem::DoesNotOpenInPlace(why).on(target))
        };
        let made = make();
        let data_size = made.inspect_err(|_| {
            if bytes.is_written() {
                wipe(&mut bytes, &options);
            }
        })?;
        let sector = device.gate.geometry().logical_block;
        let torn = device.torn_sectors(options.sector_size.unwrap_or(sector));
        let mut warnings = device.warnings;
        warnings.extend(torn);
        Ok(Created { data_size, warnings, copied: None })
    }

    /// Writes the header, with a volume key that is random or was given.
    fn put_header(
        &self,
        device: &mut (impl Read + Write + Seek),
        size: u64,
        passphrase: &[u8],
        options: &FormatOptions,
        name: &str,
    ) -> Result<std::result::Result<SecretBuf, cryptline_luks::Error>> {
        let Some(keys) = &self.volume_key else {
            return Ok(format(device, size, passphrase, options));
        };
        let request = KeyRequest::of_volume_key(name, options.key_len as usize);
        let Some(Key::Volume(key)) = keys.key(&request)? else {
            return Err(Problem::NoKey.on(name));
        };
        let made = format_with_key(device, size, passphrase, &key, options);
        Ok(made.map(|()| key))
    }

    /// Opens a device that is there already, and looks whether it may be overwritten; what to make there.
    fn open_place(
        &self,
        target: &BaseSource,
        path: Option<&Path>,
        copy: Option<&Copy>,
    ) -> Result<(BaseDevice, FormatOptions)> {
        let mut device = target.open_device(Access::default())?;
        let geometry = *device.gate.geometry();
        let size = geometry.size;
        if self.size.is_some() || self.preallocate {
            return Err(Problem::HasSize(size).on(target));
        }
        if geometry.read_only {
            return Err(Problem::ReadOnly.on(target));
        }
        let mut options = self.format.clone();
        fit_sector(&mut options, size);
        if options.detached {
            options.check_data_size(size).map_err(|error| Problem::Luks(error).on(target))?;
        }
        // What is larger than a table's sector can be torn; what is smaller cannot be written.
        let sector = geometry.logical_block;
        if let BaseInfo::Btt { .. } = device.info {
            options.sector_size.get_or_insert(sector);
        }
        if let BaseInfo::Rbd { stripe_period } = device.info {
            let warning = fit_to_rbd(&mut options, stripe_period, size);
            device.warnings.extend(warning);
        }
        let unit = match options.version {
            LuksVersion::Luks1 => 512,
            LuksVersion::Luks2 => options.sector_size.unwrap_or(sector.min(LARGEST_SECTOR)),
        };
        let fits = device.check_sectors(unit);
        fits.map_err(|error| error.on(target))?;
        if unit < sector {
            let block = sector;
            return Err(Problem::DeviceBlocks { unit, block }.on(target));
        }
        if !self.replace {
            self.refuse_contents(&device, target, path, &options, copy)?;
        }
        Ok((device, options))
    }

    /// Refuses a device that holds something, before anything is written.
    fn refuse_contents(
        &self,
        device: &BaseDevice,
        target: &BaseSource,
        path: Option<&Path>,
        options: &FormatOptions,
        copy: Option<&Copy>,
    ) -> Result<()> {
        let start = options.data_start().map_err(|error| Problem::Luks(error).on(target))?;
        // Up to the end of the device, where only the end of a stream tells how much comes.
        let contents = copy.map_or(Some(0), |copy| copy.source.size());
        let written = contents
            .map_or(u64::MAX, |contents| start.saturating_add(contents).saturating_add(u64::from(LARGEST_SECTOR)));
        let found = what_is_there(device, written, path, |progress| {
            copy.map_or(Ok(()), |copy| copy.refuse_stopped(&target.to_string()))?;
            self.tell(progress)
        });
        match found.map_err(|error| error.on(target))? {
            Some(what) => Err(Problem::Holds { what }.on(target)),
            None => Ok(()),
        }
    }

    fn new_passphrase(&self, name: &str) -> Result<SecretBuf> {
        let keys = self.given.keys().map_err(|error| error.on(name))?;
        match keys.key(&KeyRequest::of_new(name))? {
            Some(Key::Passphrase(passphrase)) => Ok(passphrase),
            Some(Key::Volume(_)) => Err(Problem::NotAPassphrase.on(name)),
            None => Err(Problem::NoKey.on(name)),
        }
    }

    /// Opens the volume as a user would: the header, the passphrase, the digest. Returns the size of the clear
    /// disk, or why it does not open.
    fn try_opening(
        &self,
        mut device: impl Read + Seek,
        size: u64,
        passphrase: &[u8],
        key: &SecretBuf,
    ) -> std::result::Result<u64, String> {
        let text = |error: cryptline_luks::Error| error.to_string();
        let header = cryptline_luks::read(&mut device, size).map_err(text)?;
        // The costs are those that were asked for.
        let limits = KdfLimits::NONE;
        let allow_null_cipher = self.format.allow_null_cipher;
        let options = UnlockOptions { limits, allow_null_cipher, ..UnlockOptions::default() };
        let opened = header.unlock(&mut device, passphrase, &options).map_err(text)?;
        if *opened.key != **key {
            return Err("it gives another key".to_owned());
        }
        header.verify_volume_key(&opened.key, limits).map_err(text)?;
        let detached = self.format.detached;
        let policy = SegmentPolicy { allow_null_cipher, detached };
        let segments = header.segments(policy).map_err(text)?;
        if detached {
            return Ok(0);
        }
        segments.iter().map(|segment| segment.data_size(size)).sum::<std::result::Result<_, _>>().map_err(text)
    }

    fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(progress))
    }
}

/// Tells if volumes are made on it, and not in its place.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// A header of its own does not know the size of its data, which need not be a multiple of the largest sector.
fn fit_sector(options: &mut FormatOptions, size: u64) {
    if options.detached && !size.is_multiple_of(LARGEST_SECTOR.into()) {
        options.sector_size.get_or_insert(512);
    }
}

/// Chooses what Ceph's own encryption would make, so that it opens it, too: data begins with a round of objects, and a
/// sector of LUKS2 has 4096 bytes. What was asked for stays as it is; where there is no room for that, so does what is
/// usual.
fn fit_to_rbd(options: &mut FormatOptions, stripe_period: u64, size: u64) -> Option<Warning> {
    let usual = match options.version {
        LuksVersion::Luks1 => 2 << 20,
        LuksVersion::Luks2 => 16 << 20,
    };
    let mut warning = None;
    if options.data_offset.is_none() && !options.detached {
        let wanted = u64::checked_next_multiple_of(usual, stripe_period).unwrap_or(u64::MAX);
        // A small image without room for any data has its own error.
        if wanted < size || wanted == usual {
            options.data_offset = Some(wanted);
        } else {
            warning = Some(Warning::CephOffset { wanted });
        }
    }
    if options.version == LuksVersion::Luks2 && size.is_multiple_of(u64::from(LARGEST_SECTOR)) {
        options.sector_size.get_or_insert(LARGEST_SECTOR);
    }
    warning
}

/// Half a header helps nobody, and the second copy of one is looked for where the first is damaged. The device may be
/// failing, so nothing is said if this does too.
fn wipe(device: &mut GateBytes, options: &FormatOptions) {
    let second = options.metadata_size.unwrap_or(WIPED as u64);
    for start in [0, second] {
        let _ = device.seek(SeekFrom::Start(start)).and_then(|_| device.write_all(&[0; WIPED]));
    }
    let _ = device.flush();
}

/// Returns what went wrong with the header of a file that nobody has seen yet.
fn made_no_header(error: cryptline_luks::Error, name: &str) -> Error {
    match error {
        cryptline_luks::Error::Io { source, .. } => draft::failed("write", name, source),
        other => Problem::Luks(other).on(name),
    }
}

fn unreadable(source: io::Error, target: &BaseSource) -> Error {
    let action = "use it";
    Problem::Io { action, source }.on(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begins_with_a_round_of_objects_where_there_is_room() {
        const MIB: u64 = 1 << 20;
        let fit = |period, size| {
            let mut options = FormatOptions::default();
            let warning = fit_to_rbd(&mut options, period, size);
            (options.data_offset, warning.is_some())
        };
        assert_eq!(fit(4 * MIB, 20 * MIB), (Some(16 * MIB), false));
        assert_eq!(fit(12 * MIB, 32 * MIB), (Some(24 * MIB), false));
        assert_eq!(fit(12 * MIB, 20 * MIB), (None, true));
        // Too small for any: the error is that of all targets.
        assert_eq!(fit(4 * MIB, 8 * MIB), (Some(16 * MIB), false));
    }
}
