//! Arguments that several verbs share: how to open a volume, and where its key comes from.

mod blocks;
mod choice;
mod dispatch;
mod keys;
mod table;
mod table_argument;
mod volume;

pub use keys::{KeyArgs, PassphraseSource};
pub use table_argument::{TableArgument, arguments};
pub use volume::{TargetArgs, VolumeType, open};
