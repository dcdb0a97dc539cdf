//! The end that all ways of opening share: the cipher over the device, and the summary.

use std::fs::File;
use std::path::Path;

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions, SpecError};
use cryptline_engine::Gate;
use cryptline_engine::base::{Image, RamDevice};
use cryptline_engine::dispatch::{Dispatch, Helpers, Mode, may_raise_priority};
use cryptline_engine::layer::{CryptOptions, DelayDevice, FaultDevice, FaultPlan, zoned};

use super::blocks::LEAST_BLOCK;
use super::dispatch::describe;
use super::header::ReadSeek;
use super::mapped::Mapped;
use super::options::Direct;
use super::{Summary, TargetOptions, Volume};
use crate::CliError;
use crate::harden::with_keys;

/// What lies at the bottom.
pub enum Base {
    /// An image that is open and locked.
    Image(Image),
    /// RAM of this many bytes.
    Ram(u64),
    /// A mapped file or DAX device, or emulated zones.
    Mapped(Mapped),
}

impl Base {
    /// Opens and locks a path, `pmem:PATH`, `btt:PATH` or `zoned:PATH`.
    pub fn open(target: &str, options: &TargetOptions) -> Result<Self, CliError> {
        let is_zoned = |mapped: &Mapped| mapped.gate.geometry().zones.is_some();
        match Mapped::open(target, options.read_only, options.direct.into())? {
            Some(_) if options.blocks.shared => Err(CliError::parameters(format!(
                "{target} can not be used by others at the same time; leave out --shared"
            ))),
            Some(mapped) if options.direct == Direct::On && !is_zoned(&mapped) => {
                Err(CliError::parameters(format!(
                    "{target} is mapped into memory, so there is nothing for --direct on; leave it out"
                )))
            }
            Some(mapped) => Ok(Self::Mapped(mapped)),
            None => Self::image(Path::new(target), options),
        }
    }

    /// Opens and locks a file or block device.
    pub fn image(path: &Path, options: &TargetOptions) -> Result<Self, CliError> {
        let image = if options.blocks.shared {
            Image::open_shared(path, options.read_only)
        } else {
            Image::open(path, options.read_only)
        };
        Ok(Self::Image(image?))
    }

    /// Bytes on it.
    pub fn size(&self) -> u64 {
        match self {
            Self::Image(image) => image.size(),
            Self::Ram(size) => *size,
            Self::Mapped(mapped) => mapped.gate.geometry().size,
        }
    }

    /// Its path, or `target` where it is more than one.
    pub fn name(&self, target: &str) -> String {
        match self {
            Self::Image(image) => image.path().display().to_string(),
            Self::Ram(_) | Self::Mapped(_) => target.to_owned(),
        }
    }

    /// The file of an image.
    pub fn file(&self) -> Option<&File> {
        match self {
            Self::Image(image) => Some(image.file()),
            Self::Ram(_) | Self::Mapped(_) => None,
        }
    }

    /// Its bytes, to read a header from.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>, CliError> {
        match self {
            Self::Image(image) => Ok(Box::new(image.file())),
            Self::Mapped(mapped) => Ok(Box::new(mapped.reader()?)),
            Self::Ram(_) => Ok(Box::new(std::io::empty())),
        }
    }
}

/// Everything that is known once there is a key.
pub struct Plan<'a> {
    /// The target as it was given.
    pub source: &'a str,
    /// "LUKS2" and so on.
    pub kind: &'a str,
    /// The cipher.
    pub cipher: &'a CipherSpec,
    /// Length of its key in bytes.
    pub key_len: usize,
    /// Sectors and IVs.
    pub sectors: SectorOptions,
    /// First byte of the data.
    pub start: u64,
    /// Size in bytes; `None` for the rest.
    pub size: Option<u64>,
    /// Pass discards down.
    pub discards: bool,
    /// Who runs the cipher.
    pub dispatch: Dispatch,
}

