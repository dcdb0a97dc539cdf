//! Copies of whole disks: clear bytes from one place to another, encrypted or not on either side.
//!
//! ```text
//! CopySource ─┬─ a volume's clear disk       into_file     a new file with the clear bytes
//!             ├─ a target's bytes         ─► into_volume   a volume that is there
//!             └─ a stream                    into_target   a device, as it is
//!                                            into_stream   a pipe
//!                                            Create::fill    a new volume
//! ```
//!
//! N threads take chunks from a counter, each with a ring and queues of its own ([`worker`]); the order in which they
//! end does not matter. What is made in a file is made aside, and gets its name when it is durable.
//!
//! Ciphers run inline, since helpers would find no idle core. Zeros are found in units of 64 KiB; known ones are not
//! even read. Progress counts only what a flush has made durable, which also keeps the page cache from filling; the
//! last flush is the copy's own, and its failure too. A source that is a regular file must keep its identity, size,
//! mtime and ctime, or the copy fails: it would have one part from before and another from after.
//!
//! A volume whose file is mostly in the page cache, as one just made, is read from there (`DirectMode::Uncached`, by
//! `cachestat`). `--verify` may follow a pipe: a hash of each chunk is kept and compared with what a volume that is opened anew
//! reads, before there is a header, since data found wrong must not open.

mod feed;
mod hashes;
mod journal;
mod marks;
mod outlet;
mod place;
mod source;
mod sums;
mod transfer;
mod trouble;
mod turns;
mod worker;

#[cfg(test)]
mod power_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cryptline_engine::BackendChoice;

pub use hashes::{CopyHash, CopyHashed};
pub use journal::ResumeError;
pub(crate) use journal::{CopyJournal, CopyRecord, SourceRoom};
pub(crate) use place::file_gate;
pub use source::CopySource;
pub use trouble::{CopyError, CopyRemains};

pub(crate) use transfer::{Moved, Transfer};
pub(crate) use trouble::CopyTrouble;
pub(crate) use worker::Zeros;

use crate::create::{Observer, Progress};
use crate::setters::setters;
use crate::{Open, Result, Warning, Zeroes};

/// Treatment of holes in the source, and of zeros, where the destination is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holes {
    /// Encrypted zeros are written: every reader sees zeros, and nobody which blocks are unused.
    #[default]
    Encrypt,
    /// They stay holes, or become some. That shows which blocks are unused, and only a volume that is opened with
    /// [`Zeroes::Detect`](crate::Zeroes) reads zeros there: others read noise.
    Keep,
}

impl fmt::Display for Holes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encrypt => "encrypt",
            Self::Keep => "keep",
        })
    }
}

impl Holes {
    /// How a volume that is there is opened for them.
    fn kept_in(self, volume: Open) -> Open {
        match self {
            Self::Encrypt => volume,
            Self::Keep => volume.zeroes(Zeroes::Detect).discards(true),
        }
    }

    /// Returns what is done about them in a new file.
    pub(crate) fn written_as(self) -> Zeros {
        match self {
            Self::Encrypt => Zeros::Write,
            Self::Keep => Zeros::Skip,
        }
    }

    /// How such a volume is read.
    pub(crate) fn read_as(self) -> Zeroes {
        match self {
            Self::Encrypt => Zeroes::Decrypt,
            Self::Keep => Zeroes::Detect,
        }
    }
}

/// How to copy a disk.
///
/// ```no_run
/// use cryptline::{Copy, CopySource, Open};
///
/// let volume = Open::new("disk.luks").passphrase("secret").read_only(true).open()?;
/// let copied = Copy::new(CopySource::volume(&volume)).verify(true).into_file("disk.raw")?;
/// println!("{} bytes", copied.bytes);
/// # Ok::<(), cryptline::Error>(())
/// ```
pub struct Copy {
    pub(crate) source: CopySource,
    pub(crate) holes: Holes,
    pub(crate) verify: bool,
    pub(crate) hashes: Vec<CopyHash>,
    pub(crate) stop: Arc<AtomicBool>,
    replace: bool,
    /// Choices other than the source that decide about the bytes, where the copy can go on later.
    pub(crate) resume: Option<String>,
    observer: Option<Observer>,
    pub(crate) backend: BackendChoice,
}

/// Result of a copy.
#[derive(Debug)]
#[non_exhaustive]
pub struct Copied {
    /// Bytes of the source.
    pub bytes: u64,
    /// Of them, those that were zeros and did not have to be written.
    pub skipped: u64,
    /// The destination was read again, and has the same.
    pub verified: bool,
    /// Hashes of all bytes of the source, as they were copied.
    pub hashed: Vec<CopyHashed>,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

impl Copy {
    /// Of all bytes of `source`.
    #[must_use]
    pub fn new(source: CopySource) -> Self {
        Self {
            source,
            holes: Holes::default(),
            verify: false,
            hashes: Vec::new(),
            stop: Arc::default(),
            replace: false,
            resume: None,
            observer: None,
            backend: BackendChoice::Auto,
        }
    }

    setters! {
        /// Sets what becomes of holes in a volume.
        fn holes(holes: Holes) { holes = holes }

        /// Opens the destination anew, reads all of it, and compares that with hashes of what was read of the source.
        fn verify(yes: bool) { verify = yes }

        /// Hashes all bytes of the source, in the pass that copies them.
        fn hashes(functions: impl Into<Vec<CopyHash>>) { hashes = functions.into() }

        /// Replaces a file that exists, or what is on the device or in the volume.
        fn replace(yes: bool) { replace = yes }

        /// Keeps what was copied when it ends early, whatever ended it, and goes on from there when the same is asked
        /// for again. Only a regular file, or a volume in one, can be copied so, and only into a new file, or a volume
        /// in one, which has its name when it is whole. A source that has changed meanwhile is refused. `how` is what
        /// else decides about the bytes, such as the options that the source was opened with.
        fn resume(how: impl Into<String>) { resume = Some(how.into()) }

        /// Kind of the rings on which it is done, for machines that are simulated.
        fn backend(backend: BackendChoice) { backend = backend }

        /// Ends the copy as a failure once it is set; within a second, if the devices let it.
        fn stop(flag: Arc<AtomicBool>) { stop = flag }

        /// Told what happens, a few times a second. An error from it ends the copy.
        fn on_progress(observer: impl Fn(Progress<'_>) -> Result<()> + Send + Sync + 'static) {
            observer = Some(Box::new(observer))
        }
    }

    pub(crate) fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(progress))
    }
}
