//! Growth of a server with its exports, clients, connections and size, and its cost while nobody asks for anything.
//!
//! Exports are opened by their volume key, so that no key derivation counts. Each number is of one server that was started
//! for it; what it holds is read from `/proc`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use cryptline::luks::format::LuksVersion;
use cryptline_cipher::ceiling::median;
use cryptline_engine::Gate;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::{Of as _, Result, fail};
use crate::fio::{self, FioTarget};
use crate::guest::Guest;
use crate::images::SOCKET;
use crate::load::{self, LoadJob};
use crate::plan::{Plan, RunArgs};
use crate::process::{KilledRemains, ServerProcess};
use crate::programs::{ProgramArgs, Programs};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Row, TurnResults};
use crate::servers::open;
use crate::setting::Setting;

/// Where the images go unless told otherwise: a disk, since memory has no direct I/O.
const FOLDER: &str = "/var/tmp";
const EXPORTS: [usize; 5] = [1, 16, 64, 256, 1000];
const CLIENTS: [usize; 3] = [0, 300, 1000];
const CONNECTIONS: [u32; 4] = [1, 2, 4, 8];
/// Virtqueues of a machine's disk.
const QUEUES: [usize; 3] = [1, 2, 4];
/// Most clients that may come.
const CLIENTS_MAX: usize = 4096;
/// Size of the file that is nearly all holes, and of what it grows by.
const SPARSE: u64 = 15 << 40;
const GROWTH: u64 = 1 << 40;
/// Headers of LUKS2, as `create` writes them; key slots are not needed.
const HEADERS: usize = 32 << 10;
/// Size of each export's file; a header takes less.
const FILE: u64 = 24 << 20;
/// A server settles before its processor time counts.
const SETTLE: Duration = Duration::from_millis(500);
/// Starts of a program, of which the median counts.
const STARTS: usize = 21;
/// Longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(20);
/// Key slots cost next to nothing.
const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {key}";
const SERVE: &str = "cryptline serve --exit-with-parent --quiet --unix {socket} --volume-key-file {volume-key}";
const VHOST: &str =
    "cryptline vhost-user --exit-with-parent --quiet --socket-path={socket} --volume-key-file {volume-key}";

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench scale                                   everything, in about half a minute
  cryptline-bench scale --json scale.json --dir /data

Serves 1 to 1000 exports, 1000 idle clients, 1 to 8 busy connections, a machine with 1 to 4 queues and a sparse file of \
15 TiB, each by a server of its own, and tells how long that takes until the first client is greeted, and the memory, \
descriptors and processor time that the server holds. Needs the Debian package fio.")]
pub struct ScaleArgs {
    /// Folder for the images and sockets; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    dir: PathBuf,

    #[command(flatten)]
    program: ProgramArgs,
}

/// Cost of a server at a moment.
#[derive(Clone, Copy, Debug)]
struct Cost {
    kib: f64,
    descriptors: f64,
}

/// Cost of a server, and the time until it greeted a client.
#[derive(Clone, Copy, Debug)]
struct Started {
    count: usize,
    ready_ms: f64,
    cost: Cost,
}

struct Scale(Setting);

