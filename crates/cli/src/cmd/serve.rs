//! `serve`: the decrypted disk over NBD.
//!
//! ```text
//! arguments checked ─► volumes opened (KDF, once each) ─► sockets bound ─► said so ─► served ─► flushed
//! ```

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cryptline::{Fault, Info};
use cryptline_engine::BackendChoice;
use cryptline_nbd::OfferError;
use cryptline_nbd::uri::NbdUri;
use cryptline_serve::nbd::stats::ExportStats;
use cryptline_serve::nbd::{Export, Exports, Server, ServerOptions, StopHandle};
use rustix::fs::Mode;

use crate::CliError;
use crate::args::{KeyArgs, TargetArgs, open};
use crate::output::{complain, print, warn, warn_of};
use crate::serve::activation;
use crate::serve::backend::{Backend, IoMode};
use crate::serve::cleanup::Cleanup;
use crate::serve::listen::{Sockets, Wanted};
use crate::serve::log::Log;
use crate::serve::notify::Notifier;
use crate::serve::passed::Passed;
use crate::serve::report::Report;
use crate::serve::run::Captive;
use crate::serve::sandbox::{self, InForce, Sandbox, SandboxArgs};
use crate::serve::signals::{self, Stopper};
use crate::serve::stats_socket::StatsSocket;
use crate::serve::tls::{Tls, TlsArgs};
use crate::serve::{parent::Parent, pidfile};

/// Served where no target is given.
const DEFAULT_TARGET: &str = "ram:1G";
/// Largest number of clients at a time that may be asked for.
const CONNECTIONS_MAX: u64 = 4096;
/// Handshakes at a time; with one more, the oldest of the peer that has the most gives way.
const HANDSHAKES_MAX: usize = 64;
/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long clients may take to read their last replies when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// What to serve, and how.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Without a TARGET, the server creates 1 GiB of RAM encrypted under a random key, which is lost when \
it exits. Without --unix or --port, it listens on a private Unix socket that only this user can reach.

The server stays in the foreground: use a service manager, or `&` and --pidfile. SIGINT, SIGTERM, \
SIGHUP and SIGQUIT stop it. Clients then have up to 5 s to receive the answers to their requests; \
after that the server flushes every export and exits with 0, or with 4 if a flush failed. A second \
signal stops it immediately.

With LISTEN_FDS set (systemd socket activation), it serves on the sockets it was passed and prints \
nothing, so `nbdinfo -- [ cryptline serve disk.img --key-file key ]` works. It notifies \
$NOTIFY_SOCKET once clients can connect.

After opening the volumes and binding the sockets, the server drops the rights it no longer needs: \
it cannot open files, start programs or make connections, and it has no capabilities (--sandbox). \
The banner shows which restrictions are in force. The command of --run is not restricted. When you \
start the server as root, add --user. The sockets and the pid file then belong to that user; let \
their directory belong to it as well, so that the server can remove them when it exits.

Examples:
  cryptline serve                                     a 1 GiB encrypted RAM disk, to try it out
  cryptline serve disk.img                            ask for the passphrase
  cryptline serve disk.img --key-file key -U /tmp/d   listen on a named Unix socket
  cryptline serve disk.img --run 'nbdinfo \"$uri\"'     serve while one command runs
  nbdcopy -- [ cryptline serve disk.img --key-file key -r ] copy.img
  cryptline serve disk.img -p 10809 -i :: --tls=require --tls-certificates pki
  cryptline serve disk.img -p 10809 -i :: --tls=require --tls-certificates pki --tls-verify-peer \\
      --tls-authz CN=backup                           admit only the client with this certificate

