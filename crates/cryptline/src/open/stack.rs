//! The end that all ways of opening share: ciphers over devices, and ranges one behind the other.
//!
//! Opening makes a plan of parts: lines of a table, or segments of a LUKS2 header. `linear` lays their ranges one
//! behind the other, and one `crypt` lies over all of them. So a lane has one queue into each base, and a volume one
//! pool of workers, however many lines there are. Bases are opened and locked once, so a flush goes once to each. A
//! volume with one part never meets `linear`. A write that finds no place below (`Fault::Busy`) comes back from `crypt`
//! decrypted, because it will be submitted again. Words of all lines together decide who runs the ciphers.

use std::ops::Range;
use std::sync::Arc;

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::Gate;
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads, may_raise_priority};
use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::layer::{
    CipherRange, CryptDevice, CryptOptions, DelayDevice, DelaySpec, Exclusion, FaultDevice, FaultPlan, SubBlockDevice,
    SubBlockOptions, zoned,
};

use super::{BlockRules, Open, partition};
use crate::base::{Base, BaseStore};
use crate::error::Problem;
use crate::info::{BaseInfo, Info, SmallWrites, VolumeKind};
use crate::keys::with_keys_here;
use crate::volume::{LEAST_BLOCK, Volume};
use crate::{Result, Warning};

/// The largest cipher sector, and so the largest unit of transfers that anything depends on.
const LARGEST_SECTOR: u32 = 4096;

/// Everything that is known once there are keys.
pub(super) struct StackPlan {
    /// The target, or the devices of a table.
    pub source: String,
    pub kind: VolumeKind,
    /// Choice of who runs the ciphers.
    pub dispatch: Dispatch,
    /// The clear disk from its first byte to its last, at least one.
    pub parts: Vec<StackPart>,
}

/// A range of the clear disk.
pub(super) struct StackPart {
    /// The number of the base that it lies on.
    pub base: usize,
    /// First byte there.
    pub start: u64,
    /// Size in bytes; `None` for the rest, also where that becomes more.
    pub size: Option<u64>,
    /// `None` for what lies there in the clear.
    pub crypt: Option<SegmentCrypt>,
}

/// How a range is encrypted.
pub(super) struct SegmentCrypt {
    pub spec: CipherSpec,
    pub cipher: SectorCipher,
    /// Bytes of the key.
    pub key_len: usize,
    pub sectors: SectorOptions,
    /// Pass discards down.
    pub discards: bool,
}

impl StackPlan {
    /// Lays the parts of `bases` one behind the other, and the ciphers over them.
    pub fn build(mut self, bases: Vec<Base>, mut open: Open, mut warnings: Vec<Warning>) -> Result<Volume> {
        self.move_into_slices(&bases)?;
        let sector = self.largest_sector();
        let block = open.blocks.checked(sector)?;
        let border = self.border();
        let mut bottoms = Vec::with_capacity(bases.len());
        for (number, base) in bases.into_iter().enumerate() {
            warnings.extend(base.warnings);
            bottoms.push(self.bottom(number, base.store, (block, border), &open, &mut warnings)?);
        }
        let mut info = self.info(&bottoms, sector, &open);
        let faults = Arc::new(FaultPlan(std::mem::take(&mut open.faults)));
        let lowers = slowed(&bottoms, open.delay.as_ref(), &faults);
        let options = self.crypt_options(&lowers, &open, &mut warnings)?;
        info.dispatch = options.dispatch;
        info.helpers = options.helpers.as_ref().map_or(0, HelperThreads::count);
        let gate = clear_disk(self.parts, &lowers, options)?;
        let shared = open.access.shared;
        let (gate, small_writes) = open.blocks.lay_over(gate, sector.min(border), block, shared)?;
        let keeps_blocks = block.is_some() || shared;
        let gate = match &open.partition {
            Some(name) => partition::of_clear_disk(gate, name, keeps_blocks, &mut warnings)
                .map_err(|error| error.on(format!("{} (decrypted)", self.source)))?,
            None => gate,
        };
        let rewritten = small_writes.and_then(|small| small.rewrites);
        if let Some(sector) = rewritten
            && !bottoms.iter().all(|bottom| bottom.is_atomic)
        {
            warnings.push(Warning::Neighbours { sector });
        }
        warnings.extend(Warning::of_key_memory());
        let geometry = *gate.geometry();
        info.logical_block = geometry.logical_block;
        info.small_writes = small_writes;
        info.size = geometry.size;
        info.read_only = geometry.read_only;
        info.discards = geometry.discard;
        Ok(Volume::new(gate, info, without_repeats(warnings), keeps_blocks))
    }

    /// Has what lies on a part of a base begin further on, and end there.
    fn move_into_slices(&mut self, bases: &[Base]) -> Result<()> {
        for (number, base) in bases.iter().enumerate() {
            let Some(slice) = &base.range else { continue };
            for part in self.parts.iter_mut().filter(|part| part.base == number) {
                part.move_into(slice).map_err(|error| error.on(&self.source))?;
            }
        }
        Ok(())
    }

