//! Keys of a second volume on the command line, whose options begin with the side that it is on.

use crate::fido2::SecurityKey;
use std::path::PathBuf;

use clap::Args;
use cryptline_tokens::TpmDevice;

use super::key_command::{CommandSource, command};
use super::keys::{KeyArgs, PassphraseSource, accepted_cipher};
use super::rules::RulesArgs;
use super::token_helper::{HelperName, TokenHelperArgs};
use super::tokens::TokenArgs;

/// The keys of one side: their options' heading and prefix, what is opened with them, and what else they need.
macro_rules! side {
    ($(#[$about:meta])* $name:ident, $heading:literal, $prefix:literal, $whose:literal $(, requires = $needed:literal)?) => {
        $(#[$about])*
        #[derive(Args, Clone, Debug, Default)]
        #[command(next_help_heading = $heading)]
        pub struct $name {
            #[arg(
                id = concat!($prefix, "_key_file"),
                long = concat!($prefix, "-key-file"),
                value_name = "FILE",
                help = concat!("Take the passphrase of ", $whose, " from FILE, as --key-file does")
                $(, requires = $needed)?
            )]
            key_file: Option<PathBuf>,

            #[arg(
                id = concat!($prefix, "_passphrase_fd"),
                long = concat!($prefix, "-passphrase-fd"),
                value_name = "N",
                help = concat!("Take the passphrase of ", $whose, " from the open file descriptor N"),
                conflicts_with = concat!($prefix, "_key_file")
                $(, requires = $needed)?
            )]
            passphrase_fd: Option<u32>,

            #[arg(
                id = concat!($prefix, "_passphrase_command"),
                long = concat!($prefix, "-passphrase-command"),
                value_name = "CMD",
                help = concat!("Take the passphrase of ", $whose, " from the output of CMD, as --passphrase-command does"),
                conflicts_with_all = [concat!($prefix, "_key_file"), concat!($prefix, "_passphrase_fd")],
                value_parser = command
                $(, requires = $needed)?
            )]
            passphrase_command: Option<String>,

            #[arg(
                id = concat!($prefix, "_volume_key_file"),
                long = concat!($prefix, "-volume-key-file"),
                value_name = "FILE",
                help = concat!("Take the volume key of ", $whose, " from FILE"),
                conflicts_with_all = [
                    concat!($prefix, "_key_file"),
                    concat!($prefix, "_passphrase_fd"),
                    concat!($prefix, "_passphrase_command"),
                    concat!($prefix, "_key_slot"),
                ]
                $(, requires = $needed)?
            )]
            volume_key_file: Option<PathBuf>,

            /// Only this key slot.
            #[arg(
                id = concat!($prefix, "_key_slot"),
                long = concat!($prefix, "-key-slot"),
                value_name = "N",
                help = concat!("Try only this key slot of ", $whose)
                $(, requires = $needed)?
            )]
            pub key_slot: Option<u32>,

            #[arg(
                id = concat!($prefix, "_accept_cipher"),
                long = concat!($prefix, "-accept-cipher"),
                value_name = "SPEC",
                help = concat!("Accept this cipher of ", $whose, ", as --accept-cipher does"),
                value_parser = accepted_cipher
                $(, requires = $needed)?
            )]
            accept_cipher: Vec<String>,

            #[arg(
                id = concat!($prefix, "_token_id"),
                long = concat!($prefix, "-token-id"),
                value_name = "N",
                help = concat!("Of the tokens of ", $whose, ", try only this one"),
                conflicts_with_all = $name::KEYS
                $(, requires = $needed)?
            )]
            token_id: Option<u32>,

            #[arg(
                id = concat!($prefix, "_token_type"),
                long = concat!($prefix, "-token-type"),
                value_name = "TYPE",
                help = concat!("Of the tokens of ", $whose, ", try only those of this type"),
                conflicts_with_all = $name::KEYS
                $(, requires = $needed)?
            )]
            token_type: Option<String>,

            #[arg(
                id = concat!($prefix, "_token_only"),
                long = concat!($prefix, "-token-only"),
                help = concat!("Ask for no passphrase where no token unlocks ", $whose),
                conflicts_with_all = $name::KEYS
                $(, requires = $needed)?
            )]
            token_only: bool,

            #[arg(
                id = concat!($prefix, "_pin_file"),
                long = concat!($prefix, "-pin-file"),
                value_name = "FILE",
                help = concat!("Take the PIN of a token of ", $whose, " from FILE, less a newline at its end"),
                conflicts_with_all = $name::KEYS
                $(, requires = $needed)?
            )]
            pin_file: Option<PathBuf>,

            #[arg(
                id = concat!($prefix, "_tpm_device"),
                long = concat!($prefix, "-tpm-device"),
                value_name = "DEVICE",
                help = concat!("The TPM of tokens of ", $whose, ": a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N"),
                value_parser = TpmDevice::parse
                $(, requires = $needed)?
            )]
            tpm_device: Option<TpmDevice>,

            #[arg(
                id = concat!($prefix, "_fido2_device"),
                long = concat!($prefix, "-fido2-device"),
                value_name = "DEVICE",
                help = concat!("The security key of tokens of ", $whose, ": auto, or its device"),
                value_parser = SecurityKey::parse
                $(, requires = $needed)?
            )]
            fido2_device: Option<SecurityKey>,

            #[arg(
                id = concat!($prefix, "_token_helper"),
                long = concat!($prefix, "-token-helper"),
                value_name = "NAME[=FILE]",
                help = concat!("Run the helper NAME for tokens of ", $whose, ", with the settings in FILE"),
                conflicts_with_all = $name::KEYS,
                value_parser = HelperName::parse
                $(, requires = $needed)?
            )]
            token_helper: Vec<HelperName>,

            #[arg(
                id = concat!($prefix, "_helper_dir"),
                long = concat!($prefix, "-helper-dir"),
                value_name = "DIR",
                help = concat!("Take helpers for ", $whose, " from DIR"),
                requires = concat!($prefix, "_token_helper")
            )]
            helper_dir: Option<PathBuf>,

            /// Where the LUKS header is.
            #[arg(
                id = concat!($prefix, "_header"),
                long = concat!($prefix, "-header"),
                value_name = "FILE",
                help = concat!("Read the LUKS header of ", $whose, " from FILE")
                $(, requires = $needed)?
            )]
            pub header: Option<PathBuf>,
        }

        impl $name {
            const KEYS: [&str; 4] = [
                concat!($prefix, "_key_file"),
                concat!($prefix, "_passphrase_fd"),
                concat!($prefix, "_passphrase_command"),
                concat!($prefix, "_volume_key_file"),
            ];

            /// The same as the tokens of a verb with one volume.
            pub fn tokens(&self) -> TokenArgs {
                TokenArgs {
                    token_id: self.token_id,
                    token_type: self.token_type.clone(),
                    token_only: self.token_only,
                    pin_file: self.pin_file.clone(),
                    tpm_device: self.tpm_device.clone(),
                    fido2_device: self.fido2_device.clone(),
                    helpers: TokenHelperArgs {
                        token_helper: self.token_helper.clone(),
                        helper_dir: self.helper_dir.clone(),
                    },
                }
            }

            /// The same as the keys of a verb with one volume.
            pub fn keys(&self) -> KeyArgs {
                let mut passphrase = PassphraseSource::of(self.key_file.clone(), self.passphrase_fd);
                passphrase.command = CommandSource::of(self.passphrase_command.clone());
                KeyArgs {
                    passphrase,
                    volume_key_file: self.volume_key_file.clone(),
                    key_slot: self.key_slot,
                    accept_cipher: self.accept_cipher.clone(),
                    rules: RulesArgs::default(),
                    kdf_time_limit: None,
                }
            }
        }
    };
}

side! {
    /// How to open what is copied from, where the other key options are for something else.
    FromArgs, "Source options", "from", "an encrypted source", requires = "from"
}

side! {
    /// How to open an encrypted destination.
    ToArgs, "Destination options", "to", "an encrypted destination"
}
