//! `vhost-user`: the decrypted disk for virtual machines.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cryptline_engine::BackendChoice;
use cryptline_serve::lane::Poll;
use cryptline_serve::vhost_user::{
    FrontEnds as From, QUEUE_SIZE_MAX, QUEUE_SIZE_MIN, VhostDisk, VhostServer, VhostServerOptions,
};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::CliError;
use crate::again::Starter;
use crate::error::ZONED_ADVICE;
use crate::output::{is_quiet, print};
use crate::serve::background::{self, BackgroundArgs};
use crate::serve::banner::Banner;
use crate::serve::events;
use crate::serve::front::{BoundFront, OpenedFront, ServedVolume, check_queues};
use crate::serve::log::LineCounter;
use crate::serve::names::free_name;
use crate::serve::options::FrontArgs;
use crate::serve::run::RunCommand;
use crate::serve::sandbox::Needs;
use crate::serve::unix;
use crate::verb::{Group, Verb};

/// How long requests may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Most bytes of what guests see as a disk's name.
const SERIAL_MAX: usize = 20;
/// Answer that management tools ask for; the names are those of QEMU's vhost-user-blk schema.
const CAPABILITIES: &str = "{\"type\":\"block\",\"features\":[\"read-only\",\"blk-file\"]}\n";

pub const VERB: Verb = Verb {
    name: "vhost-user",
    group: Some(Group::Use),
    is_main: true,
    examples: "\
# ask for the passphrase, private socket
cryptline vhost-user disk.img
cryptline vhost-user disk.img --socket-path /run/vm1.sock --key-file key
# return once a machine can connect
cryptline vhost-user disk.img --socket-path vm.sock --background
cryptline vhost-user a.img b.img --socket-path a.sock --socket-path b.sock --num-queues 4",
    notes: "\
A virtual machine shares its memory with the server, which reads requests from it and copies data to \
and from it: no system call and no thread lies between a request of the guest and its cipher while \
the queue is busy. The machine's memory must be shareable (`share=on`); the banner shows the options \
for QEMU, libvirt and cloud-hypervisor.

Each TARGET has a socket of its own, with one virtual machine at a time. When a machine disconnects, \
the next one can connect. When the server is killed and started again with the same --socket-path, \
QEMU connects again (`reconnect`) and unfinished requests are carried out. A volume without a size of its own \
grows with its file, and QEMU tells the guest within a second.

The server stays in the foreground, unless --background is given. SIGINT, SIGTERM, SIGHUP and SIGQUIT stop it: it finishes the \
requests it has taken, for up to 5 s, flushes every disk and exits with 0, or with 4 if a flush failed.",
    exit: "0 success, 1 invalid parameters, 2 no key available: wrong passphrase or volume key, 3 out of memory, 4 \
        wrong device, damaged header, or I/O error, such as a failed final flush, 5 the image or socket path is \
        in use by another program",
    see: "cryptline-serve(1), cryptline-top(1), qemu-system(1)",
    ..Verb::EMPTY
};

/// Volumes to serve, and to whom.
#[derive(Args, Debug)]
pub struct VhostUserArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or ram:SIZE; each one becomes a disk;
    /// a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE [default: ram:1G]
    #[arg(value_name = "TARGET")]
    pub targets: Vec<OsString>,

    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub background: BackgroundArgs,
    #[command(flatten)]
    pub front: FrontArgs,
}

/// Options of what machines connect to, and of what they see.
#[derive(Args, Debug)]
#[command(next_help_heading = "Device options")]
pub struct DeviceArgs {
    /// Listen on this Unix socket; repeat it for each TARGET [default: a private temporary one]
    #[arg(long, value_name = "PATH", conflicts_with = "fd")]
    pub socket_path: Vec<PathBuf>,

    /// Use this inherited socket, listening or connected; repeat it for each TARGET
    #[arg(long, value_name = "N")]
    pub fd: Vec<u32>,

    /// Run COMMAND with `sh -c` and stop the server when it exits; $unixsocket is the first disk's socket
    #[arg(long, value_name = "COMMAND")]
    pub run: Option<String>,

    /// Print what this program can do as JSON, and exit
    #[arg(long)]
    pub print_capabilities: bool,

    /// Virtqueues of each disk; each has a thread of its own
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub num_queues: u16,

    /// Largest size of each virtqueue, a power of two; a guest's requests may have as many segments as fit, up to 254.
    /// Configure the same size in the virtual machine [default: any size, and segments for 128]
    #[arg(long, value_name = "N", value_parser = queue_size)]
    pub queue_size: Option<u16>,

    /// Name that the guest sees, up to 20 bytes; repeat it for each TARGET [default: from the file name]
    #[arg(long, value_name = "TEXT", value_parser = serial)]
    pub serial: Vec<String>,

    /// The target, as vhost-user programs call it
    #[arg(long, value_name = "PATH", conflicts_with = "targets")]
    pub blk_file: Option<OsString>,
}

