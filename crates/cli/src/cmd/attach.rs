//! `attach`: the decrypted disk as a block device of this machine.

mod recover;
mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Args, ValueEnum};
use cryptline::Volume;
use cryptline_engine::BackendChoice;
use cryptline_serve::device::AttachError;
use cryptline_serve::{kernel_nbd, ublk};
use rustix::thread::CapabilitySet;

use self::server::AttachWanted;
use crate::CliError;
use crate::again::Starter;
use crate::args::{KeyArgs, TableArgument, TargetArgs, choice};
use crate::attached::background;
use crate::attached::state::AttachDriver;
use crate::log::LogArgs;
use crate::output::warn_of;
use crate::serve::backend::{self, WorkingBackend};
use crate::serve::front::check_queues;
use crate::serve::options::StatsArgs;
use crate::serve::passed::Passed;
use crate::verb::{DEVICES, Group, Verb, Word, XDG};

/// Largest number of queues that may be asked for.
const QUEUES_MAX: i64 = 64;
/// A day.
const TIMEOUT_MAX: u64 = 86400;

pub const VERB: Verb = Verb {
    name: "attach",
    words: &[Word::with("recover", "--recover")],
    group: Some(Group::Use),
    is_main: true,
    examples: "\
# print the name of the new device, such as /dev/nbd0
cryptline attach disk.img
mount $(cryptline attach disk.img --key-file key) /mnt
cryptline attach /dev/sda2 --read-only --foreground
cryptline attach disk.img --queues 4 --stats /run/disk.stats
# a new server for a device whose server was killed
cryptline attach --recover /dev/ublkb0
# after an upgrade, while it is mounted
cryptline attach --recover --replace /dev/ublkb0",
    notes: "\
The device is printed once it is there; the server then goes to the background. It takes root, or ublk with the udev \
rules that give users devices of their own (docs/attach.md). \
`cryptline devices` lists what is attached, and `cryptline detach` ends it: the kernel writes back what \
it has cached, the device goes away, and the volume is flushed. SIGTERM does the same. \
A zoned volume becomes a zoned device, by ublk.

With --recover, TARGET is a device whose server was killed, and gets a new one: requests made meanwhile have waited and \
are now carried out, so that programs that use the device notice only a pause. The options are those that the device was \
attached with, and no others can be given; a passphrase is asked for again, and a key that came from standard input or a \
descriptor must be given there again. Only ublk devices without zones that root has made can be recovered, and only of \
volumes with a LUKS header: by that, the volume is known to be the same. With --replace, the old server may still serve, \
such as one of an older version: it answers what is under way, flushes the volume and ends, and what is asked of the \
device then waits for the new one. It takes Linux 6.16 or later.",
    exit: "0 success, 1 invalid parameters, 2 no key available: wrong passphrase or volume key, 3 out of memory, 4 \
        wrong device, damaged header, no driver or no permission, 5 the image is in use by another program",
    environment: &[XDG],
    files: &[DEVICES],
    see: "cryptline-detach(1), cryptline-devices(1), mount(8)",
    ..Verb::EMPTY
};

/// Volume to attach, and how.
#[derive(Args, Debug)]
#[command(mut_args = not_with_recover)]
pub struct AttachArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH, zoned:PATH or ram:SIZE; a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE
    #[arg(value_name = "TARGET", required_unless_present = "table")]
    pub target: Option<OsString>,

    /// Start a new server for the device TARGET, whose server was killed
    #[arg(long)]
    pub recover: bool,

    /// With --recover: also where it has a server, which hands the device over while programs use it
    #[arg(long, requires = "recover")]
    pub replace: bool,

    /// The kernel's driver that makes the device
    #[arg(long, value_enum, default_value_t, value_name = "DRIVER")]
    pub driver: DriverChoice,

    /// Hardware queues of the device; each has a thread of the server's
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=QUEUES_MAX))]
    pub queues: u16,

    /// Seconds that a request may take before an nbd device is given up, with errors [default: any time]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MAX))]
    pub timeout: Option<u64>,

    /// I/O interface
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = choice::of(backend::IO))]
    pub io: BackendChoice,

    #[command(flatten)]
    pub statistics: StatsArgs,

    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,

    // In the background it has nobody to tell.
    #[command(flatten)]
    pub log: LogArgs,

    /// The device is there already: `--recover` has started us.
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub recover_device: Option<PathBuf>,

    #[command(flatten)]
    pub volume: TargetArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// A server that takes over has the options of the one before.
fn not_with_recover(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "target" | "recover" | "replace" => option,
        _ => option.conflicts_with("recover"),
    }
}

/// `--driver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DriverChoice {
    /// ublk where this kernel has it, otherwise nbd
    #[default]
    Auto,
    /// ublk: /dev/ublkbN; it takes io_uring, and survives its server (--recover)
    Ublk,
    /// The kernel's NBD client: /dev/nbdN
    Nbd,
}

