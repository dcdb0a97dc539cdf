//! Keys of a second volume on the command line, whose options begin with the side that it is on.

use std::path::PathBuf;

use clap::Args;

use super::keys::{KeyArgs, PassphraseSource};

/// How to open what is copied from, where the other key options are for something else.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Source options")]
pub struct FromArgs {
    /// Take the passphrase of an encrypted source from FILE, as --key-file does
    #[arg(long, value_name = "FILE", requires = "from")]
    pub from_key_file: Option<PathBuf>,

    /// Take the passphrase of an encrypted source from the open file descriptor N
    #[arg(
        long,
        value_name = "N",
        requires = "from",
        conflicts_with = "from_key_file"
    )]
    pub from_passphrase_fd: Option<u32>,

    /// Take the volume key of an encrypted source from FILE
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with_all = ["from_key_file", "from_passphrase_fd", "from_key_slot"])]
    pub from_volume_key_file: Option<PathBuf>,

    /// Try only this key slot of an encrypted source
    #[arg(long, value_name = "N", requires = "from")]
    pub from_key_slot: Option<u32>,

    /// Read the LUKS header of the source from FILE
    #[arg(long, value_name = "FILE", requires = "from")]
    pub from_header: Option<PathBuf>,
}

/// How to open an encrypted destination.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Destination options")]
pub struct ToArgs {
    /// Take the passphrase of an encrypted destination from FILE, as --key-file does for the source
    #[arg(long, value_name = "FILE")]
    pub to_key_file: Option<PathBuf>,

    /// Take the passphrase of an encrypted destination from the open file descriptor N
    #[arg(long, value_name = "N", conflicts_with = "to_key_file")]
    pub to_passphrase_fd: Option<u32>,

    /// Take the volume key of an encrypted destination from FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to_key_file", "to_passphrase_fd", "to_key_slot"])]
    pub to_volume_key_file: Option<PathBuf>,

    /// Try only this key slot of an encrypted destination
    #[arg(long, value_name = "N")]
    pub to_key_slot: Option<u32>,

    /// Read the LUKS header of the destination from FILE
    #[arg(long, value_name = "FILE")]
    pub to_header: Option<PathBuf>,
}

impl FromArgs {
    /// The same as the keys of a verb with one volume.
    #[must_use]
    pub fn keys(&self) -> KeyArgs {
        keys(
            self.from_key_file.as_ref(),
            self.from_passphrase_fd,
            self.from_volume_key_file.as_ref(),
            self.from_key_slot,
        )
    }
}

impl ToArgs {
    /// The same as the keys of a verb with one volume.
    #[must_use]
    pub fn keys(&self) -> KeyArgs {
        keys(
            self.to_key_file.as_ref(),
            self.to_passphrase_fd,
            self.to_volume_key_file.as_ref(),
            self.to_key_slot,
        )
    }
}

fn keys(
    key_file: Option<&PathBuf>,
    passphrase_fd: Option<u32>,
    volume_key_file: Option<&PathBuf>,
    key_slot: Option<u32>,
) -> KeyArgs {
    KeyArgs {
        passphrase: PassphraseSource::of(key_file.cloned(), passphrase_fd),
        volume_key_file: volume_key_file.cloned(),
        key_slot,
        kdf_time_limit: None,
    }
}
