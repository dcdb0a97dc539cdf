//! `create`: a new LUKS volume in a file, on a block device, `pmem:PATH` or `btt:PATH`, or behind an NBD server.

mod layout;
mod new;
pub(crate) mod signals;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use clap::Args;
use cryptline::luks::format::FormatOptions;
use cryptline::{Copy, Create, Holes, Problem, Progress, Target};
use cryptline_sys::lock;

use layout::LayoutArgs;
pub use new::{NewVolume, VERSIONS};

use crate::CliError;
use crate::args::choice::{self, ChoiceWords};
use crate::args::{FromArgs, Taker, refuse_shared_input};
use crate::cmd::copy::{CopyReport, FileSystem, From, How, Show};
use crate::output::for_shell;
use crate::progress::Spinner;
use crate::size;
use crate::verb::{Group, Verb};

pub(super) const HOLES: &ChoiceWords<Holes> = &[
    (
        "encrypt",
        "They are written as encrypted zeros: every reader sees zeros, and nobody which blocks are unused",
        Holes::Encrypt,
    ),
    (
        "keep",
        "They stay holes of the new file, which shows which blocks are unused; cryptline reads zeros there with --zeroes detect, other programs read noise",
        Holes::Keep,
    ),
];

pub const VERB: Verb = Verb {
    name: "create",
    group: Some(Group::Volumes),
    is_main: true,
    examples: "\
cryptline create disk.img --size 1G
cryptline create disk.img --size 1G --key-file key.bin --label backup
cryptline create old.img --size 1G --luks1
cryptline btt create disk.btt --size 1G && cryptline create btt:disk.btt
# on a block device
cryptline create /dev/sdb --label backup
cryptline create 'nbd://storage/disk1' --key-file key.bin
# in the partition with this label
cryptline create 'whole-disk.img?partition=root'
cryptline create disk.luks --from disk.raw --verify
cryptline create disk.luks --from 'nbd://storage/disk1' --key-file key.bin
# a file system (ext4) with the files of a folder
cryptline create site.luks --from dir:site
# go on where the same command was cut off
cryptline create disk.luks --from disk.raw --resume --key-file key.bin
# the same bytes each time
cryptline create site.luks --from dir:site --seed-file seed --key-file key.bin
zstd -dc disk.raw.zst | cryptline create disk.luks --from - --key-file key.bin
# quick and weak, for tests
printf %s secret | cryptline create test.img --size 64M --key-file - \\
    --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
    notes: "\
The size given with --size includes the header (16 MiB for LUKS2, 2 MiB for LUKS1). The file is
sparse unless you use --preallocate. The new volume is opened once to verify it; if anything fails,
nothing is left behind. Block devices, pmem:PATH, btt:PATH, a part of a disk, a Ceph image and the export of an NBD
URI have their size already, and must contain only zeros or holes, unless you use --force; what is found is named. All of
what will be written is read for that; the rest of a large device or export is looked at in thousands of places only. No
device that is mounted or in use is written to.

With --header and --force, data and header are replaced one after the other. If the program is
interrupted in between, the old header remains as .NAME.cryptline-old and the new one as .NAME.cryptline-new, and no
header is left that opens data of another volume. A header whose name is taken meanwhile is .NAME.cryptline-new, too:
nothing else opens its data, which is there already.

With --seed-file nothing is measured, since that differs: Argon2 makes 4 passes over 256 MiB in 4 lanes,
and PBKDF2 a million iterations, unless the --pbkdf options say otherwise. The label and the UUID given
take part, so images of one seed that have different labels have different keys.

With --from the file is as large as the source and the header, unless --size says more; what lies
behind the source is noise until it is written. The header is written when all data is durable: until
then there is no volume, whatever happens.",
    exit: "0 success, 1 invalid parameters, 2 the two passphrases differ, 3 out of memory, 4 the disk or server \
        failed, or is full, 5 the file exists, the device holds data (see --force), or it is in use",
    see: "cryptline-copy(1), cryptsetup-luksFormat(8), mke2fs(8)",
    ..Verb::EMPTY
};

