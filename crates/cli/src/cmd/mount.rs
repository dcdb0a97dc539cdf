//! `mount`: decrypted disks as files.
//!
//! ```text
//! arguments checked ─► volumes opened (KDF) ─► mounted ─► rights given up ─► said so ─► served ─► unmounted, flushed
//! ```

pub(super) mod holders;
mod janitor;
mod names;
mod place;

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cryptline::Zeroes;
use cryptline_engine::BackendChoice;
use cryptline_serve::fuse::{
    FuseOptions, FuseSession, LastWord, Mount, MountWanted, MountedOver, Nodes, StartError, processors,
};
use cryptline_serve::lane::Poll;
use cryptline_serve::{Flushed, StopHandle};

use self::janitor::Janitor;
use self::names::Names;
use self::place::MountPoint;
use super::detach::mount::of_mount;
use crate::CliError;
use crate::again::Starter;
use crate::args::TableArgument;
use crate::error::ZONED_ADVICE;
use crate::serve::background;
use crate::serve::banner::{Banner, volume_lines};
use crate::serve::front::{BoundFront, ServedVolume, check_queues, queues_to_be_had};
use crate::serve::log::LineCounter;
use crate::serve::memory;
use crate::serve::options::FrontArgs;
use crate::serve::sandbox::Needs;
use crate::verb::{FUSE, Group, NOTIFY_SOCKET, UNIT, Verb};

pub(super) use self::janitor::UNMOUNTED;

/// How long requests may take that were taken before the end.
const GRACE: Duration = Duration::from_secs(5);
/// Said where discards were allowed, and files have no holes.
const NO_HOLES: &str = "cannot be punched, though discards are allowed; --zeroes detect allows it";
/// Lanes, unless something else is asked for: one for each core, and no more than this.
const LANES_USUAL: usize = 4;

pub const VERB: Verb = Verb {
    name: "mount",
    group: Some(Group::Use),
    is_main: true,
    examples: "\
# /mnt/disk.img is the decrypted disk
cryptline mount disk.img /mnt
# over the file clear.img
cryptline mount disk.img clear.img
# /mnt/one.img and /mnt/two.img
cryptline mount one.img two.img /mnt
# a block device over it
sudo losetup --direct-io=on -f --show /mnt/disk.img
cryptline detach /mnt",
    notes: "\
In an empty folder, each disk appears as a file with the name of its target, and FILE.info describes it. \
Over a file, the disk takes the place of that file. Programs read and write it at any offset, without root \
and without NBD. It cannot be truncated (use dd conv=notrunc), and behind its end there is no space; it grows \
only when the target does, if that says no size. In a name that is not UTF-8, \u{fffd} stands for what is not.

Root, or a user in a user namespace, mounts by itself; other users need fusermount3 (package fuse3). Only the \
user who mounts can use the file, not even root, unless --allow-other is given.

The server goes to the background once the file is there, unless --foreground is given. `cryptline detach \
MOUNTPOINT`, umount(8), SIGINT and SIGTERM end it: it answers the requests that it has taken, flushes the volumes \
and exits. When it alone is killed, the mount is removed too; after a SIGKILL to all its processes, `cryptline detach` removes it.

After mounting, the server drops the rights that it no longer needs (--sandbox), as `cryptline serve` does.",
    exit: "0 success, 1 invalid parameters, no FUSE, or no right to mount, 2 no key available: wrong passphrase or \
        volume key, 3 out of memory, 4 wrong device, damaged header, or I/O error, such as a failed final flush, \
        5 the image or the mount point is in use",
    environment: &[NOTIFY_SOCKET],
    files: &[UNIT, FUSE],
    see: "cryptline-detach(1), fusermount3(1), fuse2fs(1)",
    ..Verb::EMPTY
};

/// Volumes to mount, where, and how.
#[derive(Args, Debug)]
#[command(override_usage = "cryptline mount [OPTIONS] TARGET... MOUNTPOINT
       cryptline mount [OPTIONS] --table LINE MOUNTPOINT")]
pub struct MountArgs {
    /// LUKS files or block devices, NBD URIs, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or ram:SIZE; then an empty folder, or a file for one of them
    #[arg(value_name = "TARGET... MOUNTPOINT", required = true, num_args = 1..)]
    pub paths: Vec<OsString>,

    #[command(flatten)]
    pub mount: MountOptions,
    #[command(flatten)]
    pub front: FrontArgs,
}

/// How to mount.
#[derive(Args, Debug)]
#[command(next_help_heading = "Mount options")]
pub struct MountOptions {
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,

    /// Let other users, root among them, use the file; for a user who is not root, /etc/fuse.conf must have
    /// user_allow_other
    #[arg(long)]
    pub allow_other: bool,

    /// Name of the file in the folder; repeat it for each TARGET [default: that of the target, or `disk` where it is
    /// no file]
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,