/// Measures.
pub fn measure(args: &ScaleArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(256 << 20, 5, 0.5)?;
    let programs = Programs::find(&args.program)?;
    if let Some(missing) = programs.missing("fio") {
        fail!("{missing}; install it");
    }
    raise_descriptors();
    let scale = Scale(Setting::anywhere(&args.dir, runs.size, &[LuksVersion::Luks2], programs)?);
    scale.make()?;
    let row = |&streams: &u32| {
        let shape = LoadShape { streams, ..LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 8) };
        Row { front: "nbd".into(), generator: Some("fio".into()), ..Row::new(name(streams), shape) }
    };
    let row_of_queues = |&queues: &usize| {
        let shape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 32);
        let generator = Some("libblkio's driver".into());
        Row { front: "vhost-user".into(), generator, ..Row::new(name_of_queues(queues), shape) }
    };
    let plan = Plan {
        bench: "scale",
        title: "Growth of a server, and its cost while it is idle",
        medium: String::new(),
        runs,
        rows: CONNECTIONS.iter().map(row).chain(QUEUES.iter().map(row_of_queues)).collect(),
        notes: vec![
            "Each server greets a client before it counts as ready. Exports are LUKS2 files of 24 MiB, opened by their volume key. A client that is idle has chosen an export. Memory is what is resident.".into(),
            "Connections share one volume; each has 8 reads of 4 KiB in flight, by fio's nbd engine. Virtqueues share the 32 reads of one machine, whose driver is one thread. Nothing is pinned.".into(),
            scale.0.programs.versions(&["fio"]),
        ],
    };
    let mut report = plan.run(|row, turn| {
        if let Some(&queues) = turn.row.checked_sub(CONNECTIONS.len()).and_then(|number| QUEUES.get(number)) {
            return scale.machine(queues, scale.0.job(row.shape, runs.time, u64::from(turn.run) + 1));
        }
        let process = scale.start(SERVE, std::slice::from_ref(&scale.0.images.luks2))?.0;
        let job = scale.0.job(row.shape, runs.time, u64::from(turn.run) + 1);
        let jobs = |command: &mut Vec<OsString>| {
            command.extend([format!("--numjobs={}", row.shape.streams).into(), "--group_reporting".into()]);
        };
        let target = FioTarget::Nbd(scale.0.path(SOCKET), "");
        process.turn(|| fio::load_by(&scale.0, &target, &job, jobs))
    })?;
    scale.0.stop.check()?;
    scale.0.describe_images(&mut report);
    report.compare(&FigureSubject::new("connections_8_over_1", name(8), name(1)));
    report.compare(&FigureSubject::new("vhost_queues_4_over_1", name_of_queues(4), name_of_queues(1)));
    scale.exports(&mut report)?;
    scale.clients(&mut report)?;
    scale.size(&mut report)?;
    report.figure("opening_ms", Ok((scale.opening()?, format!("the median of {STARTS} starts"))), None);
    report.commands.extend(scale.0.commands());
    Ok(report)
}

