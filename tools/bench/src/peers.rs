//! The same load on cryptline and on the other user-space servers of encrypted disks, by fio over NBD.
//!
//! Every server must give the same bytes before anything is measured: SHA-256 of the whole clear disk. After the last write
//! the encrypted servers must still agree, and so must the plain ones.
//!
//! One server runs at a time and has the images for itself. Turns are short and their order rotates, so whatever else the
//! machine does meets all alike.

use std::ffi::OsString;

use clap::Args;
use clap::builder::PossibleValuesParser;
use cryptline::luks::format::Version;
use cryptline::{Open, size};

use crate::contents::sha256_of;
use crate::error::{Of as _, Result, fail};
use crate::fio::{self, Target};
use crate::images::SOCKET;
use crate::plan::{Plan, RunArgs, progress, unique};
use crate::process::{Left, Process};
use crate::report::{Comparison, Direction, Pattern, Quantity, Report, Row, Shape};
use crate::setting::{ServerArgs, Setting};

/// A server.
#[derive(Debug)]
struct Server {
    name: &'static str,
    serves: Serves,
    /// The command line, see [`crate::programs::words`].
    line: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Luks1,
    Plain,
    Nothing,
}

const fn server(name: &'static str, serves: Serves, line: &'static str) -> Server {
    Server { name, serves, line }
}

const SERVERS: [Server; 12] = [
    server(
        "cryptline",
        Serves::Luks1,
        "cryptline serve --exit-with-parent --direct=off --unix={socket} --key-file={key} {luks1}",
    ),
    server(
        "cryptline-asleep",
        Serves::Luks1,
        "cryptline serve --exit-with-parent --direct=off --poll-us=0 --unix={socket} --key-file={key} {luks1}",
    ),
    // Any key size: the null cipher has no key.
    server(
        "cryptline-plain",
        Serves::Plain,
        "cryptline serve --exit-with-parent --direct=off --unix={socket} --type=plain --cipher=cipher_null-ecb --key-size=256 {plain}",
    ),
    server(
        "qemu-nbd",
        Serves::Luks1,
        "qemu-nbd --persistent --shared=4 --socket={socket} --object secret,id=key,file={key,} --image-opts driver=luks,key-secret=key,file.driver=file,file.filename={luks1,}",
    ),
    server("qemu-nbd-plain", Serves::Plain, "qemu-nbd --persistent --shared=4 --socket={socket} --format=raw {plain}"),
    server(
        "qsd",
        Serves::Luks1,
        "qemu-storage-daemon --object secret,id=key,file={key,} --blockdev driver=file,node-name=file,filename={luks1,} --blockdev driver=luks,node-name=disk,key-secret=key,file=file --nbd-server max-connections=4,addr.type=unix,addr.path={socket,} --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on",
    ),
    server(
        "qsd-plain",
        Serves::Plain,
        "qemu-storage-daemon --blockdev driver=file,node-name=disk,filename={plain,} --nbd-server max-connections=4,addr.type=unix,addr.path={socket,} --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on",
    ),
    server(
        "nbdkit",
        Serves::Luks1,
        "nbdkit --foreground --exit-with-parent --unix={socket} --filter=luks file file={luks1} passphrase=+{key}",
    ),
    server("nbdkit-plain", Serves::Plain, "nbdkit --foreground --exit-with-parent --unix={socket} file file={plain}"),
    server(
        "cryptline-over-nbd",
        Serves::Luks1,
        "cryptline serve --exit-with-parent --unix={socket} --key-file={key} {below-uri}",
    ),
    server(
        "nbdkit-over-nbd",
        Serves::Luks1,
        "nbdkit --foreground --exit-with-parent --unix={socket} --filter=luks nbd socket={below} passphrase=+{key}",
    ),
    // Touches no disk: what fio reaches there is its own limit.
    server("nbdkit-null", Serves::Nothing, "nbdkit --foreground --exit-with-parent --unix={socket} null size={size}"),
];

