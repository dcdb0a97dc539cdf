//! Further contents of a new header, and its place.

use std::path::{Path, PathBuf};

use clap::Args;
use cryptline::luks::format::FormatOptions;
use cryptline::{Problem, Target};

use crate::CliError;
use crate::args::{SlotCipherArgs, refuse_needed};
use crate::size;

/// Beside cipher and costs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Format options (defaults as `cryptsetup luksFormat`)")]
pub struct LayoutArgs {
    /// Write the header to the new file FILE; the target has only data, and is not touched unless it is filled
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,

    /// Take the volume key from FILE, as bytes, instead of a random one
    #[arg(long, value_name = "FILE", alias = "master-key-file")]
    pub volume_key_file: Option<PathBuf>,

    /// Number of the key slot [default: 0]
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    /// Subsystem of the volume (LUKS2)
    #[arg(long, value_name = "TEXT")]
    pub subsystem: Option<String>,

    /// Size of one of the two copies of the header: 16K to 4M (LUKS2)
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub luks2_metadata_size: Option<u64>,

    /// Size of the place for key slots (LUKS2) [default: all up to the data]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub luks2_keyslots_size: Option<u64>,

    #[command(flatten)]
    pub slot_cipher: SlotCipherArgs,
}

impl LayoutArgs {
    /// Refuses a header that would be made over its own data.
    pub(super) fn refuse_over(&self, target: &Path) -> Result<(), CliError> {
        let Some(header) = &self.header else {
            return Ok(());
        };
        if Target::parse(target)?.is_lost_to(&Target::parse(header)?) {
            let (header, why) = (header.display(), Problem::HeaderOverData);
            return Err(CliError::parameters(format!("{header}: {why}")));
        }
        Ok(())
    }

    /// As [`super::NewVolume::refuse_needed`].
    pub(super) fn refuse_needed(
        &self,
        place: &Path,
        key_file: Option<&Path>,
        seed: Option<&Path>,
    ) -> Result<(), CliError> {
        let key = ("a key file", key_file);
        let volume_key = ("the file of the volume key", self.volume_key_file.as_deref());
        refuse_needed(&Target::parse(place)?, &[key, volume_key, ("the seed", seed)])
    }

    /// The same with these.
    ///
    /// # Errors
    /// Exit code 1 for the size of a key that is none.
    pub fn added_to(&self, options: FormatOptions) -> Result<FormatOptions, CliError> {
        Ok(FormatOptions {
            detached: self.header.is_some(),
            slot: self.key_slot.unwrap_or(0),
            subsystem: self.subsystem.clone().unwrap_or_default(),
            metadata_size: self.luks2_metadata_size,
            keyslots_size: self.luks2_keyslots_size,
            slot_cipher: self.slot_cipher.cipher()?,
            ..options
        })
    }
}
