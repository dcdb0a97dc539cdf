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
pub(crate) mod look;
mod making;
mod place;
mod prepared;

use std::ffi::OsStr;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline_luks::format::{FormatOptions, format, format_with_key};
use cryptline_luks::{KEY_LEN_MAX, KdfLimits, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;

pub use btt::{CreateBtt, CreatedBtt};

use crate::base::BaseSource;
use crate::copy::{Copied, Copy, Holes};
use crate::error::{Error, Problem};
use crate::given::Given;
use crate::keys::{Key, KeyRequest, Keys, Passphrase};
use crate::medium::Medium;
use crate::setters::{setter_of_options, setters};
use crate::{Result, Warning};
pub(crate) use draft::{Draft, Durable};
pub(crate) use look::what_is_there;
pub use making::MakingStep;
pub(crate) use making::{Made, Making, Resumed, Site};
use prepared::Prepared;

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
    /// This step begins, and what the ones before it were about is done. Each has its place in one order.
    Step(MakingStep),
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

        /// Makes the volume with these contents. A file is as large as it takes, unless a size was given. What happens is
        /// told to [`on_progress`](Self::on_progress) of this.
        fn fill(copy: Copy) { copy = Some(copy) }

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
        let mut copy = self.copy.take();
        if let Some(copy) = &copy {
            // What shows which blocks are unused need not hide which key slots are.
            self.format.sparse |= copy.holes == Holes::Keep;
            self.refuse_header(&source, copy)?;
        }
        let Made { data_size, moved, warnings } = self.plan(&source, copy.as_ref())?.run()?;
        let mut created = Created { data_size, warnings: Vec::new(), copied: None };
        match copy.as_mut().zip(moved) {
            Some((copy, moved)) => created.copied = Some(copy.copied(moved, warnings)),
            None => created.warnings = warnings,
        }
        created.warnings.extend(Warning::of_key_memory());
        Ok(created)
    }

    /// Writes the header, with a volume key that is random or was given.
    fn put_header(
        &self,
        device: &mut (impl Read + Write + Seek),
        size: u64,
        passphrase: &[u8],
        options: &FormatOptions,
        name: &str,
    ) -> Result<SecretBuf> {
        let failed = |error| Problem::Luks(error).on(name);
        let Some(keys) = &self.volume_key else {
            return format(device, size, passphrase, options).map_err(failed);
        };
        let request = KeyRequest::of_volume_key(name, options.key_len as usize);
        let Some(Key::Volume(key)) = keys.key(&request)? else {
            return Err(Problem::NoKey.on(name));
        };
        format_with_key(device, size, passphrase, &key, options).map_err(failed)?;
        Ok(key)
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
        prepared: &Prepared,
    ) -> std::result::Result<u64, String> {
        let text = |error: cryptline_luks::Error| error.to_string();
        let header = cryptline_luks::read(&mut device, size).map_err(text)?;
        // The costs are those that were asked for.
        let limits = KdfLimits::NONE;
        let allow_null_cipher = self.format.allow_null_cipher;
        let options = UnlockOptions { limits, allow_null_cipher, ..UnlockOptions::default() };
        let opened = header.unlock(&mut device, &prepared.passphrase, &options).map_err(text)?;
        if *opened.key != *prepared.key {
            return Err("it gives another key".to_owned());
        }
        header.verify_volume_key(&opened.key, limits).map_err(text)?;
        let detached = self.format.detached;
        let policy = SegmentPolicy { allow_null_cipher, detached };
        let segments = header.segments(policy).map_err(text)?;
        if segments != prepared.segments {
            return Err("it has its data elsewhere, or under another cipher".to_owned());
        }
        if detached {
            return Ok(0);
        }
        segments.iter().map(|segment| segment.data_size(size)).sum::<std::result::Result<_, _>>().map_err(text)
    }

    fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(progress))
    }
}

fn unreadable(source: io::Error, target: &BaseSource) -> Error {
    let action = "use it";
    Problem::Io { action, source }.on(target)
}
