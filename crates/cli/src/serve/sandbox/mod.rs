//! Giving up what a server does not need once everything is open.
//!
//! ```text
//! prepare   names looked up, before anybody waits for a key
//!   ...     volumes opened, sockets bound, --run's command started: all of that with every right
//! enforce   descriptors opened ahead ─► user and group ─► no_new_privs, no capabilities, Landlock,
//!           seccomp: on all threads ─► said in the banner ─► clients
//! ```
//!
//! Two lines of defence, neither of which sees all. seccomp forbids system calls, but not what
//! io_uring does in their stead; Landlock forbids names of files, TCP and foreign abstract sockets
//! however they are reached, but no other sockets. `--io=preadv` has no io_uring to forbid.

mod files;
mod filter;
mod probe;
mod user;

use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Connections, OpenError, Ring};
use cryptline_sys::Restriction;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Access, AtFlags, Gid, Mode as FileMode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::cleanup::{Cleanup, FileIdentity, folder_of};
use super::front::Served;
use super::memory::count_of;
use super::parent::Parent;
use crate::CliError;
use crate::harden::protect_process;
use crate::output::warn;
use filter::{Allowed, Filters};
use probe::Probe;
use user::Identity;

/// `--sandbox`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Whatever the kernel offers; the banner lists it
    #[default]
    Auto,
    /// Everything, or fail
    On,
    /// No restrictions, for debugging
    Off,
}

/// Which rights to give up.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sandbox options")]
pub struct SandboxArgs {
    /// Drop the rights to open files, start programs and make connections, and all
    /// capabilities, before the first client is served
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub sandbox: Mode,

    /// Switch to this user (name or number) before serving the first client
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,

    /// Switch to this group [default with --user: the user's group]
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,

    /// Try what the sandbox refuses and print the results, then serve
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,
}

/// Why nothing is in force where that was asked for.
const ASKED_OFF: &str = "--sandbox=off";

/// Resources that a front needs when the rest is given up.
#[derive(Default)]
pub struct Needs<'a> {
    /// Clients at a time: for each a queue into every volume is opened ahead.
    pub clients: u64,
    /// The option that lowers their number.
    pub clients_option: &'a str,
    /// Set if it can serve fewer of them, where there is not enough for all.
    pub serves_fewer: bool,
    /// System calls beyond those of a server of stream sockets.
    pub calls: &'a [i64],
    /// Requests of ioctl(2).
    pub ioctls: &'a [u64],
}

/// Resources that the server has and needs when it gives the rest up.
pub struct Server<'a> {
    /// Resources that its front needs.
    pub needs: &'a Needs<'a>,
    /// Served volumes.
    pub volumes: &'a [Served],
    /// How connections do their I/O.
    pub backend: BackendChoice,
    /// Objects that must be removed at the end.
    pub cleanup: &'a Cleanup,
    /// `--run` was given; its command runs.
    pub command: bool,
    /// Whose end is ours (`--exit-with-parent`).
    pub parent: Option<Parent>,
}

/// A sandbox to be entered.
pub struct Sandbox {
    mode: Mode,
    identity: Option<Identity>,
    probe: Option<Probe>,
}

/// Restrictions in force, for people.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Why nothing is.
    off: Option<String>,
    parts: Vec<String>,
    missing: Vec<String>,
    /// `name (uid:gid)`, where `--user` or `--group` was given.
    pub user: Option<String>,
    /// Most clients at a time, where there is not enough for all that were asked for.
    pub clients: Option<u64>,
}

impl InForce {
    /// Tells if less is in force than the kernel of a usual machine offers, and nobody asked for that.
    pub fn is_less_than_asked(&self) -> bool {
        match &self.off {
            Some(why) => why != ASKED_OFF,
            None => !self.missing.is_empty(),
        }
    }

    /// `no_new_privs, landlock (version 7); without seccomp (why)`.
    pub fn text(&self) -> String {
        if let Some(why) = &self.off {
            return format!("off ({why})");
        }
        let mut text = self.parts.join(", ");
        if !self.missing.is_empty() {
            text += "; without ";
            text += &self.missing.join(", ");
        }
        text
    }