impl DriverChoice {
    /// The driver, if it is there.
    fn driver(self, io: BackendChoice) -> Result<AttachDriver, CliError> {
        if self == Self::Ublk && io == BackendChoice::Syscalls {
            return Err(CliError::parameters("--driver ublk takes io_uring; leave out --io, or use --driver nbd"));
        }
        let ublk = match self {
            Self::Nbd => Err(AttachError::NoDriver("ublk")),
            _ if io == BackendChoice::Syscalls => Err(AttachError::NoDriver("ublk")),
            _ => ublk::check(),
        };
        match (self, ublk) {
            (_, Ok(())) => Ok(AttachDriver::Ublk),
            (Self::Ublk, Err(error)) => Err(error.into()),
            (Self::Nbd, Err(_)) => {
                kernel_nbd::check()?;
                Ok(AttachDriver::Nbd)
            }
            // Nor is there one for nbd.
            (Self::Auto, Err(error @ AttachError::NoPermission)) if !may_administer() => Err(error.into()),
            (Self::Auto, Err(error)) => match (kernel_nbd::check(), error) {
                (Ok(()), _) => Ok(AttachDriver::Nbd),
                (Err(AttachError::NoDriver(_)), AttachError::NoDriver(_)) => {
                    Err(AttachError::NoDriver("ublk and no nbd").into())
                }
                (Err(AttachError::NoDriver(_)), error) | (Err(error), _) => Err(error.into()),
            },
        }
    }
}

/// Tells if this process has the right to make any block device.
fn may_administer() -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Attaches, and serves in this process or another.
///
/// # Errors
/// As [`open`]; exit code 4 where the device cannot be made.
pub fn run(args: &mut AttachArgs) -> Result<ExitCode, CliError> {
    args.statistics.make_absolute()?;
    let args = &*args;
    if let (true, Some(device)) = (args.recover, &args.target) {
        return recover::run(Path::new(device), args.replace);
    }
    let starter = Starter::find()?;
    attach(args, &starter).or_else(|error| starter.fail(error))
}

fn attach(args: &AttachArgs, starter: &Starter) -> Result<ExitCode, CliError> {
    let is_server = args.is_server();
    // Before there are other threads, of which the kernel has some for rings.
    let has_own_mounts = is_server && server::see_mounts_of_its_own();
    args.log.begin(false);
    let arguments = || crate::args::verb_first(std::env::args_os().collect()).into_iter().skip(1);
    let driver = args.check()?;
    if !is_server {
        return background::start(arguments().collect());
    }
    server::be_an_io_flusher();
    let passed = Passed::take(&args.volume, &args.keys, args.target.as_slice());
    let backend = WorkingBackend::probe(args.io)?;
    let target = args.target.as_deref().unwrap_or_default();
    // Who has a block device writes to it.
    let volume = args.volume.to_open(target, &args.keys)?.writes(true).open()?;
    // No key is read from here on.
    drop(passed);
    warn_of(volume.warnings());
    let source = &volume.info().source;
    check_queues(source, volume.gate(), args.queues.into(), "--queues")?;
    let is_secret = matches!(args.volume.table, Some(TableArgument::Line(_)));
    let wanted = AttachWanted {
        args,
        driver,
        block: args.block(&volume),
        backend: backend.choice,
        target: volume.info().source.clone(),
        arguments: if is_secret { Vec::new() } else { arguments().collect() },
        folder: std::env::current_dir().unwrap_or_default(),
        starter,
        has_own_mounts,
    };
    server::run(&volume, &wanted)
}

impl AttachArgs {
    /// Tells if this process serves, and does not only start who does.
    fn is_server(&self) -> bool {
        self.foreground || Starter::is_there()
    }

    /// Bytes of a block of the device: as dm-crypt would have it, unless another was asked for. Partition tables count
    /// in blocks.
    fn block(&self, volume: &Volume) -> u32 {
        self.volume.blocks.logical_block.map_or(volume.info().sector_size, |_| volume.info().logical_block)
    }

    /// Finds out what can be told before a passphrase is asked for.
    fn check(&self) -> Result<AttachDriver, CliError> {
        if self.target.is_some() && self.volume.table.is_some() {
            return Err(CliError::parameters("use either a TARGET or --table, which names its device itself"));
        }
        if let (Some(table), false) = (&self.volume.table, self.is_server()) {
            table.check_for_background()?;
        }
        self.statistics.check()?;
        // Another driver would make another device.
        let driver = self.recover_device.as_ref().map(|_| DriverChoice::Ublk);
        let driver = driver.unwrap_or(self.driver).driver(self.io)?;
        if self.timeout.is_some() && driver != AttachDriver::Nbd {
            return Err(CliError::parameters(
                "--timeout takes --driver nbd: what is asked of a ublk device waits until it is served",
            ));
        }
        if self.timeout.is_some() && self.queues > 1 {
            return Err(CliError::parameters(
                "--timeout takes --queues 1: of several queues the kernel would ask another for what is late, while \
                 the first can still be writing it",
            ));
        }
        Ok(driver)
    }
}
