//! Cost of encrypting an image, and of decrypting one, beside the programs that people use for it.
//!
//! Each turn makes a new file, and ends when that is durable. Ours are checked first: what they have made has all bytes of
//! the source.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cryptline::luks::format::LuksVersion;
use cryptline::{DirectMode, Open, size};

use crate::contents::sha256_of;
use crate::error::{Of as _, Result, fail};
use crate::images::SOCKET;
use crate::machine::children_time;
use crate::plan::{Plan, RunArgs};
use crate::process::{KilledRemains, ServerProcess};
use crate::programs::{ProgramArgs, Programs};
use crate::report::{FigureSubject, LoadShape, PlanReport, Quantity, Row, TurnResults};
use crate::setting::Setting;

/// Where the images go unless told otherwise: a disk, as a rule.
const FOLDER: &str = "/var/tmp";
const SIZE_MIN: u64 = 1 << 20;
/// Bytes of each read of a check.
const PIECE: usize = 1 << 20;
/// Bytes of the image that is nearly all holes, and of its data.
const SPARSE: u64 = 100 << 30;
const SPARSE_DATA: usize = 100 << 20;
/// Attempts with qemu-img at most: on a busy machine it often fails to time its key derivation.
const TRIES: u32 = 100;
/// With less there are no goals: rounds and size.
const ENOUGH: (u32, u64) = (3, 512 << 20);

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench images                                  everything, in a few minutes
  cryptline-bench images --size 4G --rounds 5 --dir /data

Encrypts a raw image of random bytes with `cryptline create --from`, with `qemu-img convert` to LUKS1, with `nbdcopy` \
into a volume that cryptline serves, and with `cryptsetup reencrypt` in place, and decrypts one with `cryptline copy`, in \
turns with `cp`. Every turn makes a new file and ends when it is durable; targets that take a key derivation are made \
before. Needs about four times --size in --dir, and for `cryptsetup reencrypt` root.

Needs the Debian packages qemu-utils, libnbd-bin and cryptsetup-bin. What is missing is named, and its figures have no \
value.")]
pub struct ImagesArgs {
    /// Folder for the images; they are removed at the end
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    dir: PathBuf,

    #[command(flatten)]
    program: ProgramArgs,
}

/// A way from one image to another.
struct ImagePath {
    name: &'static str,
    /// The command line, see [`crate::programs::words`]; it begins with the program.
    line: &'static str,
    /// State that must be there before.
    prepare: Prepare,
}

/// Requirement of a way, which is not timed.
#[derive(Clone, Copy, PartialEq)]
enum Prepare {
    Nothing,
    /// An image that is nearly all holes.
    Holes,
    /// An empty volume, and cryptline that serves it.
    Served,
    /// An empty LUKS1 volume of qemu-img's own.
    Target,
    /// A copy of the source, with the room behind it that a header and the first steps take.
    Room,
}

const CP: &str = "cp, raw to raw";
const CREATE: &str = "cryptline create --from, raw to LUKS2";
const SERVED: &str = "nbdcopy into cryptline serve, raw to LUKS2";
const QEMU: &str = "qemu-img convert, raw to LUKS1";
const REENCRYPT: &str = "cryptsetup reencrypt --encrypt, raw to LUKS2 in place";
const COPY_OUT: &str = "cryptline copy, LUKS2 to raw";
const HOLES: &str = "cryptline create --from --holes keep, 100 MiB of data in 100 GiB";

const COPY: &str = "cp --sparse=never --reflink=never {plain} {out.img}";
/// Key slots cost next to nothing.
const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {key}";
const WAYS: [ImagePath; 7] = [
    ImagePath { name: CP, line: COPY, prepare: Prepare::Nothing },
    ImagePath { name: CREATE, line: "cryptline create {out.img} --from {plain} {cheap}", prepare: Prepare::Nothing },
    ImagePath { name: SERVED, line: "nbdcopy --flush {plain} nbd+unix:///?socket={socket}", prepare: Prepare::Served },
    // Of its options, the fastest.
    ImagePath {
        name: QEMU,
        line: "qemu-img convert -n -f raw -W -m 8 --object secret,id=key,file={key,} --target-image-opts {plain} \
               driver=luks,key-secret=key,file.driver=file,file.filename={out.img,}",
        prepare: Prepare::Target,
    },
    // A regular file is never in use by device-mapper here, which it cannot know.
    ImagePath {
        name: REENCRYPT,
        line: "cryptsetup reencrypt --encrypt --type luks2 --reduce-device-size 32M --sector-size 4096 \
               --force-offline-reencrypt --batch-mode {cheap} {out.img}",
        prepare: Prepare::Room,
    },
    ImagePath { name: COPY_OUT, line: "cryptline copy {luks2} {out.img} --key-file {key}", prepare: Prepare::Nothing },
    ImagePath {
        name: HOLES,
        line: "cryptline create {out.img} --from {sparse.img} --holes keep {cheap}",
        prepare: Prepare::Holes,
    },
];

