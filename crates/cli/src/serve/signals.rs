//! Signals: the first asks the server to end properly, the second ends it. SIGHUP may ask for something else.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

use cryptline_serve::StopHandle;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, fstat};
use rustix::stdio::{stderr, stdin, stdout};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::{emulate_default_handler, signal_name};

use super::cleanup::{Cleanup, Remover};
use super::expiry::{self, Daily};
use super::notify::Notifier;
use crate::CliError;

/// Steers a server until it is logged that it has ended: ends it, once, and tells the service manager and the log.
#[derive(Clone)]
pub struct Stopper {
    handle: StopHandle,
    manager: Arc<Notifier>,
    stopping: Arc<AtomicBool>,
    /// Its number, where a signal was the first to ask.
    signal: Arc<AtomicI32>,
}

impl Stopper {
    /// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the server; a further one while it is
    /// stopping removes what `cleanup` knows and ends the process by that signal. What our parent
    /// had us ignore (`nohup`, a shell's background jobs) stays ignored.
    ///
    /// With `reload`, SIGHUP asks for that, unless it tells of the end of our terminal.
    pub fn begin(cleanup: &Cleanup, reload: Option<Reload>) -> Result<Self, CliError> {
        let stopper = Self {
            handle: StopHandle::new().map_err(|error| CliError::memory(error.to_string()))?,
            manager: Arc::new(Notifier::connect()),
            stopping: Arc::default(),
            signal: Arc::default(),
        };
        watch(stopper.clone(), cleanup.remover(), reload)?;
        Ok(stopper)
    }

    /// Returns what stops the server.
    pub fn handle(&self) -> &StopHandle {
        &self.handle
    }

    /// Says that clients can come: to the service manager and, as `message`, to the log.
    pub fn ready(&self, device: Option<&str>, message: &str) {
        self.manager.ready();
        tracing::info!(event = "ready", device, "{message}");
    }

    /// `false` where the server had been asked before.
    pub fn stop(&self) -> bool {
        self.stop_after(|| {})
    }

    /// Tells if the server has been asked to end.
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Logs that the server has ended: what the signal was, if one was the first to ask for it, what has become of the last
    /// flush, which is `well` or an error, and the code with which the process ends. Returns that code.
    pub fn ended(&self, ended: Result<u8, CliError>, well: &str) -> Result<ExitCode, CliError> {
        let (flushed, exit_code) = match &ended {
            Ok(code) => (well.to_owned(), *code),
            Err(error) => (error.to_string(), error.exit_code()),
        };
        let signal = signal_name(self.signal.load(Ordering::SeqCst));
        let by = signal.map(|name| format!(" by {name}")).unwrap_or_default();
        tracing::info!(event = "stopped", signal, exit_code, "stopped{by}; {flushed}");
        ended.map(ExitCode::from)
    }

    /// As [`stop`](Self::stop); does something else first.
    fn stop_after(&self, first: impl FnOnce()) -> bool {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return false;
        }
        first();
        self.manager.tell("STOPPING=1");
        self.handle.stop();
        true
    }
}

/// Action that SIGHUP asks for, where it does not stop the server.
pub type Reload = Box<dyn FnMut() + Send>;

/// Carries out signals on a thread of its own.
fn watch(stopper: Stopper, remover: Remover, mut reload: Option<Reload>) -> Result<(), CliError> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|&signal| !is_set(ignored, signal));
    let mut signals = WatchedSignals::new(wanted).map_err(cannot_handle)?;
    let watcher = move || {
        loop {
            let signal = signals.next();
            if let Some(reload) = &mut reload
                && signal == SIGHUP
                && !stopper.is_stopping()
                && !terminal_is_gone()
            {
                stopper.manager.reload(reload);
                continue;
            }
            if stopper.stop_after(|| stopper.signal.store(signal, Ordering::SeqCst)) {
                let name = signal_name(signal).unwrap_or_default();
                tracing::info!(event = "stopping", signal = name, "{name}: the server stops");
                continue;
            }
            remover.remove_all();
            // Both end the process; the second only where the first could not.
            let _ = emulate_default_handler(signal);
            cryptline_sys::exit_without_destructors();
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watcher).map_err(CliError::no_thread)?;
    Ok(())
}

/// Signals one after another, with what is to be done once a day while there are none.
struct WatchedSignals {
    signals: SignalDelivery<UnixStream, SignalOnly>,
    heard: VecDeque<i32>,
    daily: Daily,
}

impl WatchedSignals {
    fn new(wanted: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, wanted)?;
        Ok(Self { signals, heard: VecDeque::new(), daily: Daily::since(Instant::now()) })
    }

    fn next(&mut self) -> i32 {
        loop {
            if let Some(signal) = self.heard.pop_front() {
                return signal;
            }
            let left = Timespec::try_from(self.daily.left(Instant::now())).ok();
            let mut polled = [PollFd::new(self.signals.get_read(), PollFlags::IN)];
            // Interrupted or not, what has come is looked at next.
            let _ = rustix::event::poll(&mut polled, left.as_ref());
            self.heard.extend(self.signals.pending());
            if self.daily.is_over(Instant::now()) {
                expiry::warn_ahead();
            }
        }
    }
}

/// Tells if a terminal that we have was closed. For a pipe or a socket the end of its reader is no end of ours.
fn terminal_is_gone() -> bool {
    let ours = [stdin(), stdout(), stderr()];
    ours.into_iter().any(|descriptor| {
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::empty())];
        let now = Timespec::default();
        let polled = rustix::event::poll(&mut watched, Some(&now));
        let is_gone = polled.is_ok() && watched[0].revents().contains(PollFlags::HUP);
        is_gone && is_terminal_device(descriptor)
    })
}

/// One that was closed answers no question that a terminal answers.
fn is_terminal_device(descriptor: BorrowedFd<'_>) -> bool {
    fstat(descriptor).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

/// Request by SIGUSR1, once it is known whether it can be had.
pub struct Successor(Signals);

impl Successor {
    /// From now on SIGUSR1 does not end the process. What is asked for meanwhile is heard later.
    pub fn expect() -> Result<Self, CliError> {
        Signals::new([SIGUSR1]).map(Self).map_err(cannot_handle)
    }

    /// SIGUSR1 asks the server to leave what it serves to a successor, which `wanted` tells once it stops. Without this, it
    /// asks for nothing.
    pub fn watch(mut self, stopper: Stopper, wanted: Arc<AtomicBool>) -> Result<(), CliError> {
        let watcher = move || {
            for _ in self.0.forever() {
                stopper.stop_after(|| wanted.store(true, Ordering::SeqCst));
            }
        };
        std::thread::Builder::new().name("successor".into()).spawn(watcher).map(drop).map_err(CliError::no_thread)
    }
}

fn cannot_handle(error: io::Error) -> CliError {
    CliError::device(format!("cannot handle signals: {error}"))
}

/// The kernel's mask of what this process ignores (proc_pid_status(5)); none where it is not told.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Bit 0 is signal 1.
fn is_set(mask: u64, signal: i32) -> bool {
    let bit = u32::try_from(signal - 1).ok();
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_the_mask_are_signals() {
        assert!(is_set(1, SIGHUP) && !is_set(1, SIGINT));
        assert!(is_set(0x4000, SIGTERM));
        assert!(!is_set(u64::MAX, 0) && !is_set(u64::MAX, 65));
        // SIGPIPE, which every Rust program ignores.
        assert!(is_set(ignored_signals(), 13));
    }
}
