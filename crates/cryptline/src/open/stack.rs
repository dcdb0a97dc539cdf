//! The end that all ways of opening share: the cipher over the device.

use std::ops::Deref;

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::Gate;
use cryptline_engine::dispatch::{Dispatch, Helpers, Mode, may_raise_priority};
use cryptline_engine::layer::{
    CryptOptions, DelayDevice, Exclusion, FaultDevice, FaultPlan, SubBlockDevice, SubBlockOptions,
    zoned,
};

use super::{Blocks, Open};
use crate::base::Base;
use crate::error::{Error, Problem};
use crate::info::{BaseInfo, Info, SmallWrites, VolumeKind};
use crate::keys::with_keys;
use crate::volume::{LEAST_BLOCK, Volume};
use crate::{Result, Warning};

/// Everything that is known once there is a key.
pub(super) struct Plan<'a> {
    /// The target, or the device of a table.
    pub source: String,
    pub kind: VolumeKind,
    pub cipher: &'a CipherSpec,
    /// Bytes of the key.
    pub key_len: usize,
    pub sectors: SectorOptions,
    /// First byte of the data.
    pub start: u64,
    /// Size in bytes; `None` for the rest.
    pub size: Option<u64>,
    /// Pass discards down.
    pub discards: bool,
    pub dispatch: Dispatch,
}

impl Plan<'_> {
    /// Lays `cipher` over `base`.
    pub fn build(
        self,
        base: Base,
        cipher: SectorCipher,
        open: Open,
        mut warnings: Vec<Warning>,
    ) -> Result<Volume> {
        let sector = self.sectors.sector_size;
        let block = open.blocks.checked(sector)?;
        // What the cipher cuts, the medium must take in the same pieces.
        let unit = block
            .unwrap_or(sector)
            .max(cipher.granularity())
            .min(sector);
        let bottom = self.bottom(base, unit, &open, &mut warnings)?;
        let cipher_kernel = cipher.backend_name();
        let helpers = if cipher.is_null() {
            None
        } else {
            let (helpers, warning) = open.helpers.helpers(&self.dispatch)?;
            warnings.extend(warning);
            helpers
        };
        let helper_count = helpers.as_ref().map_or(0, Helpers::count);
        let dispatch = self.dispatch_over(&bottom.gate, &mut warnings);
        let delay = open.delay.clone();
        let (blocks, shared) = (open.blocks, open.access.shared);
        let lower = with_test_layers(bottom.gate, open);
        let crypt = CryptOptions {
            start: self.start,
            size: self.size,
            allow_discards: self.discards,
            dispatch,
            helpers,
            // Smaller ones cost nothing where they are an overwrite, and many programs take them for granted.
            logical_block: Some(block.unwrap_or(LEAST_BLOCK)),
            zeroes: blocks.zeroes,
        };
        let clear = zoned::encrypted(lower, cipher, crypt)?;
        let (gate, small_writes) = blocks.lay_over(clear, sector, block, shared)?;
        let rewrites = small_writes.is_some_and(|small| small.rewrites.is_some());
        if rewrites && !bottom.is_atomic {
            warnings.push(Warning::Neighbours { sector });
        }
        warnings.extend(Warning::of_key_memory());
        let geometry = *gate.geometry();
        let info = Info {
            source: self.source,
            kind: self.kind,
            cipher: self.cipher.as_str().to_owned(),
            key_bits: self.key_len * 8,
            cipher_kernel,
            sector_size: sector,
            logical_block: geometry.logical_block,
            small_writes,
            size: geometry.size,
            read_only: geometry.read_only,
            base: bottom.info,
            discards: geometry.discard,
            delay,
            dispatch,
            helpers: helper_count,
        };
        let keeps_blocks = block.is_some() || shared;
        Ok(Volume::new(gate, info, warnings, keeps_blocks))
    }

    /// The device of `base`, for transfers in units of `unit` bytes.
    fn bottom(
        &self,
        base: Base,
        unit: u32,
        open: &Open,
        warnings: &mut Vec<Warning>,
    ) -> Result<Bottom> {
        let sector = self.sectors.sector_size;
        match base {
            Base::Device(device) => {
                device.check_sectors(granularity(sector, self.start))?;
                let torn = device.torn_sectors(sector);
                let is_atomic = matches!(device.info, BaseInfo::Btt { .. }) && torn.is_none();
                warnings.extend(torn);
                warnings.extend(device.warnings);
                Ok(Bottom {
                    gate: device.gate,
                    info: device.info,
                    is_atomic,
                })
            }
            Base::Image(image) => {
                let unit = granularity(unit, self.start);
                let device = image.into_device(unit, open.access.direct)?;
                let direct = device.is_direct();
                if open.access.shared && !direct {
                    warnings.push(Warning::SharedPageCache);
                }
                Ok(Bottom {
                    gate: Gate::new(device),
                    info: BaseInfo::File { direct },
                    is_atomic: false,
                })
            }
        }
    }

    fn dispatch_over(&self, lower: &Gate, warnings: &mut Vec<Warning>) -> Dispatch {
        let mut dispatch = self.dispatch;
        if lower.geometry().zones.is_some() && dispatch.write == Mode::Queue {
            // As dm-crypt has it. The engine would do so anyway; this is what is shown.
            dispatch.write = Mode::Inline;
            warnings.push(Warning::ZonedQueue);
        }
        if self.dispatch.high_priority && !may_raise_priority() {
            warnings.push(Warning::NoPriority);
        }
        dispatch
    }
}

