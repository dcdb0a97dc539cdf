//! Which tokens of a LUKS2 header may unlock it.

use clap::Args;
use cryptline::Tokens;

use super::keys::KeyArgs;
use crate::CliError;

/// Tokens are tried first, unless a key is given.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct TokenArgs {
    /// Of the header's tokens, try only this one, whatever the priority of its key slots (LUKS2)
    #[arg(long, value_name = "N", conflicts_with_all = ["key_file", "passphrase_fd", "volume_key_file"])]
    pub token_id: Option<u32>,

    /// Of the header's tokens, try only those of this type, such as luks2-keyring
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["key_file", "passphrase_fd", "volume_key_file"])]
    pub token_type: Option<String>,

    /// Ask for no passphrase where no token unlocks the volume
    #[arg(long, conflicts_with_all = ["key_file", "passphrase_fd", "volume_key_file"])]
    pub token_only: bool,
}

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
        }))
    }

    /// Whether an option asks for tokens.
    #[must_use]
    pub fn are_named(&self) -> bool {
        self.token_id.is_some() || self.token_type.is_some() || self.token_only
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
            "{why}; leave out --token-id, --token-type and --token-only"
        )))
    }
}
