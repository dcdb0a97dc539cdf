//! `serve`: the decrypted disk over NBD.
//!
//! ```text
//! arguments checked ─► volumes opened (KDF, once each) ─► sockets bound ─► said so ─► served ─► flushed
//! ```

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cryptline::{Target, Zeroes};
use cryptline_engine::BackendChoice;
use cryptline_nbd::uri::{Address, NbdUri};
use cryptline_nbd::{OfferError, TlsMode};
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{CurrentTls, Export, Exports, NbdServer, NbdServerOptions};

use crate::CliError;
use crate::again::Starter;
use crate::error::ZONED_ADVICE;
use crate::output::{is_quiet, warn};
use crate::serve::activation;
use crate::serve::background::{self, BackgroundArgs};
use crate::serve::banner::Banner;
use crate::serve::certificates::{self, Renewable};
use crate::serve::control::{ControlSocket, HowServed, ServerControl};
use crate::serve::events;
use crate::serve::front::{BoundFront, ServedVolume};
use crate::serve::hints::Reachable;
use crate::serve::listen::{ListenWanted, Sockets};
use crate::serve::log::LineCounter;
use crate::serve::names::free_name;
use crate::serve::notify::has_manager;
use crate::serve::options::{FrontArgs, make_absolute};
use crate::serve::run::RunCommand;
use crate::serve::sandbox::Needs;
use crate::serve::tls::TlsArgs;
use crate::verb::{Group, UNIT, Verb};

/// Largest number of clients at a time that may be asked for.
const CONNECTIONS_MAX: u64 = 4096;
/// Handshakes at a time; with one more, the oldest of the peer that has the most gives way.
const HANDSHAKES_MAX: usize = 64;
/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longest name of an export that was not chosen, in bytes.
const NAME_MAX: usize = 255;
/// Said of sparse images.
const HOLES: &str = "sparse areas read as random data; add --zeroes detect to read them as zeros";
/// How long clients may take to read their last replies when the server stops.
const GRACE: Duration = Duration::from_secs(5);

pub const VERB: Verb = Verb {
    name: "serve",
    group: Some(Group::Use),
    is_main: true,
    examples: "\
# try it out with a 1 GiB encrypted RAM disk
cryptline serve
# ask for the passphrase
cryptline serve disk.img
# listen on a named Unix socket
cryptline serve disk.img --key-file key -U /tmp/d
# return once clients can connect; `kill $(cat p)` stops it
cryptline serve disk.img --background --pidfile p
# LUKS in a partition: its number, label or UUID
cryptline serve 'whole-disk.img?partition=2'
# a partition of the decrypted disk
cryptline serve disk.img --partition root
# serve while one command runs
cryptline serve disk.img --run 'nbdinfo \"$uri\"'
nbdcopy -- [ cryptline serve disk.img --key-file key -r ] copy.img
cryptline serve disk.img --tls=require --tls-certificates pki \\
    --run 'qemu-img info --object \"$tlsobject\" --image-opts \"$imageopts\"'
cryptline serve disk.img -p 10809 -i :: --tls=require --tls-certificates pki
# admit only the client with this certificate
cryptline serve disk.img -p 10809 -i :: --tls=require --tls-certificates pki --tls-verify-peer \\
    --tls-authz CN=backup",
    notes: "\
Without a TARGET, the server creates 1 GiB of RAM encrypted under a random key, which is lost when \
it exits. Without --unix or --port, it listens on a private Unix socket that only this user can reach.

The server stays in the foreground, unless --background is given. SIGINT, SIGTERM, \
SIGHUP and SIGQUIT stop it, but with --tls-certificates SIGHUP has it read the certificates again, \
for clients that connect from then on. When it is stopped, clients have up to 5 s to receive the answers to their requests; \
after that the server flushes every export and exits with 0, or with 4 if a flush failed. A second \
signal stops it immediately.

A volume without a size of its own grows with its file; clients that connect later see the new size.

With LISTEN_FDS set (systemd socket activation), it serves on the sockets it was passed and prints \
nothing, so `nbdinfo -- [ cryptline serve disk.img --key-file key ]` works. It notifies \
$NOTIFY_SOCKET once clients can connect.

The names of exports are UTF-8: in one that is made of a file's name, \u{fffd} stands for what is not.

After opening the volumes and binding the sockets, the server drops the rights it no longer needs: \
it cannot open files, start programs or make connections, and it has no capabilities (--sandbox). \
The banner shows which restrictions are in force. The command of --run is not restricted. When you \
start the server as root, add --user. The sockets and the pid file then belong to that user; let \
their directory belong to it as well, so that the server can remove them when it exits.

With --run, the exit code is that of the command.",
    exit: "0 success, 1 invalid parameters, such as a port below 1024 without the permission to bind it, 2 no key \
        available: wrong passphrase or volume key, 3 out of memory, 4 wrong device, damaged header, or I/O error, \
        such as a failed final flush, 5 the image, socket path or port is in use by another program",
    files: &[UNIT],
    see: "cryptline-vhost-user(1), cryptline-mount(1), cryptline-top(1), nbdinfo(1), nbdcopy(1), qemu-nbd(8), nbdkit(1)",
    ..Verb::EMPTY
};

