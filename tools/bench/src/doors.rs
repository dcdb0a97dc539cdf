//! What each front costs, and what those of qemu-storage-daemon do with the same load.
//!
//! ```text
//! vhost-user   a driver of this process (guest): fio has none; it compares both ends of each read
//! nbd, fuse    fio
//! allocations  calls of the allocator for a request, counted in servers inside this process
//! ```
//!
//! Every server must give the clear text, all of it, before anything is measured. One server runs at a time. Turns are
//! short and their order rotates, so whatever else the machine does meets all alike.

mod allocations;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cryptline::luks::format::Version;
use cryptline::{DirectMode, Open, size};

use crate::contents::sha256_of;
use crate::error::{Of as _, Result, fail};
use crate::fio::{self, Target};
use crate::guest::Guest;
use crate::images::{Images, SOCKET};
use crate::load::{self, Transport};
use crate::plan::{Plan, RunArgs, progress, unique};
use crate::process::{Left, Process};
use crate::programs::{self, Programs};
use crate::report::{Comparison, Direction, Pattern, Report, Row, Shape, word};
use crate::setting::{ServerArgs, Setting};
use crate::volume::NULL_CIPHER;

/// A front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Door {
    /// Virtqueues in shared memory, as a virtual machine has them
    VhostUser,
    /// A Unix socket
    Nbd,
    /// The file of a mount
    Fuse,
    /// The same, whose requests come through io_uring
    FuseUring,
}

/// Who serves what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// cryptline, LUKS2.
    Ours,
    /// cryptline, the null cipher over the plain image.
    Plain,
    /// qemu-storage-daemon, LUKS1.
    Qsd,
}

type Server = (Who, Door);

const QSD: &str = "qemu-storage-daemon";
/// What every mount goes through.
const FUSE_DEVICE: &str = "/dev/fuse";
/// What mounts for a user who may not, and its package.
const FUSE_HELPER: &str = "fusermount3";
/// `Y` where the kernel passes requests of mounts through io_uring.
const FUSE_URING: &str = "/sys/module/fuse/parameters/enable_uring";
/// How long a server may keep silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;
/// Bytes of each read of a check.
const PIECE: u32 = 128 << 10;

/// The loads.
const SMALL: Shape = Shape::new(Direction::Read, Pattern::Random, 4096, 32);
const LARGE: Shape = Shape::new(Direction::Read, Pattern::Sequential, 128 << 10, 8);
const ONE: Shape = Shape::new(Direction::Read, Pattern::Random, 4096, 1);
const HUGE: Shape = Shape::new(Direction::Read, Pattern::Sequential, 1 << 20, 4);

const GUESTS: [Server; 3] = [(Who::Ours, Door::VhostUser), (Who::Plain, Door::VhostUser), (Who::Qsd, Door::VhostUser)];
const FILES: [Server; 3] = [(Who::Ours, Door::Fuse), (Who::Ours, Door::FuseUring), (Who::Qsd, Door::Fuse)];
/// Servers that are compared with each other under a load.
const CONTESTS: [(Shape, &[Server]); 5] =
    [(SMALL, &GUESTS), (LARGE, &GUESTS), (ONE, &[GUESTS[0], (Who::Ours, Door::Nbd)]), (SMALL, &FILES), (HUGE, &FILES)];

/// Figures: one server's speed to another's under a load.
const COMPARISONS: [(&str, Shape, Server, Server); 9] = [
    ("vhost_over_qsd_luks_4k_qd32", SMALL, GUESTS[0], GUESTS[2]),
    ("vhost_over_qsd_luks_128k", LARGE, GUESTS[0], GUESTS[2]),
    ("vhost_encrypted_over_plain_4k_qd32", SMALL, GUESTS[0], GUESTS[1]),
    ("vhost_encrypted_over_plain_128k", LARGE, GUESTS[0], GUESTS[1]),
    ("vhost_over_nbd_4k_qd1", ONE, GUESTS[0], (Who::Ours, Door::Nbd)),
    ("fuse_over_qsd_luks_4k_qd32", SMALL, FILES[0], FILES[2]),
    ("fuse_over_qsd_luks_1m", HUGE, FILES[0], FILES[2]),
    ("fuse_uring_over_fuse_4k_qd32", SMALL, FILES[1], FILES[0]),
    ("fuse_uring_over_fuse_1m", HUGE, FILES[1], FILES[0]),
];

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench doors                                   everything, in about a minute
  cryptline-bench doors --fronts vhost-user --rounds 9    one front, for longer
  cryptline-bench doors --fronts fuse,fuse-uring          what io_uring does for a mount

