//! `bench doors`: what each front costs, and what those of qemu-storage-daemon do with the same load.
//!
//! ```text
//! servers      who serves what over which front, and by which command line
//! client       a client for each front, the same for every server; what it reads is compared
//! turns        a server's turn: checked, or loaded
//! allocations  calls of the allocator for a request, counted in servers inside this process
//! summary      tables, plots, figures
//! ```
//!
//! Every server must give the clear text, all of it, before anything is measured. While it is measured,
//! both ends of each read are compared, so nobody is fast with wrong data.
//!
//! One server runs at a time. Turns are short and their order rotates, so whatever else the machine does
//! meets all alike.

mod allocations;
mod client;
mod servers;
mod summary;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cryptline::luks::format::Version;
use cryptline::size;

use crate::Error;
use crate::foreign::Programs;
use crate::images::{FOLDER, Images, private_folder};
use crate::output::Output;
use crate::process::Stop;
use crate::progress::Progress;
use crate::report::{Direction, Pattern, Report, Shape};
use crate::runner::{self, Group, unique};
use crate::setting::{self, Setting};
use servers::{Door, Server};
use turns::Turns;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench doors                                   everything, in about a minute
  cryptline bench doors --fronts vhost-user --rounds 9    one front, for longer
  cryptline bench doors --fronts fuse,fuse-uring          what io_uring does for a mount
  cryptline bench doors --size 16M --rounds 1 --seconds 0.02    only to see that it works
  cryptline bench doors --json doors.json --html doors.html

Serves a LUKS2 image by cryptline and a LUKS1 image by qemu-storage-daemon, over vhost-user-blk and
FUSE, and gives both the same reads by the same client in turns. Compares vhost-user also with the
plain disk and with NBD, and with --fronts fuse,fuse-uring a mount with one whose requests come
through io_uring. All must give the same bytes first. Three images of --size are made in --dir.

Needs the Debian packages qemu-system-common and util-linux, and /dev/fuse; for fuse-uring, Linux
6.14 and, as root, echo 1 >/sys/module/fuse/parameters/enable_uring. What is missing is named, and
its figures have no value. The JSON is described in docs/bench-json.md.")]
pub struct DoorsArgs {
    /// Size of the clear disk
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse_disk)]
    pub size: u64,

    /// Folder for the images, sockets and mounts; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,

    /// How often each server has its turn at each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,

    /// How long each turn takes
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub seconds: f64,

    /// Fronts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FRONT", default_values_t = [Door::VhostUser, Door::Nbd, Door::Fuse])]
    pub fronts: Vec<Door>,

    /// Let servers and clients run on any processor, not each on one of its own
    #[arg(long)]
    pub no_pin: bool,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// The loads.
pub const SMALL: Shape = Shape::new(Direction::Read, Pattern::Random, 4096, 32);
pub const LARGE: Shape = Shape::new(Direction::Read, Pattern::Sequential, 128 << 10, 8);
pub const ONE: Shape = Shape::new(Direction::Read, Pattern::Random, 4096, 1);
pub const HUGE: Shape = Shape::new(Direction::Read, Pattern::Sequential, 1 << 20, 4);

/// Servers that are compared with each other under a load.
pub struct Contest {
    pub load: Shape,
    pub servers: Vec<Server>,
}

/// All there is to compare.
fn contests() -> [Contest; 5] {
    use Door::{Fuse, FuseUring, Nbd, VhostUser};
    use Server::{Ours, Plain, Qsd};
    let contest = |load, servers: &[Server]| Contest { load, servers: servers.to_vec() };
    let guests = [Ours(VhostUser), Plain(VhostUser), Qsd(VhostUser)];
    let files = [Ours(Fuse), Ours(FuseUring), Qsd(Fuse)];
    [
        contest(SMALL, &guests),
        contest(LARGE, &guests),
        contest(ONE, &[Ours(VhostUser), Ours(Nbd)]),
        contest(SMALL, &files),
        contest(HUGE, &files),
    ]
}

/// Measures.
pub fn measure(args: &DoorsArgs) -> Result<Report, Error> {
    let args = &args.checked()?;
    let programs = Programs::find()?;
    let pins = setting::pins(&programs, args.no_pin)?;
    let stop = Stop::watch()?;
    let folder = private_folder(&args.dir, "cryptline-doors-")?;
    let images = Images::make(folder.path(), args.size, &[Version::Luks1, Version::Luks2])?;
    let mut turns =
        Turns { args, setting: Setting::new((&images, &programs), pins, folder.path(), &stop), missing: Vec::new() };
    let contests = turns.possible(contests());
    check_contents(&turns, &contests)?;

    let mut report = Report::new("doors", "The fronts of cryptline, and those of its peer");
    report = report.of(args.rounds, args.seconds);
    report.rows = summary::rows(&contests, &images);
    let ways: Vec<(Shape, Server)> =
        contests.iter().flat_map(|one| one.servers.iter().map(move |&server| (one.load, server))).collect();
    runner::run(&mut report, &groups(&contests), |rows, turn| {
        let (load, server) = ways[turn.way];
        rows[turn.way].take(turns.turn(server, load, turn.run)?);
        Ok(())
    })?;
    stop.check()?;
    let allocations = allocations::count(&turns)?;
    summary::fill(&mut report, &turns, &contests, &allocations);
    Ok(report)
}

fn check_contents(turns: &Turns<'_>, contests: &[Contest]) -> Result<(), Error> {
    let servers = contests.iter().flat_map(|one| one.servers.clone());
    let servers = unique(servers.collect());
    let progress = Progress::new(servers.len());
    for server in servers {
        progress.now(format!("checking {server}"));
        turns.check(server)?;
        progress.step();
    }
    Ok(())
}

/// A group for each contest; a way is the number of its row.
fn groups(contests: &[Contest]) -> Vec<Group> {
    let mut first = 0;
    let group = |contest: &Contest| {
        let ways = first..first + contest.servers.len();
        first = ways.end;
        Group::once(contest.load.title(), ways)
    };
    contests.iter().map(group).collect()
}

impl DoorsArgs {
    /// These, without doubles, if they make sense.
    fn checked(&self) -> Result<Self, Error> {
        runner::seconds(self.seconds)?;
        setting::check_size(self.size)?;
        let mut args = self.clone();
        args.fronts = unique(args.fronts);
        Ok(args)
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
