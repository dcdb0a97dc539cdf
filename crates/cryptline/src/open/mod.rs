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

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::dispatch::PerfFlags;
use cryptline_engine::layer::{DelaySpec, Exclusion, FaultRule, Zeroes};
use cryptline_luks::KdfLimits;

pub use format::{Format, LuksVersion, Plain, RandomKey};
pub use inspect::{Inspection, Unlocked};
pub use line::TableOf;
pub(crate) use luks::{read as read_header, unlock_with};

use crate::base::{Access, Source};
use crate::dispatch::{DispatchOptions, HelperPool};
use crate::error::Problem;
use crate::given::Given;
use crate::keys::{KeyFile, Keys, Passphrase, VolumeKey};
use crate::medium::Medium;
use crate::partition::PartitionName;
use crate::stamp::Stamp;
use crate::target::Target;
use crate::tokens::Tokens;
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
    slot: Option<u32>,
    /// That key slot may keep another key.
    unbound: bool,
    tokens: Option<Tokens>,
    limits: KdfLimits,
    blocks: Blocks,
    dispatch: DispatchOptions,
    helpers: HelperPool,
    delay: Option<DelaySpec>,
    faults: Vec<FaultRule>,
    partition: Option<PartitionName>,
    overwrite: bool,
    in_use: Option<OwnedFd>,
    on_warning: Option<OnWarning>,
}

/// Takes what was found in a header.
type OnWarning = Box<dyn Fn(&Warning) + Send + Sync>;