    /// Bytes in the largest cipher sector; those of a plain sector where nothing is encrypted.
    fn largest_sector(&self) -> u32 {
        self.crypts().map(|crypt| crypt.sectors.sector_size).max().unwrap_or(LEAST_BLOCK)
    }

    fn crypts(&self) -> impl Iterator<Item = &SegmentCrypt> {
        self.parts.iter().filter_map(|part| part.crypt.as_ref())
    }

    /// Largest power of two, up to the largest sector, that divides the place of every border between parts.
    fn border(&self) -> u32 {
        match self.parts.as_slice() {
            [StackPart { crypt: Some(_), .. }] => LARGEST_SECTOR,
            parts => {
                let sizes = parts.iter().filter_map(|part| part.size);
                granularity(LARGEST_SECTOR, sizes.fold(0, |all, size| all | size))
            }
        }
    }

    /// Returns what is known before anything is laid over anything.
    fn info(&self, bottoms: &[Bottom], sector: u32, open: &Open) -> Info {
        let words = self.crypts().map(|crypt| crypt.spec.as_str());
        let kernels = self.crypts().map(|crypt| crypt.cipher.backend_name());
        let key_lens = self.crypts().map(|crypt| crypt.key_len);
        let mut bases = bottoms.iter().map(|bottom| bottom.info);
        Info {
            source: self.source.clone(),
            kind: self.kind,
            cipher: listed(words).unwrap_or_else(|| "none".to_owned()),
            key_bits: key_lens.max().unwrap_or(0) * 8,
            cipher_kernel: listed(kernels).unwrap_or_else(|| "none".to_owned()),
            sector_size: sector,
            segments: self.parts.len(),
            base: bases.next().unwrap_or(BaseInfo::Nothing),
            other_bases: bases.collect(),
            delay: open.delay.clone(),
            // Known when all is done.
            dispatch: self.dispatch,
            logical_block: LEAST_BLOCK,
            small_writes: None,
            size: 0,
            read_only: false,
            discards: false,
            helpers: 0,
            identity: None,
            key_slot: None,
        }
    }

    /// Where the first part's data lies, and how all ciphers are used.
    fn crypt_options(&self, lowers: &[Gate], open: &Open, warnings: &mut Vec<Warning>) -> Result<CryptOptions> {
        let mut options = CryptOptions {
            allow_discards: self.crypts().all(|crypt| crypt.discards),
            dispatch: self.dispatch,
            // Smaller ones cost nothing where they are an overwrite, and many programs take them for granted.
            logical_block: Some(open.blocks.logical.unwrap_or(LEAST_BLOCK)),
            zeroes: open.blocks.zeroes,
            ..CryptOptions::default()
        };
        if self.crypts().next().is_none() {
            return Ok(options);
        }
        if options.dispatch.has_writer() && lowers.iter().any(|lower| lower.traits().queues == 1) {
            // The thread that writes has a queue of its own below.
            options.dispatch.write = DispatchMode::Inline;
            warnings.push(Warning::OneConnection);
        }
        if !self.crypts().all(|crypt| crypt.cipher.is_null()) {
            let (helpers, warning) = open.helpers.helpers(&options.dispatch)?;
            warnings.extend(warning);
            options.helpers = helpers;
        }
        if options.dispatch.high_priority && !may_raise_priority() {
            warnings.push(Warning::NoPriority);
        }
        let has_zones = lowers.iter().any(|lower| lower.geometry().zones.is_some());
        if has_zones && options.dispatch.write == DispatchMode::Queue {
            // As dm-crypt has it. The engine would do so anyway; this is what is shown.
            options.dispatch.write = DispatchMode::Inline;
            warnings.push(Warning::ZonedQueue);
        }
        Ok(options)
    }

    /// The device of the base with this number, for the transfers of the parts that lie on it.
    fn bottom(
        &self,
        number: usize,
        store: BaseStore,
        (block, border): (Option<u32>, u32),
        open: &Open,
        warnings: &mut Vec<Warning>,
    ) -> Result<Bottom> {
        let parts = || self.parts.iter().filter(|part| part.base == number);
        match store {
            BaseStore::Device(device) => {
                let mut is_atomic = matches!(device.info, BaseInfo::Btt { .. });
                for part in parts() {
                    device.check_sectors(part.unit(None).min(border))?;
                    let torn = device.torn_sectors(part.sector());
                    is_atomic &= torn.is_none();
                    warnings.extend(torn);
                }
                warnings.extend(device.warnings);
                Ok(Bottom { gate: open.access.gate(device.gate), info: device.info, is_atomic })
            }
            BaseStore::Image(image) => {
                let units = parts().map(|part| part.unit(block));
                let unit = units.min().unwrap_or(border).min(border);
                let mut device = image.into_device(unit, open.access.direct)?;
                if parts().any(|part| part.size.is_none()) {
                    device = device.growing();
                }
                let direct = device.is_direct();
                if open.access.shared && !direct {
                    warnings.push(Warning::SharedPageCache);
                }
                Ok(Bottom {
                    gate: open.access.gate(Gate::new(device)),
                    info: BaseInfo::File { direct },
                    is_atomic: false,
                })
            }
        }
    }
}

