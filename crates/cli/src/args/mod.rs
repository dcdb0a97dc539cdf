//! Arguments that several verbs share: how to open a volume, and where its key comes from.

mod blocks;
pub mod choice;
mod dispatch;
mod inputs;
mod key_command;
mod keys;
mod pbkdf;
mod remembered;
mod rules;
mod sides;
mod table;
mod table_argument;
mod token_helper;
mod tokens;
mod volume;

use std::ffi::OsString;

pub use dispatch::DispatchArgs;
pub use inputs::{FromInput, Taker, is_input, refuse_needed, refuse_shared_input};
pub use key_command::set_verb;
pub use keys::{KeyArgs, NewPassphraseSource, PassphraseSource, accepted_cipher, passphrase_from_input, seed_in};
pub use pbkdf::{PbkdfArgs, SlotCipherArgs, bytes_of_key};
pub use remembered::Remembered;
pub use rules::RulesArgs;
pub use sides::{FromArgs, ToArgs};
pub use table_argument::{TableArgument, arguments};
pub use token_helper::{HelperName, TokenHelperArgs};
pub use tokens::{TokenArgs, ask_pin, ask_pin_of_key};
pub use volume::{LUKS_TYPES, TargetArgs, VolumeType, open};

/// The words of a command line with the verb first: `--quiet` may stand before it, and nothing else.
pub fn verb_first(mut words: Vec<OsString>) -> Vec<OsString> {
    let before = words.iter().skip(1).take_while(|word| *word == "--quiet").count();
    if let Some(words) = words.get_mut(1..=before + 1) {
        words.rotate_right(1);
    }
    words
}