    fn note(&mut self, part: &str, done: Result<String, String>) {
        match done {
            Ok(detail) if detail.is_empty() => self.parts.push(part.to_owned()),
            Ok(detail) => self.parts.push(format!("{part} ({detail})")),
            Err(why) => self.missing.push(format!("{part} ({why})")),
        }
    }
}

impl SandboxArgs {
    /// Finds mistakes before anybody waits for a key.
    pub fn prepare(&self) -> Result<Sandbox, CliError> {
        Ok(Sandbox {
            mode: self.sandbox,
            identity: Identity::find(self.user.as_deref(), self.group.as_deref())?,
            probe: self.sandbox_probe.then(Probe::new).transpose()?,
        })
    }
}

impl Sandbox {
    /// Enters it, with all threads, for good.
    ///
    /// Errors: with `--sandbox=on`, where a part of it is missing; where the user cannot be
    /// changed to. The process may have given up rights by then, and must end.
    pub fn enforce(self, server: &Server<'_>) -> Result<InForce, CliError> {
        let mut in_force = InForce::default();
        if self.mode == Mode::Off {
            in_force.off = Some(ASKED_OFF.to_owned());
        }
        if self.mode != Mode::Off || self.identity.is_some() {
            // A shortage never takes the sandbox away, only clients.
            let clients = open_ahead(server).map_err(|lacking| lacking.refusal(server.needs))?;
            in_force.clients = (clients < server.needs.clients).then_some(clients);
            self.confine(server, &mut in_force)?;
        }
        if let (Mode::On, false) = (self.mode, in_force.missing.is_empty()) {
            return Err(CliError::parameters(format!(
                "--sandbox=on: there is no {}; use --sandbox=auto to do without",
                in_force.missing.join(", no ")
            )));
        }
        self.probe.map_or(Ok(()), Probe::run)?;
        Ok(in_force)
    }

    fn confine(&self, server: &Server<'_>, in_force: &mut InForce) -> Result<(), CliError> {
        let made = server.cleanup.made();
        let volumes = server.volumes.iter();
        let connections =
            volumes.map(|volume| volume.gate.makes_connections()).fold(Connections::default(), Connections::and);
        // With the rights to look for the folders.
        let ruleset = files::ruleset(&files::Allowed {
            files: made.files.clone(),
            folders: made.directories.clone(),
            signals: server.command,
            connections: connections.tcp,
            unix: connections.unix,
        });
        if self.mode != Mode::Off {
            // Without the right to do it, execve still gives nothing: no_new_privs is set below.
            let _ = everywhere(Restriction::EmptyBoundingSet);
        }
        if let Some(identity) = &self.identity {
            hand_over(&made.identities, identity)?;
            identity.assume()?;
            // Nor does it keep that nobody may look into our memory.
            protect_process();
            // The kernel forgets it when the user changes.
            server.parent.map_or(Ok(()), Parent::follow)?;
            in_force.user = Some(identity.name().to_owned());
        }
        if self.mode != Mode::Off {
            let nothing = |()| String::new();
            let done = everywhere(Restriction::NoNewPrivileges).map(nothing);
            in_force.note("no_new_privs", done);
            let done = everywhere(Restriction::NoCapabilities).map(|()| {
                if cryptline_sys::confined_threads_have_capabilities() {
                    "but Ceph's threads may read any file and change the user".to_owned()
                } else {
                    String::new()
                }
            });
            in_force.note("no capabilities", done);
        }
        warn(&what_stays(made.files.iter().chain(&made.directories)));
        if self.mode != Mode::Off {
            let io_uring = server.backend != BackendChoice::Syscalls;
            in_force.note("landlock", landlock(ruleset, io_uring));
            let allowed = Allowed {
                io_uring,
                command: server.command,
                connections,
                calls: server.needs.calls,
                ioctls: server.needs.ioctls,
            };
            in_force.note("seccomp", seccomp(&allowed));
            if connections.by_library {
                let left = "may read files and connect";
                in_force.note("Ceph's threads", Ok(left.to_owned()));
            } else if connections.are_any() {
                let left = "to the server below";
                in_force.note("new connections", Ok(left.to_owned()));
            }
        }
        Ok(())
    }
}