/// Who serves the encrypted image to a server that lies over it: of the same file as everybody else, so that all can be
/// compared byte for byte. It is in the page cache; nbdkit's memory plugin would begin empty.
const BELOW: &str = "nbdkit --foreground --exit-with-parent --unix={below} file file={luks1}";

/// The loads. Reads first: they find the images as they were made.
const LOADS: [(&str, Shape); 6] = [
    ("4k-randread-qd32", Shape::new(Direction::Read, Pattern::Random, 4096, 32)),
    ("128k-randread-qd16", Shape::new(Direction::Read, Pattern::Random, 128 << 10, 16)),
    ("4k-randread-qd1", Shape::new(Direction::Read, Pattern::Random, 4096, 1)),
    ("1m-read-qd4", Shape::new(Direction::Read, Pattern::Sequential, 1 << 20, 4)),
    ("4k-randwrite-qd32", Shape::new(Direction::Write, Pattern::Random, 4096, 32)),
    ("1m-write-qd4", Shape::new(Direction::Write, Pattern::Sequential, 1 << 20, 4)),
];

/// Figures: the name, the load, whose number, of whom the best is compared, and which number.
#[rustfmt::skip]
const COMPARISONS: [(&str, &str, &str, &[&str], Quantity); 18] = {
    const SPEED: Quantity = Quantity::Speed;
    const PEERS: &[&str] = &["qemu-nbd", "qsd", "nbdkit"];
    [
        ("encrypted_over_plain_nbd_4k", "4k-randread-qd32", "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_128k", "128k-randread-qd16", "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_1m", "1m-read-qd4", "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_1m_write", "1m-write-qd4", "cryptline", &["cryptline-plain"], SPEED),
        ("over_best_peer_4k_randread", "4k-randread-qd32", "cryptline", PEERS, SPEED),
        ("p99_over_best_peer_4k_randread", "4k-randread-qd32", "cryptline", PEERS, Quantity::P99),
        ("over_qemu_1m_read", "1m-read-qd4", "cryptline", &["qemu-nbd", "qsd"], SPEED),
        ("over_nbdkit_luks_4k_qd1", "4k-randread-qd1", "cryptline", &["nbdkit"], SPEED),
        ("over_nbdkit_plain_4k_qd1", "4k-randread-qd1", "cryptline", &["nbdkit-plain"], SPEED),
        ("p50_over_nbdkit_plain_4k_qd1", "4k-randread-qd1", "cryptline", &["nbdkit-plain"], Quantity::P50),
        // What looking out costs.
        ("cpu_over_nbdkit_luks_4k_qd1", "4k-randread-qd1", "cryptline", &["nbdkit"], Quantity::ProcessorTime),
        ("cpu_asleep_over_nbdkit_luks_4k_qd1", "4k-randread-qd1", "cryptline-asleep", &["nbdkit"], Quantity::ProcessorTime),
        ("over_nbdkit_plain_128k", "128k-randread-qd16", "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_1m", "1m-read-qd4", "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_1m_write", "1m-write-qd4", "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_4k_randwrite", "4k-randwrite-qd32", "cryptline", &["nbdkit-plain"], SPEED),
        ("nbd_chain_over_plain_128k", "128k-randread-qd16", "cryptline-over-nbd", &["nbdkit-plain"], SPEED),
        ("nbd_chain_over_nbdkit_luks_4k_qd32", "4k-randread-qd32", "cryptline-over-nbd", &["nbdkit-over-nbd"], SPEED),
    ]
};

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench peers                                    everything, in about five minutes
  cryptline-bench peers --jobs 4k-randread-qd32 --rounds 9

Serves one LUKS1 image by cryptline, qemu-nbd, qemu-storage-daemon and nbdkit's luks filter, and its clear text by their
plain versions, each over a Unix socket through the page cache, and gives each the same load by fio in turns. The
-over-nbd servers have the image from another nbdkit. nbdkit-null answers at once: what fio reaches there is its own
limit. All must give the same SHA-256 first. Two images of --size are made in --dir.

