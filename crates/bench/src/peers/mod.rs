//! `bench peers`: the same load on cryptline and on the other user-space servers of encrypted disks.
//!
//! ```text
//! servers    who serves which image, and by which command line
//! generators the loads, and who makes them
//! comparisons  which numbers have a goal
//! turns      a server's turn: checked, or loaded by every generator
//! summary    tables, plots, figures
//! ```
//!
//! Every server must give the same bytes before anything is measured: SHA-256 of the whole clear
//! disk, and random reads with many in flight. After the last write the encrypted servers must still
//! agree, and so must the plain ones.
//!
//! One server runs at a time and has the images for itself. Turns are short and their order rotates,
//! so whatever else the machine does meets all alike.

mod comparisons;
mod generators;
mod servers;
mod summary;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use cryptline::luks::format::Version;
use cryptline::size;

use crate::Error;
use crate::foreign::Programs;
use crate::images::{self, FOLDER, Images, private_folder};
use crate::output::Output;
use crate::process::Stop;
use crate::progress::Progress;
use crate::report::Report;
use crate::runner::{self, Group, unique};
use crate::setting::{self, Setting};
use generators::{Generator, Load};
use servers::Server;
use turns::Turns;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench peers                                    everything, in about ten minutes
  cryptline bench peers --jobs 4k-randread-qd32 --generators lean --rounds 9
  cryptline bench peers --servers cryptline,cryptline-plain,null --json peers.json
  cryptline bench peers --dir /mnt/disk --size 4G --html peers.html

Serves one LUKS1 image by cryptline, qemu-nbd, qemu-storage-daemon and nbdkit's luks filter, and its
clear text by their plain versions, each over a Unix socket through the page cache, and gives each the
same load in turns: by fio, and by a lean client of this program's own over one connection and over
several. The -over-nbd servers have the image from another nbdkit. The null servers answer at once:
what a generator reaches there is its own limit, not that of a server. All must give the same SHA-256
first. Two images of --size are made in --dir.

Needs the Debian packages fio, nbdkit, qemu-utils, qemu-system-common and util-linux; --servers and
--generators leave out what is not there. The JSON is described in docs/bench-json.md.")]
pub struct PeersArgs {
    /// Size of the clear disk
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse_disk)]
    pub size: u64,

    /// Folder for the images and sockets; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Keep the images, and say where they are
    #[arg(long)]
    pub keep: bool,

    /// How often each server has its turn at each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,

    /// How long each turn takes
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub seconds: f64,

    /// Loads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "JOB", default_values_t = Load::ALL)]
    pub jobs: Vec<Load>,

    /// Servers
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SERVER", default_values_t = Server::value_variants().to_vec())]
    pub servers: Vec<Server>,

    /// Load generators
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GENERATOR", default_values_t = Generator::value_variants().to_vec())]
    pub generators: Vec<Generator>,

    /// Connections of the generator `lean-many`
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub connections: u32,

    /// Who runs the cipher in cryptline; see `cryptline serve` [default: as serve]
    #[arg(long, value_name = "WHO")]
    pub dispatch: Option<String>,

    /// Let servers and generators run on any processor, not each on one of its own
    #[arg(long)]
    pub no_pin: bool,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Measures.
pub fn measure(args: &PeersArgs) -> Result<Report, Error> {
    let args = &args.checked()?;
    let programs = Programs::find()?;
    servers::check_programs(&programs, &args.servers, &args.generators)?;
    let pins = setting::pins(&programs, args.no_pin)?;
    let stop = Stop::watch()?;
    let folder = private_folder(&args.dir, "cryptline-peers-")?;
    let images = Images::make(folder.path(), args.size, &[Version::Luks1])?;
    let setting = Setting::new((&images, &programs), pins, folder.path(), &stop);
    let turns = Turns { args, setting };
    let progress = Progress::new(args.servers.len());
    turns.check_contents(&progress)?;
    drop(progress);

    let mut report = Report::new("peers", "cryptline and its peers over NBD");
    report = report.of(args.rounds, args.seconds);
    report.rows = summary::rows(args, &images);
    // A way is a server under a load; each generator has a row of it.
    let servers = args.servers.len();
    let ways = |(index, load): (usize, &Load)| Group::once(load.title(), index * servers..(index + 1) * servers);
    let groups: Vec<Group> = args.jobs.iter().enumerate().map(ways).collect();
    runner::run(&mut report, &groups, |rows, turn| {
        let (load, server) = (args.jobs[turn.way / servers], args.servers[turn.way % servers]);
        let samples = turns.turn(server, load, turn.run)?;
        let rows = rows[turn.way * samples.len()..].iter_mut();
        rows.zip(samples).for_each(|(row, sample)| row.take(sample));
        Ok(())
    })?;
    turns.check_agreement()?;

    summary::fill(&mut report, &turns);
    if args.keep {
        let kept = folder.keep();
        report.notes.push(format!(
            "The images are in {}; the passphrase is in the file {:?} there.",
            kept.display(),
            images::KEY_FILE
        ));
    }
    Ok(report)
}

impl PeersArgs {
    /// These, without doubles, if they make sense.
    fn checked(&self) -> Result<Self, Error> {
        runner::seconds(self.seconds)?;
        setting::check_size(self.size)?;
        let mut args = self.clone();
        args.jobs = unique(args.jobs);
        args.servers = unique(args.servers);
        args.generators = unique(args.generators);
        Ok(args)
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
