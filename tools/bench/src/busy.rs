//! Latency on a machine whose processors are all in use: what the 2020 dm-devel thread is about.
//!
//! ```text
//! for each share of a processor          all, and 20 % and 50 % of one, as a pod has them
//!     for each server, in turns          cryptline by each mode, nbdkit, qemu-nbd
//!         busy processes ─► server ─► fio over NBD ─► all of them ended
//!          group busy      group server   group client
//! ```
//!
//! Nothing is pinned, and each of the three has a control group of its own, as services and pods have: the scheduler weighs
//! groups against each other. In one group, fio would wait for the busy processes as long as any server does, and nothing
//! else would be measured. The busy processes belong to a turn and are waited for in it, so that their time does not count
//! as that of other programs.

mod group;
pub mod hogs;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use cryptline::luks::format::LuksVersion;
use cryptline::size;

use crate::error::{Of as _, Result, fail};
use crate::fio::{self, FioTarget};
use crate::images::{FOLDER, SOCKET};
use crate::load::LoadJob;
use crate::machine::cores;
use crate::peers;
use crate::plan::{Plan, RunArgs, unique};
use crate::process::KilledRemains;
use crate::programs::{ProgramArgs, Programs};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Quantity, Row, TurnResults};
use crate::servers::{Door, ServedContents, ServerRow, check_contents, open};
use crate::setting::Setting;
use group::LimitGroup;
use hogs::Hogs;

#[rustfmt::skip]
const SERVERS: [ServerRow; 5] = [
    ServerRow::new("inline", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --direct=off --dispatch=inline --unix={socket} --key-file={key} {luks1}"),
    ServerRow::new("auto", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --direct=off --dispatch=auto --unix={socket} --key-file={key} {luks1}"),
    ServerRow::new("queue", Door::Nbd, ServedContents::Luks, "cryptline serve --exit-with-parent --direct=off --dispatch=queue --unix={socket} --key-file={key} {luks1}"),
    ServerRow::new("nbdkit", Door::Nbd, ServedContents::Luks, peers::NBDKIT),
    ServerRow::new("qemu-nbd", Door::Nbd, ServedContents::Luks, peers::QEMU_NBD),
];

/// The load of every turn.
const LOAD: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 8);
/// Hundredths of a processor that a server may use, beside those without a limit.
const QUOTAS: [u32; 2] = [20, 50];

/// Figures: the name, the quota, and who is compared with whom.
#[rustfmt::skip]
const CONTESTS: [(&str, Option<u32>, &str, &str); 12] = [
    ("busy_p99_inline_over_queue", None, "inline", "queue"),
    ("busy_p99_inline_over_nbdkit", None, "inline", "nbdkit"),
    ("busy_p99_inline_over_qemu_nbd", None, "inline", "qemu-nbd"),
    ("busy_p99_auto_over_queue", None, "auto", "queue"),
    ("busy_20_p99_inline_over_queue", Some(20), "inline", "queue"),
    ("busy_20_p99_inline_over_nbdkit", Some(20), "inline", "nbdkit"),
    ("busy_20_p99_inline_over_qemu_nbd", Some(20), "inline", "qemu-nbd"),
    ("busy_20_p99_auto_over_queue", Some(20), "auto", "queue"),
    ("busy_50_p99_inline_over_queue", Some(50), "inline", "queue"),
    ("busy_50_p99_inline_over_nbdkit", Some(50), "inline", "nbdkit"),
    ("busy_50_p99_inline_over_qemu_nbd", Some(50), "inline", "qemu-nbd"),
    ("busy_50_p99_auto_over_queue", Some(50), "auto", "queue"),
];

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench busy                           everything, in about five minutes
  cryptline-bench busy --busy 8 --rounds 9       beside eight busy processes, for longer

Serves one LUKS1 image by cryptline in each dispatch mode, by nbdkit's luks filter and by qemu-nbd, and has fio read 4 KiB \
at random, 8 in flight, over NBD, beside processes that use all the processor time they get. Server, fio and busy \
processes have a control group each, as services and pods have. Then the same with servers that may use 20 % and 50 % of \
a processor, as pods are limited. Where no such groups can be made (it takes root, or a group that was delegated), the \
report says so, and those figures have no value.

Needs the Debian packages fio, nbdkit and qemu-utils; --servers leaves out what is not there.")]
pub struct BusyArgs {
    /// Busy processes [default: two for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    busy: Option<u32>,

    /// Servers [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SERVER", value_parser = PossibleValuesParser::new(SERVERS.map(|it| it.name)))]
    servers: Vec<String>,

    /// Folder for the images and sockets; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    dir: PathBuf,

    #[command(flatten)]
    program: ProgramArgs,
}

/// A server under a limit, in its turns.
struct LimitedServer<'a> {
    server: &'static ServerRow,
    quota: Option<u32>,
    /// None where none can be made.
    groups: Option<(&'a Groups, &'a LimitGroup)>,
}

/// Those of a turn: one of the servers, by their limits.
struct Groups {
    busy: LimitGroup,
    client: LimitGroup,
    servers: Vec<(Option<u32>, LimitGroup)>,
}

impl Groups {
    fn make() -> Result<Self> {
        let limits = std::iter::once(None).chain(QUOTAS.map(Some));
        let server = |quota: Option<u32>| {
            let name = quota.map_or("server".to_owned(), |percent| format!("server-{percent}"));
            Ok((quota, LimitGroup::make(&name, quota)?))
        };
        let servers = limits.map(server).collect::<Result<Vec<_>>>()?;
        Ok(Self { busy: LimitGroup::make("busy", None)?, client: LimitGroup::make("client", None)?, servers })
    }
}

