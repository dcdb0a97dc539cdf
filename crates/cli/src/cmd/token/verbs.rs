//! The other verbs of `token`.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use cryptline::Edited;
use cryptline::luks::edit::{TokenPlace, TokenSlots};

use crate::CliError;
use crate::cmd::key::HeaderArgs;
use crate::new_file::NewFile;
use crate::output::{changed, print, report};
use crate::verb::Verb;

/// No metadata has room for more.
const JSON_LEN_MAX: u64 = 4 << 20;

/// Which number.
#[derive(Args, Clone, Copy, Debug)]
pub struct PlaceArgs {
    /// Number of the token [default: the lowest that is free]
    #[arg(long, value_name = "N")]
    pub token_id: Option<u32>,

    /// Replace the token that has this number
    #[arg(long, requires = "token_id")]
    pub token_replace: bool,
}

impl PlaceArgs {
    fn place(self) -> TokenPlace {
        TokenPlace { id: self.token_id, replace: self.token_replace }
    }
}

pub const ADD: Verb = Verb {
    name: "token add",
    examples: "\
cryptline token add disk.img --key-description cryptline:disk
cryptline token add disk.img --key-description cryptline:disk --key-slot 1",
    notes: "\
The passphrase itself goes to the keyring, for instance with `keyctl padd user cryptline:disk @u < passphrase`.",
    exit: "0 added, 1 invalid parameters, LUKS1 or a number that is in use, 4 wrong device, damaged header or I/O \
        error, 5 in use",
    ..Verb::EMPTY
};

/// Which key.
#[derive(Args, Debug)]
pub struct TokenAddArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Description of the user key in the kernel's keyring that holds the passphrase
    #[arg(long, value_name = "NAME")]
    pub key_description: String,

    #[command(flatten)]
    pub token: PlaceArgs,

    /// Key slot that the passphrase opens [default: all]
    #[arg(long, value_name = "N", conflicts_with = "unbound")]
    pub key_slot: Option<u32>,

    /// Assign the token to no key slot yet
    #[arg(long)]
    pub unbound: bool,
}

impl TokenAddArgs {
    /// Adds a token.
    pub fn run(&self) -> Result<(), CliError> {
        let slots = match self.key_slot {
            _ if self.unbound => TokenSlots::AsGiven,
            Some(slot) => TokenSlots::One(slot),
            None => TokenSlots::All,
        };
        let (description, token) = (&self.key_description, self.token.place());
        done(self.place.open().set_keyring_token(description, token, slots), "added")
    }
}

pub const IMPORT: Verb = Verb {
    name: "token import",
    examples: "\
cryptline token import disk.img --json-file token.json
cryptline token import disk.img --token-id 3 --token-replace < token.json",
    notes: "\
The JSON has the members type, a text, and keyslots, an array of numbers of key slots as texts, and whatever else
belongs to the type. It is kept as it is.",
    exit: "0 imported, 1 invalid parameters, no token, LUKS1 or a number that is in use, 4 wrong device, damaged \
        header or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Token to import, and where to.
#[derive(Args, Debug)]
pub struct ImportArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// File with the token [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,

    #[command(flatten)]
    pub token: PlaceArgs,

    /// Assign the token to this key slot, too
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,
}

impl ImportArgs {
    /// Adds a token from JSON.
    pub fn run(&self) -> Result<(), CliError> {
        let json = self.read()?;
        let slots = self.key_slot.map_or(TokenSlots::AsGiven, TokenSlots::One);
        done(self.place.open().set_token(&json, self.token.place(), slots), "imported")
    }

    fn read(&self) -> Result<String, CliError> {
        let file = self.json_file.as_deref().filter(|path| *path != Path::new("-"));
        let name = file.map_or("standard input".into(), |path| path.display().to_string());
        let mut bytes = Vec::new();
        let read = match file {
            Some(path) => File::open(path).and_then(|file| bounded(file, &mut bytes)),
            None => bounded(io::stdin(), &mut bytes),
        };
        read.map_err(|error| CliError::device(format!("cannot read {name}: {error}")))?;
        if bytes.len() as u64 > JSON_LEN_MAX {
            return Err(CliError::parameters(format!("{name} is longer than any token; use the file with its JSON")));
        }
        String::from_utf8(bytes)
            .map_err(|_| CliError::parameters(format!("{name} is no text; use the file with the token's JSON")))
    }
}

