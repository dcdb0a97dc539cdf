//! `subblock`: small blocks over a device with large ones, side by side where nothing conflicts.
//!
//! A volume with cipher sectors of 4096 bytes is offered in blocks of 512, or of any power of two down to a
//! single byte. What that takes depends on the cipher below:
//!
//! ```text
//! XTS       a block of 512 is overwritten alone: the crypt layer does it by itself, and this layer
//!           is there for smaller ones only
//! others    every byte of a cipher sector depends on all of it:
//!
//!           claim the sector ─► read it ─► put the blocks in ─► write it ─► give the claim up
//!
//! request   ├ head ┼────────── body ──────────┼ tail ┤      at most three steps, each with a
//!           rewrite     passed on as it is     rewrite      claim of its own (`step.rs`)
//! ```
//!
//! * A rewrite excludes everything else from its cipher sector, and from nothing but that: other
//!   rewrites, writes of the whole sector (one that landed between the read and the write would be lost)
//!   and reads (which could see it torn).
//! * Requests for whole sectors do not exclude each other, and while nobody rewrites they pay one
//!   atomic load (`claims.rs`). As under dm-crypt, a read of a sector that is just being written as a
//!   whole may find it half written, if the medium shows such things.
//! * Writes that wait for a sector are put into one rewrite together.
//! * Whoever had to wait begins again: what it knew may have changed.
//! * A durable write of several parts is one durable point: its parts, then one flush, then its end.
//! * Discards are cut to whole sectors: a part of one can not be given back.
//!
//! **When the power fails in the middle of a rewrite**, the medium may hold the old sector, the new
//! one, or, where it does not write a sector at once, a mixture; which decrypts to noise, in blocks that
//! nobody was writing too, even if they were durable before. A disk whose physical blocks are as
//! large as the cipher sectors does not tear them, and a block translation table (`btt:`) makes it
//! impossible. XTS has no rewrites of blocks of 512, so it has nothing to fear. No other program or host may write to
//! the medium meanwhile: claims are known in this process only.
//!
//! [`Exclusion::Exclusive`] is one lock for the whole device, held by each write of part of a sector while
//! everything else has drained, as ext4 did it up to Linux 6.4. It is there to measure against.
//!
//! XTS encrypts any 16-byte block independently, so `crypt` itself offers blocks of 512 bytes there. This layer lies
//! over `crypt` when smaller blocks are requested, and under `serve` always, since some clients assume 512 and never
//! ask. It knows nothing of ciphers.

mod claims;
mod cut;
mod member;
mod queue;
mod step;

/// The atomics of the claims; `tests/it/claims_loom.rs` has them checked with its own.
mod sync {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
}

use std::sync::Arc;

use cryptline_sys::Ring;

use self::claims::Claims;
use self::member::{ClaimTable, MEMBERS};
use crate::gate::Gate;
use crate::queue::AtOnce;
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue, Traits};

/// Slots of the claims. Two rewrites under way at random meet in one as often as two birthdays would in a
/// year of so many days.
const SLOTS: usize = 4096;

/// Rule by which requests exclude one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    /// Only what touches the same sector, and only where one of the two rewrites it.
    #[default]
    Shared,
    /// A write of part of a sector excludes everything.
    Exclusive,
}

impl std::str::FromStr for Exclusion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shared" => Ok(Self::Shared),
            "exclusive" => Ok(Self::Exclusive),
            other => Err(format!("{other:?} is neither shared nor exclusive")),
        }
    }
}

/// How small blocks are offered.
#[derive(Clone, Copy, Debug)]
pub struct SubBlockOptions {
    /// Bytes in a block.
    pub logical_block: u32,
    /// Bytes in a cipher sector: what a rewrite claims, and reads and writes where the device below
    /// knows no smaller blocks.
    pub sector: u32,
    /// Rule by which requests exclude one another.
    pub exclusion: Exclusion,
}

/// A device in smaller blocks than the one below.
pub struct SubBlockDevice {
    lower: Gate,
    geometry: Geometry,
    shared: Arc<ClaimTable>,
}

impl SubBlockDevice {
    /// Offers `lower` in smaller blocks.
    ///
    /// Errors: the block is not a power of two up to the sector; the device is zoned, so that
    /// what is written in a zone stays as it is.
    pub fn new(lower: Gate, options: SubBlockOptions) -> Result<Self, OpenError> {
        let below = *lower.geometry();
        if below.zones.is_some() {
            return Err(OpenError::ZonedBlocks);
        }
        let sector = options.sector.max(below.logical_block);
        let block = options.logical_block;
        if !block.is_power_of_two() || block > sector {
            return Err(OpenError::Geometry(format!(
                "a logical block of {block} bytes is not possible: use a power of two up to the \
                 sector, {sector}"
            )));
        }
        let slots = match options.exclusion {
            Exclusion::Shared => SLOTS,
            Exclusion::Exclusive => 1,
        };
        Ok(Self {
            lower,
            geometry: Geometry {
                logical_block: block,
                preferred_block: below.preferred_block.max(sector),
                // Who has to wait for a claim is answered later.
                answers_at_once: false,
                ..below
            },
            shared: Arc::new(ClaimTable::new(
                Claims::new(slots, MEMBERS),
                u64::from(sector),
                below.logical_block <= block,
            )),
        })
    }
}

impl Device for SubBlockDevice {
    fn traits(&self) -> Traits {
        let at_once = match self.lower.traits().at_once {
            AtOnce::All => AtOnce::Some,
            other => other,
        };
        Traits { geometry: self.geometry, at_once, ..Traits::over(self.below()) }
    }

    fn grow(&self) -> u64 {
        self.lower.grow()
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(queue::open(&self.lower, &self.shared, ring)?))
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let sector = self.shared.sector;
        let start = offset - offset % sector;
        let end = (offset + len).next_multiple_of(sector);
        let end = end.min(self.lower.size());
        let extent = self.lower.extent(start, end - start)?;
        let run_end = match extent.len {
            len if len == end - start => end,
            len => start + len - len % sector,
        };
        if run_end > start {
            return Ok(Extent { len: (run_end - offset).min(len), ..extent });
        }
        // The run ends inside the sector, so all of the sector is there.
        Ok(Extent { len: (start + sector - offset).min(len), hole: false, zero: false })
    }
}