Serves a LUKS2 image by cryptline and a LUKS1 image by qemu-storage-daemon, over vhost-user-blk and FUSE, and gives both
the same reads in turns. Compares vhost-user also with the plain disk and with NBD, and with --fronts fuse,fuse-uring a
mount with one whose requests come through io_uring. All must give the same bytes first. Three images of --size are made
in --dir.

Needs the Debian packages fio, qemu-system-common and util-linux, and /dev/fuse; for fuse-uring, Linux 6.14 and, as root,
echo 1 >/sys/module/fuse/parameters/enable_uring. What is missing is named, and its figures have no value.")]
pub struct DoorsArgs {
    #[command(flatten)]
    of_servers: ServerArgs,

    /// Fronts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FRONT", default_values_t = [Door::VhostUser, Door::Nbd, Door::Fuse])]
    fronts: Vec<Door>,
}

/// What all turns share.
struct Bench<'a> {
    args: &'a DoorsArgs,
    setting: Setting,
}

/// Measures.
pub fn measure(args: &DoorsArgs, runs: RunArgs) -> Result<Report> {
    let runs = runs.or(256 << 20, 5, 0.5)?;
    let versions = [Version::Luks1, Version::Luks2];
    let setting = Setting::of_servers(&args.of_servers, runs.size, &versions)?;
    let bench = Bench { args, setting };
    let all = CONTESTS.iter().flat_map(|(load, servers)| servers.iter().map(|&server| (*load, server)));
    let missing: Vec<(Server, String)> =
        unique(all.clone().map(|it| it.1)).into_iter().filter_map(|it| Some((it, bench.missing(it)?))).collect();
    let is_there = |server: Server| !missing.iter().any(|(one, _)| *one == server);
    let ways: Vec<(Shape, Server)> = all.filter(|(_, server)| is_there(*server)).collect();
    bench.check_contents(&ways)?;
    let plan = Plan {
        bench: "doors",
        title: "The fronts of cryptline, and those of its peer",
        medium: String::new(),
        runs,
        rows: ways.iter().map(|&(load, server)| row(server, load, &bench.setting.images)).collect(),
        notes: bench.notes(),
    };
    let mut report = plan.run(|_, turn| {
        let (load, server) = ways[turn.row];
        bench.turn(server, load, runs.time, turn.run)
    })?;
    bench.setting.stop.check()?;
    bench.setting.describe(&mut report);
    let of_fronts = missing.iter().filter(|(server, _)| args.fronts.contains(&server.1));
    let why = of_fronts.map(|(_, why)| format!("{why}, so what needs it was not measured"));
    report.warnings.extend(unique(why));
    for (name, load, of, to) in COMPARISONS {
        let why = missing.iter().find(|(server, _)| [of, to].contains(server));
        let needs = format!("could not be measured: {}", why.map_or("no round", |(_, why)| why));
        report.compare(&Comparison { needs, ..Comparison::new(name, self::name(of, load), self::name(to, load)) });
    }
    let fronts = unique(args.fronts.iter().copied()).into_iter().filter(|door| door.missing().is_none());
    let counted =
        fronts.map(|door| Ok((door, allocations::count(&bench.setting, door)?))).collect::<Result<Vec<_>>>()?;
    // It does not depend on how long or how large anything was.
    report.weak = None;
    report.figure("allocations_per_io", most(&counted), None);
    Ok(report)
}

/// The most that any front needs; none where one could not be counted.
fn most(counted: &[(Door, Option<f64>)]) -> Result<(f64, String), String> {
    let all: Option<Vec<f64>> = counted.iter().map(|(_, calls)| *calls).collect();
    let most = all.and_then(|all| all.into_iter().reduce(f64::max));
    let each = counted.iter().filter_map(|(door, calls)| Some(format!("{} {:.4}", word(door), (*calls)?)));
    let note = format!("{}; {}", SMALL.title(), each.collect::<Vec<_>>().join(", "));
    most.map(|most| (most, note)).ok_or_else(|| {
        "could not be measured: this system does not let a program count calls of a function (perf_event_open(2))"
            .into()
    })
}

