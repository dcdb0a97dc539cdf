//! The options that every front shares.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use cryptline_engine::BackendChoice;
use cryptline_serve::lane::Poll;
use rustix::fs::Mode;

use super::backend::{self, WorkingBackend};
use super::cleanup::Cleanup;
use super::metrics_socket::{MetricsAddress, MetricsSocket};
use super::sandbox::SandboxArgs;
use super::statistics::ServerInfo;
use super::stats_socket::StatsSocket;
use super::unix;
use super::volumes::Volumes;
use crate::CliError;
use crate::args::{KeyArgs, TargetArgs, choice};
use crate::log::LogArgs;

/// Options of what a front serves, and how, apart from its protocol.
#[derive(Args, Debug)]
pub struct FrontArgs {
    #[command(flatten)]
    pub process: ProcessArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    #[command(flatten)]
    pub volume: TargetArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
}

/// How the server runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server options")]
pub struct ProcessArgs {
    /// Permissions of the sockets that the server makes, in octal; 660 admits the socket's group
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = socket_mode)]
    pub socket_mode: Mode,

    /// Write the process ID to FILE once clients can connect and the banner has said where
    #[arg(short = 'P', long, visible_alias = "pid-file", value_name = "FILE")]
    pub pidfile: Option<PathBuf>,

    /// Exit when the parent process exits
    #[arg(long)]
    pub exit_with_parent: bool,

    /// I/O interface
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = choice::of(backend::IO))]
    pub io: BackendChoice,

    /// Look for the next request for this long before going to sleep, in microseconds, or auto
    ///
    /// Waking a sleeping thread costs more than a small read. Polling saves that where requests come one at a
    /// time, and costs processor time. Polls that find nothing become rare, and very rare where other programs want
    /// the processor. `auto` polls for 64 microseconds, on fewer connections or queues at a time than there are
    /// processors, and not at all on a machine with a single processor. Needs io_uring. 0 turns polling off.
    #[arg(long, value_name = "MICROSECONDS", default_value = "auto", value_parser = poll_time)]
    pub poll_us: PollTime,

    #[command(flatten)]
    pub statistics: StatsArgs,

    /// Log more to standard error, with the whole banner where standard output is no terminal
    #[arg(short, long)]
    pub verbose: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Options on telling what was done, and where.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// Publish statistics as JSON lines on this Unix socket (see `cryptline top`)
    #[arg(long, value_name = "SOCKET")]
    pub stats: Option<PathBuf>,

    /// Interval between statistics lines, in seconds
    #[arg(long, default_value = "1", value_name = "SECONDS", requires = "stats",
          value_parser = interval)]
    pub stats_interval: Duration,

    /// Answer Prometheus at http://ADDRESS/metrics: ADDRESS:PORT, PORT alone for 127.0.0.1, or unix:PATH
    ///
    /// Whoever can connect there learns the names of the exports and what they do, never their data. Port 0 lets
    /// the system choose one.
    #[arg(long, value_name = "ADDRESS", value_parser = OsStringValueParser::new().try_map(|place| MetricsAddress::parse(&place)))]
    pub metrics: Option<MetricsAddress>,
}

impl StatsArgs {
    /// Tells if anybody asks for what is counted.
    pub fn counts(&self) -> bool {
        self.stats.is_some() || self.metrics.is_some()
    }

    /// The paths of the sockets, with their options.
    pub fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let stats = self.stats.as_deref().map(|path| ("--stats", path));
        let metrics = match &self.metrics {
            Some(MetricsAddress::Unix(path)) => Some(("--metrics", &**path)),
            _ => None,
        };
        stats.into_iter().chain(metrics)
    }

    /// Makes the paths of the sockets independent of the folder.
    ///
    /// # Errors
    /// Exit code 1 where that folder is gone.
    pub fn make_absolute(&mut self) -> Result<(), CliError> {
        let metrics = match &mut self.metrics {
            Some(MetricsAddress::Unix(path)) => Some(path),
            _ => None,
        };
        self.stats.as_mut().into_iter().chain(metrics).try_for_each(make_absolute)
    }

    /// Finds most mistakes before a passphrase is asked for.
    ///
    /// # Errors
    /// As those of [`bind`](Self::bind).
    pub fn check(&self) -> Result<(), CliError> {
        if let Some(path) = &self.stats {
            unix::check(path)?;
        }
        self.metrics.as_ref().map_or(Ok(()), MetricsAddress::check)
    }

    /// Binds what was asked for. Call before rights are given up.
    ///
    /// # Errors
    /// Exit code 5 where another program listens there.
    pub fn bind(&self, mode: Mode, cleanup: &Cleanup) -> Result<StatsSockets, CliError> {
        let stats = self.stats.as_deref().map(|path| StatsSocket::bind(path, mode, self.stats_interval, cleanup));
        let metrics = self.metrics.as_ref().map(|place| MetricsSocket::bind(place, mode, cleanup));
        Ok(StatsSockets { stats: stats.transpose()?, metrics: metrics.transpose()? })
    }
}

