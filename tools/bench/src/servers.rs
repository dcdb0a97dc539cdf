//! Servers of one disk, of any front, ours and those of others: a row of a table says all that is special of one.
//!
//! ```text
//! start ─► ready ─┬─ sum of all that it gives     before anything is measured, and after writes
//!                 └─ turn   vhost-user  a driver of this process (guest): fio has none; it compares both ends of each read
//!                           nbd, fuse   fio
//! ```
//!
//! One server runs at a time and has the images for itself.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use cryptline::{DirectMode, Open};
use cryptline_engine::Gate;

use crate::bare::{BARE, BareCipher};
use crate::contents::sha256_of;
use crate::error::{Of as _, Result, fail};
use crate::fio::{self, FioTarget};
use crate::guest::Guest;
use crate::images::SOCKET;
use crate::load::{self, LoadTransport, each};
use crate::plan::progress;
use crate::process::{KilledRemains, ServerProcess};
use crate::programs;
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Quantity, Row, TurnResults, word};
use crate::setting::{BELOW, MOUNT, Setting};
use crate::volume::NULL_CIPHER;

/// A front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// Virtqueues in shared memory, as a virtual machine has them
    VhostUser,
    /// A Unix socket
    Nbd,
    /// The file of a mount
    Fuse,
    /// The same, whose requests come through io_uring
    FuseUring,
}

/// Contents that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedContents {
    Luks,
    /// The plain image through the null cipher.
    Null,
    Plain,
    /// No image.
    Nothing,
    /// No server either: the cipher alone, in cipher sectors of so many bytes.
    Cipher(u32),
}

/// A row of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// No two have the same; before a comma, its program's.
    pub name: &'static str,
    pub door: Door,
    pub disk: ServedContents,
    /// The command line, see [`programs::words`].
    pub line: &'static str,
}

/// A figure: its name, the load, whose number, of whom the best is compared, and which number.
pub type Contest = (&'static str, LoadShape, &'static str, &'static [&'static str], Quantity);

/// A figure of what a request costs beside its model: its name, the load, who encrypts, and who does the same plain.
pub type Model = (&'static str, LoadShape, &'static str, &'static str);

/// Server of the encrypted image for a server that lies over it: of the same file as all others, so that all can be
/// compared byte for byte. It is in the page cache; nbdkit's memory plugin would begin empty.
const LINE_BELOW: &str = "nbdkit --foreground --exit-with-parent --unix={below} file file={luks1}";
/// Device that every mount goes through.
const FUSE_DEVICE: &str = "/dev/fuse";
/// Program that mounts for a user who may not, and its package.
const FUSE_HELPER: &str = "fusermount3";
/// `Y` where the kernel passes requests of mounts through io_uring.
const FUSE_URING: &str = "/sys/module/fuse/parameters/enable_uring";
/// How long a server may keep silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;
/// Reads of a check by a guest.
const CHECK: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 128 << 10, 1);

/// A server in its turn.
struct RunningServer {
    process: ServerProcess,
    place: PathBuf,
    target: FioTarget,
    /// Whom it lies over; ended after it.
    _below: Option<ServerProcess>,
}

impl Door {
    fn is_mount(self) -> bool {
        matches!(self, Self::Fuse | Self::FuseUring)
    }

    /// Why this machine has no such front.
    pub fn missing(self) -> Option<String> {
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

    /// Where clients other than guests find a disk.
    pub fn target(self, place: &Path, export: &'static str) -> FioTarget {
        if self.is_mount() { FioTarget::File(place.to_owned()) } else { FioTarget::Nbd(place.to_owned(), export) }
    }
}

/// A server's disk as the library opens it.
pub fn open(target: &FioTarget) -> Result<Gate> {
    let open = match target {
        FioTarget::Nbd(..) => Open::new(target.uri()),
        FioTarget::File(path) => Open::new(path).direct(DirectMode::On),
    };
    Ok(open.read_only(true).base()?.0)
}

impl ServerRow {
    pub const fn new(name: &'static str, door: Door, disk: ServedContents, line: &'static str) -> Self {
        Self { name, door, disk, line }
    }

    /// The cipher alone, in cipher sectors of so many bytes.
    pub const fn bare(sector_size: u32) -> Self {
        Self::new(BARE, Door::Nbd, ServedContents::Cipher(sector_size), "")
    }

    fn is_bare(&self) -> bool {
        matches!(self.disk, ServedContents::Cipher(_))
    }

    /// Tells if it has an image, whose bytes it must give.
    pub fn has_image(&self) -> bool {
        self.disk != ServedContents::Nothing && !self.is_bare()
    }

    /// Returns what must be installed to start it and to load it.
    pub fn programs(&self) -> Vec<&'static str> {
        if self.is_bare() {
            return Vec::new();
        }
        let own = self.line.split(' ').next();
        let below = self.is_over_nbd().then_some("nbdkit");
        own.into_iter().chain(below).chain((self.door != Door::VhostUser).then_some("fio")).collect()
    }

    /// Tells if it has its image from another server.
    fn is_over_nbd(&self) -> bool {
        self.line.contains("{below")
    }

