//! Which tokens of a LUKS2 header may unlock it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::Args;
use cryptline::{AskPin, PinRequest, Problem, SecretBuf, Tokens};
use cryptline_tokens::{Authenticator, TpmDevice, providers};

use super::keys::{KeyArgs, PassphraseSource, USUAL, answered, no_memory, prompt_twice};
use super::token_helper::TokenHelperArgs;
use crate::CliError;
use crate::fido2::{SecurityKey, SecurityKeys};

/// Tokens are tried first, unless a key is given.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct TokenArgs {
    /// Of the header's tokens, try only this one, whatever the priority of its key slots (LUKS2)
    #[arg(long, value_name = "N", conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command", "volume_key_file"])]
    pub token_id: Option<u32>,

    /// Of the header's tokens, try only those of this type, such as luks2-keyring
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command", "volume_key_file"])]
    pub token_type: Option<String>,

    /// Ask for no passphrase where no token unlocks the volume
    #[arg(long, conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command", "volume_key_file"])]
    pub token_only: bool,

    /// Take the PIN of a token from FILE, less a newline at its end. Without this it is asked for, but only where
    /// --token-id, --token-type or --token-only is given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command", "volume_key_file"])]
    pub pin_file: Option<PathBuf>,

    /// The TPM of tokens of type systemd-tpm2: a path, or swtpm:path=SOCKET or swtpm:host=HOST,port=N
    /// [default: $SYSTEMD_TPM2_DEVICE, else /dev/tpmrm0]
    #[arg(long, value_name = "DEVICE", alias = "tpm2-device", value_parser = TpmDevice::parse)]
    pub tpm_device: Option<TpmDevice>,

    /// The security key of tokens of type systemd-fido2: auto, or its device, such as /dev/hidraw0
    #[arg(long, value_name = "DEVICE", value_parser = SecurityKey::parse)]
    pub fido2_device: Option<SecurityKey>,

    /// Programs that unwrap passphrases.
    #[command(flatten)]
    pub helpers: TokenHelperArgs,
}

/// Names a TPM for systemd, too.
const TPM_VARIABLE: &str = "SYSTEMD_TPM2_DEVICE";

impl TokenArgs {
    /// The tokens to try; none where `keys` says what the key is.
    ///
    /// # Errors
    /// Exit code 1 where both say something.
    pub fn choice(&self, keys: &KeyArgs) -> Result<Option<Tokens>, CliError> {
        let asks = keys.passphrase.is_prompt() && keys.volume_key_file.is_none();
        if !asks {
            self.refuse("there is a key file that opens it")?;
            return Ok(None);
        }
        Ok(Some(Tokens {
            id: self.token_id,
            kind: self.token_type.clone(),
            only: self.token_only,
            pin: (self.are_named() || self.pin_file.is_some()).then(|| ask_pin(self.pin_file.clone())),
            providers: providers(self.tpm()?, self.authenticator(), self.helpers.helpers()?),
        }))
    }

    /// Security keys want a touch, so they are used only where tokens are asked for.
    fn authenticator(&self) -> Option<Arc<dyn Authenticator>> {
        let keys = match &self.fido2_device {
            Some(device) => device.clone(),
            None if self.token_id.is_some() || self.token_type.is_some() => SecurityKey::Auto,
            None => return None,
        };
        Some(Arc::new(SecurityKeys { keys, pin: Some(ask_pin(self.pin_file.clone())) }))
    }

    /// Where the TPM is.
    ///
    /// # Errors
    /// Exit code 1 where the environment names none that can be used.
    pub fn tpm(&self) -> Result<TpmDevice, CliError> {
        if let Some(device) = &self.tpm_device {
            return Ok(device.clone());
        }
        let named = std::env::var(TPM_VARIABLE).unwrap_or_default();
        if named.is_empty() {
            return Ok(TpmDevice::default());
        }
        TpmDevice::parse(&named).map_err(|why| {
            CliError::parameters(format!("{TPM_VARIABLE}={named}: {why}; unset it, or use --tpm-device"))
        })
    }

    /// Tells if an option asks for tokens.
    pub fn are_named(&self) -> bool {
        self.token_id.is_some()
            || self.token_type.is_some()
            || self.token_only
            || self.fido2_device.is_some()
            || !self.helpers.token_helper.is_empty()
    }

    /// For what tries no tokens, because of `why`.
    ///
    /// # Errors
    /// Exit code 1 where an option was given.
    pub fn refuse(&self, why: &str) -> Result<(), CliError> {
        if !self.are_named() {
            return Ok(());
        }
        Err(CliError::parameters(format!(
            "{why}; leave out --token-id, --token-type, --token-only, --fido2-device and --token-helper"
        )))
    }
}

/// Asks for the PIN of a token, or takes it from `file`, which is read once.
pub fn ask_pin(file: Option<PathBuf>) -> AskPin {
    let read = OnceLock::new();
    AskPin::new(move |request| {
        let pin = match &file {
            Some(file) => pin_in(file, &read).map(Some),
            None => typed(request),
        };
        pin.map_err(CliError::into_keys_error)?.ok_or_else(|| Problem::NoPin.into())
    })
}

/// Asks for the PIN that a security key has, once, or takes it from `file`.
pub fn ask_pin_of_key(file: Option<PathBuf>) -> AskPin {
    let known = OnceLock::new();
    AskPin::new(move |_| {
        let pin = match (&file, known.get()) {
            (Some(file), _) => pin_in(file, &known).map(Some),
            (None, Some(pin)) => SecretBuf::copy_of(pin).map(Some).map_err(|error| no_memory(&error)),
            (None, None) => answered("Enter the PIN of the security key: ", USUAL),
        };
        let pin = pin.map_err(CliError::into_keys_error)?.ok_or(Problem::NoPin)?;
        if let (None, Ok(copy)) = (known.get(), SecretBuf::copy_of(&pin)) {
            let _ = known.set(copy);
        }
        Ok(pin)
    })
}

fn pin_in(file: &Path, read: &OnceLock<SecretBuf>) -> Result<SecretBuf, CliError> {
    let pin = match read.get() {
        Some(pin) => pin,
        None => {
            let pin = PassphraseSource::line_in(file)?;
            read.get_or_init(|| pin)
        }
    };
    SecretBuf::copy_of(pin).map_err(|error| no_memory(&error))
}

/// `None` where there is nobody to ask for the PIN of a token that is there.
fn typed(request: &PinRequest<'_>) -> Result<Option<SecretBuf>, CliError> {
    let name = request.name;
    match request.token {
        Some(token) => answered(&format!("Enter the PIN of token {token} of {name}: "), USUAL),
        None => prompt_twice(&format!("Enter a new PIN for {name}: "), USUAL).map(Some),
    }
}