Needs the Debian packages fio, nbdkit, qemu-utils, qemu-system-common and util-linux; --servers leaves out what is not
there.")]
pub struct PeersArgs {
    #[command(flatten)]
    of_servers: ServerArgs,

    /// Loads [default: all]
    #[arg(long, value_delimiter = ',', value_name = "JOB", value_parser = PossibleValuesParser::new(LOADS.map(|it| it.0)))]
    jobs: Vec<String>,

    /// Servers [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SERVER", value_parser = PossibleValuesParser::new(SERVERS.map(|it| it.name)))]
    servers: Vec<String>,
}

/// What all turns share.
struct Bench {
    setting: Setting,
    servers: Vec<&'static Server>,
}

/// A server in its turn.
struct Running {
    process: Process,
    target: Target,
    /// Whom it lies over; ended after it.
    _below: Option<Process>,
}

/// Measures.
pub fn measure(args: &PeersArgs, runs: RunArgs) -> Result<Report> {
    let runs = runs.or(512 << 20, 5, 0.3)?;
    let is_asked = |asked: &[String], name: &str| asked.is_empty() || asked.iter().any(|one| one == name);
    let servers: Vec<&Server> = SERVERS.iter().filter(|it| is_asked(&args.servers, it.name)).collect();
    let loads: Vec<_> = LOADS.iter().filter(|it| is_asked(&args.jobs, it.0)).collect();
    let setting = Setting::of_servers(&args.of_servers, runs.size, &[Version::Luks1])?;
    let needed = servers.iter().flat_map(|server| server.programs()).chain(["fio"]);
    let missing: Vec<_> = unique(needed).into_iter().filter_map(|name| setting.programs.missing(name)).collect();
    if !missing.is_empty() {
        fail!("{}; install it, or leave it out by --servers", missing.join(", "));
    }
    let bench = Bench { setting, servers };
    bench.check_contents()?;
    let rows =
        loads.iter().flat_map(|(_, shape)| bench.servers.iter().map(|server| bench.row(server, *shape))).collect();
    let plan = Plan {
        bench: "peers",
        title: "cryptline and its peers over NBD",
        medium: String::new(),
        runs,
        rows,
        notes: bench.notes(),
    };
    let mut report = plan.run(|row, turn| {
        let running = bench.start(bench.servers[turn.row % bench.servers.len()])?;
        let job = bench.setting.job(row.shape, runs.time, u64::from(turn.run) + 1);
        running.process.turn(|| fio::load(&bench.setting, &running.target, &job))
    })?;
    bench.check_agreement()?;
    bench.setting.describe(&mut report);
    for (name, load, ours, others, of) in COMPARISONS {
        let shape = LOADS.iter().find(|it| it.0 == load).map_or(Shape::default(), |it| it.1);
        let needs = format!("needs {ours}, {} at {load}", others.join(", "));
        let others = others.iter().map(|other| self::name(other, shape)).collect();
        let pairs = vec![(self::name(ours, shape), others)];
        report.compare(&Comparison { name, of, pairs, needs, ..Comparison::default() });
    }
    Ok(report)
}

fn name(server: &str, load: Shape) -> String {
    format!("{server}, {}", load.title())
}

impl Server {
    /// Whether it has its image from another server.
    fn is_over_nbd(&self) -> bool {
        self.line.contains("{below")
    }

    fn programs(&self) -> Vec<&'static str> {
        let own = self.line.split(' ').next().unwrap_or_default();
        if self.is_over_nbd() { vec![own, "nbdkit"] } else { vec![own] }
    }
}

impl Bench {
    fn row(&self, server: &Server, shape: Shape) -> Row {
        Row {
            front: "nbd",
            cipher: (server.serves == Serves::Luks1).then(|| "aes-xts-plain64".into()),
            // Checked before anything is measured.
            sha256: (server.serves != Serves::Nothing).then(|| self.setting.images.sha256.clone()),
            server: Some(server.name.into()),
            generator: Some("fio".into()),
            ..Row::new(name(server.name, shape), shape)
        }
    }