fn bounded(input: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    input.take(JSON_LEN_MAX + 1).read_to_end(bytes).map(drop)
}

pub const EXPORT: Verb = Verb {
    name: "token export",
    examples: "\
cryptline token export disk.img --token-id 0
cryptline token export disk.img --token-id 0 --json-file token.json",
    exit: "0 exported, 1 invalid parameters or no such token, 4 wrong device, damaged header or I/O error, 5 the \
        file exists",
    ..Verb::EMPTY
};

/// Which, and where to.
#[derive(Args, Debug)]
pub struct TokenExportArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the token
    #[arg(long, value_name = "N")]
    pub token_id: u32,

    /// New file for it [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
}

impl TokenExportArgs {
    /// Prints a token, or saves it.
    pub fn run(&self) -> Result<(), CliError> {
        let found = self.place.inspect()?;
        let json = found.header.token_json(self.token_id).ok_or_else(|| {
            let error = cryptline::luks::Error::TokenNotInUse(self.token_id);
            CliError::of_header(error.into()).of(&found.name)
        })?;
        match self.json_file.as_deref() {
            Some(path) if path != Path::new("-") => save(path, &json)?,
            // Whoever made the header would move the cursor.
            _ if io::stdout().is_terminal() => print(&(escaped(&json) + "\n"))?,
            _ => print(&json)?,
        }
        Ok(())
    }
}

/// The same JSON without control characters in it, of which only texts can have some.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            // All of them are in the first plane.
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

/// A new file, whole or not at all.
fn save(path: &Path, json: &str) -> Result<(), CliError> {
    let name = path.display();
    let failed = |error: io::Error, what: &str, left: &str| match error.kind() {
        io::ErrorKind::AlreadyExists => CliError::busy(format!("{name} exists already; use another name")),
        _ => CliError::device(format!("cannot {what} {name}: {error}{left}")),
    };
    let file = NewFile::aside(path, 0o600).map_err(|error| failed(error, "make", ""))?;
    file.put(json.as_bytes()).map_err(|error| failed(error, "write", "; nothing was kept"))
}

pub const REMOVE: Verb = Verb {
    name: "token remove",
    examples: "\
cryptline token remove disk.img --token-id 0",
    notes: "\
The key slots that it was for stay, and open with their passphrases.",
    exit: "0 removed, 1 invalid parameters or no such token, 4 wrong device, damaged header or I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Which.
#[derive(Args, Debug)]
pub struct TokenRemoveArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the token
    #[arg(long, value_name = "N")]
    pub token_id: u32,
}

impl TokenRemoveArgs {
    /// Removes a token.
    pub fn run(&self) -> Result<(), CliError> {
        done(self.place.open().remove_token(self.token_id), "removed")
    }
}

pub const UNASSIGN: Verb = Verb {
    name: "token unassign",
    examples: "\
cryptline token unassign disk.img --token-id 0 --key-slot 1",
    exit: "0 changed, 1 invalid parameters, no such token or not for that key slot, 4 wrong device, damaged header \
        or I/O error, 5 in use",
    ..Verb::EMPTY
};

/// Which, and from what.
#[derive(Args, Debug)]
pub struct UnassignArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Number of the token
    #[arg(long, value_name = "N")]
    pub token_id: u32,

    /// Number of the key slot
    #[arg(long, value_name = "N")]
    pub key_slot: u32,
}

impl UnassignArgs {
    /// Takes a key slot from a token.
    pub fn run(&self) -> Result<(), CliError> {
        let what = format!("is not for key slot {} any more", self.key_slot);
        done(self.place.open().unassign_token(self.token_id, self.key_slot), &what)
    }
}

/// Tells what was done, in a line.
fn done(edited: cryptline::Result<Edited>, what: &str) -> Result<(), CliError> {
    let token = changed(edited)?.token.unwrap_or_default();
    report(&format!("Token {token} {what}.\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_on_a_terminal_moves_no_cursor_and_says_the_same() {
        let json = "{\"type\":\"a\u{9b}31m\u{7f}\u{e4}\"}";
        let shown = escaped(json);
        assert!(!shown.contains(char::is_control));
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&shown), parsed(json));
    }
}