fn row((who, door): Server, load: Shape, images: &Images) -> Row {
    let cipher = if who == Who::Plain { NULL_CIPHER } else { "aes-xts-plain64" };
    Row {
        front: match door {
            Door::VhostUser => "vhost-user",
            Door::Nbd => "nbd",
            Door::Fuse => "fuse",
            Door::FuseUring => "fuse-uring",
        },
        cipher: Some(cipher.into()),
        // Checked before anything is measured.
        sha256: Some(images.sha256.clone()),
        server: Some(who.program().into()),
        generator: Some(if door == Door::VhostUser { "libblkio's driver" } else { "fio" }.into()),
        ..Row::new(name((who, door), load), load)
    }
}

fn name((who, door): Server, load: Shape) -> String {
    format!("{}, {}, {}", who.program(), word(&door), load.title())
}

impl Door {
    fn is_mount(self) -> bool {
        matches!(self, Self::Fuse | Self::FuseUring)
    }

    /// Why this machine has no such front.
    fn missing(self) -> Option<String> {
        if !self.is_mount() {
            return None;
        }
        let is_on = || fs::read_to_string(FUSE_URING).is_ok_and(|it| it.trim() == "Y");
        if self == Self::FuseUring && !is_on() {
            return Some(format!("{FUSE_URING} is not Y (echo 1 into it, as root)"));
        }
        match File::options().read(true).write(true).open(FUSE_DEVICE) {
            Err(error) => Some(format!("{FUSE_DEVICE} cannot be used ({error})")),
            Ok(_) if rustix::process::geteuid().is_root() || programs::find(FUSE_HELPER).is_some() => None,
            Ok(_) => Some(format!("{FUSE_HELPER} (package fuse3) is not installed")),
        }
    }
}

impl Who {
    fn program(self) -> &'static str {
        match self {
            Self::Ours => "cryptline",
            Self::Plain => "cryptline-plain",
            Self::Qsd => "qsd",
        }
    }
}

/// The command line of a server, see [`programs::words`]. The page cache is as qemu has it.
fn line((who, door): Server) -> String {
    if who == Who::Qsd {
        let export = match door {
            Door::VhostUser => "type=vhost-user-blk,addr.type=unix,addr.path={place,}",
            _ => "type=fuse,mountpoint={place,}",
        };
        return format!(
            "{QSD} --object secret,id=key,file={{key,}} --blockdev driver=file,node-name=file,filename={{luks1,}} \
             --blockdev driver=luks,node-name=disk,key-secret=key,file=file \
             --export {export},id=export,node-name=disk,writable=on"
        );
    }
    let [verb, point] = match door {
        Door::VhostUser => ["vhost-user --socket-path={place}", ""],
        Door::Nbd => ["serve --unix={place}", ""],
        Door::Fuse => ["mount --foreground", "{place}"],
        Door::FuseUring => ["mount --foreground --fuse-uring", "{place}"],
    };
    let target = match who {
        // Any key size: the null cipher has no key.
        Who::Plain => "--type=plain --cipher=cipher_null-ecb --key-size=256 {plain}",
        _ => "--key-file={key} {luks2}",
    };
    format!("cryptline {verb} --exit-with-parent --direct=off {target} {point}")
}