/// Volumes to serve, and how.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or ram:SIZE; each one becomes an export;
    /// a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE; one with a key file of its own is
    /// TARGET?key-file=FILE [default: ram:1G]
    #[arg(value_name = "TARGET")]
    pub targets: Vec<OsString>,

    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub background: BackgroundArgs,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub front: FrontArgs,
}

/// Where and how to serve.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server options")]
pub struct ServerArgs {
    /// Listen on this Unix socket; `-` creates a private temporary one. May be repeated
    #[arg(short = 'U', long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,

    /// Listen on this TCP port; 0 lets the system choose one [default with --ip-addr: 10809]
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Address or host name for TCP [default: 127.0.0.1]
    #[arg(short, long, visible_short_alias = 'b', visible_alias = "bind", value_name = "ADDRESS")]
    pub ip_addr: Option<String>,

    /// Name of the export, which clients see; repeat it for each TARGET [default: the file name]. Clients that name none
    /// get the first
    #[arg(short, long, value_name = "NAME")]
    pub export_name: Vec<String>,

    /// Description of the export; repeat it for each TARGET
    #[arg(long, value_name = "TEXT")]
    pub description: Vec<String>,

    /// Take commands on this Unix socket: exports can be added, removed, flushed and made to grow while the server
    /// runs (see `cryptline ctl`). Only this user and root may give them, whatever --socket-mode says
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,

    /// Run COMMAND with `sh -c` and stop the server when it exits; $uri, $nbd, $unixsocket, $port,
    /// $exportname and $tls are set, and for QEMU, which knows no nbds URIs, $imageopts (for `--image-opts`) and
    /// $tlsobject (for `--object`; empty without TLS)
    #[arg(long, value_name = "COMMAND")]
    pub run: Option<String>,

    /// Largest number of clients at a time; further clients are refused. Clients in the handshake, which
    /// must finish within 10 s, do not count. Fewer, with a warning, where a memory limit leaves less than 36 MiB for
    /// each, `ulimit -n` too few descriptors, or the NBD server below takes too few connections
    #[arg(long, default_value_t = 64, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub max_connections: u64,

    /// Accepted for scripts written for other servers; this one is in the foreground by default
    #[arg(short, long, hide = true, conflicts_with = "background")]
    pub foreground: bool,
}