/// Descriptors of a client beside those of its volume: its socket, its ring and what wakes it.
const OF_CLIENT: u64 = 4;
/// Those of the server: clients in the handshake, of the statistics and of the control socket.
const OF_SERVER: u64 = 24;

/// The lack of files or connections for all clients.
struct Lacking(OpenError);

impl Lacking {
    fn refusal(&self, needs: &Needs<'_>) -> CliError {
        let (Self(error), clients, option) = (self, needs.clients, needs.clients_option);
        let least = count_of(if needs.serves_fewer { 1 } else { clients });
        match error {
            OpenError::Remote { .. } => CliError::device(format!(
                "cannot open the connections for {least}: {error}; lower {option} or raise the server's limit (as with `qemu-nbd --shared=0`)"
            )),
            error => CliError::parameters(format!(
                "cannot open the files of {least}: {error}; lower {option} or raise `ulimit -n`"
            )),
        }
    }

    fn warn(&self, clients: u64) {
        let Self(error) = self;
        let remedy = match error {
            OpenError::Remote { .. } => "raise the server's limit (as with `qemu-nbd --shared=0`)",
            _ => "raise `ulimit -n`",
        };
        warn(&[format!("no more than {} at a time: {error}; {remedy} for more", count_of(clients))]);
    }
}

/// Opens as many queues as there can be clients, once: as many can be opened again without opening
/// a file (`engine::base`). It also starts the engine's threads, with the priorities they ask for.
///
/// The number of clients for which there was enough.
fn open_ahead(server: &Server<'_>) -> Result<u64, Lacking> {
    let needs = server.needs;
    open_for_server(server).map_err(Lacking)?;
    let (clients, lacking) = open_for_clients(server, needs.clients);
    let Some(lacking) = lacking else {
        return Ok(needs.clients);
    };
    // Those of the clients that it is too few for are in the way of others.
    server.volumes.iter().for_each(|volume| volume.gate.close_spare());
    if clients == 0 || !needs.serves_fewer {
        return Err(lacking);
    }
    match open_for_clients(server, clients) {
        (_, Some(lacking)) => Err(lacking),
        (clients, None) => {
            lacking.warn(clients);
            Ok(clients)
        }
    }
}

fn open_for_server(server: &Server<'_>) -> Result<(), OpenError> {
    // The command that runs beside us has its own limits by now.
    raise(Resource::Nofile);
    // Buffers that are registered with a ring, where that was free of limits for root so far.
    raise(Resource::Memlock);
    // The first call looks for the fast way, which needs a file.
    let _ = rustix::thread::sched_getcpu();
    for volume in server.volumes {
        Blocking::new(&volume.gate, server.backend)?;
        // A server below is asked for its holes over a connection that is made with the first question.
        let _ = volume.gate.extent(0, 1);
    }
    Ok(())
}

/// Opens what so many clients take, all of it at once. The number of those for which there was enough, and what there
/// was not enough of for more.
fn open_for_clients(server: &Server<'_>, clients: u64) -> (u64, Option<Lacking>) {
    let (mut queues, mut beside) = (Vec::new(), Vec::new());
    // One more flushes at the end, or the only one there can be.
    for number in 0..=clients {
        let mut for_one = || {
            for volume in server.volumes {
                let is_needed = !volume.gate.geometry().answers_at_once && number < volume.gate.most_queues() as u64;
                if is_needed {
                    let mut ring = Ring::new(BackendChoice::Syscalls, 1).map_err(OpenError::Ring)?;
                    queues.push((volume.gate.open_queue(&mut ring)?, ring));
                }
            }
            for _ in 0..if number == 0 { OF_SERVER } else { OF_CLIENT } {
                let descriptor = eventfd(0, EventfdFlags::CLOEXEC);
                beside.push(descriptor.map_err(|error| OpenError::Ring(error.into()))?);
            }
            Ok(())
        };
        match for_one() {
            Ok(()) => {}
            // The last flush waits until a client has left.
            Err(OpenError::Remote { .. }) if number > 0 && number == clients => break,
            Err(error @ OpenError::Remote { .. }) if number == 1 => return (1, Some(Lacking(error))),
            Err(error) => return (number.saturating_sub(1), Some(Lacking(error))),
        }
    }
    (clients, None)
}