impl Bench<'_> {
    /// Why a server cannot take part.
    fn missing(&self, (who, door): Server) -> Option<String> {
        if !self.args.fronts.contains(&door) {
            return Some("it was left out by --fronts".into());
        }
        let programs: &Programs = &self.setting.programs;
        let qsd = (who == Who::Qsd).then(|| programs.missing(QSD)).flatten();
        let fio = (door != Door::VhostUser).then(|| programs.missing("fio")).flatten();
        qsd.or(fio).or_else(|| door.missing())
    }

    /// Each server gives the bytes that the images were made of, all of them.
    fn check_contents(&self, ways: &[(Shape, Server)]) -> Result<()> {
        let servers = unique(ways.iter().map(|(_, server)| *server));
        let progress = progress(servers.len());
        for server in servers {
            progress.set_message(format!("checking {} over {}", server.0.program(), word(&server.1)));
            let (place, process) = self.start(server)?;
            process.under(|| self.check(server.1, &place))?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(())
    }

    fn check(&self, door: Door, place: &Path) -> Result<()> {
        let images = &self.setting.images;
        let is_right = |size: u64| {
            if size == images.size { Ok(()) } else { fail!("the disk has {size} bytes and not {}", images.size) }
        };
        if door == Door::VhostUser {
            let late = Instant::now() + PATIENCE + Duration::from_secs(images.size / RATE_MIN);
            let shape = Shape { block: PIECE, depth: 1, ..LARGE };
            let mut guest = Guest::connect(place, shape, images.contents, late)?;
            is_right(guest.size())?;
            let offsets = (0..images.size).step_by(PIECE as usize);
            return read_all(&mut guest, 1, offsets, |guest, slot| guest.compare_whole(slot));
        }
        let gate = open(door, place)?;
        is_right(gate.geometry().size)?;
        if sha256_of(&gate, 1 << 20)? != images.sha256 {
            fail!("the server gave wrong data");
        }
        Ok(())
    }

    /// One server at one load.
    fn turn(&self, server: Server, load: Shape, time: Duration, run: u32) -> Result<crate::report::Sample> {
        let (place, process) = self.start(server)?;
        let job = self.setting.job(load, time, u64::from(run) + 1);
        let late = Instant::now() + job.warm_up + job.time + PATIENCE;
        let contents = self.setting.images.contents;
        process.turn(|| match server.1 {
            Door::VhostUser => load::drive(&job, |_| Guest::connect(&place, load, contents, late)),
            Door::Nbd => fio::load(&self.setting, &Target::Nbd(place.clone(), ""), &job),
            Door::Fuse | Door::FuseUring => fio::load(&self.setting, &Target::File(place.clone()), &job),
        })
    }

    /// Where a server is to be reached, and it.
    fn start(&self, server: Server) -> Result<(PathBuf, Process)> {
        let (who, door) = server;
        let place = self.setting.path(if door.is_mount() { "disk" } else { SOCKET });
        let left = if door.is_mount() {
            File::create(&place).of(place.display())?;
            Left::Mount(place.clone())
        } else {
            Left::Socket(place.clone())
        };
        let command = self.setting.command(&line(server), |name| match name {
            "place" => place.clone().into(),
            other => OsString::from(other),
        });
        let ready = || {
            if !door.is_mount() {
                return UnixStream::connect(&place).map(drop).of("not yet");
            }
            // Before it is mounted over, the file is empty.
            match fs::metadata(&place) {
                Ok(found) if found.len() == self.setting.images.size => Ok(()),
                _ => fail!("nothing is mounted"),
            }
        };
        let name = format!("{}, {}", who.program(), word(&door));
        let process = self.setting.start(self.setting.pins.map(|pins| pins.server), &name, command, left, ready)?;
        Ok((place, process))
    }

    fn notes(&self) -> Vec<String> {
        let images = &self.setting.images;
        vec![
            format!(
                "cryptline serves LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-storage-daemon LUKS1 (512-byte sectors), which is all it has; cryptline-plain is the null cipher over the plain file. {} of clear disk, the same bytes for all, through the page cache.",
                size::human(images.size)
            ),
            format!("Before, every server gave all bytes that were written, SHA-256 {}.", images.sha256),
            "vhost-user: libblkio's driver in this program, one virtqueue in shared memory, event indices, asleep until it is called; as a virtual machine, without its exits; the first and last 8 bytes of each read are compared. nbd: fio with libnbd, one connection. fuse: fio with io_uring and O_DIRECT on the file of the mount; fuse-uring: the same, and the server's requests come through io_uring too.".into(),
            "Allocations are counted in servers inside this process: calls that take memory, of all threads of the server, while 4096 reads of 4 KiB are served.".into(),
            self.setting.programs.versions(&["fio", QSD]),
        ]
    }
}

/// A server's disk as the library opens it.
fn open(door: Door, place: &Path) -> Result<cryptline_engine::Gate> {
    let open = match door {
        Door::Nbd => Open::new(Target::Nbd(place.to_owned(), "").uri()),
        _ => Open::new(place).direct(DirectMode::On),
    };
    Ok(open.read_only(true).base()?.0)
}

/// Reads at each of `offsets`, `depth` at a time, until all have ended; `look`s at each.
fn read_all<T: Transport>(
    client: &mut T,
    depth: u32,
    offsets: impl IntoIterator<Item = u64>,
    look: impl Fn(&T, usize) -> Result<()>,
) -> Result<()> {
    let depth = depth as usize;
    let mut offsets = offsets.into_iter().fuse();
    let mut free: Vec<usize> = (0..depth).collect();
    let mut ended = Vec::with_capacity(depth);
    loop {
        while let Some(slot) = free.pop() {
            let Some(offset) = offsets.next() else {
                free.push(slot);
                break;
            };
            if client.submit(slot, offset)? {
                look(client, slot)?;
                free.push(slot);
            }
        }
        if free.len() == depth {
            return Ok(());
        }
        client.collect(true, &mut ended)?;
        for &slot in &ended {
            look(client, slot)?;
        }
        free.append(&mut ended);
    }
}
