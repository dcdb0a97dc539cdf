//! All memory of another process, searched for secrets.
//!
//! ```text
//!   /proc/PID/smaps   what is mapped, and whether it is locked and left out of core dumps
//!   /proc/PID/mem     every byte of it: heap, stacks, whatever
//! ```
//!
//! A secret is found by each of its pieces of eight bytes, so half a secret left behind is found too.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Child;

use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Bytes that count as a part of a secret.
const PIECE: usize = 8;
/// Bytes read at once.
const WINDOW: usize = 1 << 16;

/// Bytes that no memory may hold.
#[derive(Default)]
pub struct Secrets {
    names: Vec<String>,
    /// Each piece, and whose it is.
    pieces: HashMap<u64, usize>,
}

impl Secrets {
    /// Adds `bytes` as they are.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        assert!(bytes.len() >= PIECE, "too short to be told from chance");
        let whole = bytes.chunks_exact(PIECE);
        let last = &bytes[bytes.len() - PIECE..];
        for piece in whole.chain([last]) {
            let distinct = piece.iter().collect::<std::collections::HashSet<_>>().len();
            assert!(distinct > 1, "{name} has a piece that any memory has");
            self.pieces.insert(word(piece), self.names.len());
        }
        self.names.push(name.to_owned());
    }

    /// Adds `bytes` and their hexadecimal digits.
    pub fn add_with_digits(&mut self, name: &str, bytes: &[u8]) {
        self.add(name, bytes);
        let digits = base16ct::lower::encode_string(bytes);
        self.add(&format!("{name} in digits"), digits.as_bytes());
    }
}

/// A piece of a secret in memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Whose.
    pub secret: String,
    /// Where.
    pub address: u64,
    /// Origin of that memory: `[heap]`, `[stack]`, a file, or nothing for anonymous memory.
    pub mapping: String,
    /// Set if that is locked in RAM and left out of core dumps.
    pub guarded: bool,
}

impl fmt::Debug for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, address, mapping, .. } = self;
        write!(formatter, "{secret} at {address:x} in {mapping:?}")
    }
}

/// Findings of a search.
#[derive(Debug)]
pub struct Scan {
    /// The pieces that lie in memory that is locked and left out of core dumps.
    pub guarded: Vec<Found>,
    /// All others.
    pub leaked: Vec<Found>,
    /// Bytes that were looked at.
    pub bytes: u64,
}

struct Mapping {
    start: u64,
    end: u64,
    name: String,
    guarded: bool,
    /// The pages of a file as they are there, and nothing else.
    is_file: bool,
}

/// Looks through all memory of the process, which should be stopped.
///
/// # Errors
/// Without the right to (`CAP_SYS_PTRACE`, or the same user and a process that allows it).
pub fn scan(process: u32, secrets: &Secrets) -> io::Result<Scan> {
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut scan = Scan { guarded: Vec::new(), leaked: Vec::new(), bytes: 0 };
    let filter = Filter::new(secrets);
    let mut window = vec![0; WINDOW];
    for mapping in mappings(process)?.iter().filter(|mapping| !mapping.is_file) {
        let mut at = mapping.start;
        while at < mapping.end {
            let len = usize::try_from(mapping.end - at).map_or(WINDOW, |left| left.min(WINDOW));
            // What cannot be read is no memory: pages behind the end of a file, a device.
            let Ok(read) = memory.read_at(&mut window[..len], at) else { break };
            if read < PIECE {
                break;
            }
            // Most of it has never been touched.
            let is_zero = window[..read].iter().all(|byte| *byte == 0);
            for (offset, owner) in filter.search(&window[..if is_zero { 0 } else { read }], secrets) {
                let found = Found {
                    secret: secrets.names[owner].clone(),
                    address: at + offset as u64,
                    mapping: mapping.name.clone(),
                    guarded: mapping.guarded,
                };
                if found.guarded { scan.guarded.push(found) } else { scan.leaked.push(found) }
            }
            scan.bytes += read as u64;
            let step = if read == len && at + (len as u64) < mapping.end { read - (PIECE - 1) } else { read };
            at += step as u64;
        }
    }
    // Windows overlap.
    scan.guarded.sort();
    scan.guarded.dedup();
    scan.leaked.sort();
    scan.leaked.dedup();
    Ok(scan)
}