/// Serves until told to stop.
///
/// # Errors
/// As [`open`](crate::args::open); exit code 5 for a socket in use, 4 for a failed last flush.
pub fn run(args: &mut ServeArgs) -> Result<ExitCode, CliError> {
    args.make_absolute()?;
    let args = &*args;
    if args.background.starts_another() {
        args.background.check(&args.front, args.server.run.as_ref())?;
        return background::run();
    }
    let starter = Starter::find()?;
    let front = BoundFront::begin(&args.front, &args.targets)?.counting(args.server.control.is_some());
    let passed = activation::take()?;
    args.check(passed.is_some())?;
    let tls = args.tls.load()?;
    let wanted = args.wanted();
    if passed.is_none() {
        wanted.check()?;
    }
    let again = tls.as_ref().map(Renewable::again);
    let reload = match &again {
        Some(again) => Some(again.on_signal()),
        // Whoever is told when it is ready may ask for this.
        None => has_manager().then(certificates::nothing_to_reload),
    };
    let front = front.on_hangup(reload).open(args.naming())?;
    let exports = args.exports(&front.volumes)?;
    let quiet = passed.is_some() || is_quiet();
    let sockets = match passed {
        Some(sockets) => sockets,
        None => wanted.bind(&front.cleanup)?,
    };
    args.warn_of_open_network(&sockets);
    let control = args.server.control.as_deref().map(|path| ControlSocket::bind(path, &front.cleanup));
    let control = control.transpose()?;
    let uris = args.uris(&sockets, &front.volumes);
    let needs = Needs {
        clients: args.server.max_connections,
        clients_option: "--max-connections",
        serves_fewer: true,
        ..Needs::default()
    };
    let (tls, host) = match tls {
        Some(tls) => (Some(tls.tls), tls.host),
        None => (None, None),
    };
    let reachable = uris.first().zip(front.volumes.first());
    let reachable = reachable.map(|(uri, volume)| Reachable {
        uri,
        host: host.as_deref(),
        size: volume.info.size,
        read_only: volume.info.read_only,
    });
    let command = reachable.as_ref().and_then(|it| args.command(it));
    let commands = reachable.map(|it| it.commands()).unwrap_or_default();
    let holes = front.volumes.iter().enumerate().any(|(index, it)| args.hides_holes(index, it));
    starter.leave()?;
    let front = front.enter(&needs, command, args.banner(&uris, commands, holes, quiet))?;
    let clients = front.clients().unwrap_or(args.server.max_connections);
    let server = args.build(exports, (clients, front.lanes()), (front.backend(), front.poll()), tls);
    if let Some(socket) = control {
        let how = HowServed {
            places: args.places(&sockets),
            dispatch: args.front.volume.dispatch.clone(),
            certificates: again,
        };
        let volumes = front.volumes();
        socket.start(ServerControl::new(&server, volumes, front.poll(), how))?;
    }
    front.serve(|stop| {
        starter.tell_of_clients(stop);
        server
            .run(&sockets.listeners, stop)
            .map_err(|error| CliError::device(format!("cannot accept clients: {error}")))
    })
}

impl ServeArgs {
    /// A server in the background leaves the folder in which it was started.
    fn make_absolute(&mut self) -> Result<(), CliError> {
        if !self.background.background {
            return Ok(());
        }
        self.server.control.as_mut().map_or(Ok(()), make_absolute)?;
        self.front.process.make_absolute()
    }

    /// Refuses what contradicts itself.
    fn check(&self, is_activated: bool) -> Result<(), CliError> {
        let server = &self.server;
        let listens = !server.unix.is_empty() || server.port.is_some() || server.ip_addr.is_some();
        if is_activated && (listens || server.run.is_some()) {
            return Err(CliError::parameters(
                "started with sockets (LISTEN_FDS): leave out --unix, --port, --ip-addr and --run",
            ));
        }
        let count = self.targets.len().max(1);
        for (given, option) in
            [(server.export_name.len(), "--export-name"), (server.description.len(), "--description")]
        {
            if given > count {
                return Err(CliError::parameters(format!(
                    "{option} is given {given} times for {count} exports; use it once for each TARGET"
                )));
            }
        }
        Ok(())
    }

    fn wanted(&self) -> ListenWanted {
        ListenWanted {
            unix: self.server.unix.clone(),
            mode: self.front.process.socket_mode,
            port: self.server.port,
            address: self.server.ip_addr.clone(),
            changes_user: self.front.sandbox.user.is_some(),
        }
    }

    /// Names each export: as was chosen, or else as its file, but as none before it. It is not empty then: the empty name
    /// means the first export.
    fn naming(&self) -> impl Fn(usize, String) -> String {
        let names = RefCell::new(Vec::<String>::new());
        move |index, file| {
            let mut names = names.borrow_mut();
            let own = if file.is_empty() { format!("disk{index}") } else { file };
            let free = || free_name(&own, NAME_MAX, |name| names.iter().any(|other| other == name));
            let name = self.server.export_name.get(index).cloned().unwrap_or_else(free);
            names.push(name.clone());
            name
        }
    }

    fn exports(&self, volumes: &[ServedVolume]) -> Result<Arc<Exports>, CliError> {
        let export = |(index, volume): (usize, &ServedVolume)| Export {
            name: volume.name.clone(),
            description: self.server.description.get(index).cloned().unwrap_or_default(),
            gate: volume.gate.clone(),
            minimum_block: volume.info.logical_block,
            stats: Arc::clone(&volume.stats),
        };
        let exports = volumes.iter().enumerate().map(export).collect();
        Exports::new(exports, self.tls.tls).map_err(|error| match error {
            OfferError::Zoned(_) => CliError::device(format!("{error}{ZONED_ADVICE}")),
            error => CliError::parameters(format!("{error} (--export-name)")),
        })
    }