    /// Let the kernel cache the decrypted disk: faster for small and repeated reads; the clear text then stays in
    /// memory after the volume is closed, until it is needed for something else
    #[arg(long)]
    pub cache: bool,

    /// Threads that serve requests [default: one for each core, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub lanes: Option<u64>,

    /// Let the kernel pass requests through io_uring: less work for small ones, but few large ones at a time can be slower;
    /// up to 1 MiB of memory stays in use for each of up to 256 requests (with many lanes: one for each lane and processor);
    /// Linux 6.14 and, as root, echo 1 >/sys/module/fuse/parameters/enable_uring
    #[arg(long)]
    pub fuse_uring: bool,
}

/// Serves until told to stop, or unmounted.
///
/// # Errors
/// As for `serve`; exit code 1 where mounting is not possible.
pub fn run(args: &mut MountArgs) -> Result<ExitCode, CliError> {
    args.front.process.make_absolute()?;
    let args = &*args;
    let (targets, point) = args.paths()?;
    if args.front.process.exit_with_parent && !args.mount.foreground {
        return Err(CliError::parameters(
            "--exit-with-parent: a server in the background outlives its parent; use --foreground as well",
        ));
    }
    let (place, found) = MountPoint::find(point)?;
    args.check_files(&place)?;
    if !args.mount.foreground && !Starter::is_there() {
        let table = args.front.volume.table.as_ref();
        table.map_or(Ok(()), TableArgument::check_for_background)?;
        return background::run();
    }
    let starter = Starter::find()?;
    let front = BoundFront::begin(&args.front, targets)?;
    let names = Names::new(&args.mount.name, targets, place.over)?;
    place.check_targets(targets, args.front.volume.header.as_deref())?;
    let front = front.in_bytes().open(|index, file| names.choose(index, file))?;
    let volumes = Arc::clone(&front.volumes);
    if (volumes.iter()).any(|it| it.gate.geometry().zones.is_some()) {
        let error = StartError::Zoned;
        return Err(CliError::device(format!("{error}{ZONED_ADVICE}")));
    }
    starter.leave()?;
    let last_word = LastWord::new().map_err(|error| CliError::memory(error.to_string()))?;
    let lanes = args.lanes(&volumes)?;
    let mut janitor = Janitor::start(&place.point)?;
    let failed = |error| of_mount(&place.point, &error);
    let (mut mount, descriptors) = Mount::new(&args.wanted(&place, &found, &volumes), lanes).map_err(failed)?;
    drop(found);
    janitor.name(mount.identity());
    // All that asks who we are, before nothing can be asked any more.
    let banner = args.banner(&place, &volumes);
    let queues = args.queues()?;
    let nodes = Arc::new(args.nodes(&place, &volumes).with_last_word(last_word.name()));
    let front = front.enter(&needs(lanes), None, banner)?;
    let mut options = args.options((front.backend(), front.poll()), &volumes, &mount);
    options.queues = queues;
    let session = FuseSession::start(&nodes, descriptors, options);
    let session = session.map_err(|error| match error {
        StartError::NoRing => no_ring(),
        error => CliError::device(error.to_string()),
    })?;
    front.serve(|stop| {
        starter.tell_of_clients(stop);
        let flushed = serve(session, stop, janitor, &mut mount);
        last_word.say(matches!(flushed, Ok(Ok(()))));
        flushed
    })
}

fn serve(session: FuseSession, stop: &StopHandle, janitor: Janitor, mount: &mut Mount) -> Result<Flushed, CliError> {
    let waited = session.wait(stop);
    // While it is served: whoever uses it is served until then.
    if janitor.finish() {
        mount.let_go();
    }
    let flushed = session.finish();
    // Where the janitor was killed.
    let _ = mount.end();
    match (flushed, waited) {
        (Ok(()), Err(error)) => Err(CliError::device(format!("the mount could not be served on: {error}"))),
        // That something may be lost is the worse news.
        (flushed, _) => Ok(flushed),
    }
}

fn needs(lanes: usize) -> Needs<'static> {
    Needs { clients: lanes as u64, clients_option: "--lanes", ..Needs::default() }
}

impl MountArgs {
    /// The targets, and the mount point behind them.
    fn paths(&self) -> Result<(&[OsString], &Path), CliError> {
        let (point, targets) = self.paths.split_last().ok_or_else(no_point)?;
        if targets.is_empty() && self.front.volume.table.is_none() {
            return Err(no_point());
        }
        Ok((targets, Path::new(point)))
    }

