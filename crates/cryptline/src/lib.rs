//! Encrypted disks (LUKS2, LUKS1, plain dm-crypt) opened and created in user space.
//!
//! ```no_run
//! use cryptline::Open;
//!
//! let volume = Open::new("disk.img").passphrase("secret").open()?;
//! let mut disk = volume.blocking()?;
//! let mut sector = [0; 4096];
//! disk.read_at(0, &mut sector)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! Target ─┐
//! Medium ─┴─► Open ─ Keys ─► Volume ─┬─ blocking()     one call at a time
//!                                    ├─ disk()         any bytes, from any thread
//!                                    ├─ channel()      many requests at a time
//!                                    └─ gate()         for a front: cryptline-serve
//! ```
//!
//! No root and no device-mapper: the thread that submits a request runs its cipher. What the kernel's dm-crypt
//! and cryptsetup write is read, and the other way round.
//!
//! Nothing here asks anybody anything, prints, or ends the process. Programs that hold keys should also keep
//! others from reading their memory (`prctl(PR_SET_DUMPABLE)`, no core dumps), which a library must not decide.

#![forbid(unsafe_code)]

mod base;
mod bytes;
mod bytes_name;
mod contents;
mod copy;
mod create;
mod direction;
mod disk;
mod dispatch;
mod durable;
mod errno;
pub mod error;
mod given;
mod header;
mod info;
mod key_socket;
mod keyed;
pub mod keys;
#[cfg(test)]
mod looked_tests;
mod medium;
mod nameless;
mod open;
pub mod partition;
mod places;
mod provider;
mod rbd_name;
mod remote;
mod report;
mod rules;
mod setters;
pub mod size;
mod stamp;
mod steps;
mod table;
mod target;
#[cfg(test)]
mod testing;
mod tokens;
mod volume;
mod warning;
mod window;

pub use cryptline_engine as engine;
pub use cryptline_engine::base::DirectMode;
pub use cryptline_engine::blocking::Blocking;
pub use cryptline_engine::dispatch::{DispatchMode, PerfFlags};
pub use cryptline_engine::layer::{DelaySpec, Exclusion, FaultRule, Zeroes};
pub use cryptline_engine::{Channel, Extent, Fault, Gate};
pub use cryptline_luks as luks;
pub use cryptline_luks::KdfLimits;
pub use cryptline_sys::SecretBuf;

pub use contents::Contents;
pub use copy::{Copied, Copy, CopyError, CopyHash, CopyHashed, CopyRemains, CopySource, Holes, ResumeError};
pub use create::{Create, CreateBtt, Created, CreatedBtt, MakingStep, Progress};
pub use direction::Direction;
pub use disk::Disk;
pub use dispatch::{DispatchOptions, HelperPool};
pub use error::{Error, ErrorKind, Problem};
pub use header::lock::InUse;
pub use header::{Edited, Header, Overwrite, ResizeError, ResizeOptions, Resized, Rotation, SealOptions, Sealed};
pub use info::{BaseInfo, Info, SmallWrites, VolumeKind};
pub use keyed::Keyed;
pub use keys::{Key, KeyRequest, Keys};
pub use medium::Medium;
pub use open::{Examined, Format, HeaderArea, Inspection, LuksVersion, Open, Plain, RandomKey, TableOf, Unlocked};
pub use partition::{PartitionName, PartitionTable};
pub use provider::{NewToken, TokenMaker, TokenProvider, TokenRefusal, TokenRequest, TokenVolume};
pub use rules::{HeaderRules, RulesError, Signed, hex, parse_measure};
pub use table::TableLine;
pub use target::{Rbd, Target, ZoneBacking, Zoned};
pub use tokens::{AskPin, PinRequest, Tokens};
pub use volume::{Volume, zones};
pub use warning::Warning;
pub use window::{Slice, Window};

/// Result of what can fail here.
pub type Result<T> = std::result::Result<T, Error>;
