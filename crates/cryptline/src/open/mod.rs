//! From a target to an open volume.
//!
//! ```text
//! base (opened, locked) ─► header ─► key (derived once) ─► cipher ─► device ─► Gate ─► crypt ─► Gate
//!                                                      delay, fault, when testing ┘│
//!                                              linear, of several parts ─► Gate ◄──┘
//! ```
//!
//! The target is locked before its header is read, so that nobody changes it in between.

mod format;
mod inspect;
mod line;
mod luks;
mod partition;
mod plain;
mod stack;
mod table;
mod trust;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::dispatch::PerfFlags;
use cryptline_engine::layer::{DelaySpec, Exclusion, FaultRule, Zeroes};

pub use format::{Format, LuksVersion, Plain, RandomKey};
pub use inspect::{Examined, HeaderArea, Inspection, Unlocked};
pub use line::TableOf;
pub(crate) use luks::{read as read_header, unlock_with};

use crate::base::{Access, BaseSource};
use crate::dispatch::{DispatchOptions, HelperPool};
use crate::error::Problem;
use crate::given::Given;
use crate::keys::{KeyFile, VolumeKey};
use crate::medium::Medium;
use crate::partition::PartitionName;
use crate::setters::{setter_of_options, setters, setters_of_unlocking};
use crate::stamp::Stamp;
use crate::target::Target;
use crate::volume::Volume;
use crate::{Result, Warning};

/// How to open a volume. Made by [`Open::new`], [`Open::target`], [`Open::medium`] or [`Open::device`]; what is not
/// said is as cryptsetup has it.
///
/// ```no_run
/// use cryptline::Open;
///
/// let volume = Open::new("disk.img").passphrase("secret").read_only(true).open()?;
/// let mut first = [0; 4096];
/// volume.blocking()?.read_at(0, &mut first)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Open {
    given: Given,
    format: Option<Format>,
    header: Option<PathBuf>,
    access: Access,
    discards: bool,
    allow_null_cipher: bool,
    /// Whoever opens it has no use for one that can only be read.
    writes: bool,
    /// Set if that key slot may keep another key.
    unbound: bool,
    blocks: BlockRules,
    dispatch: DispatchOptions,
    helpers: HelperPool,
    delay: Option<DelaySpec>,
    faults: Vec<FaultRule>,
    partition: Option<PartitionName>,
    overwrite: bool,
    in_use: Option<OwnedFd>,
    on_warning: Option<OnWarning>,
    examine: bool,
}

/// Takes what was found in a header.
type OnWarning = Box<dyn Fn(&Warning) + Send + Sync>;

/// The smallest I/O, and what holes are.
#[derive(Clone, Copy, Default)]
struct BlockRules {
    logical: Option<u32>,
    exclusion: Exclusion,
    zeroes: Zeroes,
}

impl Open {
    /// Of what `target` names: a path, or `ram:SIZE` and the like (see [`Target`]).
    pub fn new(target: impl AsRef<OsStr>) -> Self {
        Self::of(Given::target(target))
    }

    /// Of a target.
    #[must_use]
    pub fn target(target: Target) -> Self {
        Self::of(BaseSource::Target(target).into())
    }

    /// Of anything that can be read and written. Its calls block the thread that submits a request.
    pub fn medium(medium: impl Medium) -> Self {
        Self::of(BaseSource::Medium(Arc::new(medium)).into())
    }

    /// Of a device that is open already: one of your own, or the clear disk of another volume. Several volumes may
    /// lie on it, and nothing is locked.
    #[must_use]
    pub fn device(gate: &Gate) -> Self {
        Self::of(BaseSource::Device(gate.clone()).into())
    }

    /// Of a file that is open already, for who may not open any; see [`Image::of_file`]. It opens once, with
    /// [`open`](Self::open).
    #[must_use]
    pub fn image(image: Image) -> Self {
        Self::of(BaseSource::Image(Mutex::new(Some(image))).into())
    }