/// Volume to make, and where.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// New file, or an existing block device, pmem:PATH, btt:PATH, part of a disk (DISK?partition=N), NBD URI or rbd:POOL/IMAGE
    pub file: PathBuf,

    /// Size of the file, such as 512M or 1G; KB, MB and GB are powers of 1000
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    pub size: Option<u64>,

    /// Replace an existing file, or overwrite what the device holds
    #[arg(long)]
    pub force: bool,

    /// Fill the volume with the contents of SRC: a raw file or block device, an encrypted volume, an NBD URI, dir:DIR for a
    /// file system with the files of a folder, or `-` for standard input
    #[arg(long, value_name = "SRC", help_heading = "Source options")]
    pub from: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Source options")]
    pub how: How,

    /// Keep what was copied when it ends early, and go on from there when the same command is given again. Only into a new
    /// file, from a regular file or a volume in one
    #[arg(long, requires = "from", conflicts_with_all = ["volume_key_file", "header"], help_heading = "Source options")]
    pub resume: bool,

    /// Treatment of holes and zeros in the source
    #[arg(long, value_name = "WHAT", default_value = "encrypt", value_parser = choice::of(HOLES), help_heading = "Source options")]
    pub holes: Holes,

    #[command(flatten)]
    pub from_keys: FromArgs,

    /// Allocate the disk space now
    #[arg(long)]
    pub preallocate: bool,

    #[command(flatten)]
    pub volume: NewVolume,
}

/// Makes the volume.
pub fn run(args: &CreateArgs) -> Result<(), CliError> {
    args.refuse_needed()?;
    if let Some(source) = &args.from {
        return args.run_from(source);
    }
    if let Some(option) = args.useless() {
        return Err(CliError::parameters(format!(
            "{option} is about the source; use one with --from, or leave it out"
        )));
    }
    let options = args.volume.options()?;
    let created = args.create(options.clone()).on_progress(show(args.volume.format.measures())).create();
    let created = created.map_err(CliError::of_create)?;
    crate::output::warn_of(&created.warnings);
    crate::output::report(&args.told(&options, created.data_size))
}

impl CreateArgs {
    /// Refuses to overwrite what is needed and would be lost.
    fn refuse_needed(&self) -> Result<(), CliError> {
        let key = self.volume.passphrase.of_target(&self.file).file();
        for place in self.places() {
            self.volume.refuse_needed(&self.file, place, key.as_deref())?;
        }
        Ok(())
    }

    /// Returns what is written to: the header, and where that is elsewhere and there are any, the data.
    fn places(&self) -> impl Iterator<Item = &Path> {
        let header = self.volume.layout.header.as_deref();
        let data = (header.is_none() || self.from.is_some()).then_some(&*self.file);
        header.into_iter().chain(data)
    }

    fn create(&self, options: FormatOptions) -> Create {
        let create = match (&self.volume.layout.header, &self.from) {
            (None, _) => Create::new(&self.file),
            (Some(header), None) => Create::new(header),
            (Some(header), Some(_)) => Create::new(&self.file).header(header),
        };
        let create =
            create.replace(self.force).preallocate(self.preallocate).keys(self.volume.passphrase.of_target(&self.file));
        self.volume.added_to(create, options).with(self.size, Create::size)
    }