/// As far as we may: for root to no limit, for others to their hard limit.
fn raise(resource: Resource) {
    let mut limit = getrlimit(resource);
    let hard = limit.maximum;
    if resource == Resource::Memlock {
        (limit.current, limit.maximum) = (None, None);
        if setrlimit(resource, limit).is_ok() {
            return;
        }
    }
    (limit.current, limit.maximum) = (hard, hard);
    // The limit stays as it was.
    let _ = setrlimit(resource, limit);
}

/// The others first: once confined, this thread may not signal them.
fn everywhere(restriction: Restriction<'_>) -> Result<(), String> {
    let others = restriction.apply_to_others();
    restriction.apply_here().map_err(|error| error.to_string())?;
    others.map_err(|error| format!("not for all threads: {error}"))
}

fn landlock(ruleset: io::Result<std::os::fd::OwnedFd>, io_uring: bool) -> Result<String, String> {
    use std::os::fd::AsFd;
    let missing = |why: String| {
        if io_uring { format!("{why}; io_uring could open files, which --io=preadv could not") } else { why }
    };
    let version = cryptline_sys::landlock_version().map_err(|error| {
        missing(match error.kind() {
            io::ErrorKind::Unsupported => "the kernel does not offer it".to_owned(),
            _ => format!("the kernel refuses: {error}"),
        })
    })?;
    let ruleset = ruleset.map_err(|error| missing(error.to_string()))?;
    everywhere(Restriction::Landlock(ruleset.as_fd())).map_err(missing)?;
    Ok(format!("version {version}"))
}

fn seccomp(allowed: &Allowed<'_>) -> Result<String, String> {
    let filters = Filters::new(allowed).and_then(|filters| filters.install());
    filters.map(|()| String::new()).map_err(|error| error.to_string())
}

/// So that the new user may reach and remove what was made for the old one.
///
/// By descriptor, and only what is still what we made: others may have rights in its folder.
fn hand_over(made: &[(PathBuf, FileIdentity)], identity: &Identity) -> Result<(), CliError> {
    let uid = identity.uid().map(Uid::from_raw);
    let gid = Some(Gid::from_raw(identity.gid()));
    let give = |path: &PathBuf, ours: &FileIdentity| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::open(path, flags, FileMode::empty())?;
        let stat = rustix::fs::fstat(&found)?;
        if (stat.st_dev, stat.st_ino) != *ours {
            return Err(Errno::STALE);
        }
        rustix::fs::chownat(&found, "", uid, gid, AtFlags::EMPTY_PATH)
    };
    for (path, ours) in made {
        give(path, ours).map_err(|error| {
            CliError::parameters(format!("cannot give {} to {}: {error}", path.display(), identity.name()))
        })?;
    }
    Ok(())
}

/// A warning for each thing that we may not remove at the end.
fn what_stays<'a>(made: impl Iterator<Item = &'a PathBuf>) -> Vec<String> {
    let stays = made.filter(|path| {
        let folder = folder_of(path);
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err()
    });
    let warning = |path: &PathBuf| {
        format!(
            "{} will be left behind at the end: its folder belongs to another user, and the right \
             to remove it is given up; put it into a folder of the server's user",
            path.display()
        )
    };
    stays.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_its_reason() {
        let mut in_force = InForce::default();
        in_force.note("no_new_privs", Ok(String::new()));
        in_force.note("landlock", Ok("version 7".into()));
        assert_eq!(in_force.text(), "no_new_privs, landlock (version 7)");
        in_force.note("seccomp", Err("forbidden".into()));
        assert_eq!(in_force.text(), "no_new_privs, landlock (version 7); without seccomp (forbidden)");
        in_force.off = Some("--sandbox=off".into());
        assert_eq!(in_force.text(), "off (--sandbox=off)");
    }
}
