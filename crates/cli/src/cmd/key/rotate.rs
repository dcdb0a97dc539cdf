//! `key rotate`: another passphrase behind a helper's token.

use clap::Args;

use super::HeaderArgs;
use crate::CliError;
use crate::args::{RulesArgs, TokenHelperArgs};
use crate::output::{changed, report};
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "key rotate",
    examples: "\
cryptline key rotate disk.img --token-helper vault=/etc/vault.json
cryptline key rotate disk.img --token-helper vault=/etc/vault.json --token 2",
    notes: "\
The helper wraps a new random passphrase, which gets a key slot and a token of its own. These are tried as they are on the disk before the \
old key slot and its token are removed, so what the disk holds opens at any moment. If it is cut off, run it again: it goes on.",
    exit: "0 replaced, 1 invalid parameters, no such token or no free key slot, 2 refused by the helper, 3 out of \
        memory, 4 wrong device, damaged header or a helper that fails, 5 in use",
    ..Verb::EMPTY
};

/// Whose, and which.
#[derive(Args, Debug)]
pub struct RotateArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the token to replace [default: the only one of the helper]
    #[arg(long, value_name = "N", alias = "token-id")]
    pub token: Option<u32>,

    #[command(flatten)]
    pub helpers: TokenHelperArgs,

    #[command(flatten)]
    pub rules: RulesArgs,
}

impl RotateArgs {
    /// Replaces it.
    pub fn run(&self) -> Result<(), CliError> {
        let helpers = self.helpers.helpers()?;
        let helpers = helpers.ok_or_else(|| CliError::parameters("name the helper with --token-helper"))?;
        let header = self.place.open().header_rules(self.rules.rules());
        let token = changed(cryptline_tokens::rotate(header, &helpers, self.token))?.token.unwrap_or_default();
        report(&format!("Token {token} opens it with a new passphrase; the old one is gone.\n"))
    }
}