impl Plan<'_> {
    /// Lays `cipher` over `base`.
    pub fn build(
        &self,
        base: Base,
        cipher: SectorCipher,
        options: &TargetOptions,
        mut warnings: Vec<String>,
    ) -> Result<Volume, CliError> {
        let sector = self.sectors.sector_size;
        let block = options.blocks.logical_block(sector)?;
        // What the cipher cuts, the medium must take in the same pieces.
        let unit = block
            .unwrap_or(sector)
            .max(cipher.granularity())
            .min(sector);
        let bottom = self.bottom(base, unit, options, &mut warnings)?;
        let lower = with_test_layers(bottom.gate, options)?;
        let cipher_kernel = cipher.backend_name();
        let helpers = if cipher.is_null() {
            None
        } else {
            options.dispatch.helpers(&self.dispatch)?
        };
        let helper_count = helpers.as_ref().map_or(0, Helpers::count);
        let mut dispatch = self.dispatch;
        if lower.geometry().zones.is_some() && dispatch.write == Mode::Queue {
            // As dm-crypt has it; the engine would do so anyway, and this is what is shown.
            dispatch.write = Mode::Inline;
            warnings.push(
                "a zoned device takes writes in order, so they are encrypted by who submits them; \
                 dispatch=queue is for reads"
                    .to_owned(),
            );
        }
        if self.dispatch.high_priority && !may_raise_priority() {
            warnings.push(NO_PRIORITY.to_owned());
        }
        let crypt = CryptOptions {
            start: self.start,
            size: self.size,
            allow_discards: self.discards,
            dispatch,
            helpers,
            // Smaller ones cost nothing where they are an overwrite, and many programs take them for granted.
            logical_block: Some(block.unwrap_or(LEAST_BLOCK)),
            zeroes: options.blocks.zeroes(),
        };
        let clear = zoned::encrypted(lower, cipher, crypt)?;
        let blocks = options.blocks.lay_over(clear, sector)?;
        if blocks.rewrites && !bottom.is_atomic {
            warnings.push(format!(
                "a crash in the middle of a write smaller than {sector} bytes can damage its neighbours in the same \
                 cipher sector, unless the medium writes {sector} bytes at once; over btt: it can not"
            ));
        }
        let geometry = *blocks.gate.geometry();
        let summary = Summary {
            source: self.source.to_owned(),
            kind: self.kind.to_owned(),
            cipher: self.cipher.as_str().to_owned(),
            key_bits: self.key_len * 8,
            cipher_kernel,
            sector_size: sector,
            logical_block: geometry.logical_block,
            small_blocks: blocks.how,
            size: geometry.size,
            read_only: geometry.read_only,
            direct: bottom.direct,
            mapped: bottom.mapped,
            discards: geometry.discard,
            delay: options.delay.as_ref().map(ToString::to_string),
            dispatch: describe(&dispatch, helper_count),
        };
        Ok(Volume {
            gate: blocks.gate,
            summary,
            warnings,
        })
    }

    /// The device of `base`, for transfers in units of `unit` bytes.
    fn bottom(
        &self,
        base: Base,
        unit: u32,
        options: &TargetOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Bottom, CliError> {
        let sector = self.sectors.sector_size;
        match base {
            Base::Ram(_) if options.blocks.shared => Err(CliError::parameters(
                "nobody else has this RAM; leave out --shared",
            )),
            Base::Ram(size) => Ok(Bottom {
                gate: Gate::new(RamDevice::new(size)?),
                direct: None,
                mapped: None,
                is_atomic: false,
            }),
            Base::Mapped(base) => {
                base.check_sectors(granularity(sector, self.start))?;
                let torn = base.warn_of_torn_sectors(sector);
                let is_atomic = base.how.starts_with("BTT") && torn.is_none();
                warnings.extend(torn);
                warnings.extend(base.warnings);
                Ok(Bottom {
                    gate: base.gate,
                    direct: None,
                    mapped: Some(base.how),
                    is_atomic,
                })
            }
            Base::Image(image) => {
                let unit = granularity(unit, self.start);
                let device = image.into_device(unit, options.direct.into())?;
                let direct = device.is_direct();
                if options.blocks.shared && !direct {
                    warnings.push(PAGE_CACHE_IS_OURS.to_owned());
                }
                Ok(Bottom {
                    gate: Gate::new(device),
                    direct: Some(direct),
                    mapped: None,
                    is_atomic: false,
                })
            }
        }
    }
}

/// What the encrypted data lies on.
struct Bottom {
    gate: Gate,
    /// Whether the page cache is bypassed, where that is a question.
    direct: Option<bool>,
    /// What `pmem:` and `btt:` found.
    mapped: Option<String>,
    /// A crash can not tear a cipher sector.
    is_atomic: bool,
}

/// Flags without the right to them.
const NO_PRIORITY: &str = "high_priority: this user may not raise the priority of threads, so the \
     workers have the ordinary one";
/// Beside others that write to the same target.
const PAGE_CACHE_IS_OURS: &str = "--shared through the page cache: what others write may not be seen \
     here; use --direct=on where the file system takes it";

/// A slow medium and its faults, where asked for.
fn with_test_layers(base: Gate, options: &TargetOptions) -> Result<Gate, CliError> {
    let medium = match &options.delay {
        None => base,
        Some(delay) => Gate::new(DelayDevice::new(base, delay.clone())),
    };
    let rules = options.fault_rules()?;
    Ok(if rules.is_empty() {
        medium
    } else {
        Gate::new(FaultDevice::new(medium, FaultPlan(rules)))
    })
}

/// Largest power of two, up to the cipher sector, that divides the device offset and length of every
/// transfer to data at `start`.
fn granularity(sector: u32, start: u64) -> u32 {
    match u32::try_from(start % u64::from(sector)) {
        Ok(0) | Err(_) => sector,
        Ok(rest) => 1 << rest.trailing_zeros(),
    }
}

/// The cipher word of `--cipher`.
pub fn parse_cipher(word: &str) -> Result<CipherSpec, CliError> {
    let parsed = CipherSpec::parse(word).and_then(|spec| spec.check_supported().map(|()| spec));
    parsed.map_err(|error| match error {
        SpecError::NotSupportedYet(_) => CliError::parameters(error.to_string()),
        other => CliError::parameters(format!("--cipher {word}: {other}")),
    })
}

/// The cipher under the key that `read_key` gets, and the key's length in bytes. All that knows the key
/// happens here, on a stack that is gone afterwards, and nothing else does: an object made on such a stack and
/// moved to the heap can take bytes of a key along where it has bytes of its own not yet set.
pub fn sector_cipher<K: std::ops::Deref<Target = [u8]>>(
    cipher: &CipherSpec,
    sectors: SectorOptions,
    read_key: impl FnOnce() -> Result<K, CliError> + Send,
    failed: impl Fn(&CipherError) -> CliError + Send + Sync,
) -> Result<(SectorCipher, usize), CliError> {
    with_keys(|| {
        let key = read_key()?;
        let made = SectorCipher::new(cipher, &key, sectors);
        Ok((made.map_err(|error| failed(&error))?, key.len()))
    })
}

/// A cipher that can not be made of what the command line says.
pub fn cipher_error(error: &CipherError) -> CliError {
    CliError::parameters(error.to_string())
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