Exit codes (as cryptsetup's):
  0  success
  1  invalid parameters, such as a port below 1024 without the permission to bind it
  2  no key available: wrong passphrase or volume key
  3  out of memory
  4  wrong device, damaged header, or I/O error, such as a failed final flush
  5  the image, socket path or port is in use by another program
With --run, the exit code is that of the command.")]
pub struct ServeArgs {
    /// LUKS file or block device, pmem:PATH, btt:PATH or ram:SIZE; each one becomes an export [default: ram:1G]
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,

    /// Where and how to serve.
    #[command(flatten)]
    pub server: ServerArgs,
    /// TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// What to give up.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// How to open the targets.
    #[command(flatten)]
    pub volume: TargetArgs,
    /// How to unlock them.
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// Where and how to serve.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server options")]
pub struct ServerArgs {
    /// Listen on this Unix socket; `-` creates a private temporary one. May be repeated
    #[arg(short = 'U', long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,

    /// Permissions of the --unix and --stats sockets, in octal; 660 admits the socket's group
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = socket_mode)]
    pub socket_mode: Mode,

    /// Listen on this TCP port; 0 lets the system choose one [default with --ip-addr: 10809]
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Address or host name for TCP [default: 127.0.0.1]
    #[arg(
        short,
        long,
        visible_short_alias = 'b',
        visible_alias = "bind",
        value_name = "ADDRESS"
    )]
    pub ip_addr: Option<String>,

    /// Name of the export; repeat it for each TARGET [default: "" for the first, then the file name]
    #[arg(short, long, value_name = "NAME")]
    pub export_name: Vec<String>,

    /// Description of the export; repeat it for each TARGET
    #[arg(long, value_name = "TEXT")]
    pub description: Vec<String>,

    /// Run COMMAND with `sh -c` and stop the server when it exits; $uri, $nbd, $unixsocket, $port,
    /// $exportname and $tls are set
    #[arg(long, value_name = "COMMAND")]
    pub run: Option<String>,

    /// Write the process ID to FILE once clients can connect
    #[arg(short = 'P', long, visible_alias = "pid-file", value_name = "FILE")]
    pub pidfile: Option<PathBuf>,

    /// Exit when the parent process exits
    #[arg(long)]
    pub exit_with_parent: bool,

    /// I/O interface
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub io: IoMode,

    /// Largest number of clients at a time; further clients are refused. Clients in the handshake, which
    /// must finish within 10 s, do not count
    #[arg(long, default_value_t = 64, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub max_connections: u64,

    /// Publish statistics as JSON lines on this Unix socket (see `cryptline top`)
    #[arg(long, value_name = "SOCKET")]
    pub stats: Option<PathBuf>,

    /// Interval between statistics lines, in seconds
    #[arg(long, default_value = "1", value_name = "SECONDS", requires = "stats",
          value_parser = interval)]
    pub stats_interval: Duration,

    /// Log more to standard error
    #[arg(short, long)]
    pub verbose: bool,

    /// Accepted for scripts written for other servers; this one is always in the foreground
    #[arg(short, long, hide = true)]
    pub foreground: bool,
}

/// Each export's name and what it is.
type NamedInfos = Vec<(String, Info)>;

/// Serves until told to stop.
///
/// # Errors
/// As [`open`]; exit code 5 for a socket in use, 4 for a failed last flush.
pub fn run(args: &ServeArgs) -> Result<ExitCode, CliError> {
    let keys = Passed::take(&args.volume, &args.keys);
    let parent = args.server.exit_with_parent.then(Parent::current);
    parent.map_or(Ok(()), Parent::follow)?;
    let passed = activation::take()?;
    args.check(passed.is_some())?;
    let tls = args.tls.load()?;
    let backend = Backend::probe(args.server.io)?;
    let sandbox = args.sandbox.prepare()?;
    let wanted = args.wanted();
    if passed.is_none() {
        wanted.check()?;
    }
    args.server
        .pidfile
        .as_deref()
        .map_or(Ok(()), pidfile::check)?;
    let (exports, infos) = args.open_exports()?;
    let input = keys.input_of_command();
    drop(keys);

    let cleanup = Cleanup::default();
    let stop = StopHandle::new().map_err(|error| CliError::memory(error.to_string()))?;
    let manager = Arc::new(Notifier::connect());
    let stopper = Stopper::new(stop.clone(), Arc::clone(&manager));
    signals::watch(stopper.clone(), cleanup.remover())?;
    let quiet = passed.is_some() || args.server.run.is_some();
    let sockets = match passed {
        Some(sockets) => sockets,
        None => wanted.bind(&cleanup)?,
    };
    args.warn_of_open_network(&sockets);
    args.server.start_statistics(&exports, &cleanup)?;
    let uris = args.uris(&sockets, &infos);
    if let Some(path) = &args.server.pidfile {
        pidfile::write(path, &cleanup)?;
    }
    let captive = args
        .server
        .start_command(&uris, args.tls.tls, input, stopper)?;
    let has = sandbox::Server {
        exports: &exports,
        backend: backend.choice,
        clients: args.server.max_connections,
        cleanup: &cleanup,
        command: captive.is_some(),
        parent,
    };
    let entered = args.enter(sandbox, &has, backend);
    let (in_force, backend) = match entered {
        Ok(entered) => entered,
        Err(error) => {
            captive.map(Captive::finish);
            return Err(error);
        }
    };
    args.server.warn_of_sandbox(&in_force, quiet);
    let server = args.server.build(&exports, backend.choice, tls);
    let report = Report {
        exports: &infos,
        uris: &uris,
        io: &backend.description,
        sandbox: &in_force,
        tls: args.tls.tls.name(),
        stats: args.server.stats.as_deref(),
    };
    args.server.say(&report.text(), quiet)?;
    manager.tell("READY=1");
    let served = server.run(&sockets.listeners, &stop);
    let status = captive.map_or(0, Captive::finish);
    outcome(served, status)
}