/// Measures.
pub fn measure(args: &BusyArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(256 << 20, 5, 1.0)?;
    let usual = u32::try_from(cores().saturating_mul(2))?;
    let hogs = args.busy.unwrap_or(usual);
    let is_asked = |server: &&ServerRow| args.servers.is_empty() || args.servers.iter().any(|name| name == server.name);
    let servers: Vec<&'static ServerRow> = SERVERS.iter().filter(is_asked).collect();
    let programs = Programs::find(&args.program)?;
    let needed = unique(servers.iter().flat_map(|server| server.programs()));
    let missing: Vec<_> = needed.iter().filter_map(|name| programs.missing(name)).collect();
    if !missing.is_empty() {
        fail!("{}; install it, or leave it out by --servers", missing.join(", "));
    }
    let setting = &Setting::anywhere(&args.dir, runs.size, &[LuksVersion::Luks1], programs)?;
    check_contents(setting, servers.iter().copied())?;

    let groups = Groups::make();
    let limits = match &groups {
        Ok(groups) => groups.servers.iter().map(|(quota, group)| (*quota, Some((groups, group)))).collect(),
        Err(_) => vec![(None, None)],
    };
    let of_limit = |&(quota, groups)| servers.iter().map(move |&server| LimitedServer { server, quota, groups });
    let ways: Vec<LimitedServer<'_>> = limits.iter().flat_map(of_limit).collect();
    let plan = Plan {
        bench: "busy",
        title: "Small reads beside busy processes",
        medium: String::new(),
        runs,
        rows: ways.iter().map(|way| way.row(setting, hogs)).collect(),
        notes: notes(setting, hogs, &needed),
    };
    let mut report = plan.run(|row, turn| {
        let job = setting.job(row.shape, runs.time, u64::from(turn.run) + 1);
        ways[turn.row].turn(setting, &job, row.hogs)
    })?;
    setting.stop.check()?;
    setting.describe_images(&mut report);
    let unless = match &groups {
        Err(_) => Some("no goal: server, fio and busy processes share a control group"),
        Ok(_) => (hogs != usual).then_some("no goal: it is for two busy processes for each processor"),
    };
    for (name, quota, of, to) in CONTESTS {
        let needs = match (&groups, quota) {
            (Err(error), Some(_)) => format!("could not be measured: {error}"),
            _ => format!("needs {of} and {to}"),
        };
        let [of, to] = [of, to].map(|server| name_of(server, quota));
        let pairs = vec![(of, vec![to])];
        report.compare(
            &FigureSubject { name, of: Quantity::P99, pairs, needs, ..FigureSubject::default() }.unless(unless),
        );
    }
    report.warnings.extend(groups.as_ref().err().map(|why| {
        format!("{why}, so no server was limited to a share of a processor, and fio waits as long for busy processes as servers do")
    }));
    Ok(report)
}

impl LimitedServer<'_> {
    fn row(&self, setting: &Setting, hogs: u32) -> Row {
        let is_ours = self.server.line.starts_with("cryptline");
        Row {
            name: name_of(self.server.name, self.quota),
            server: self.server.line.split(' ').next().map(str::to_owned),
            dispatch: is_ours.then(|| self.server.name.to_owned()),
            hogs,
            quota: self.quota.map(|percent| f64::from(percent) / 100.0),
            ..self.server.row(LOAD, setting)
        }
    }

    /// A turn: the busy processes first, so that the server starts beside them as well.
    fn turn(&self, setting: &Setting, job: &LoadJob, hogs: u32) -> Result<TurnResults> {
        let mut hogs = Hogs::start(hogs, self.groups.map(|(groups, _)| &groups.busy))?;
        let socket = setting.path(SOCKET);
        let target = FioTarget::Nbd(socket.clone(), "");
        let mut command = setting.command(self.server.line);
        if let Some((_, server)) = self.groups {
            server.prefix(&mut command);
        }
        let ready = || open(&target).map(drop).of("not yet");
        let process = setting.start(None, self.server.name, command, KilledRemains::Socket(socket), ready)?;
        let by_client = |command: &mut Vec<OsString>| {
            if let Some((groups, _)) = self.groups {
                groups.client.prefix(command);
            }
        };
        let sample = process.turn(|| fio::load_by(setting, &target, job, by_client))?;
        hogs.check()?;
        Ok(sample)
    }
}

/// Builds the name of a row.
fn name_of(server: &str, quota: Option<u32>) -> String {
    let limit = quota.map_or(String::new(), |percent| format!(", with {percent} % of a processor"));
    format!("{server}, {}{limit}", LOAD.title())
}

fn notes(setting: &Setting, hogs: u32, needed: &[&str]) -> Vec<String> {
    vec![
        format!(
            "LUKS1, aes-xts-plain64, 512-bit key, 512-byte sectors, {} of decrypted disk, through the page cache. Before, each server gave the SHA-256 of what was written, {}.",
            size::human(setting.images.size),
            setting.images.sha256
        ),
        format!(
            "Beside each server ran {hogs} busy processes of the same priority, from before its start until after the last read. Nothing was pinned: servers, fio and busy processes ran on any processor, each of the three in a control group of its own where groups can be made."
        ),
        "inline, auto and queue are cryptline's dispatch modes; queue is our imitation of dm-crypt's queues. fio uses its nbd engine (libnbd, one connection). A share of a processor is that of a control group, in periods of 100 ms, of the server alone.".into(),
        setting.programs.versions(needed),
    ]
}