    /// Verifies that no file that the server makes is in the mount: it would wait for itself.
    fn check_files(&self, place: &MountPoint) -> Result<(), CliError> {
        let process = &self.front.process;
        let pidfile = process.pidfile.as_deref().map(|path| ("--pidfile", path));
        for (option, path) in pidfile.into_iter().chain(process.statistics.paths()) {
            if place.contains(path) {
                return Err(CliError::parameters(format!(
                    "{option} {}: that is in the mount point; choose a path outside",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// No more than each volume can have queues.
    fn lanes(&self, volumes: &[ServedVolume]) -> Result<usize, CliError> {
        if let Some(lanes) = self.mount.lanes {
            for volume in volumes {
                check_queues(&volume.name, &volume.gate, lanes, "--lanes")?;
            }
        }
        let asked = self.mount.lanes.and_then(|lanes| lanes.try_into().ok());
        if let Some(asked) = asked {
            return Ok(asked);
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut lanes = cores.min(memory::lanes()).min(LANES_USUAL);
        for volume in volumes {
            // One more flushes, or the only one.
            let found = queues_to_be_had(&volume.gate, lanes + 1)?;
            lanes = lanes.min(found.saturating_sub(1)).max(1);
        }
        Ok(lanes)
    }

    /// Of the kernel's, where requests are to come through io_uring.
    fn queues(&self) -> Result<Option<usize>, CliError> {
        if !self.mount.fuse_uring {
            return Ok(None);
        }
        processors().map(Some).ok_or_else(no_ring)
    }

    fn wanted<'a>(&self, place: &MountPoint, found: &'a OwnedFd, volumes: &[ServedVolume]) -> MountWanted<'a> {
        let mut source = crate::error::on_one_line(&volumes[0].info.source);
        if volumes.len() > 1 {
            source += &format!(" and {} more", volumes.len() - 1);
        }
        MountWanted {
            point: place.point.clone(),
            place: found.as_fd(),
            over: place.over,
            source,
            read_only: volumes.iter().all(|it| it.info.read_only),
            allow_other: self.mount.allow_other,
        }
    }

    fn nodes(&self, place: &MountPoint, volumes: &[ServedVolume]) -> Nodes {
        let text = |served: &ServedVolume| {
            let mut text = String::new();
            volume_lines(&mut text, &served.info);
            text
        };
        let (first, for_all) = (&volumes[0], self.mount.allow_other);
        let mut nodes = Nodes::new(place.over, &first.gate, &first.name, &text(first), for_all);
        for served in &volumes[1..] {
            nodes.add(&served.gate, &served.name, &text(served));
        }
        nodes
    }

    fn options(&self, (backend, poll): (BackendChoice, Poll), volumes: &[ServedVolume], mount: &Mount) -> FuseOptions {
        let log = LineCounter::new();
        FuseOptions {
            backend,
            poll,
            cached: self.mount.cache,
            queues: None,
            grace: GRACE,
            stats: volumes.iter().map(|it| Arc::clone(&it.stats)).collect(),
            log: Box::new(move |message| log.line(message)),
            cut_off: Box::new(mount.breaker()),
        }
    }

    fn banner(&self, place: &MountPoint, volumes: &[ServedVolume]) -> Banner {
        let file = |served: &ServedVolume| match place.over {
            MountedOver::File => place.point.display().to_string(),
            MountedOver::Folder => place.point.join(&served.name).display().to_string(),
        };
        let point = place.point.display().to_string();
        let mut hints = Vec::new();
        if rustix::process::geteuid().is_root() {
            let file = file(&volumes[0]);
            hints.push(format!("losetup --direct-io=on --find --show '{file}'"));
        }
        hints.push(format!("cryptline detach '{point}'"));
        let is_odd = |text: &str| text.contains(['\'', char::REPLACEMENT_CHARACTER]);
        if is_odd(&point) || volumes[0].name.contains('\'') {
            // They would be wrong.
            hints.clear();
        }
        Banner {
            noun: "disk",
            places: volumes.iter().map(|it| ("file", file(it))).collect(),
            terms: self.terms(volumes),
            hints,
            quiet: crate::output::is_quiet(),
        }
    }

    /// Said of how it is mounted.
    fn terms(&self, volumes: &[ServedVolume]) -> Vec<(&'static str, String)> {
        let mut terms = vec![("cache", if self.mount.cache { "on" } else { "off" }.to_owned())];
        // A file that is punched reads as zeros there, which a block that was discarded below does not.
        let decrypts = self.front.volume.blocks.zeroes == Zeroes::Decrypt;
        if decrypts && volumes.iter().any(|it| it.info.discards) {
            terms.push(("holes", NO_HOLES.to_owned()));
        }
        terms
    }
}

fn no_ring() -> CliError {
    CliError::parameters(
        "--fuse-uring: requests do not come through io_uring here; that takes Linux 6.14, io_uring (--io), no more than \
         64 processors that this machine can have (/sys/devices/system/cpu/possible) and, as root, echo 1 >/sys/module/fuse/parameters/enable_uring",
    )
}

fn no_point() -> CliError {
    CliError::parameters("name a TARGET and a MOUNTPOINT, as in `cryptline mount disk.img /mnt`")
}
