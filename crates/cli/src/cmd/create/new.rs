//! Description of a new volume, whichever word makes it.

use std::path::{Path, PathBuf};

use clap::Args;
use cryptline::Create;
use cryptline::keys::VolumeKeyFile;
use cryptline::luks::format::{FormatOptions, LuksVersion};
use cryptline::size;

use super::LayoutArgs;
use crate::CliError;
use crate::args::choice::{self, ChoiceWords};
use crate::args::{PassphraseSource, PbkdfArgs, accepted_cipher, bytes_of_key, seed_in};

/// Versions of headers.
pub const VERSIONS: &ChoiceWords<LuksVersion> =
    &[("luks1", "LUKS1", LuksVersion::Luks1), ("luks2", "LUKS2", LuksVersion::Luks2)];

/// Its header, and its passphrase.
#[derive(Args, Debug)]
pub struct NewVolume {
    #[command(flatten)]
    pub format: FormatArgs,

    #[command(flatten)]
    pub layout: LayoutArgs,

    #[command(flatten)]
    pub passphrase: PassphraseSource,
}

/// Options of the header's contents.
#[derive(Args, Debug)]
#[command(next_help_heading = "Format options (defaults as `cryptsetup luksFormat`)")]
pub struct FormatArgs {
    /// Header version
    #[arg(long = "type", value_name = "TYPE", default_value = "luks2", value_parser = choice::of(VERSIONS))]
    pub kind: LuksVersion,

    /// Same as --type luks1
    #[arg(long, conflicts_with = "kind")]
    pub luks1: bool,

    /// Cipher for the data
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,

    /// Make a volume with the broken cipher SPEC; opening it needs the same option
    #[arg(long, value_name = "SPEC", value_parser = accepted_cipher)]
    pub accept_cipher: Vec<String>,

    /// Size of the volume key in bits: 512 is AES-256 in XTS mode
    #[arg(long, value_name = "BITS", default_value_t = 512)]
    pub key_size: u32,

    /// Hash for the header digest and for PBKDF2
    #[arg(long, value_name = "NAME", default_value = "sha256")]
    pub hash: String,

    /// Cipher sector size: 512, 1024, 2048 or 4096 bytes [default: 4096 if the size allows it]
    #[arg(long, value_name = "BYTES", value_parser = size::parse_block)]
    pub sector_size: Option<u32>,

    #[command(flatten)]
    pub pbkdf: PbkdfArgs,

    /// As with cryptsetup, to say that it is not made here.
    #[arg(long, value_name = "TYPE", hide = true)]
    pub integrity: Option<String>,

    /// Label of the volume (LUKS2)
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub label: String,

    /// UUID of the volume [default: random]
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,

    /// Make the volume key, salts and UUID from the secret in FILE, at least 16 random bytes: the same seed, options, passphrase
    /// and source make the same image. Whoever has the seed has the volume key, so use it for one image only
    #[arg(long, value_name = "FILE", conflicts_with = "iter_time")]
    pub seed_file: Option<PathBuf>,
}

impl NewVolume {
    /// The same for the library.
    ///
    /// # Errors
    /// Exit code 1 for the size of a key that is none, or a seed that cannot be one.
    pub fn options(&self) -> Result<FormatOptions, CliError> {
        self.layout.added_to(self.format.options()?)
    }

    /// A key that is overwritten opens nothing any more, and data under its own header is none.
    ///
    /// # Errors
    /// Exit code 1 where what is made at `place`, for the data of `target`, would overwrite a key file, the volume key or
    /// the seed; or where a header would overwrite the data.
    pub fn refuse_needed(&self, target: &Path, place: &Path, key_file: Option<&Path>) -> Result<(), CliError> {
        self.layout.refuse_over(target)?;
        let seed = self.format.seed_file.as_deref();
        self.layout.refuse_needed(place, key_file, seed)
    }

    /// How to make it, with the key that is asked for.
    pub fn added_to(&self, create: Create, options: FormatOptions) -> Create {
        create.format(options).with(self.layout.volume_key_file.clone().map(VolumeKeyFile), Create::volume_key)
    }
}

impl FormatArgs {
    /// Tells if the cost of the key slot is measured.
    pub fn measures(&self) -> bool {
        self.seed_file.is_none() && self.pbkdf.pbkdf_force_iterations.is_none()
    }

    /// The same for the library.
    ///
    /// # Errors
    /// Exit code 1 for the size of a key that is none, and for what is not made here.
    pub fn options(&self) -> Result<FormatOptions, CliError> {
        if let Some(integrity) = &self.integrity {
            return Err(CliError::parameters(format!(
                "--integrity {integrity}: volumes with integrity protection are not made here; leave it out"
            )));
        }
        Ok(FormatOptions {
            version: if self.luks1 { LuksVersion::Luks1 } else { self.kind },
            cipher: self.cipher.clone(),
            key_len: bytes_of_key("--key-size", self.key_size)?,
            sector_size: self.sector_size,
            hash: self.hash.clone(),
            kdf: self.pbkdf.pbkdf,
            cost: self.pbkdf.cost(),
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            accepted_ciphers: self.accept_cipher.clone(),
            seed: self.seed_file.as_deref().map(seed_in).transpose()?,
            ..FormatOptions::default()
        })
    }
}