/// What the encrypted data lies on.
struct Bottom {
    gate: Gate,
    info: BaseInfo,
    /// A crash cannot tear a cipher sector.
    is_atomic: bool,
}

impl Blocks {
    /// The smallest I/O over cipher sectors of `sector` bytes, where one is asked for.
    fn checked(&self, sector: u32) -> Result<Option<u32>> {
        match self.logical {
            Some(block) if !block.is_power_of_two() || !(512..=sector).contains(&block) => {
                Err(Problem::LogicalBlock { block, sector }.into())
            }
            block => Ok(block),
        }
    }

    /// Makes the blocks that the cipher alone cannot.
    fn lay_over(
        &self,
        clear: Gate,
        sector: u32,
        block: Option<u32>,
        shared: bool,
    ) -> Result<(Gate, Option<SmallWrites>)> {
        let least = clear.geometry().logical_block;
        let Some(block) = block else {
            return Ok((clear, None));
        };
        let rewrites = least > block;
        if rewrites && shared {
            return Err(Problem::SharedRewrites { block, least }.into());
        }
        let exclusive = self.exclusion == Exclusion::Exclusive;
        let small_writes = (block < sector).then_some(SmallWrites {
            rewrites: rewrites.then_some(least),
            exclusive,
        });
        if !rewrites && !exclusive {
            return Ok((clear, small_writes));
        }
        let options = SubBlockOptions {
            logical_block: block,
            sector,
            exclusion: self.exclusion,
        };
        let gate = Gate::new(SubBlockDevice::new(clear, options)?);
        Ok((gate, small_writes))
    }
}

/// A slow medium and its faults, where asked for.
fn with_test_layers(base: Gate, open: Open) -> Gate {
    let medium = match open.delay {
        None => base,
        Some(delay) => Gate::new(DelayDevice::new(base, delay)),
    };
    if open.faults.is_empty() {
        medium
    } else {
        Gate::new(FaultDevice::new(medium, FaultPlan(open.faults)))
    }
}

/// Largest power of two, up to the cipher sector, that divides the device offset and length of every
/// transfer to data at `start`.
fn granularity(sector: u32, start: u64) -> u32 {
    match u32::try_from(start % u64::from(sector)) {
        Ok(0) | Err(_) => sector,
        Ok(rest) => 1 << rest.trailing_zeros(),
    }
}

/// The cipher under the key that `read_key` gets, and the key's length in bytes. All that knows the key
/// happens here, on a stack that is gone afterwards, and nothing else does: an object made on such a stack and
/// moved to the heap can take bytes of a key along where it has bytes of its own not yet set.
pub(super) fn sector_cipher<K: Deref<Target = [u8]>>(
    cipher: &CipherSpec,
    sectors: SectorOptions,
    read_key: impl FnOnce() -> Result<K> + Send,
    failed: impl Fn(CipherError) -> Error + Send + Sync,
) -> Result<(SectorCipher, usize)> {
    with_keys(|| {
        let key = read_key()?;
        let made = SectorCipher::new(cipher, &key, sectors);
        Ok((made.map_err(failed)?, key.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::granularity;

    #[test]
    fn every_transfer_is_a_multiple_of_the_granularity() {
        assert_eq!(granularity(4096, 16 << 20), 4096);
        assert_eq!(granularity(512, 16 << 20), 512);
        assert_eq!(granularity(4096, 3 * 512), 512);
        assert_eq!(granularity(4096, 4096 + 2048), 2048);
        assert_eq!(granularity(1024, 512), 512);
    }
}