    /// Every export at every address, in the order of the exports. The first needs no name, unless one was chosen.
    fn uris(&self, sockets: &Sockets, volumes: &[ServedVolume]) -> Vec<NbdUri> {
        let places = self.places(sockets);
        let at = |(index, volume): (usize, &ServedVolume)| {
            let name = if index == 0 && self.server.export_name.is_empty() { "" } else { &volume.name };
            let of_export = |place: &NbdUri| place.with_export(name);
            places.iter().map(of_export).collect::<Vec<_>>()
        };
        volumes.iter().enumerate().flat_map(at).collect()
    }

    /// Where the exports are, without their names.
    fn places(&self, sockets: &Sockets) -> Vec<NbdUri> {
        let place = |address: &Address| NbdUri {
            tls: self.tls.tls == TlsMode::Require,
            address: address.clone(),
            export: String::new(),
            tls_options: self.tls.uri_options(),
        };
        sockets.addresses.iter().map(place).collect()
    }

    fn warn_of_open_network(&self, sockets: &Sockets) {
        if sockets.beyond_loopback && self.tls.tls != TlsMode::Require {
            warn(&["decrypted data will cross the network in plain text; use --tls=require".to_owned()]);
        }
    }

    /// Returns what --run runs, with the variables that it finds.
    fn command(&self, export: &Reachable<'_>) -> Option<RunCommand> {
        let mut variables = variables(export.uri, self.tls.word());
        variables.extend(export.variables().map(|(name, text)| (name, text.into())));
        Some(RunCommand { line: self.server.run.clone()?, variables })
    }

    /// Tells if clients read noise where the image has holes, which are a part of the decrypted disk, too.
    fn hides_holes(&self, index: usize, volume: &ServedVolume) -> bool {
        let decrypts = self.front.volume.blocks.zeroes == Zeroes::Decrypt;
        let found = match self.targets.get(index).map(Target::parse) {
            // Its name may be no text.
            Some(Ok(Target::Path(path))) => fs::metadata(path),
            _ => fs::metadata(&volume.info.source),
        };
        let stored = found.map(|found| found.is_file().then(|| found.blocks().saturating_mul(512)));
        decrypts && matches!(stored, Ok(Some(stored)) if stored < volume.info.size)
    }

    fn banner(&self, uris: &[NbdUri], hints: Vec<String>, holes: bool, quiet: bool) -> Banner {
        let tls = (self.tls.tls != TlsMode::Off).then(|| ("tls", self.tls.word().to_owned()));
        let control = self.server.control.as_ref();
        let control = control.map(|path| ("control", path.display().to_string()));
        let holes = holes.then(|| ("holes", HOLES.to_owned()));
        Banner {
            noun: "export",
            places: uris.iter().map(|uri| ("uri", uri.to_string())).collect(),
            terms: tls.into_iter().chain(control).chain(holes).collect(),
            hints,
            quiet,
        }
    }
}

impl ServeArgs {
    fn build(
        &self,
        exports: Arc<Exports>,
        (clients, lanes): (u64, usize),
        (backend, poll): (BackendChoice, Poll),
        tls: Option<Arc<CurrentTls>>,
    ) -> Arc<NbdServer> {
        let log = LineCounter::new();
        let options = NbdServerOptions {
            backend,
            poll,
            tls,
            max_connections: usize::try_from(clients).unwrap_or(usize::MAX),
            max_lanes: lanes,
            max_handshakes: HANDSHAKES_MAX,
            handshake_timeout: HANDSHAKE_MAX,
            grace: GRACE,
            log: Box::new(move |event| events::of_client(&log, event)),
        };
        NbdServer::new(exports, options)
    }
}

fn variables(uri: &NbdUri, tls: &str) -> Vec<(&'static str, OsString)> {
    let (nbd, socket, port) = match &uri.address {
        Address::Unix(path) => {
            let path = path.clone().into_os_string();
            let mut nbd = OsString::from("nbd:unix:");
            nbd.push(&path);
            (nbd, path, String::new())
        }
        Address::Tcp { host, port } => (format!("nbd:{host}:{port}").into(), OsString::new(), port.to_string()),
    };
    vec![
        ("uri", uri.to_string().into()),
        ("nbd", nbd),
        ("unixsocket", socket),
        ("port", port.into()),
        ("exportname", uri.export.clone().into()),
        ("tls", tls.into()),
    ]
}
