//! The same load on cryptline and on the other user-space servers of encrypted disks, by fio over NBD.
//!
//! Every server must give the same bytes before anything is measured: SHA-256 of the whole clear disk. After the last write
//! the encrypted servers must still agree, and so must the plain ones.
//!
//! Turns are short and their order rotates, so whatever else the machine does meets all alike.

use clap::Args;
use clap::builder::PossibleValuesParser;
use cryptline::luks::format::LuksVersion;
use cryptline::size;

use crate::bare::BARE;
use crate::error::{Result, fail};
use crate::plan::{Plan, RunArgs, unique};
use crate::report::{DataDirection, LoadShape, Pattern, PlanReport, Quantity};
use crate::servers::{Contest, Door, Model, ServedContents, ServerRow, check_contents, compare, compare_with_models};
use crate::setting::{ServerPlanArgs, Setting};

/// A peer's command line for the encrypted image.
pub const NBDKIT: &str =
    "nbdkit --foreground --exit-with-parent --unix={socket} --filter=luks file file={luks1} passphrase=+{key}";

/// A peer's command line for the encrypted image.
pub const QEMU_NBD: &str = "qemu-nbd --persistent --shared=4 --socket={socket} --object secret,id=key,file={key,} --image-opts driver=luks,key-secret=key,file.driver=file,file.filename={luks1,}";

#[rustfmt::skip]
const SERVERS: [ServerRow; 13] = [
    ServerRow::new("cryptline", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --direct=off --unix={socket} --key-file={key} {luks1}"),
    ServerRow::new("cryptline-asleep", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --direct=off --poll-us=0 --unix={socket} --key-file={key} {luks1}"),
    // Any key size: the null cipher has no key.
    ServerRow::new("cryptline-plain", Door::Nbd, ServedContents::Plain, "cryptline serve --exit-with-parent --direct=off --unix={socket} --type=plain --cipher=cipher_null-ecb --key-size=256 {plain}"),
    ServerRow::new("qemu-nbd", Door::Nbd, ServedContents::Luks, QEMU_NBD),
    ServerRow::new("qemu-nbd-plain", Door::Nbd, ServedContents::Plain, "qemu-nbd --persistent --shared=4 --socket={socket} --format=raw {plain}"),
    ServerRow::new("qsd", Door::Nbd, ServedContents::Luks, "qemu-storage-daemon --object secret,id=key,file={key,} --blockdev driver=file,node-name=file,filename={luks1,} --blockdev driver=luks,node-name=disk,key-secret=key,file=file --nbd-server max-connections=4,addr.type=unix,addr.path={socket,} --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on"),
    ServerRow::new("qsd-plain", Door::Nbd, ServedContents::Plain, "qemu-storage-daemon --blockdev driver=file,node-name=disk,filename={plain,} --nbd-server max-connections=4,addr.type=unix,addr.path={socket,} --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on"),
    ServerRow::new("nbdkit", Door::Nbd, ServedContents::Luks, NBDKIT),
    ServerRow::new("nbdkit-plain", Door::Nbd, ServedContents::Plain, "nbdkit --foreground --exit-with-parent --unix={socket} file file={plain}"),
    ServerRow::new("cryptline-over-nbd", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --unix={socket} --key-file={key} {below-uri}"),
    ServerRow::new("nbdkit-over-nbd", Door::Nbd, ServedContents::Luks, "nbdkit --foreground --exit-with-parent --unix={socket} --filter=luks nbd socket={below} passphrase=+{key}"),
    // Touches no disk: what fio reaches there is its own limit.
    ServerRow::new("nbdkit-null", Door::Nbd, ServedContents::Nothing, "nbdkit --foreground --exit-with-parent --unix={socket} null size={size}"),
    // LUKS1 has these cipher sectors.
    ServerRow::bare(512),
];

const SMALL: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 32);
const LARGE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 128 << 10, 16);
const ONE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 1);
const STREAM: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 1 << 20, 4);
const SMALL_WRITE: LoadShape = LoadShape::new(DataDirection::Write, Pattern::Random, 4096, 32);
const STREAM_WRITE: LoadShape = LoadShape::new(DataDirection::Write, Pattern::Sequential, 1 << 20, 4);
/// The loads. Reads first: they find the images as they were made.
const LOADS: [(&str, LoadShape); 6] = [
    ("4k-randread-qd32", SMALL),
    ("128k-randread-qd16", LARGE),
    ("4k-randread-qd1", ONE),
    ("1m-read-qd4", STREAM),
    ("4k-randwrite-qd32", SMALL_WRITE),
    ("1m-write-qd4", STREAM_WRITE),
];