    /// Every server gives the bytes that the images were made of.
    fn check_contents(&self) -> Result<()> {
        let expected = &self.setting.images.sha256;
        let progress = progress(self.servers.len());
        for server in self.with_images() {
            progress.set_message(format!("checking {}", server.name));
            let sum = self.sha256(server)?;
            if sum != *expected {
                fail!(
                    "{} gives other bytes than were written (SHA-256 {sum}, not {expected}); nothing was measured",
                    server.name
                );
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// After all writes, servers of the same image still give the same bytes.
    fn check_agreement(&self) -> Result<()> {
        for serves in [Serves::Luks1, Serves::Plain] {
            let mut first = None;
            for server in self.with_images().filter(|server| server.serves == serves) {
                let sum = self.sha256(server)?;
                let (other, expected) = first.get_or_insert((server.name, sum.clone()));
                if sum != *expected {
                    fail!(
                        "{} and {other} read different bytes from the same image after the writes; no number of this run is of any worth",
                        server.name
                    );
                }
            }
        }
        Ok(())
    }

    /// Of all that a server gives.
    fn sha256(&self, server: &Server) -> Result<String> {
        let running = self.start(server)?;
        running.process.under(|| {
            let (gate, _) = Open::new(running.target.uri()).read_only(true).base()?;
            sha256_of(&gate, 1 << 20)
        })
    }

    fn start(&self, server: &Server) -> Result<Running> {
        let setting = &self.setting;
        let [socket, below] = [SOCKET, "below"].map(|name| setting.path(name));
        let command = |line| {
            setting.command(line, |name| match name {
                "below" => below.clone().into(),
                "below-uri" => Target::Nbd(below.clone(), "").uri().into(),
                other => OsString::from(other),
            })
        };
        let start = |cpu, name: &str, command, target: &Target, socket: &std::path::Path| {
            let ready = || Open::new(target.uri()).read_only(true).base().map(drop).of("not yet");
            setting.start(cpu, name, command, Left::Socket(socket.to_owned()), ready)
        };
        let below_it = server.is_over_nbd().then(|| {
            let name = format!("the server below {}", server.name);
            let target = Target::Nbd(below.clone(), "");
            start(setting.pins.map(|pins| pins.below), &name, command(BELOW), &target, &below)
        });
        let below_it = below_it.transpose()?;
        // qemu-storage-daemon has no export without a name.
        let target = Target::Nbd(socket.clone(), if server.name.starts_with("qsd") { "disk" } else { "" });
        let cpu = setting.pins.map(|pins| pins.server);
        let process = start(cpu, server.name, command(server.line), &target, &socket)?;
        Ok(Running { process, target, _below: below_it })
    }

    fn with_images(&self) -> impl Iterator<Item = &'static Server> {
        self.servers.iter().copied().filter(|server| server.serves != Serves::Nothing)
    }

    fn notes(&self) -> Vec<String> {
        let needed = unique(self.servers.iter().flat_map(|server| server.programs()).chain(["fio"]));
        vec![
            format!(
                "LUKS1, aes-xts-plain64, 512-bit key, 512-byte sectors, {} of clear disk; the plain servers have the same clear text in a file of its own. All go through the page cache.",
                size::human(self.setting.images.size)
            ),
            format!(
                "Before, each server gave the SHA-256 of what was written, {}. After the last write all encrypted servers read the same, and so did all plain ones.",
                self.setting.images.sha256
            ),
            "One server runs at a time. Each has a turn at each load in each round, and the order changes. fio uses its nbd engine (libnbd, structured replies, one connection).".into(),
            "nbdkit-null is nbdkit's null plugin: what comes near its speed is the limit of fio and the socket, not that of a server.".into(),
            "cryptline-plain is the null cipher over the plain file: cryptline serves no file as it is, and this touches no byte more.".into(),
            self.setting.programs.versions(&needed),
        ]
    }
}
