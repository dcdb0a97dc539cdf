//! `resize`: more room for a volume, or less.

use clap::Args;
use cryptline::{Header, ResizeOptions};

use super::create::show;
use super::key::HeaderArgs;
use crate::CliError;
use crate::args::accepted_cipher;
use crate::output::{say, warn_of};
use crate::size;
use crate::verb::{Group, LOCKS, Verb};

pub const VERB: Verb = Verb {
    name: "resize",
    group: Some(Group::Volumes),
    is_main: true,
    examples: "\
cryptline resize disk.img 20G
cryptline resize data.img 20G --header disk.header
# where nothing was written behind 5G
cryptline resize disk.img 5G --shrink
# to the end of the device, if the header says another size
cryptline resize /dev/sdb",
    notes: "\
SIZE is that of the file, header included, as with `cryptline create --size`; without it the volume becomes as large as
its file or device. No passphrase is needed. What is new reads as noise until it is written. Grow the file system in
the volume afterwards (resize2fs, xfs_growfs), and make it smaller before you shrink the volume.

A file can grow while it is served: guests of `vhost-user` and mounts notice within a second, NBD clients when they
connect again, block devices when they are made again. A volume shrinks only while nobody has it open. If the LUKS2
header states a size, it is changed there, and only while nobody has the volume open for writing. When such a volume
grows, the space behind it becomes a part of it and must contain only zeros: a file is checked completely, a device in
thousands of places. Block devices, partitions and exports keep their own size.",
    exit: "0 success, 1 invalid parameters, or smaller without --shrink, 4 wrong device, damaged header or I/O \
        error, 5 in use, or something would be lost (see --force)",
    files: &[LOCKS],
    see: "resize2fs(8)",
    keyless: true,
    ..Verb::EMPTY
};

/// Whose, and how large.
#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// New size of the file, such as 20G; KB, MB and GB are powers of 1000 [default: the size that the file or device has]
    #[arg(value_name = "SIZE", value_parser = size::parse_disk)]
    pub size: Option<u64>,

    /// Make it smaller, if nothing was written behind its new end
    #[arg(long)]
    pub shrink: bool,

    /// Accept the cipher SPEC of the header, exactly as `cryptline info` shows it, though its IVs repeat in the new size
    #[arg(long, value_name = "SPEC", value_parser = accepted_cipher)]
    pub accept_cipher: Vec<String>,

    /// Lose what was written behind the new end, or where the volume grows to
    #[arg(long)]
    pub force: bool,
}

/// Resizes.
pub fn run(args: &ResizeArgs) -> Result<(), CliError> {
    let options = ResizeOptions { size: args.size, shrink: args.shrink, force: args.force };
    let header = args.accept_cipher.iter().cloned().fold(args.place.open(), Header::accept_cipher);
    let header = header.on_progress(show(false));
    let resized = header.resize(&options).map_err(CliError::of_header)?;
    warn_of(&resized.warnings);
    let name = args.place.target.display();
    let (now, before) = (size::human(resized.data_size), size::human(resized.before));
    let what = if resized.data_size == resized.before {
        format!("{name}: {now} usable, as before")
    } else if resized.is_fixed {
        format!("{name}: {now} usable, {before} before; programs that have it open keep the old size")
    } else {
        format!("{name}: {now} usable, {before} before")
    };
    say(&what)
}
