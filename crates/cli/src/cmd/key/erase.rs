//! `key erase`: no passphrase opens the volume any more.

use clap::Args;

use super::{ConfirmArgs, HeaderArgs};
use crate::CliError;
use crate::cmd::header::ask;
use crate::output::{changed, say};
use crate::verb::{Verb, Word};

pub const VERB: Verb = Verb {
    name: "key erase",
    words: &[Word::new("erase"), Word::cryptsetups("luksErase")],
    examples: "\
cryptline key erase disk.img
# ask nothing
cryptline key erase disk.img -q",
    notes: "\
All key slots are removed and their place is overwritten. Without a backup of the header or the volume key, the data
is lost for good. On flash and on file systems that never write in place, old bytes may survive.",
    exit: "0 erased, 1 invalid parameters or not confirmed, 4 wrong device, damaged header or I/O error, 5 in use",
    destroys: true,
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct EraseArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

impl EraseArgs {
    /// Removes all key slots.
    pub fn run(&self) -> Result<(), CliError> {
        let name = self.place.name().display().to_string();
        ask(
            self.confirm,
            &format!(
                "{name}: all key slots will be destroyed, and the data is lost unless you keep a backup of the header or the volume key."
            ),
        )?;
        changed(self.place.open().erase())?;
        say(&format!("{name}: all key slots are erased."))
    }
}
