//! Description of what was opened.

use std::fmt;

use cryptline_engine::dispatch::{Dispatch, DispatchMode};
use cryptline_engine::layer::DelaySpec;
use cryptline_engine::zone::ZoneLayout;
use cryptline_luks::format::LuksVersion;

use crate::size::human;

/// Description of what was opened, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The target as it was named; the devices of a table.
    pub source: String,
    /// Source of the encryption parameters.
    pub kind: VolumeKind,
    /// The cipher word, such as `aes-xts-plain64`; all of them where segments differ.
    pub cipher: String,
    /// Length of the volume key in bits; of the longest where segments differ.
    pub key_bits: usize,
    /// Implementation of the cipher on this machine.
    pub cipher_kernel: String,
    /// Bytes in a cipher sector; in the largest where segments differ.
    pub sector_size: u32,
    /// How many ranges the clear disk is made of, each with a place, a cipher and a key of its own.
    pub segments: usize,
    /// The smallest I/O in bytes.
    pub logical_block: u32,
    /// How writes of part of a cipher sector are made, where that was asked for.
    pub small_writes: Option<SmallWrites>,
    /// Size of the clear disk in bytes.
    pub size: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Storage below the encrypted data.
    pub base: BaseInfo,
    /// Further storage below it, where it is on several devices.
    pub other_bases: Vec<BaseInfo>,
    /// Discards are passed down.
    pub discards: bool,
    /// The slow medium that is simulated.
    pub delay: Option<DelaySpec>,
    /// Choice of who runs the cipher; that of the first encrypted segment.
    pub dispatch: Dispatch,
    /// Threads that help under [`DispatchMode::Auto`].
    pub helpers: usize,
    /// Value that no other volume has, also if it has the same name and size, and takes the same passphrase. Only a
    /// LUKS header tells that; it is of no use for finding a key.
    pub identity: Option<String>,
    /// The key slot of the LUKS header that the volume was opened with, where it was not the volume key.
    pub key_slot: Option<u32>,
}

/// Source of a volume's encryption parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeKind {
    /// A LUKS1 header.
    Luks1,
    /// A LUKS2 header.
    Luks2,
    /// The caller.
    Plain,
    /// A device-mapper table line.
    Table,
    /// Nobody: a new volume under a key that nobody knows.
    RandomKey,
}

impl From<LuksVersion> for VolumeKind {
    fn from(version: LuksVersion) -> Self {
        match version {
            LuksVersion::Luks1 => Self::Luks1,
            LuksVersion::Luks2 => Self::Luks2,
        }
    }
}

impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Luks1 => "LUKS1",
            Self::Luks2 => "LUKS2",
            Self::Plain => "plain",
            Self::Table => "table",
            Self::RandomKey => "random key",
        })
    }
}

/// Storage below the encrypted data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BaseInfo {
    /// A file or block device.
    File {
        /// The page cache is bypassed.
        direct: bool,
    },
    /// Memory.
    Ram,
    /// A mapped file or DAX device.
    Pmem {
        /// Means of making stores durable, for people.
        how: &'static str,
    },
    /// A block translation table on one.
    Btt {
        /// Bytes in a sector.
        sector_size: u32,
        /// Means of making stores durable, for people.
        how: &'static str,
    },
    /// Emulated zones.
    Zoned(ZoneLayout),
    /// An export of an NBD server.
    Nbd {
        /// Several connections at a time are possible.
        multi_conn: bool,
    },
    /// An image of a Ceph cluster.
    Rbd {
        /// Bytes of one round over the objects that a stripe lies on.
        stripe_period: u64,
    },
    /// The caller's own [`Medium`](crate::Medium) or device.
    Medium,
    /// Nothing that is stored: a table's `zero` and `error`.
    Nothing,
}

impl fmt::Display for BaseInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { direct: true } => f.write_str("O_DIRECT"),
            Self::File { direct: false } => f.write_str("page cache"),
            Self::Ram => f.write_str("RAM"),
            Self::Pmem { how } => f.write_str(how),
            Self::Btt { sector_size, how } => {
                write!(f, "BTT of {sector_size}-byte sectors over {how}")
            }
            Self::Zoned(layout) => {
                let (count, size) = (layout.count, human(layout.zone_size));
                write!(f, "{count} emulated zones of {size}")?;
                match layout.conventional {
                    0 => Ok(()),
                    count => write!(f, ", {count} of them conventional"),
                }
            }
            Self::Nbd { multi_conn: true } => f.write_str("NBD"),
            Self::Nbd { multi_conn: false } => f.write_str("NBD over one connection"),
            Self::Rbd { stripe_period } => {
                write!(f, "Ceph RBD in stripes of {}", human(*stripe_period))
            }
            Self::Medium => f.write_str("the program's own"),
            Self::Nothing => f.write_str("nothing stored"),
        }
    }
}

/// How writes of part of a cipher sector are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWrites {
    /// Bytes that such a write reads, changes and writes; `None` where it overwrites just its own.
    pub rewrites: Option<u32>,
    /// While one is under way, everything else waits.
    pub exclusive: bool,
}

impl fmt::Display for SmallWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rewrites {
            Some(bytes) => write!(f, "a write of part of a sector rewrites its {bytes} bytes")?,
            None => f.write_str("parts of a cipher sector are overwritten alone")?,
        }
        f.write_str(if self.exclusive { ", one at a time" } else { "" })
    }
}

impl Info {
    /// Describes who runs the cipher, for people: `auto (3 helpers)`, or `read inline, write queue (high_priority)`.
    #[must_use]
    pub fn dispatch_text(&self) -> String {
        dispatch_text(&self.dispatch, self.helpers)
    }
}

fn dispatch_text(dispatch: &Dispatch, helpers: usize) -> String {
    let mode = |mode: DispatchMode| match (mode, helpers) {
        (DispatchMode::Auto, 0) => "auto (no helpers)".to_owned(),
        (DispatchMode::Auto, 1) => "auto (1 helper)".to_owned(),
        (DispatchMode::Auto, count) => format!("auto ({count} helpers)"),
        (other, _) => other.to_string(),
    };
    let (read, write) = (mode(dispatch.read), mode(dispatch.write));
    let modes = if dispatch.read == dispatch.write { read } else { format!("read {read}, write {write}") };
    let flags = [
        (dispatch.same_cpu_crypt, "same_cpu_crypt"),
        (dispatch.high_priority, "high_priority"),
        (dispatch.submit_from_crypt_cpus, "submit_from_crypt_cpus"),
    ];
    let set = flags.into_iter().filter_map(|(set, name)| set.then_some(name));
    match set.collect::<Vec<_>>() {
        flags if flags.is_empty() => modes,
        flags => format!("{modes} ({})", flags.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_says_who_runs_the_cipher() {
        let auto = Dispatch::both(DispatchMode::Auto);
        assert_eq!(dispatch_text(&auto, 3), "auto (3 helpers)");
        assert_eq!(dispatch_text(&auto, 1), "auto (1 helper)");
        assert_eq!(dispatch_text(&auto, 0), "auto (no helpers)");
        assert_eq!(dispatch_text(&Dispatch::both(DispatchMode::Inline), 3), "inline");
        let mut mixed = Dispatch::both(DispatchMode::Queue);
        (mixed.read, mixed.high_priority) = (DispatchMode::Inline, true);
        assert_eq!(dispatch_text(&mixed, 0), "read inline, write queue (high_priority)");
        (mixed.read, mixed.high_priority) = (DispatchMode::Auto, false);
        assert_eq!(dispatch_text(&mixed, 2), "read auto (2 helpers), write queue");
    }
}