    fn of(given: Given) -> Self {
        Self {
            given,
            format: None,
            header: None,
            access: Access::default(),
            discards: false,
            allow_null_cipher: false,
            writes: false,
            unbound: false,
            blocks: BlockRules::default(),
            dispatch: DispatchOptions::default(),
            helpers: HelperPool::default(),
            delay: None,
            faults: Vec::new(),
            partition: None,
            overwrite: false,
            in_use: None,
            on_warning: None,
            examine: false,
        }
    }

    setter_of_options!();
    setters_of_unlocking!();

    setters! {
        /// Sets the source of the encryption parameters. Without it, memory gets a random key, and everything else has
        /// a LUKS header.
        fn format(format: Format) { format = Some(format) }

        /// A volume without a header, as `cryptsetup open --type plain` has it.
        fn plain(plain: Plain) { format = Some(Format::Plain(plain)) }

        /// Opens with the volume key itself, of which a copy is kept in key memory.
        ///
        /// Give a reference to memory that you wipe: what is passed by value, such as a `String`, is freed as it is.
        fn key(volume_key: impl AsRef<[u8]>) { given.set_keys(VolumeKey::new(volume_key)) }

        /// Unlocks with all bytes of a file.
        fn key_file(path: impl Into<PathBuf>) { given.set_keys(Ok(KeyFile::new(path))) }

        /// Nothing is written, and others may read at the same time.
        fn read_only(yes: bool) { access.read_only = yes }

        /// Sets if the page cache is bypassed.
        fn direct(mode: DirectMode) { access.direct = mode }

        /// Others write to the target at the same time: nothing is done that could lose their writes.
        fn shared(yes: bool) { access.shared = yes }

        /// For how long a connection to an NBD server below that was lost is made again. Each write is made durable
        /// before it ends, so that none can be lost with a connection. A write under way goes out once more only if the
        /// server is known to have ended: it takes several connections, and the process that listened on its Unix socket
        /// and answered there is gone. Otherwise its fate cannot be known: it fails, and no flush succeeds after that.
        fn reconnect(patience: Duration) { access.reconnect = Some(patience) }

        /// Passes discards down, which shows which blocks are unused. Memory always gets them.
        fn discards(yes: bool) { discards = yes }

        /// Accepts a header with `cipher_null`, which encrypts nothing. Somebody who can write to the header can
        /// put such a one there.
        fn allow_null_cipher(yes: bool) { allow_null_cipher = yes }

        /// Refuses a volume that would be opened for reading only since its cipher is doubted.
        fn writes(yes: bool) { writes = yes }

        /// The smallest I/O in bytes: a power of two from 512 to the cipher sector. Without it, the least that
        /// needs no rewriting.
        fn logical_block(bytes: u32) { blocks.logical = Some(bytes) }

        /// Sets what a write of part of a cipher sector keeps waiting, where such writes rewrite whole sectors.
        fn exclusion(exclusion: Exclusion) { blocks.exclusion = exclusion }

        /// Sets what the volume shows where its medium holds nothing but zeros.
        fn zeroes(zeroes: Zeroes) { blocks.zeroes = zeroes }

        /// Only this partition of the clear disk, as the partition table in it has it.
        fn partition(name: PartitionName) { partition = Some(name) }

        /// Opens a plain volume for writing even where something else is recognised, such as a file system. It does
        /// not look like that under the right cipher and key, so what is written destroys it.
        fn overwrite(yes: bool) { overwrite = yes }

        /// Keeps this open as long as the volume is: the [`InUse`](crate::InUse) that another process has taken for
        /// this one, which may open nothing.
        fn in_use(lock: OwnedFd) { in_use = Some(lock) }

        /// Chooses who runs the cipher.
        fn dispatch(options: DispatchOptions) { dispatch = options }

        /// Threads that help under `auto`. Volumes that are given clones of one pool share them.
        fn helpers(pool: HelperPool) { helpers = pool }

        /// For measurements: makes the medium slow.
        fn delay(delay: DelaySpec) { delay = Some(delay) }

        /// For tests: makes requests to the medium fail. May be called several times.
        fn fault(rule: FaultRule) { faults.push(rule) }

        /// Has [`unlock`](Self::unlock) describe the header, too, and hash the place that it takes.
        fn examine(yes: bool) { examine = yes }

        /// Told what was found in the LUKS header, before a key is asked for: so that it is known also where none
        /// fits. What opens has it among its warnings as well.
        fn on_warning(observer: impl Fn(&Warning) + Send + Sync + 'static) { on_warning = Some(Box::new(observer)) }
    }

    /// Returns its target, where it is of one.
    pub(crate) fn of_target(&self) -> Option<&Target> {
        self.given.peek()
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// Any problem with the target, the header, the key, or the options together.
    pub fn open(mut self) -> Result<Volume> {
        let source = self.given.take_source()?;
        self.refuse_useless(&source)?;
        if let BaseSource::Target(Target::Table(line)) = &source {
            return table::open(self, line);
        }
        let usual = if source.is_memory() { Format::RandomKey(RandomKey::default()) } else { Format::Luks(None) };
        let target = match &source {
            BaseSource::Target(target) => Some(target.clone()),
            _ => None,
        };
        let (stamp, header) = (target.as_ref().and_then(Stamp::of), self.header.clone());
        let volume = match self.format.take().unwrap_or(usual) {
            Format::Luks(version) => luks::open(self, &source, version),
            Format::Plain(plain) => plain::open(self, &source, &plain),
            Format::RandomKey(random) => plain::open_random(self, &source, &random),
        };
        Ok(volume?.at(target, header, stamp))
    }

    /// The device that the encrypted data would lie on, without a look at what it holds, and what is to be said
    /// of it.
    ///
    /// # Errors
    /// Any problem with the target.
    pub fn base(mut self) -> Result<(Gate, Vec<Warning>)> {
        let device = self.given.take_source()?.open_device(self.access)?;
        Ok((device.gate, device.warnings))
    }

    /// Refuses what was said and would be ignored.
    fn refuse_useless(&self, source: &BaseSource) -> Result<()> {
        let is_nbd = matches!(source, BaseSource::Target(target) if target.is_nbd());
        if self.access.reconnect.is_some() && !is_nbd {
            return Err(Problem::NoConnection.on(source));
        }
        let key = (self.given.has_keys(), "a key");
        let header = (self.header.is_some(), "a header file");
        let format = (self.format.is_some(), "a format");
        let rules = (!self.given.rules().is_empty(), "rules for a header");
        let (volume, useless) = match (source, &self.format) {
            (BaseSource::Target(Target::Table(_)), _) => ("a table line", [key, header, format, rules].to_vec()),
            (_, Some(Format::Plain(_))) => ("a volume without a header", vec![header, rules]),
            (_, Some(Format::RandomKey(_))) => ("a new volume under a random key", vec![key, header, rules]),
            (source, None) if source.is_memory() => ("a new volume under a random key", vec![key, header, rules]),
            _ => return Ok(()),
        };
        match useless.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, given)) => Err(Problem::Useless { volume, given }.into()),
            None => Ok(()),
        }
    }
}

/// The flags of a LUKS2 header: who runs the cipher, and what is to be said of the others. Nothing proves that its owner
/// has set them, so none of them has discards passed down.
fn header_flags(names: &[String], discards: bool) -> (PerfFlags, Vec<Warning>) {
    let (mut perf, mut notes) = (PerfFlags::default(), Vec::new());
    for name in names {
        // The header writes with dashes what tables write with underscores.
        match perf.by_name(&name.replace('-', "_")) {
            Some(flag) => *flag = true,
            None if name == "allow-discards" && discards => {}
            None if name == "allow-discards" => notes.push(Warning::DiscardsNotAsked),
            None => notes.push(Warning::UnknownFlag(name.clone())),
        }
    }
    (perf, notes)
}