#[rustfmt::skip]
const CONTESTS: [Contest; 18] = {
    const SPEED: Quantity = Quantity::Speed;
    const PEERS: &[&str] = &["qemu-nbd", "qsd", "nbdkit"];
    [
        ("encrypted_over_plain_nbd_4k", SMALL, "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_128k", LARGE, "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_1m", STREAM, "cryptline", &["cryptline-plain"], SPEED),
        ("encrypted_over_plain_nbd_1m_write", STREAM_WRITE, "cryptline", &["cryptline-plain"], SPEED),
        ("over_best_peer_4k_randread", SMALL, "cryptline", PEERS, SPEED),
        ("p99_over_best_peer_4k_randread", SMALL, "cryptline", PEERS, Quantity::P99),
        ("over_qemu_1m_read", STREAM, "cryptline", &["qemu-nbd", "qsd"], SPEED),
        ("over_nbdkit_luks_4k_qd1", ONE, "cryptline", &["nbdkit"], SPEED),
        ("over_nbdkit_plain_4k_qd1", ONE, "cryptline", &["nbdkit-plain"], SPEED),
        ("p50_over_nbdkit_plain_4k_qd1", ONE, "cryptline", &["nbdkit-plain"], Quantity::P50),
        // What looking out costs.
        ("cpu_over_nbdkit_luks_4k_qd1", ONE, "cryptline", &["nbdkit"], Quantity::ProcessorTime),
        ("cpu_asleep_over_nbdkit_luks_4k_qd1", ONE, "cryptline-asleep", &["nbdkit"], Quantity::ProcessorTime),
        ("over_nbdkit_plain_128k", LARGE, "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_1m", STREAM, "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_1m_write", STREAM_WRITE, "cryptline", &["nbdkit-plain"], SPEED),
        ("over_nbdkit_plain_4k_randwrite", SMALL_WRITE, "cryptline", &["nbdkit-plain"], SPEED),
        ("nbd_chain_over_plain_128k", LARGE, "cryptline-over-nbd", &["nbdkit-plain"], SPEED),
        ("nbd_chain_over_nbdkit_luks_4k_qd32", SMALL, "cryptline-over-nbd", &["nbdkit-over-nbd"], SPEED),
    ]
};

#[rustfmt::skip]
const MODELS: [Model; 6] = [
    ("of_model_nbd_4k_qd32", SMALL, "cryptline", "cryptline-plain"),
    ("of_model_nbd_4k_qd1", ONE, "cryptline", "cryptline-plain"),
    ("of_model_nbd_4k_write", SMALL_WRITE, "cryptline", "cryptline-plain"),
    ("of_model_nbd_128k", LARGE, "cryptline", "cryptline-plain"),
    ("of_model_nbd_1m_read", STREAM, "cryptline", "cryptline-plain"),
    ("of_model_nbd_1m_write", STREAM_WRITE, "cryptline", "cryptline-plain"),
];
/// Rates that fio reaches by itself, shown beside the smallest and the largest requests.
const LIMITS: [(&str, LoadShape); 3] = [("nbdkit-null", SMALL), ("nbdkit-null", STREAM), ("nbdkit-null", STREAM_WRITE)];

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench peers                                    every figure, within five minutes
  cryptline-bench peers --rounds 9                         the same, for longer
  cryptline-bench peers --jobs 4k-randread-qd32            every server under one load

Serves one LUKS1 image by cryptline, qemu-nbd, qemu-storage-daemon and nbdkit's luks filter, and its clear text by their \
plain versions, each over a Unix socket through the page cache, and gives each the same load by fio in turns. The \
-over-nbd servers have the image from another nbdkit. nbdkit-null answers at once: what fio reaches there is its own \
limit. bare-cipher is no server but the cipher alone, in memory. Without --jobs and --servers, a server has the loads that \
a figure needs; with one of them, all that are left. All must give the same SHA-256 first. Two images of --size are made in --dir.

Needs the Debian packages fio, nbdkit, qemu-utils, qemu-system-common and util-linux; --servers leaves out what is not \
there.")]
pub struct PeersArgs {
    #[command(flatten)]
    of_servers: ServerPlanArgs,

    /// Loads [default: all]
    #[arg(long, value_delimiter = ',', value_name = "JOB", value_parser = PossibleValuesParser::new(LOADS.map(|it| it.0)))]
    jobs: Vec<String>,