impl ImagePath {
    fn program(&self) -> &'static str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// Why it cannot be gone.
    fn missing(&self, programs: &Programs) -> Option<String> {
        // Its locks are in a folder of root.
        let lacks = self.name == REENCRYPT && !rustix::process::geteuid().is_root();
        let not_root = lacks.then(|| "cryptsetup reencrypts as root only".to_owned());
        programs.missing(self.program()).or(not_root)
    }
}

/// State that all turns need.
struct WholeBench {
    setting: Setting,
    /// Bytes on the medium of what was nearly all holes.
    sparse: Cell<u64>,
}

/// Measures.
pub fn measure(args: &ImagesArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(2 << 30, 3, 1.0)?;
    let size = runs.size;
    if size < SIZE_MIN || !size.is_multiple_of(SIZE_MIN) {
        fail!("--size {size}: use a multiple of 1M");
    }
    let programs = Programs::find(&args.program)?;
    let missing: Vec<_> = WAYS.iter().filter_map(|way| Some((way.name, way.missing(&programs)?))).collect();
    let ways: Vec<&ImagePath> = WAYS.iter().filter(|way| way.missing(&programs).is_none()).collect();
    let setting = Setting::new(&args.dir, size, &[LuksVersion::Luks2], programs, false)?;
    let bench = WholeBench { setting, sparse: Cell::default() };
    bench.check()?;
    let row = |way: &&ImagePath| Row {
        cipher: (way.name != CP).then(|| "aes-xts-plain64".to_owned()),
        server: Some(way.program().to_owned()),
        ..Row::new(way.name, LoadShape { block: 1 << 20, streams: 1, ..LoadShape::default() })
    };
    let plan = Plan {
        bench: "images",
        title: "Encrypting and decrypting images",
        medium: String::new(),
        runs,
        rows: ways.iter().map(row).collect(),
        notes: bench.notes(),
    };
    let (mut all, mut turns) = (0.0, 0.0);
    let mut report = plan.run(|_, turn| {
        let way = ways[turn.row];
        let (seconds, busy) = bench.turn(way)?;
        fs::remove_file(bench.out())?;
        (all, turns) = (all + seconds, turns + 1.0);
        Ok(TurnResults { bytes_per_second: bench.bytes(way) / seconds, busy: Some(busy), ..TurnResults::default() })
    })?;
    bench.setting.stop.check()?;
    report.seconds = f64::round(all / turns * 1000.0) / 1000.0;
    bench.setting.describe(&mut report);
    report.weak = None;
    report.weak_below(ENOUGH.0, 0.0, (size, ENOUGH.1));
    report.warnings.extend(missing.iter().map(|(_, why)| format!("{why}, so what needs it was not measured")));
    bench.compare(&mut report, &missing)?;
    Ok(report)
}

impl WholeBench {
    /// Bytes of data that a way is about.
    fn bytes(&self, way: &ImagePath) -> f64 {
        let bytes = if way.name == HOLES { SPARSE_DATA as u64 } else { self.setting.images.size };
        #[expect(clippy::cast_precision_loss, reason = "a size, for a rate")]
        let bytes = bytes as f64;
        bytes
    }

    /// The file that every turn makes.
    fn out(&self) -> PathBuf {
        self.setting.path("out.img")
    }

    /// Verifies that what we make has the bytes that it should have.
    fn check(&self) -> Result<()> {
        let images = &self.setting.images;
        for way in WAYS.iter().filter(|way| [CREATE, COPY_OUT].contains(&way.name)) {
            self.turn(way)?;
            let open = Open::new(self.out()).direct(DirectMode::Off);
            let gate = if way.name == CREATE {
                open.read_only(true).passphrase(fs::read(&images.key)?).open()?.gate().clone()
            } else {
                open.base()?.0
            };
            if sha256_of(&gate, PIECE)? != images.sha256 {
                fail!("{}: what it made has other bytes than the source", way.name);
            }
            drop(gate);
            fs::remove_file(self.out())?;
        }
        Ok(())
    }

    /// Makes a file: how many seconds that took, and how many processors with those of its server.
    fn turn(&self, way: &ImagePath) -> Result<(f64, f64)> {
        self.setting.stop.check()?;
        let server = self.prepare(way.prepare)?;
        let before = children_time().unwrap_or_default();
        let began = Instant::now();
        self.run(way.line)?;
        File::open(self.out()).and_then(|out| out.sync_all()).of(way.name)?;
        let seconds = began.elapsed().as_secs_f64().max(1e-6);
        let used = children_time().unwrap_or_default().saturating_sub(before).as_secs_f64();
        let of_server = server.as_ref().and_then(ServerProcess::cpu).unwrap_or(0.0);
        if way.name == HOLES {
            self.sparse.set(fs::metadata(self.out())?.blocks() * 512);
        }
        Ok((seconds, (used + of_server) / seconds))
    }

