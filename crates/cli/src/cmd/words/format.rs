//! `luksFormat`: a new volume in a file or on a device that is there.

use std::path::PathBuf;

use clap::Args;
use cryptline::Create;
use cryptline::luks::format::{FormatOptions, LuksVersion};

use crate::CliError;
use crate::cmd::create::{NewVolume, show};
use crate::output::warn_of;

/// Where data begins unless it is said, in LUKS1 and LUKS2.
const DATA_OFFSETS: [u64; 2] = [2 << 20, 16 << 20];

/// Where, and what.
#[derive(Args, Debug)]
pub struct FormatWordArgs {
    /// File or block device.
    pub target: PathBuf,

    /// Key file, the same as --key-file
    #[arg(conflicts_with_all = ["key_file", "passphrase_command"])]
    pub key: Option<PathBuf>,

    /// Overwrite what is there.
    #[arg(long, short = 'q')]
    pub batch_mode: bool,

    /// Where the data begins, in sectors.
    #[arg(long, value_name = "SECTORS", conflicts_with = "align_payload")]
    pub offset: Option<u64>,

    /// Alignment of the data, in sectors.
    #[arg(long, value_name = "SECTORS")]
    pub align_payload: Option<u64>,

    /// Where random bytes come from, which is not asked here.
    #[arg(long)]
    pub use_random: bool,
    /// The same.
    #[arg(long)]
    pub use_urandom: bool,

    #[command(flatten)]
    pub volume: NewVolume,
}

impl FormatWordArgs {
    /// Makes the volume.
    ///
    /// # Errors
    /// As `create`.
    pub fn run(&self) -> Result<(), CliError> {
        let options = self.volume.options()?;
        let data_offset = self.data_offset(&options)?;
        let options = FormatOptions { data_offset, ..options };
        let mut passphrase = self.volume.passphrase.clone();
        if self.key.is_some() {
            passphrase.key_file.clone_from(&self.key);
        }
        let header = self.volume.layout.header.as_ref();
        let place = header.unwrap_or(&self.target);
        self.volume.refuse_needed(&self.target, place, passphrase.file().as_deref())?;
        let create = Create::new(place).in_place(header.is_none()).replace(self.batch_mode).keys(passphrase);
        let created = self
            .volume
            .added_to(create, options)
            .on_progress(show(self.volume.format.measures()))
            .create()
            .map_err(CliError::of_create)?;
        warn_of(&created.warnings);
        Ok(())
    }

    fn data_offset(&self, options: &FormatOptions) -> Result<Option<u64>, CliError> {
        let bytes = |sectors: u64| {
            sectors.checked_mul(512).ok_or_else(|| CliError::parameters(format!("{sectors} sectors are too many")))
        };
        if let Some(offset) = self.offset {
            return bytes(offset).map(Some);
        }
        let Some(unit) = self.align_payload.map(bytes).transpose()? else {
            return Ok(None);
        };
        if options.detached {
            return Ok(Some(unit));
        }
        let usual = DATA_OFFSETS[usize::from(options.version == LuksVersion::Luks2)];
        let unit = match options.version {
            LuksVersion::Luks1 => unit.max(512),
            LuksVersion::Luks2 => unit.max(1).next_multiple_of(4096),
        };
        Ok(Some(usual.checked_next_multiple_of(unit).unwrap_or(u64::MAX)))
    }
}