/// Which first two bytes some piece has: nearly all of memory is passed over by one look.
struct Filter(Vec<bool>);

impl Filter {
    fn new(secrets: &Secrets) -> Self {
        let mut first = vec![false; 1 << 16];
        for piece in secrets.pieces.keys() {
            first[usize::from(low(*piece))] = true;
        }
        Self(first)
    }

    fn search(&self, bytes: &[u8], secrets: &Secrets) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (offset, piece) in bytes.windows(PIECE).enumerate() {
            if self.0[usize::from(u16::from_le_bytes([piece[0], piece[1]]))]
                && let Some(owner) = secrets.pieces.get(&word(piece))
            {
                found.push((offset, *owner));
            }
        }
        found
    }
}

fn word(piece: &[u8]) -> u64 {
    u64::from_le_bytes(piece.try_into().expect("eight bytes"))
}

fn low(piece: u64) -> u16 {
    u16::try_from(piece & 0xffff).expect("16 bits")
}

fn mappings(process: u32) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in fs::read_to_string(format!("/proc/{process}/smaps"))?.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if first == "VmFlags:" {
            let flags: Vec<&str> = words.collect();
            if let Some(mapping) = mappings.last_mut() {
                mapping.guarded = ["lo", "dd"].iter().all(|flag| flags.contains(flag));
            }
        } else if first == "Anonymous:" {
            if let Some(mapping) = mappings.last_mut() {
                mapping.is_file &= words.next() == Some("0");
            }
        } else if let Some((start, end)) = first.split_once('-') {
            let hex = |text| u64::from_str_radix(text, 16).map_err(io::Error::other);
            let is_private = words.next().is_some_and(|rights| rights.ends_with('p'));
            let name = words.skip(3).collect::<Vec<_>>().join(" ");
            mappings.push(Mapping {
                start: hex(start)?,
                end: hex(end)?,
                is_file: is_private && name.starts_with('/'),
                name,
                guarded: false,
            });
        }
    }
    // The kernel's own pages.
    mappings.retain(|mapping| !mapping.name.starts_with("[v"));
    Ok(mappings)
}

/// A field of `/proc/PID/status` in KiB, such as `VmLck`.
#[must_use]
pub fn status_kib(process: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(&format!("{field}:")))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A child that stops at its very end, when all it does is done and its memory is still there.
///
/// The thread that attaches must be the one that waits.
pub struct Traced {
    child: Child,
    thread: Pid,
}

impl Traced {
    /// Takes hold of a child that goes on running.
    ///
    /// # Errors
    /// Where this process may not trace it.
    pub fn attach(child: Child) -> io::Result<Self> {
        let thread = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        // Nothing is left behind when a test fails.
        let options = Options::PTRACE_O_TRACEEXIT | Options::PTRACE_O_EXITKILL;
        ptrace::seize(thread, options)?;
        Ok(Self { child, thread })
    }

    /// The child, to talk to.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the child is about to end, then does `look`, then lets it. Returns the exit code,
    /// and what `look` did.
    ///
    /// # Errors
    /// When the child is gone without having stopped, or ends by a signal.
    pub fn at_the_end<T>(self, look: impl FnOnce(u32) -> T) -> io::Result<(i32, T)> {
        let mut look = Some(look);
        let mut seen = None;
        loop {
            match waitpid(self.thread, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceEvent(_, _, event) if event == Event::PTRACE_EVENT_EXIT as i32 => {
                    seen = look.take().map(|look| look(self.child.id()));
                    ptrace::cont(self.thread, None)?;
                }
                WaitStatus::PtraceEvent(..) => ptrace::cont(self.thread, None)?,
                WaitStatus::Stopped(_, Signal::SIGTRAP) => ptrace::cont(self.thread, None)?,
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.thread, signal)?,
                WaitStatus::Exited(_, code) => {
                    let seen = seen.ok_or_else(|| io::Error::other("it ended unseen"))?;
                    return Ok((code, seen));
                }
                WaitStatus::Signaled(_, signal, _) => {
                    return Err(io::Error::other(format!("it died of {signal}")));
                }
                _ => {}
            }
        }
    }
}