impl Scale {
    /// Makes the key and the files of exports.
    fn make(&self) -> Result<()> {
        let key = self.0.path("volume-key");
        fs::write(&key, [0x5a; 64]).of(key.display())?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).of(key.display())?;
        let own = self.0.images.luks2.clone();
        fs::remove_file(&own).of(own.display())?;
        let size = self.0.images.size + FILE;
        self.create(&format!("{{luks2}} --size {size}"))?;
        self.create(&format!("{{sparse.img}} --size {SPARSE}"))?;
        self.create(&format!("{{0.img}} --size {FILE}"))?;
        let mut headers = vec![0; HEADERS];
        File::open(self.0.path("0.img")).and_then(|file| file.read_exact_at(&mut headers, 0)).of("headers")?;
        for file in self.files(EXPORTS[EXPORTS.len() - 1]).iter().skip(1) {
            let made =
                File::create(file).and_then(|new| new.write_all_at(&headers, 0).and_then(|()| new.set_len(FILE)));
            made.of(file.display())?;
        }
        Ok(())
    }

    fn create(&self, what: &str) -> Result<()> {
        self.0.run(&self.0.command(&format!("cryptline create {what} --volume-key-file {{volume-key}} {CHEAP}")))
    }

    fn files(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|number| self.0.path(&format!("{number}.img"))).collect()
    }

    /// A server of these files, and how many milliseconds it took until it greeted a client.
    fn start(&self, line: &str, files: &[PathBuf]) -> Result<(ServerProcess, f64)> {
        let mut command = self.0.command(line);
        command.extend(files.iter().map(OsString::from));
        let socket = self.0.path(SOCKET);
        let began = Instant::now();
        let greeted = || Client::connect(&socket).map(drop);
        let process = self.0.start(None, "cryptline serve", command, KilledRemains::Socket(socket.clone()), greeted)?;
        Ok((process, began.elapsed().as_secs_f64() * 1000.0))
    }

    /// A machine whose disk has so many queues, each with a thread of the server.
    fn machine(&self, queues: usize, job: LoadJob) -> Result<TurnResults> {
        let line = format!("{VHOST} --num-queues {queues} {{luks2}}");
        let socket = self.0.path(SOCKET);
        let there = || UnixStream::connect(&socket).map(drop).of("not yet");
        let left = KilledRemains::Socket(socket.clone());
        let process = self.0.start(None, "cryptline vhost-user", self.0.command(&line), left, there)?;
        let late = Instant::now() + job.warm_up + job.time + PATIENCE;
        process.turn(|| load::drive(&job, |_| Guest::with_queues(queues, &socket, job.shape, None, late)))
    }

    fn exports(&self, report: &mut PlanReport) -> Result<()> {
        let mut all = Vec::new();
        for count in EXPORTS {
            let (process, ready_ms) = self.start(SERVE, &self.files(count))?;
            std::thread::sleep(SETTLE);
            all.push(Started { count, ready_ms, cost: cost(&process)? });
        }
        let [first, .., many, most] = all[..] else { fail!("too few numbers of exports") };
        let each = |it: &Started| {
            let Started { count, ready_ms, cost: Cost { kib, descriptors } } = it;
            format!("{count}: {ready_ms:.0} ms, {:.1} MiB, {descriptors} descriptors", kib / 1024.0)
        };
        let note = all.iter().map(each).collect::<Vec<_>>().join("; ");
        let more =
            |of: fn(&Cost) -> f64| (of(&most.cost) - of(&first.cost)) / (number(most.count) - number(first.count));
        report.figure("idle_mib", Ok((first.cost.kib / 1024.0, String::new())), None);
        report.figure("ready_256_exports_ms", Ok((many.ready_ms, note)), None);
        let growth = (most.ready_ms / number(most.count)) / (many.ready_ms / number(many.count));
        report.figure("export_time_1000_over_256", Ok((growth, String::new())), None);
        report.figure("export_kib", Ok((more(|cost| cost.kib), String::new())), None);
        report.figure("export_descriptors", Ok((more(|cost| cost.descriptors), String::new())), None);
        Ok(())
    }

    fn clients(&self, report: &mut PlanReport) -> Result<()> {
        let one = [self.0.images.luks2.clone()];
        let alone = |clients: usize| {
            let (process, _) = self.start(&format!("{SERVE} --max-connections {clients}"), &one)?;
            std::thread::sleep(SETTLE);
            cost(&process)
        };
        let (few, many) = (alone(1)?, alone(CLIENTS_MAX)?);
        let more = |of: fn(&Cost) -> f64| (of(&many) - of(&few)).max(0.0) / number(CLIENTS_MAX - 1);
        report.figure("possible_client_kib", Ok((more(|cost| cost.kib), String::new())), None);
        report.figure("possible_client_descriptors", Ok((more(|cost| cost.descriptors), String::new())), None);

        let (process, _) = self.start(&format!("{SERVE} --max-connections {CLIENTS_MAX}"), &one)?;
        let (mut clients, mut costs, mut used) = (Vec::new(), Vec::new(), 0.0);
        for count in CLIENTS {
            while clients.len() < count {
                clients.push(Client::connect(&self.0.path(SOCKET))?.choose()?);
            }
            std::thread::sleep(SETTLE);
            let before = process.cpu();
            std::thread::sleep(Duration::from_secs(1));
            used = process.cpu().zip(before).map_or(f64::NAN, |(after, before)| after - before);
            costs.push((count, cost(&process)?));
        }
        let [(_, none), .., (count, all)] = costs[..] else { fail!("too few numbers of clients") };
        let each = costs
            .iter()
            .map(|(count, cost)| format!("{count}: {:.1} MiB, {} descriptors", cost.kib / 1024.0, cost.descriptors));
        let note = each.collect::<Vec<_>>().join("; ");
        report.figure("idle_client_kib", Ok(((all.kib - none.kib) / number(count), note)), None);
        let descriptors = (all.descriptors - none.descriptors) / number(count);
        report.figure("idle_client_descriptors", Ok((descriptors, String::new())), None);
        report.figure("idle_1000_clients_cpu_ms", Ok((used * 1000.0, String::new())), None);
        Ok(())
    }

    /// A file that is nearly all holes: opened, asked for its holes, and grown.
    fn size(&self, report: &mut PlanReport) -> Result<()> {
        let (small, sparse) = (self.files(1), self.0.path("sparse.img"));
        let ready = |file: &PathBuf| -> Result<f64> {
            let start = |_| Ok(self.start(SERVE, std::slice::from_ref(file))?.1);
            Ok(median(&(0..STARTS).map(start).collect::<Result<Vec<_>>>()?).unwrap_or(f64::NAN))
        };
        let ratio = ready(&sparse)? / ready(&small[0])?;
        report.figure("sparse_ready_over_small", Ok((ratio, String::new())), None);
        let _server = self.start(&format!("{SERVE} --zeroes detect"), std::slice::from_ref(&sparse))?.0;
        let gate = open(&FioTarget::Nbd(self.0.path(SOCKET), ""))?;
        let began = Instant::now();
        let extents = extents(&gate)?;
        let took = began.elapsed().as_secs_f64() * 1000.0;
        report.figure("sparse_extents_ms", Ok((took, format!("{extents} of them"))), None);
        drop(gate);
        let before = Client::connect(&self.0.path(SOCKET))?.size()?;
        let began = Instant::now();
        let grown = File::options().write(true).open(&sparse).and_then(|file| file.set_len(SPARSE + GROWTH / 2));
        grown.of(sparse.display())?;
        let after = Client::connect(&self.0.path(SOCKET))?.size()?;
        let took = began.elapsed().as_secs_f64() * 1000.0;
        if after <= before {
            fail!("the sparse volume does not grow with its file");
        }
        report.figure("sparse_growth_ms", Ok((took, String::new())), None);
        Ok(())
    }

    /// Milliseconds of a server that runs one command which does nothing.
    fn opening(&self) -> Result<f64> {
        let line = "cryptline serve --quiet --key-file {key} {luks2} --run true";
        let one = || {
            let began = Instant::now();
            self.0.run(&self.0.command(line))?;
            Ok(began.elapsed().as_secs_f64() * 1000.0)
        };
        Ok(median(&(0..STARTS).map(|_| one()).collect::<Result<Vec<_>>>()?).unwrap_or(f64::NAN))
    }
}