/// Serves until told to stop.
///
/// # Errors
/// As [`open`](crate::args::open); exit code 5 for a socket in use, 4 for a failed last flush.
pub fn run(args: &mut VhostUserArgs) -> Result<ExitCode, CliError> {
    if args.device.print_capabilities {
        print(CAPABILITIES)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.background.background {
        args.front.process.make_absolute()?;
    }
    let args = &*args;
    if args.background.starts_another() {
        args.device.check_for_background()?;
        args.background.check(&args.front, args.device.run.as_ref())?;
        return background::run();
    }
    let starter = Starter::find()?;
    let targets = match &args.device.blk_file {
        Some(path) => std::slice::from_ref(path),
        None => &args.targets,
    };
    let front = BoundFront::begin(&args.front, targets)?;
    args.device.check(targets.len().max(1))?;
    let inherited = args.device.inherited()?;
    let names = RefCell::new(Vec::new());
    let front = front.open(|index, file| {
        let file = match file.as_str() {
            "" => format!("disk{index}"),
            _ => file,
        };
        let mut names = names.borrow_mut();
        let name = free_name(&file, usize::MAX, |name| is_among(&names, name));
        names.push(name.clone());
        name
    })?;
    check_volumes(&front.volumes)?;
    for volume in &*front.volumes {
        let queues = args.device.num_queues.into();
        check_queues(&volume.name, &volume.gate, queues, "--num-queues")?;
    }
    let (places, fronts) = if inherited.is_empty() { args.bind(&front)? } else { (Vec::new(), inherited) };
    let disks = args.device.disks(&front.volumes, fronts);
    let needs = Needs {
        clients: args.device.num_queues.into(),
        clients_option: "--num-queues",
        // The buffer that tells a next server what was under way.
        calls: &[libc::SYS_memfd_create],
        ..Needs::default()
    };
    let command = args.command(&places);
    starter.leave()?;
    let front = front.enter(&needs, command, args.banner(&places))?;
    let (backend, poll) = (front.backend(), front.poll());
    front.serve(|stop| {
        let server =
            VhostServer::new(disks, options(backend, poll)).map_err(|error| CliError::device(error.to_string()))?;
        let failed = |error| CliError::device(format!("cannot serve virtual machines: {error}"));
        starter.tell_of_clients(stop);
        server.run(stop).map_err(failed)
    })
}

fn options(backend: BackendChoice, poll: Poll) -> VhostServerOptions {
    let log = LineCounter::new();
    VhostServerOptions { backend, poll, grace: GRACE, log: Arc::new(move |event| events::of_front_end(&log, event)) }
}

/// Refuses what no guest could use.
fn check_volumes(volumes: &[ServedVolume]) -> Result<(), CliError> {
    let zoned = |volume: &&ServedVolume| volume.gate.geometry().zones.is_some();
    match volumes.iter().find(zoned) {
        Some(volume) => Err(CliError::device(format!(
            "{}: virtual machines cannot use a zoned volume over vhost-user{ZONED_ADVICE}",
            volume.name
        ))),
        None => Ok(()),
    }
}

impl VhostUserArgs {
    /// A socket for each volume.
    fn bind(&self, front: &OpenedFront<'_>) -> Result<(Vec<PathBuf>, Vec<From>), CliError> {
        let mode = self.front.process.socket_mode;
        let changes_user = self.front.sandbox.user.is_some();
        let bind = |index: usize| match self.device.socket_path.get(index) {
            Some(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                unix::bind(&path, mode, &front.cleanup).map(|listener| (path, listener))
            }
            None => unix::bind_private("vhost-user.sock", "--socket-path", changes_user, &front.cleanup),
        };
        let (mut places, mut fronts) = (Vec::new(), Vec::new());
        for index in 0..front.volumes.len() {
            let (path, listener) = bind(index)?;
            places.push(path);
            fronts.push(From::Listener(listener));
        }
        Ok((places, fronts))
    }

    /// The command of --run, with the variables that it finds.
    fn command(&self, places: &[PathBuf]) -> Option<RunCommand> {
        let socket = places.first().map(|path| ("unixsocket", path.clone().into_os_string()));
        Some(RunCommand { line: self.device.run.clone()?, variables: socket.into_iter().collect() })
    }

    fn banner(&self, places: &[PathBuf]) -> Banner {
        let queues = self.device.num_queues;
        let size = |text: &dyn Fn(u16) -> String| self.device.queue_size.map_or_else(String::new, text);
        let qemu = size(&|size| format!(",queue-size={size}"));
        let libvirt = size(&|size| format!(" queue_size='{size}'"));
        let hypervisor = size(&|size| format!(",queue_size={size}"));
        let show = |path: &PathBuf| path.display().to_string();
        // A path that is no text is shown as another.
        let hints = places.first().and_then(|path| path.to_str()).map(|path| {
            vec![
                format!(
                    "qemu-system-x86_64 ... -m 2G -machine memory-backend=mem \\\n    \
                     -object memory-backend-memfd,id=mem,size=2G,share=on \\\n    \
                     -chardev socket,id=disk,path={path},reconnect=1 \\\n    \
                     -device vhost-user-blk-pci,chardev=disk,num-queues={queues}{qemu}"
                ),
                format!(
                    "libvirt: <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>\n    \
                     <disk type='vhostuser' device='disk'><driver name='qemu' type='raw' queues='{queues}'{libvirt}/>\n    \
                     <source type='unix' path='{path}'><reconnect enabled='yes' timeout='1'/></source>\n    \
                     <target dev='vda' bus='virtio'/></disk>"
                ),
                format!(
                    "cloud-hypervisor ... --memory size=2G,shared=on \\\n    \
                     --disk vhost_user=true,socket={path},num_queues={queues}{hypervisor}"
                ),
            ]
        });
        Banner {
            noun: "disk",
            places: places.iter().map(|path| ("socket", show(path))).collect(),
            terms: vec![("queues", queues.to_string())],
            hints: hints.unwrap_or_default(),
            quiet: is_quiet(),
        }
    }
}

impl DeviceArgs {
    /// Refuses what a server in the background is not given.
    fn check_for_background(&self) -> Result<(), CliError> {
        if self.fd.is_empty() {
            return Ok(());
        }
        Err(CliError::parameters("--fd: whoever passes a socket waits for no path; leave out --background"))
    }

    /// Refuses what contradicts itself.
    fn check(&self, count: usize) -> Result<(), CliError> {
        for (given, option) in [(self.socket_path.len(), "--socket-path"), (self.serial.len(), "--serial")] {
            if given > count {
                return Err(CliError::parameters(format!(
                    "{option} is given {given} times for {count} disks; use it once for each TARGET"
                )));
            }
        }
        let fds = self.fd.len();
        if fds != 0 && fds != count {
            return Err(CliError::parameters(format!(
                "--fd is given {fds} times for {count} disks; use it once for each TARGET"
            )));
        }
        for path in &self.socket_path {
            unix::check(path)?;
        }
        Ok(())
    }

    /// The sockets that this process was started with.
    fn inherited(&self) -> Result<Vec<From>, CliError> {
        let take = |&number: &u32| {
            let wrong = |why: String| CliError::parameters(format!("--fd {number}: {why}"));
            let socket = cryptline_sys::take_passed_fd(number).map_err(|error| wrong(error.to_string()))?;
            let is_stream =
                socket_domain(&socket) == Ok(AddressFamily::UNIX) && socket_type(&socket) == Ok(SocketType::STREAM);
            match socket_acceptconn(&socket) {
                Ok(_) if !is_stream => Err(wrong("not a Unix stream socket".to_owned())),
                Ok(true) => Ok(From::Listener(UnixListener::from(socket))),
                Ok(false) => Ok(From::Connected(UnixStream::from(socket))),
                Err(error) => Err(wrong(format!("not a socket ({error})"))),
            }
        };
        self.fd.iter().map(take).collect()
    }

    fn disks(&self, volumes: &[ServedVolume], fronts: Vec<From>) -> Vec<VhostDisk> {
        let serials = serials(&self.serial, volumes.iter().map(|volume| &*volume.name));
        let volumes = volumes.iter().zip(serials).zip(fronts);
        let disk = |((volume, serial), front): ((&ServedVolume, String), From)| VhostDisk {
            name: volume.name.clone(),
            gate: volume.gate.clone(),
            block: volume.info.logical_block,
            serial,
            queues: self.num_queues,
            queue_size: self.queue_size,
            stats: Arc::clone(&volume.stats),
            front,
        };
        volumes.map(disk).collect()
    }
}

/// Returns what guests see of each volume: what was `given` for the first ones, and names for the others by which no
/// two are taken for one.
fn serials<'a>(given: &[String], names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut serials = given.to_vec();
    for name in names.skip(given.len()) {
        let serial = free_name(name, SERIAL_MAX, |serial| is_among(&serials, serial));
        serials.push(serial);
    }
    serials
}

fn is_among(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other == name)
}

fn queue_size(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(size) if size.is_power_of_two() && (QUEUE_SIZE_MIN..=QUEUE_SIZE_MAX).contains(&size) => Ok(size),
        _ => Err(format!("use a power of two from {QUEUE_SIZE_MIN} to {QUEUE_SIZE_MAX}")),
    }
}

fn serial(text: &str) -> Result<String, String> {
    let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.len() <= SERIAL_MAX && text.bytes().all(is_shown) {
        Ok(text.to_owned())
    } else {
        Err(format!("use up to {SERIAL_MAX} ASCII characters, none of them a control character"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_disks_have_one_serial_unless_it_is_given_so() {
        let names = ["root.img", "disk.img", "mine", "volume-of-the-first-machine", "volume-of-the-first-machine-2"];
        let serials = serials(&["mine".to_owned()], names.into_iter());
        let expected = ["mine", "disk.img", "mine-2", "volume-of-the-first-", "volume-of-the-firs-2"];
        assert_eq!(serials, expected);
    }
}
