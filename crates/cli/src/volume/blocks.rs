//! The smallest I/O of a volume, what holes are, and who else may be at the medium.

use clap::{Args, ValueEnum};
use cryptline_engine::Gate;
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};

use crate::CliError;

/// The smallest I/O that every program knows: one that never asks takes it for granted.
pub const LEAST_BLOCK: u32 = 512;

/// What `--subblock` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SubBlock {
    /// Only what touches the same cipher sector, and only where a mode must rewrite it
    Shared,
    /// Everything, as ext4 did it before Linux 6.5: to measure against
    Exclusive,
}

/// What `--zeroes` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ZeroesChoice {
    /// Their decryption, which is noise, as under dm-crypt
    #[default]
    Decrypt,
    /// Zeros: nothing was ever written there, or it was discarded
    Detect,
}

/// Blocks and holes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Block options")]
pub struct BlockOptions {
    /// The smallest I/O in bytes, from 512 to the cipher sector. With XTS a write of part of a cipher sector
    /// overwrites just that; other modes read, change and write the whole sector, and a crash meanwhile
    /// can damage its other blocks [default: the least that needs no rewriting: 512 with XTS where the
    /// medium has such blocks, else the cipher sector]
    #[arg(long, value_name = "BYTES")]
    pub logical_block: Option<u32>,

    /// What a write of part of a cipher sector excludes while it is under way [default: shared]
    #[arg(long, value_enum, value_name = "WHAT", requires = "logical_block")]
    pub subblock: Option<SubBlock>,

    /// What places of the medium that hold only zeros show. With `detect` sparse images, discards and
    /// thin storage behave as people expect; but who can write to the medium can make chosen places
    /// read as zeros. Zeroing writes such zeros with --allow-discards only; else it encrypts zeros, which
    /// tell nothing
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub zeroes: ZeroesChoice,

    /// Other programs or hosts use the target too: open it even so, and refuse what could then lose
    /// their writes
    #[arg(long)]
    pub shared: bool,
}

/// The clear disk in the blocks that were asked for.
pub struct Blocks {
    /// The way in.
    pub gate: Gate,
    /// How writes of part of a cipher sector are made, for people; `None` where there are none.
    pub how: Option<String>,
    /// Whether they rewrite whole sectors.
    pub rewrites: bool,
}

impl BlockOptions {
    /// The smallest I/O over cipher sectors of `sector` bytes, where one is asked for.
    ///
    /// # Errors
    /// Exit code 1 for what is no power of two from 512 to the sector.
    pub fn logical_block(&self, sector: u32) -> Result<Option<u32>, CliError> {
        match self.logical_block {
            Some(block) if !block.is_power_of_two() || !(512..=sector).contains(&block) => {
                Err(CliError::parameters(format!(
                    "--logical-block {block}: give a power of two from 512 to the volume's cipher sector, {sector}"
                )))
            }
            block => Ok(block),
        }
    }

    /// For the engine.
    #[must_use]
    pub fn zeroes(&self) -> Zeroes {
        match self.zeroes {
            ZeroesChoice::Decrypt => Zeroes::Decrypt,
            ZeroesChoice::Detect => Zeroes::Detect,
        }
    }

    /// The volume in blocks of 512 bytes for clients that never ask how small blocks may be, where it has
    /// none: each write of part of a block rewrites it. All clients go through it, so that no write is
    /// lost between the reading and the writing. Others get the volume's own blocks named.
    ///
    /// Where blocks were asked for, or others may write to the target, the volume stays as it is, and
    /// such a client is refused.
    ///
    /// # Errors
    /// None that is known.
    pub fn for_all_clients(&self, volume: Gate) -> Result<Gate, CliError> {
        let least = volume.geometry().logical_block;
        let is_fit = least <= LEAST_BLOCK || volume.geometry().zones.is_some();
        if is_fit || self.logical_block.is_some() || self.shared {
            return Ok(volume);
        }
        let options = SubBlockOptions {
            logical_block: LEAST_BLOCK,
            sector: least,
            exclusion: Exclusion::Shared,
        };
        Ok(Gate::new(SubBlockDevice::new(volume, options)?))
    }

    /// Makes what blocks the cipher alone can not.
    ///
    /// # Errors
    /// Exit code 1 where sectors would have to be rewritten that others write to.
    pub fn lay_over(&self, clear: Gate, sector: u32) -> Result<Blocks, CliError> {
        let least = clear.geometry().logical_block;
        let Some(block) = self.logical_block(sector)? else {
            return Ok(Blocks {
                gate: clear,
                how: None,
                rewrites: false,
            });
        };
        let rewrites = least > block;
        let exclusion = match self.subblock {
            Some(SubBlock::Exclusive) => Exclusion::Exclusive,
            Some(SubBlock::Shared) | None => Exclusion::Shared,
        };
        if rewrites && self.shared {
            return Err(CliError::parameters(format!(
                "--logical-block {block} with --shared: a write of part of a sector has to read and write \
                 {least} bytes here, which can not be made safe while others write to the target; leave one of the two out"
            )));
        }
        let how = (block < sector).then(|| {
            let what = if rewrites {
                format!("a write of part of a sector rewrites its {least} bytes")
            } else {
                "parts of a cipher sector are overwritten alone".to_owned()
            };
            match exclusion {
                Exclusion::Shared => what,
                Exclusion::Exclusive => format!("{what}, one at a time"),
            }
        });
        if !rewrites && exclusion == Exclusion::Shared {
            return Ok(Blocks {
                gate: clear,
                how,
                rewrites,
            });
        }
        let options = SubBlockOptions {
            logical_block: block,
            sector,
            exclusion,
        };
        Ok(Blocks {
            gate: Gate::new(SubBlockDevice::new(clear, options)?),
            how,
            rewrites,
        })
    }
}