/// A client by hand: of 1000 nobody wants buffers.
struct Client(UnixStream);

impl Client {
    /// Has been greeted.
    fn connect(socket: &std::path::Path) -> Result<Self> {
        let mut stream = UnixStream::connect(socket).of("not yet")?;
        stream.set_read_timeout(Some(PATIENCE)).of("a socket")?;
        stream.read_exact(&mut [0; 18]).of("the greeting")?;
        Ok(Self(stream))
    }

    /// In transmission, with the default export.
    fn choose(self) -> Result<Self> {
        self.begin().map(|(client, _)| client)
    }

    fn size(self) -> Result<u64> {
        self.begin().map(|(_, size)| size)
    }

    /// NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES, then NBD_OPT_EXPORT_NAME of no name.
    fn begin(mut self) -> Result<(Self, u64)> {
        let words = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &1_u32.to_be_bytes(), &0_u32.to_be_bytes()].concat();
        let mut size = [0; 8];
        let asked = self.0.write_all(&words).and_then(|()| self.0.read_exact(&mut size));
        asked.and_then(|()| self.0.read_exact(&mut [0; 2])).of("an export")?;
        Ok((self, u64::from_be_bytes(size)))
    }
}

/// The number of extents of all of a disk.
fn extents(gate: &Gate) -> Result<usize> {
    let (size, mut at, mut count) = (gate.geometry().size, 0, 0);
    while at < size {
        let extent = gate.extent(at, size - at);
        let extent = extent.map_err(|fault| crate::error::Error(format!("the extent at {at}: {fault}")))?;
        (at, count) = (at + extent.len, count + 1);
    }
    Ok(count)
}

fn cost(process: &ServerProcess) -> Result<Cost> {
    let folder = PathBuf::from(format!("/proc/{}", process.id()));
    let status = fs::read_to_string(folder.join("status")).of("/proc")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kib =
        resident.and_then(|kib| kib.parse().ok()).ok_or_else(|| crate::error::Error("/proc has no VmRSS".into()))?;
    Ok(Cost { kib, descriptors: number(fs::read_dir(folder.join("fd")).of("/proc")?.count()) })
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

fn name_of_queues(queues: usize) -> String {
    format!("machine with {queues} queue{}", if queues == 1 { "" } else { "s" })
}

fn name(connections: u32) -> String {
    format!("{connections} connection{}", if connections == 1 { "" } else { "s" })
}

/// As far as we may: each client has a socket here.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Then fewer clients come, which fails with its reason.
    let _ = setrlimit(Resource::Nofile, limit);
}