    /// Makes the volume and fills it.
    fn run_from(&self, source: &Path) -> Result<(), CliError> {
        let began = Instant::now();
        let options = self.volume.options()?;
        let from = From {
            name: source,
            how: &self.how,
            header: self.from_keys.header.as_deref(),
            partition: None,
            is_alone: false,
            keys: self.from_keys.keys().of_target(source),
            tokens: self.from_keys.tokens(),
            key_option: "--from-key-file",
            file_system: FileSystem { room: self.room(&options)?, uuid: options.seeded_uuid("file system") },
        };
        for place in self.places() {
            from.refuse_needed(&Target::parse(place)?)?;
        }
        let is_luks = from.is_luks()?;
        let [disk, key] = from.takers(is_luks);
        let new_key = Taker {
            what: "the new passphrase",
            instead: "--key-file",
            takes: self.volume.passphrase.of_target(&self.file).from_input(),
        };
        refuse_shared_input(&[disk, key, new_key])?;
        let source_disk = from.open(is_luks)?;
        let show = Show::of_create();
        let copy = Copy::new(source_disk).holes(self.holes).verify(self.how.verify).stop(show.stop());
        let copy = if self.resume { copy.resume(from.choices()) } else { copy };
        let created = self.create(options.clone()).fill(copy).on_progress(show.observer()).create();
        show.clear();
        let created = created.map_err(|error| match error.problem() {
            Problem::Luks(_) => CliError::of_create(error),
            Problem::Holds { .. } | Problem::Exists { .. } => CliError::from(error),
            _ => CliError::of_copy(error),
        })?;
        crate::output::warn_of(&created.warnings);
        if let Some(copied) = &created.copied {
            crate::output::warn_of(&copied.warnings);
            let told = self.told(&options, created.data_size);
            let destination = self.file.as_path();
            let report = CopyReport { source, destination, copied, began, is_piped: false, is_file: false };
            report.print(self.how.json, &told)?;
        }
        Ok(())
    }

    /// Bytes of the clear disk, where the size of the file was given.
    fn room(&self, options: &FormatOptions) -> Result<Option<u64>, CliError> {
        let Some(size) = self.size else {
            return Ok(None);
        };
        let start = options.data_start().map_err(|error| CliError::parameters(error.to_string()))?;
        Ok(Some(size.saturating_sub(start)))
    }

    /// Describes what was made, for people.
    fn told(&self, options: &FormatOptions, data_size: u64) -> String {
        let version = options.version;
        let name = self.file.display().to_string();
        let seed = match (&options.seed, &self.volume.layout.volume_key_file) {
            (Some(_), None) => {
                "The seed gives the volume key, whatever the passphrase: keep it secret, and use it for no other image.\n"
            }
            _ => "",
        };
        let disk = match data_size {
            0 => "a header without data".to_owned(),
            size => format!("{} usable", size::human(size)),
        };
        let header = self.volume.layout.header.as_ref().map(|header| {
            let header = header.display().to_string();
            format!(" --header {}", for_shell(&header))
        });
        format!(
            "{name}: {version}, {disk}, {}\nKey slot {}: passphrase set and verified. To use it: cryptline serve {}{}\n{seed}",
            options.cipher,
            options.slot,
            for_shell(&name),
            header.unwrap_or_default()
        )
    }

    /// The first option that is about a source; clap knows of the others.
    fn useless(&self) -> Option<&'static str> {
        let given = [
            (self.how.from_raw, "--from-raw"),
            (self.how.verify, "--verify"),
            (self.how.json, "--json"),
            (self.holes != Holes::default(), "--holes"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

/// Turns on a terminal while something takes long, and removes the unfinished file when stopped by a signal.
pub(in crate::cmd) fn show(measures: bool) -> impl Fn(Progress<'_>) -> Result<(), cryptline::Error> + Send + Sync {
    let shown = Mutex::new(None);
    let guards = Mutex::new(Vec::new());
    let say = move |message: Option<&'static str>| {
        let mut shown = lock(&shown);
        // Cleared before the next appears.
        drop(shown.take());
        *shown = message.map(Spinner::new);
    };
    move |progress| {
        match progress {
            Progress::Unfinished(path) => {
                let watch = signals::remove_when_stopped(path).map_err(CliError::into_keys_error)?;
                lock(&guards).push(watch);
            }
            Progress::Looking => say(Some("Looking whether anything is there ...")),
            Progress::LookedAt { .. } | Progress::Step(_) => {}
            Progress::Deriving if measures => {
                say(Some("Measuring this machine and making the key slot ..."));
            }
            Progress::Deriving => say(Some("Making the key slot ...")),
            Progress::Checking => say(Some("Opening the new volume again ...")),
            _ => say(None),
        }
        Ok(())
    }
}