    /// Servers [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SERVER", value_parser = PossibleValuesParser::new(SERVERS.map(|it| it.name)))]
    servers: Vec<String>,
}

/// Measures.
pub fn measure(args: &PeersArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(512 << 20, 5, 0.3)?;
    let is_asked = |asked: &[String], name: &str| asked.is_empty() || asked.iter().any(|one| one == name);
    let servers: Vec<&ServerRow> = SERVERS.iter().filter(|it| is_asked(&args.servers, it.name)).collect();
    let is_chosen = |load: LoadShape, server: &ServerRow| {
        let is_asked_for = !args.jobs.is_empty() || !args.servers.is_empty();
        is_asked_for || is_needed(load, server.name)
    };
    let loads = LOADS.iter().filter(|it| is_asked(&args.jobs, it.0));
    let ways = loads.flat_map(|(_, load)| servers.iter().map(|server| (*load, *server)));
    let ways: Vec<(LoadShape, &ServerRow)> = ways.filter(|(load, server)| is_chosen(*load, server)).collect();
    let setting = &Setting::of_servers(&args.of_servers, runs.size, &[LuksVersion::Luks1])?;
    let needed = unique(servers.iter().flat_map(|server| server.programs()));
    let missing: Vec<_> = needed.iter().filter_map(|name| setting.programs.missing(name)).collect();
    if !missing.is_empty() {
        fail!("{}; install it, or leave it out by --servers", missing.join(", "));
    }
    let with_images: Vec<&ServerRow> = servers.iter().copied().filter(|server| server.has_image()).collect();
    check_contents(setting, with_images.iter().copied())?;
    let plan = Plan {
        bench: "peers",
        title: "cryptline and its peers over NBD",
        medium: String::new(),
        runs,
        rows: ways.iter().map(|(load, server)| server.row(*load, setting)).collect(),
        notes: notes(setting, &needed),
    };
    let mut report = plan.run(|row, turn| ways[turn.row].1.turn(setting, row.shape, runs.time, turn.run))?;
    check_agreement(setting, &with_images)?;
    setting.describe(&mut report);
    let job = |load: LoadShape| LOADS.iter().find(|it| it.1 == load).map_or("", |it| it.0);
    compare_with_models(&mut report, &MODELS, |(_, load, ours, plain)| {
        format!("needs {ours}, {plain}, {BARE} at {}", job(*load))
    });
    compare(&mut report, &CONTESTS, |(_, load, ours, others, _)| {
        format!("needs {ours}, {} at {}", others.join(", "), job(*load))
    });
    Ok(report)
}

/// Tells if a figure needs a server under a load, or it is shown beside those.
fn is_needed(load: LoadShape, server: &str) -> bool {
    let by_contest = |(_, of, ours, others, _): &Contest| *of == load && (*ours == server || others.contains(&server));
    let by_model = |(_, of, ours, plain): &Model| *of == load && [*ours, *plain, BARE].contains(&server);
    CONTESTS.iter().any(by_contest) || MODELS.iter().any(by_model) || LIMITS.contains(&(server, load))
}

/// Verifies that servers of the same image still give the same bytes after all writes.
fn check_agreement(setting: &Setting, servers: &[&ServerRow]) -> Result<()> {
    for disk in [ServedContents::Luks, ServedContents::Plain] {
        let mut first = None;
        for server in servers.iter().filter(|server| server.disk == disk) {
            let sum = server.sha256(setting)?;
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

fn notes(setting: &Setting, needed: &[&str]) -> Vec<String> {
    vec![
        format!(
            "LUKS1, aes-xts-plain64, 512-bit key, 512-byte sectors, {} of clear disk; the plain servers have the same clear text in a file of its own. All go through the page cache.",
            size::human(setting.images.size)
        ),
        format!(
            "Before, each server gave the SHA-256 of what was written, {}. After the last write all encrypted servers read the same, and so did all plain ones.",
            setting.images.sha256
        ),
        "One server runs at a time. Each has a turn at each load in each round, and the order changes. fio uses its nbd engine (libnbd, structured replies, one connection).".into(),
        "bare-cipher is the cipher alone on the processor of the servers, in memory that was just copied from where no cache holds it, as a server finds its data: as much at a time as is in flight, 256 KiB at most.".into(),
        "nbdkit-null is nbdkit's null plugin: what comes near its speed is the limit of fio and the socket, not that of a server.".into(),
        "cryptline-plain is the null cipher over the plain file: cryptline serves no file as it is, and this touches no byte more.".into(),
        setting.programs.versions(needed),
    ]
}
