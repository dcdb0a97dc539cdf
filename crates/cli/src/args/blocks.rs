//! Options about the smallest I/O of a volume, holes, and who else uses the medium.

use clap::Args;
use cryptline::{Exclusion, Open, Zeroes};

use super::choice::{self, ChoiceWords};
use crate::size;

const SUBBLOCK: &ChoiceWords<Exclusion> = &[
    (
        "shared",
        "Only what touches the same cipher sector, and only where the mode has to rewrite it",
        Exclusion::Shared,
    ),
    ("exclusive", "Everything, as ext4 did before Linux 6.5; to measure against", Exclusion::Exclusive),
];
const ZEROES: &ChoiceWords<Zeroes> = &[
    ("decrypt", "Their decryption, which is noise, as dm-crypt does", Zeroes::Decrypt),
    ("detect", "Zeros: nothing was ever written there, or it was discarded", Zeroes::Detect),
];

/// Blocks and holes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Block options")]
pub struct BlockOptions {
    /// The smallest I/O in bytes, from 512 to the cipher sector. With XTS, a write of part of a cipher sector
    /// overwrites only that part; other modes read, change and write the whole sector, and a crash in between
    /// can damage its other blocks [default: the smallest that needs no rewriting: 512 with XTS where the
    /// medium has such blocks, else the cipher sector]
    #[arg(long, value_name = "BYTES", value_parser = size::parse_block)]
    pub logical_block: Option<u32>,

    /// Requests that wait while part of a cipher sector is being written [default: shared]
    #[arg(long, value_name = "WHAT", requires = "logical_block", value_parser = choice::of(SUBBLOCK))]
    pub subblock: Option<Exclusion>,

    /// Data that clients read where the medium holds only zeros. With `detect`, sparse images, discards and thin
    /// storage behave as on a plain disk; but whoever can write to the medium can make chosen places read as zeros.
    /// Zeroing a range writes such zeros only with --allow-discards; without it, encrypted zeros are written, which
    /// reveal nothing
    #[arg(long, value_name = "WHAT", default_value = "decrypt", value_parser = choice::of(ZEROES))]
    pub zeroes: Zeroes,

    /// Open the target although other programs or hosts use it too, and refuse what could lose their writes
    #[arg(long)]
    pub shared: bool,
}

impl BlockOptions {
    /// Says so to the library.
    pub fn apply(&self, open: Open) -> Open {
        let open = open.exclusion(self.subblock.unwrap_or_default()).zeroes(self.zeroes).shared(self.shared);
        match self.logical_block {
            Some(bytes) => open.logical_block(bytes),
            None => open,
        }
    }
}