impl StackPart {
    /// Moves it to its place in a range of the base, which it must not leave.
    fn move_into(&mut self, slice: &Range<u64>) -> Result<()> {
        let left = (slice.end - slice.start).saturating_sub(self.start);
        let size = self.size.unwrap_or(left - left % u64::from(self.sector()));
        if size == 0 || size > left {
            return Err(Problem::TooShort(left).into());
        }
        self.start += slice.start;
        self.size = Some(size);
        Ok(())
    }

    /// Bytes in what must change together or not at all.
    fn sector(&self) -> u32 {
        let crypt = self.crypt.as_ref();
        crypt.map_or(LEAST_BLOCK, |crypt| crypt.sectors.sector_size)
    }

    /// Bytes that divide the place and the length of every transfer on the base: a whole cipher sector, or
    /// less where `block` is the smallest I/O that was asked for.
    fn unit(&self, block: Option<u32>) -> u32 {
        let unit = self.crypt.as_ref().map_or(LARGEST_SECTOR, |crypt| {
            let sector = crypt.sectors.sector_size;
            // What the cipher cuts, the medium must take in the same pieces.
            let unit = block.unwrap_or(sector).max(crypt.cipher.granularity());
            unit.min(sector)
        });
        granularity(unit, self.start)
    }
}

/// The bases, with the layers for tests.
fn slowed(bottoms: &[Bottom], delay: Option<&DelaySpec>, faults: &Arc<FaultPlan>) -> Vec<Gate> {
    let lowers = bottoms.iter().map(|bottom| {
        let slow = match delay {
            None => bottom.gate.clone(),
            Some(delay) => Gate::new(DelayDevice::new(bottom.gate.clone(), delay.clone())),
        };
        if faults.0.is_empty() { slow } else { Gate::new(FaultDevice::new(slow, Arc::clone(faults))) }
    });
    lowers.collect()
}

/// The parts one behind the other, and over those that are encrypted their ciphers, which share everything
/// else.
fn clear_disk(parts: Vec<StackPart>, lowers: &[Gate], options: CryptOptions) -> Result<Gate> {
    let is_one = parts.len() == 1;
    let (mut segments, mut ranges) = (Vec::new(), Vec::new());
    for part in parts {
        let lower = lowers[part.base].clone();
        let (start, size) = (part.start, part.size);
        match part.crypt {
            // What it lies on may have zones, and the offset is the cipher's affair.
            Some(crypt) if is_one => {
                let options = CryptOptions { start, size, ..options };
                return Ok(zoned::encrypted(lower, crypt.cipher, options)?);
            }
            crypt => {
                let left = lower.geometry().size.saturating_sub(start);
                let sector = crypt.as_ref().map_or(1, |crypt| crypt.sectors.sector_size);
                let len = size.unwrap_or(left - left % u64::from(sector));
                let cipher = crypt.map(|crypt| crypt.cipher);
                ranges.push(CipherRange { len, cipher });
                segments.push(Segment {
                    lower: if is_one { zoned::ordered(lower)? } else { lower },
                    offset: start,
                    len,
                });
            }
        }
    }
    let lower = joined(segments)?;
    if ranges.iter().all(|range| range.cipher.is_none()) {
        return Ok(lower);
    }
    Ok(Gate::new(CryptDevice::of_ranges(lower, ranges, options)?))
}

/// Each once, in the order in which they came.
fn without_repeats(warnings: Vec<Warning>) -> Vec<Warning> {
    let mut once = Vec::with_capacity(warnings.len());
    for warning in warnings {
        if !once.contains(&warning) {
            once.push(warning);
        }
    }
    once
}

/// Each once, separated by commas; `None` where there is none.
pub(super) fn listed<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut once: Vec<&str> = Vec::new();
    for word in words {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    (!once.is_empty()).then(|| once.join(", "))
}

/// Storage below the encrypted data.
struct Bottom {
    gate: Gate,
    info: BaseInfo,
    /// A crash cannot tear a cipher sector.
    is_atomic: bool,
}

impl BlockRules {
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
        let small_writes =
            (block < sector || rewrites).then_some(SmallWrites { rewrites: rewrites.then_some(least), exclusive });
        if !rewrites && !exclusive {
            return Ok((clear, small_writes));
        }
        let options = SubBlockOptions { logical_block: block, sector, exclusion: self.exclusion };
        let gate = Gate::new(SubBlockDevice::new(clear, options)?);
        Ok((gate, small_writes))
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

/// The cipher under `key`. All that knows the expanded key happens here, on a stack that is gone afterwards, and nothing else
/// does: an object made on such a stack and moved to the heap can take bytes of a key along where it has bytes of its own not
/// yet set.
pub(super) fn sector_cipher(
    cipher: &CipherSpec,
    sectors: SectorOptions,
    key: &[u8],
    failed: impl FnOnce(CipherError) -> Problem,
) -> Result<SectorCipher> {
    let made = with_keys_here(|| Ok(SectorCipher::new(cipher, key, sectors)))?;
    Ok(made.map_err(failed)?)
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