fn outcome(
    served: io::Result<Result<(), (String, Fault)>>,
    status: u8,
) -> Result<ExitCode, CliError> {
    match served {
        Ok(Ok(())) => Ok(ExitCode::from(status)),
        Ok(Err((name, fault))) => Err(CliError::device(format!(
            "export {name:?}: the last flush failed ({fault}); what was written since the flush before it may be lost"
        ))),
        Err(error) => Err(CliError::device(format!("cannot accept clients: {error}"))),
    }
}

impl ServeArgs {
    /// What contradicts itself.
    fn check(&self, is_activated: bool) -> Result<(), CliError> {
        let server = &self.server;
        let listens = !server.unix.is_empty() || server.port.is_some() || server.ip_addr.is_some();
        if is_activated && (listens || server.run.is_some()) {
            return Err(CliError::parameters(
                "started with sockets (LISTEN_FDS): leave out --unix, --port, --ip-addr and --run",
            ));
        }
        if self.volume.table.is_some() && !self.targets.is_empty() {
            return Err(CliError::parameters(
                "give either a TARGET or --table, which names its device itself",
            ));
        }
        let count = self.targets.len().max(1);
        if count > 1 && self.volume.header.is_some() {
            return Err(CliError::parameters(
                "--header belongs to one TARGET; serve the others by a server of their own",
            ));
        }
        for (given, option) in [
            (server.export_name.len(), "--export-name"),
            (server.description.len(), "--description"),
        ] {
            if given > count {
                return Err(CliError::parameters(format!(
                    "{option} is given {given} times for {count} exports; give it once for each TARGET"
                )));
            }
        }
        Ok(())
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            unix: self.server.unix.clone(),
            mode: self.server.socket_mode,
            port: self.server.port,
            address: self.server.ip_addr.clone(),
            changes_user: self.sandbox.user.is_some(),
        }
    }

    /// Opens every volume; each key is derived once, here.
    fn open_exports(&self) -> Result<(Arc<Exports>, NamedInfos), CliError> {
        let nothing_named = self.targets.is_empty();
        let alone = match (nothing_named, &self.volume.table) {
            (true, Some(_)) => Some(String::new()),
            (true, None) => Some(DEFAULT_TARGET.to_owned()),
            (false, _) => None,
        };
        let (mut exports, mut infos) = (Vec::new(), Vec::new());
        for (index, target) in self.targets.iter().chain(&alone).enumerate() {
            let volume = open(target, &self.volume, &self.keys)?;
            warn_of(volume.warnings());
            let minimum_block = volume.info().logical_block;
            let gate = volume.gate_for_any_client()?;
            let name = self.export_name(index, target);
            let description = self.server.description.get(index).cloned();
            exports.push(Export {
                name: name.clone(),
                description: description.unwrap_or_default(),
                gate,
                minimum_block,
                stats: ExportStats::new(self.server.stats.is_some()),
            });
            infos.push((name, volume.info().clone()));
        }
        let exports = Exports::new(exports, self.tls.tls.into()).map_err(|error| match error {
            OfferError::Zoned(_) => CliError::device(error.to_string()),
            error => CliError::parameters(format!("{error} (--export-name)")),
        })?;
        Ok((exports, infos))
    }

    fn export_name(&self, index: usize, target: &str) -> String {
        match self.server.export_name.get(index) {
            Some(name) => name.clone(),
            None if index == 0 => String::new(),
            None => Path::new(target)
                .file_name()
                .map(OsStr::to_string_lossy)
                .unwrap_or_default()
                .into_owned(),
        }
    }

    /// Gives up rights, and asks again for I/O: what was possible with more may not be any more.
    fn enter(
        &self,
        sandbox: Sandbox,
        has: &sandbox::Server<'_>,
        backend: Backend,
    ) -> Result<(InForce, Backend), CliError> {
        let in_force = sandbox.enforce(has)?;
        match backend.choice {
            BackendChoice::Syscalls => Ok((in_force, backend)),
            _ => Ok((in_force, Backend::probe(self.server.io)?)),
        }
    }

    /// Every export at every address, in the order of the exports.
    fn uris(&self, sockets: &Sockets, exports: &[(String, Info)]) -> Vec<NbdUri> {
        let uri = |export: &String, address: &_| NbdUri {
            tls: self.tls.tls == Tls::Require,
            address: Clone::clone(address),
            export: export.clone(),
            tls_options: self.tls.uri_options(),
        };
        exports
            .iter()
            .flat_map(|(name, _)| sockets.addresses.iter().map(move |at| uri(name, at)))
            .collect()
    }

    fn warn_of_open_network(&self, sockets: &Sockets) {
        if sockets.beyond_loopback && self.tls.tls != Tls::Require {
            warn(&[
                "other machines can connect, and the clear disk crosses the network unencrypted; \
                 consider --tls=require"
                    .to_owned(),
            ]);
        }
    }
}

