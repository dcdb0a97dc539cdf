//! `token bind`: a key slot that opens while a server can be reached.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use cryptline::TangKeys;

use super::super::header::ask;
use super::super::key::{Confirm, Place, refuse_two_keys, unlocking};
use crate::CliError;
use crate::args::{KeyArgs, TokenArgs};
use crate::error::on_one_line;
use crate::output::{print, warn_of};

/// Whose, and to what.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline token bind disk.img tang http://tang.example
  cryptline token bind disk.img tang http://tang.example --thumbprint uAprhr4HADpaEdRcS3pmVLh4u2tyFLFmZ3rWC4gN7xI
  cryptline serve disk.img                                 asks nothing while the server can be reached

A new key slot gets a random passphrase that is kept in the header, under a key that takes the server's help to
recover. The server learns neither. That is what `clevis luks bind` does, and each program opens what the other has
bound. Without --thumbprint you are shown the names of the server's keys (`tang-show-keys` there) and asked whether
you trust them.

Exit codes: 0 bound, 1 invalid parameters, LUKS1 or not confirmed, 2 wrong passphrase, 3 out of memory, 4 wrong
device, damaged header, or a server that cannot be used, 5 in use.")]
pub struct BindArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// What helps to open it
    #[arg(value_enum, value_name = "PIN")]
    pub pin: Pin,

    /// Where the server is
    #[arg(value_name = "URL")]
    pub url: String,

    /// Name of a key that the server must sign with; nothing is asked then
    #[arg(long, value_name = "NAME")]
    pub thumbprint: Option<String>,

    /// Number of the new key slot [default: the lowest that is free]
    #[arg(long, value_name = "N")]
    pub new_key_slot: Option<u32>,

    /// Confirmation.
    #[command(flatten)]
    pub confirm: Confirm,

    /// What opens it now.
    #[command(flatten)]
    pub keys: KeyArgs,

    /// Or these.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

/// What helps to open a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// A tang server
    Tang,
}

impl BindArgs {
    /// Binds.
    ///
    /// # Errors
    /// As the help says.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        refuse_two_keys(&self.place, &self.keys)?;
        let mut header = unlocking(&self.place, &self.keys);
        let may_try = self.tokens.are_named() || io::stdin().is_terminal();
        let keys = self.keys.of_target(&self.place.target);
        if may_try && let Some(tokens) = self.tokens.choice(&keys)? {
            header = header.tokens(tokens);
        }
        let Pin::Tang = self.pin;
        let trust = |server: &TangKeys| self.trust(server).map_err(CliError::into_keys_error);
        let bound = header.bind_tang(&self.url, self.new_key_slot, trust);
        let edited = bound.map_err(|error| CliError::of_header(&error))?;
        warn_of(&edited.warnings);
        let (slot, token) = (
            edited.slot.unwrap_or_default(),
            edited.token.unwrap_or_default(),
        );
        let url = on_one_line(&self.url);
        print(&format!(
            "Token {token} opens key slot {slot} while {url} can be reached.\n"
        ))?;
        Ok(ExitCode::SUCCESS)
    }

    fn trust(&self, server: &TangKeys) -> Result<(), CliError> {
        let names = server.thumbprints().join(", ");
        match &self.thumbprint {
            Some(name) if server.is_known_as(name) => Ok(()),
            Some(_) => Err(CliError::device(format!(
                "{}: none of the server's keys has that name, but {names}; is it another server?",
                self.url
            ))),
            None => ask(
                self.confirm,
                &format!("The server {} signs with {names}: trust it?", self.url),
            ),
        }
    }
}