    fn words(&self, line: &str) -> Vec<std::ffi::OsString> {
        self.setting.command(&line.replace("{cheap}", CHEAP))
    }

    fn run(&self, line: &str) -> Result<()> {
        self.setting.run(&self.words(line))
    }

    fn prepare(&self, what: Prepare) -> Result<Option<ServerProcess>> {
        let size = self.setting.images.size;
        match what {
            Prepare::Nothing => {}
            Prepare::Holes => self.make_sparse().of("the sparse image")?,
            Prepare::Room => {
                self.run(COPY)?;
                let room = File::options().write(true).open(self.out());
                room.and_then(|file| file.set_len(size + (32 << 20)).and_then(|()| file.sync_all())).of("room")?;
            }
            Prepare::Target => {
                let line = "qemu-img create -q -f luks --object secret,id=key,file={key,} -o key-secret=key,iter-time=10 {out.img}";
                // While the machine is busy, it may not be able to tell how fast that makes keys.
                let busy = |made: &Result<()>| made.as_ref().is_err_and(|error| error.0.contains("accurate CPU usage"));
                let mut made = self.run(&format!("{line} {size}"));
                for _ in 1..TRIES {
                    if busy(&made) {
                        made = self.run(&format!("{line} {size}"));
                    }
                }
                made?;
            }
            Prepare::Served => {
                let size = size + (16 << 20);
                self.run(&format!("cryptline create {{out.img}} --size {size} {CHEAP}"))?;
                let command =
                    self.words("cryptline serve --exit-with-parent {out.img} --key-file {key} --unix {socket}");
                let socket = self.setting.path(SOCKET);
                let ready = || std::os::unix::net::UnixStream::connect(&socket).map(drop).of("not yet");
                let left = KilledRemains::Socket(socket.clone());
                return self.setting.start(None, "cryptline serve", command, left, ready).map(Some);
            }
        }
        Ok(None)
    }

    fn make_sparse(&self) -> std::io::Result<()> {
        let mut data = vec![0; SPARSE_DATA];
        self.setting.images.contents.fill(0, &mut data);
        let file = File::create(self.setting.path("sparse.img"))?;
        file.set_len(SPARSE)?;
        // In pieces, as file systems leave them.
        for (number, piece) in data.chunks(1 << 20).enumerate() {
            file.write_all_at(piece, number as u64 * (1 << 30))?;
        }
        file.sync_all()
    }

    fn compare(&self, report: &mut PlanReport, missing: &[(&str, String)]) -> Result<()> {
        for (name, of, to, quantity) in [
            ("create_from_over_cp", CREATE, CP, Quantity::Speed),
            ("create_from_over_nbdcopy_serve", CREATE, SERVED, Quantity::Speed),
            ("create_from_over_qemu_img_luks", CREATE, QEMU, Quantity::Speed),
            ("create_from_over_cryptsetup_reencrypt", CREATE, REENCRYPT, Quantity::Speed),
            ("copy_out_over_cp", COPY_OUT, CP, Quantity::Speed),
            ("create_from_cpu_over_nbdcopy_serve", CREATE, SERVED, Quantity::ProcessorTime),
        ] {
            let why = missing.iter().find(|(name, _)| *name == to).map_or("no round", |(_, why)| why);
            let needs = format!("could not be measured: {why}");
            report.compare(&FigureSubject { of: quantity, needs, ..FigureSubject::new(name, of, to) });
        }
        let rate = report.row(HOLES).map_or(f64::NAN, |row| row.bytes_per_second);
        let data = f64::from(u32::try_from(SPARSE_DATA)?);
        report.figure("sparse_copy_seconds", Ok((data / rate, String::new())), None);
        let mebibytes = f64::from(u32::try_from(self.sparse.get() >> 10)?) / 1024.0;
        report.figure("sparse_copy_mib", Ok((mebibytes, String::new())), None);
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!(
                "{} of random bytes, which were written just before and may be in the page cache. Each turn makes a new file and ends when that is durable: fsync is included, and so is the start of the program.",
                size::human(self.setting.images.size)
            ),
            "cryptline writes LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-img LUKS1 (512-byte sectors), which is all it has, into a target that was made before, so that its key derivation is not timed. Other key slots cost next to nothing. nbdcopy writes into a new, sparse file whose server runs already. cryptsetup changes a copy that was made before, in place, and keeps recovery points, which is more than a copy does.".into(),
            "The image that is nearly all holes has the speed of its data.".into(),
            format!("Before, what cryptline had made was compared with the source, SHA-256 {}.", self.setting.images.sha256),
        ]
    }
}