/// The smallest I/O, and what holes are.
#[derive(Clone, Copy, Default)]
struct Blocks {
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
        Self::of(Source::Target(target).into())
    }

    /// Of anything that can be read and written. Its calls block the thread that submits a request.
    pub fn medium(medium: impl Medium) -> Self {
        Self::of(Source::Medium(Arc::new(medium)).into())
    }

    /// Of a device that is open already: one of your own, or the clear disk of another volume. Several volumes may
    /// lie on it, and nothing is locked.
    #[must_use]
    pub fn device(gate: &Gate) -> Self {
        Self::of(Source::Device(gate.clone()).into())
    }

    /// Of a file that is open already, for who may not open any; see [`Image::of_file`]. It opens once, with
    /// [`open`](Self::open).
    #[must_use]
    pub fn image(image: Image) -> Self {
        Self::of(Source::Image(Mutex::new(Some(image))).into())
    }

    fn of(given: Given) -> Self {
        Self {
            given,
            format: None,
            header: None,
            access: Access::default(),
            discards: false,
            allow_null_cipher: false,
            slot: None,
            unbound: false,
            tokens: None,
            limits: KdfLimits::default(),
            blocks: Blocks::default(),
            dispatch: DispatchOptions::default(),
            helpers: HelperPool::default(),
            delay: None,
            faults: Vec::new(),
            partition: None,
            overwrite: false,
            in_use: None,
            on_warning: None,
        }
    }

    /// What says how the volume is encrypted. Without it, memory gets a random key, and everything else has a
    /// LUKS header.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// A volume without a header, as `cryptsetup open --type plain` has it.
    #[must_use]
    pub fn plain(self, plain: Plain) -> Self {
        self.format(Format::Plain(plain))
    }

    /// The LUKS header is in this file; the target has only data.
    #[must_use]
    pub fn header(mut self, path: impl Into<PathBuf>) -> Self {
        self.header = Some(path.into());
        self
    }

    /// Where the key comes from.
    #[must_use]
    pub fn keys(mut self, keys: impl Keys + 'static) -> Self {
        self.given.set_keys(Ok(keys));
        self
    }

    /// Unlocks with this passphrase, of which a copy is kept in key memory.
    ///
    /// Give a reference to memory that you wipe: what is passed by value, such as a `String`, is freed as it is.
    #[must_use]
    pub fn passphrase(mut self, passphrase: impl AsRef<[u8]>) -> Self {
        self.given.set_keys(Passphrase::new(passphrase));
        self
    }

    /// Opens with the volume key itself, of which a copy is kept in key memory.
    ///
    /// Give a reference to memory that you wipe: what is passed by value, such as a `String`, is freed as it is.
    #[must_use]
    pub fn key(mut self, volume_key: impl AsRef<[u8]>) -> Self {
        self.given.set_keys(VolumeKey::new(volume_key));
        self
    }

    /// Unlocks with all bytes of a file.
    #[must_use]
    pub fn key_file(self, path: impl Into<PathBuf>) -> Self {
        self.keys(KeyFile::new(path))
    }

    /// Tries only this key slot, whatever its priority.
    #[must_use]
    pub fn key_slot(mut self, slot: u32) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Tries these tokens of a LUKS2 header before a key is asked for. Without this, no token is tried.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// What deriving keys may cost: a header can ask for anything.
    #[must_use]
    pub fn kdf_limits(mut self, limits: KdfLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Nothing is written, and others may read at the same time.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.access.read_only = yes;
        self
    }

    /// Whether the page cache is bypassed.
    #[must_use]
    pub fn direct(mut self, mode: DirectMode) -> Self {
        self.access.direct = mode;
        self
    }

    /// Others write to the target at the same time: nothing is done that could lose their writes.
    #[must_use]
    pub fn shared(mut self, yes: bool) -> Self {
        self.access.shared = yes;
        self
    }

    /// For how long a connection to an NBD server below that was lost is made again. Each write is made durable before
    /// it ends, so that none can be lost with a connection; where a request's fate cannot be known, it fails.
    #[must_use]
    pub fn reconnect(mut self, patience: Duration) -> Self {
        self.access.reconnect = Some(patience);
        self
    }

    /// Passes discards down, which shows which blocks are unused. Memory always gets them.
    #[must_use]
    pub fn discards(mut self, yes: bool) -> Self {
        self.discards = yes;
        self
    }

    /// Accepts a header with `cipher_null`, which encrypts nothing. Somebody who can write to the header can
    /// put such a one there.
    #[must_use]
    pub fn allow_null_cipher(mut self, yes: bool) -> Self {
        self.allow_null_cipher = yes;
        self
    }

    /// The smallest I/O in bytes: a power of two from 512 to the cipher sector. Without it, the least that
    /// needs no rewriting.
    #[must_use]
    pub fn logical_block(mut self, bytes: u32) -> Self {
        self.blocks.logical = Some(bytes);
        self
    }

    /// What a write of part of a cipher sector keeps waiting, where such writes rewrite whole sectors.
    #[must_use]
    pub fn exclusion(mut self, exclusion: Exclusion) -> Self {
        self.blocks.exclusion = exclusion;
        self
    }

    /// What the volume shows where its medium holds nothing but zeros.
    #[must_use]
    pub fn zeroes(mut self, zeroes: Zeroes) -> Self {
        self.blocks.zeroes = zeroes;
        self
    }

    /// Only this partition of the clear disk, as the partition table in it has it.
    #[must_use]
    pub fn partition(mut self, name: PartitionName) -> Self {
        self.partition = Some(name);
        self
    }

    /// Opens a plain volume for writing even where something else is recognised, such as a file system. It does
    /// not look like that under the right cipher and key, so what is written destroys it.
    #[must_use]
    pub fn overwrite(mut self, yes: bool) -> Self {
        self.overwrite = yes;
        self
    }

    /// Keeps this open as long as the volume is: the [`InUse`](crate::InUse) that another process has taken for this
    /// one, which may open nothing.
    #[must_use]
    pub fn in_use(mut self, lock: OwnedFd) -> Self {
        self.in_use = Some(lock);
        self
    }

    /// Who runs the cipher.
    #[must_use]
    pub fn dispatch(mut self, options: DispatchOptions) -> Self {
        self.dispatch = options;
        self
    }

    /// Threads that help under `auto`. Volumes that are given clones of one pool share them.
    #[must_use]
    pub fn helpers(mut self, pool: HelperPool) -> Self {
        self.helpers = pool;
        self
    }

    /// For measurements: makes the medium slow.
    #[must_use]
    pub fn delay(mut self, delay: DelaySpec) -> Self {
        self.delay = Some(delay);
        self
    }

    /// For tests: makes requests to the medium fail. May be called several times.
    #[must_use]
    pub fn fault(mut self, rule: FaultRule) -> Self {
        self.faults.push(rule);
        self
    }

    /// Told what was found in the LUKS header, before a key is asked for: so that it is known also where none
    /// fits. What opens has it among its warnings as well.
    #[must_use]
    pub fn on_warning(mut self, observer: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Box::new(observer));
        self
    }

    /// What it is of, where that is a target.
    pub(crate) fn of_target(&self) -> Option<&Target> {
        self.given.peek()
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// What is wrong with the target, the header, the key, or the options together.
    pub fn open(mut self) -> Result<Volume> {
        let source = self.given.take_source()?;
        self.refuse_useless(&source)?;
        if let Source::Target(Target::Table(line)) = &source {
            return table::open(self, line);
        }
        let usual = if source.is_memory() { Format::RandomKey(RandomKey::default()) } else { Format::Luks(None) };
        let stamp = match &source {
            Source::Target(target) => Stamp::of(target),
            _ => None,
        };
        let volume = match self.format.take().unwrap_or(usual) {
            Format::Luks(version) => luks::open(self, &source, version),
            Format::Plain(plain) => plain::open(self, &source, &plain),
            Format::RandomKey(random) => plain::open_random(self, &source, &random),
        };
        Ok(volume?.stamped(stamp))
    }

    /// The device that the encrypted data would lie on, without a look at what it holds, and what is to be said
    /// of it.
    ///
    /// # Errors
    /// What is wrong with the target.
    pub fn base(mut self) -> Result<(Gate, Vec<Warning>)> {
        let device = self.given.take_source()?.open_device(self.access)?;
        Ok((device.gate, device.warnings))
    }

    /// Refuses what was said and would be ignored.
    fn refuse_useless(&self, source: &Source) -> Result<()> {
        let is_nbd = matches!(source, Source::Target(target) if target.is_nbd());
        if self.access.reconnect.is_some() && !is_nbd {
            return Err(Problem::NoConnection.on(source));
        }
        let key = (self.given.has_keys(), "a key");
        let header = (self.header.is_some(), "a header file");
        let format = (self.format.is_some(), "a format");
        let (volume, useless) = match (source, &self.format) {
            (Source::Target(Target::Table(_)), _) => ("a table line", [key, header, format].to_vec()),
            (_, Some(Format::Plain(_))) => ("a volume without a header", vec![header]),
            (_, Some(Format::RandomKey(_))) => ("a new volume under a random key", vec![key, header]),
            (source, None) if source.is_memory() => ("a new volume under a random key", vec![key, header]),
            _ => return Ok(()),
        };
        match useless.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, given)) => Err(Problem::Useless { volume, given }.into()),
            None => Ok(()),
        }
    }
}

/// The flags of a LUKS2 header: discards, who runs the cipher, and those that are not known here.
fn header_flags(names: &[String]) -> (bool, PerfFlags, Vec<Warning>) {
    let (mut discards, mut perf, mut unknown) = (false, PerfFlags::default(), Vec::new());
    for name in names {
        // The header writes with dashes what tables write with underscores.
        match perf.by_name(&name.replace('-', "_")) {
            Some(flag) => *flag = true,
            None if name == "allow-discards" => discards = true,
            None => unknown.push(Warning::UnknownFlag(name.clone())),
        }
    }
    (discards, perf, unknown)
}