/// Bound sockets for the statistics.
pub struct StatsSockets {
    stats: Option<StatsSocket>,
    metrics: Option<MetricsSocket>,
}

impl StatsSockets {
    /// Tells there what `volumes` do and how their lanes `poll`; where the metrics are.
    ///
    /// # Errors
    /// Exit code 3 where no thread can be started.
    pub fn start(self, volumes: &Volumes, poll: Poll) -> Result<Option<MetricsAddress>, CliError> {
        if let Some(socket) = self.stats {
            socket.start(ServerInfo::new(volumes.clone(), poll))?;
        }
        let place = self.metrics.as_ref().map(|socket| socket.place.clone());
        self.metrics.map_or(Ok(()), |socket| socket.start(volumes.clone()))?;
        Ok(place)
    }
}

impl FrontArgs {
    /// Refuses what contradicts itself.
    pub(super) fn check(&self, targets: &[OsString]) -> Result<(), CliError> {
        if self.volume.table.is_some() && !targets.is_empty() {
            return Err(CliError::parameters("use either a TARGET or --table, which names its device itself"));
        }
        if targets.len() > 1 && self.volume.header.is_some() {
            return Err(CliError::parameters(
                "--header belongs to one TARGET; serve the others by a server of their own",
            ));
        }
        Ok(())
    }
}

/// For a server that leaves this folder.
///
/// # Errors
/// Exit code 1 where the folder is gone.
pub fn make_absolute(path: &mut PathBuf) -> Result<(), CliError> {
    let failed = |error| CliError::parameters(format!("{}: {error}", path.display()));
    let whole = std::path::absolute(&*path).map_err(failed)?;
    *path = whole;
    Ok(())
}

/// Permissions as chmod(1) takes them.
fn socket_mode(text: &str) -> Result<Mode, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| digits && *mode <= 0o777)
        .map(Mode::from_raw_mode)
        .ok_or_else(|| "use octal permissions up to 777, such as 600 or 660".to_owned())
}

/// How long to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollTime {
    /// As suits the machine.
    Auto,
    /// As long as this.
    Fixed(Duration),
}

impl ProcessArgs {
    /// A server in the background leaves the folder in which it was started.
    ///
    /// # Errors
    /// Exit code 1 where that folder is gone.
    pub fn make_absolute(&mut self) -> Result<(), CliError> {
        self.pidfile.as_mut().map_or(Ok(()), make_absolute)?;
        self.statistics.make_absolute()
    }

    /// Returns what lanes are told.
    pub fn poll(&self, backend: &WorkingBackend) -> Poll {
        let poll = match self.poll_us {
            PollTime::Fixed(Duration::ZERO) => Poll::default(),
            PollTime::Fixed(limit) => Poll::Always(limit),
            PollTime::Auto => Poll::auto(),
        };
        poll.by(backend.choice)
    }
}

/// At most a millisecond: for longer waits nobody notices what it costs to be woken.
fn poll_time(text: &str) -> Result<PollTime, String> {
    if text == "auto" {
        return Ok(PollTime::Auto);
    }
    let micros = text.parse().ok().filter(|micros| *micros <= 1000);
    let time = micros.map(|micros| PollTime::Fixed(Duration::from_micros(micros)));
    time.ok_or_else(|| "use microseconds from 0 to 1000, or auto".to_owned())
}

/// From a tenth of a second to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    seconds
        .filter(|seconds| (0.1..=3600.0).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "use seconds from 0.1 to 3600".to_owned())
}