    /// Its row under a load.
    pub fn row(&self, load: LoadShape, setting: &Setting) -> Row {
        if self.is_bare() {
            return Row { cipher: Some("aes-xts-plain64".into()), ..Row::new(name(self.name, load), load) };
        }
        Row {
            front: word(&self.door),
            cipher: match self.disk {
                ServedContents::Luks | ServedContents::Cipher(_) => Some("aes-xts-plain64".into()),
                ServedContents::Null => Some(NULL_CIPHER.into()),
                ServedContents::Plain | ServedContents::Nothing => None,
            },
            // Checked before anything is measured.
            sha256: self.has_image().then(|| setting.images.sha256.clone()),
            server: self.name.split(',').next().map(str::to_owned),
            generator: Some(if self.door == Door::VhostUser { "libblkio's driver" } else { "fio" }.into()),
            ..Row::new(name(self.name, load), load)
        }
    }

    fn start(&self, setting: &Setting) -> Result<RunningServer> {
        let start = |cpu, name: &str, line, left: KilledRemains, ready: &dyn Fn() -> Result<()>| {
            setting.start(cpu, name, setting.command(line), left, ready)
        };
        let below = self.is_over_nbd().then(|| {
            let (name, socket) = (format!("the server below {}", self.name), setting.path(BELOW));
            let ready = || open(&FioTarget::Nbd(socket.clone(), "")).map(drop).of("not yet");
            start(setting.pins.map(|pins| pins.below), &name, LINE_BELOW, KilledRemains::Socket(socket.clone()), &ready)
        });
        let below = below.transpose()?;
        let (place, left) = if self.door.is_mount() {
            let place = setting.path(MOUNT);
            File::create(&place).of(place.display())?;
            (place.clone(), KilledRemains::Mount(place))
        } else {
            let place = setting.path(SOCKET);
            (place.clone(), KilledRemains::Socket(place))
        };
        // qemu-storage-daemon has no export without a name.
        let target = self.door.target(&place, if self.name.starts_with("qsd") { "disk" } else { "" });
        let ready = || match self.door {
            Door::VhostUser => UnixStream::connect(&place).map(drop).of("not yet"),
            Door::Nbd => open(&target).map(drop).of("not yet"),
            // Before it is mounted over, the file is empty.
            Door::Fuse | Door::FuseUring => match fs::metadata(&place) {
                Ok(found) if found.len() == setting.images.size => Ok(()),
                _ => fail!("nothing is mounted"),
            },
        };
        let process = start(setting.pins.map(|pins| pins.server), self.name, self.line, left, &ready)?;
        Ok(RunningServer { process, place, target, _below: below })
    }

    /// The SHA-256 of all that it gives. A guest compares that with the contents meanwhile.
    pub fn sha256(&self, setting: &Setting) -> Result<String> {
        let RunningServer { process, place, target, _below } = &self.start(setting)?;
        let images = &setting.images;
        let is_right = |size: u64| {
            if size == images.size { Ok(()) } else { fail!("the disk has {size} bytes and not {}", images.size) }
        };
        process.under(|| {
            if self.door == Door::VhostUser {
                let late = Instant::now() + PATIENCE + Duration::from_secs(images.size / RATE_MIN);
                let mut guest = Guest::connect(place, CHECK, images.contents, late)?;
                is_right(guest.size())?;
                let offsets = (0..images.size).step_by(CHECK.block as usize);
                each(&mut guest, 1, offsets, Guest::compare_whole)?;
                return Ok(images.sha256.clone());
            }
            let gate = open(target)?;
            is_right(gate.geometry().size)?;
            sha256_of(&gate, 1 << 20)
        })
    }

    /// A turn at a load.
    pub fn turn(&self, setting: &Setting, load: LoadShape, time: Duration, run: u32) -> Result<TurnResults> {
        let job = setting.job(load, time, u64::from(run) + 1);
        if let ServedContents::Cipher(sector_size) = self.disk {
            setting.stop.check()?;
            return BareCipher::new(sector_size)?.sample(&job, setting.pins.map(|pins| pins.server));
        }
        let RunningServer { process, place, target, _below } = &self.start(setting)?;
        let late = Instant::now() + job.warm_up + job.time + PATIENCE;
        let contents = setting.images.contents;
        process.turn(|| match self.door {
            Door::VhostUser => load::drive(&job, |_| Guest::connect(place, load, contents, late)),
            _ => fio::load(setting, target, &job),
        })
    }
}

/// Builds the name of a row.
fn name(server: &str, load: LoadShape) -> String {
    format!("{server}, {}", load.title())
}

/// Verifies that every server gives the bytes that the images were made of.
pub fn check_contents<'a>(setting: &Setting, servers: impl ExactSizeIterator<Item = &'a ServerRow>) -> Result<()> {
    let expected = &setting.images.sha256;
    let progress = progress(servers.len());
    for server in servers {
        progress.set_message(format!("checking {}", server.name));
        let sum = server.sha256(setting)?;
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

/// Adds the figures of a table; what one needs that has no value.
pub fn compare(report: &mut PlanReport, contests: &[Contest], needs: impl Fn(&Contest) -> String) {
    for contest @ &(figure, load, of, to, quantity) in contests {
        let pairs = vec![(name(of, load), to.iter().map(|to| name(to, load)).collect())];
        report.compare(&FigureSubject {
            name: figure,
            of: quantity,
            pairs,
            needs: needs(contest),
            ..FigureSubject::default()
        });
    }
}

/// Adds the figures of models: the same request plain, and then the bare cipher.
pub fn compare_with_models(report: &mut PlanReport, models: &[Model], needs: impl Fn(&Model) -> String) {
    for model @ &(figure, load, of, plain) in models {
        let pairs = vec![(name(of, load), [plain, BARE].map(|part| name(part, load)).to_vec())];
        report.compare(&FigureSubject {
            name: figure,
            pairs,
            in_sum: true,
            needs: needs(model),
            ..FigureSubject::default()
        });
    }
}
