//! `token`: what says where the passphrases of a volume come from.

mod bind;
mod list;
mod verbs;

use clap::Subcommand;

use crate::CliError;
use crate::verb::{Group, LOCKS, Verb};
use bind::BindArgs;
use list::TokenListArgs;
use verbs::{ImportArgs, TokenAddArgs, TokenExportArgs, TokenRemoveArgs, UnassignArgs};

/// `token`.
const VERB: Verb = Verb {
    name: "token",
    group: Some(Group::Keys),
    is_main: true,
    examples: "\
cryptline token list disk.img
cryptline token add disk.img --key-description cryptline:disk
keyctl padd user cryptline:disk @u < passphrase && cryptline serve disk.img
cryptline token bind disk.img tang http://tang.example
cryptline token bind disk.img sss '{\"t\": 1, \"pins\": {\"tang\": [{\"url\": \"a\"}, {\"url\": \"b\"}]}}'
cryptline token bind disk.img tpm2 --pcrs 7
cryptline token export disk.img --token-id 0 > token.json
cryptline token import disk.img --json-file token.json
cryptline token remove disk.img --token-id 0",
    notes: "\
A token of type luks2-keyring names a user key in the kernel's keyring that holds the passphrase: while that is in
the keyring of the session or the user, the volume opens without a question. Tokens of type systemd-recovery mark
recovery keys (`cryptline key add --recovery`). Those of type clevis with the pins tang and sss open the volume while
their servers, which the header names, can be reached; those of type systemd-tpm2 on the machine whose TPM they are for,
while its registers are as they were. Those of other types are kept as they are for the programs that
know them. The words and options are those of `cryptsetup token`; no root is needed.",
    files: &[LOCKS],
    see: "cryptline-key(1), cryptsetup-token(8), systemd-cryptenroll(1), clevis(1)",
    ..Verb::EMPTY
};

/// Rows of it and of the verbs below it.
pub const VERBS: &[Verb] =
    &[VERB, list::VERB, bind::VERB, verbs::ADD, verbs::IMPORT, verbs::EXPORT, verbs::REMOVE, verbs::UNASSIGN];

/// Operations on tokens.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// List the tokens
    List(TokenListArgs),
    /// Add a token that names a key in the kernel's keyring
    Add(TokenAddArgs),
    /// Add a key slot that opens by a tang server, some of several, or a TPM
    Bind(Box<BindArgs>),
    /// Add a token from its JSON
    Import(ImportArgs),
    /// Print a token as JSON
    Export(TokenExportArgs),
    /// Remove a token
    Remove(TokenRemoveArgs),
    /// Say that a token is not for a key slot any more
    Unassign(UnassignArgs),
}

impl TokenCommand {
    /// Runs one of them.
    pub fn run(&self) -> Result<(), CliError> {
        match self {
            Self::List(args) => args.run(),
            Self::Add(args) => args.run(),
            Self::Bind(args) => args.run(),
            Self::Import(args) => args.run(),
            Self::Export(args) => args.run(),
            Self::Remove(args) => args.run(),
            Self::Unassign(args) => args.run(),
        }
    }
}