impl ServerArgs {
    fn build(
        &self,
        exports: &Arc<Exports>,
        backend: BackendChoice,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Arc<Server> {
        let log = Log::new();
        let options = ServerOptions {
            backend,
            tls,
            max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
            max_handshakes: HANDSHAKES_MAX,
            handshake_timeout: HANDSHAKE_MAX,
            grace: GRACE,
            log: Box::new(move |message| log.line(message)),
        };
        Server::new(Arc::clone(exports), options)
    }

    fn start_statistics(&self, exports: &Arc<Exports>, cleanup: &Cleanup) -> Result<(), CliError> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        StatsSocket::bind(path, self.socket_mode, self.stats_interval, cleanup)?
            .start(Arc::clone(exports))
    }

    /// Says what the banner would, where there is none.
    fn warn_of_sandbox(&self, in_force: &InForce, quiet: bool) {
        if quiet && !self.verbose && in_force.is_less_than_asked() {
            warn(&[format!("sandbox: {}", in_force.text())]);
        }
    }

    /// Standard output belongs to the client or command where there is one.
    fn say(&self, report: &str, quiet: bool) -> Result<(), CliError> {
        match (quiet, self.verbose) {
            (false, _) => print(report),
            (true, true) => {
                report
                    .lines()
                    .filter(|line| !line.is_empty())
                    .for_each(complain);
                Ok(())
            }
            (true, false) => Ok(()),
        }
    }

    fn start_command(
        &self,
        uris: &[NbdUri],
        tls: Tls,
        input: Stdio,
        stopper: Stopper,
    ) -> Result<Option<Captive>, CliError> {
        match (&self.run, uris.first()) {
            (Some(command), Some(uri)) => {
                Captive::start(command, uri, tls.name(), input, stopper).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Permissions as chmod(1) takes them.
fn socket_mode(text: &str) -> Result<Mode, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| digits && *mode <= 0o777)
        .map(Mode::from_raw_mode)
        .ok_or_else(|| "give octal permissions up to 777, such as 600 or 660".to_owned())
}

/// From a tenth of a second to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || "give seconds from 0.1 to 3600".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.1..=3600.0).contains(&seconds) {
        Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
    } else {
        Err(wrong())
    }
}
