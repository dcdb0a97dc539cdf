//! Giving up what a server does not need once everything is open.
//!
//! ```text
//! prepare   names looked up, before anybody waits for a key
//!   ...     volumes opened, sockets bound, --run's command started: all of that with every right
//! enforce   what clients need that can be had no more ─► user and group ─► no_new_privs, no capabilities, Landlock,
//!           seccomp: on all threads ─► said in the banner ─► clients
//! ```
//!
//! Two lines of defence, neither of which sees all. seccomp forbids system calls, but not what
//! io_uring does in their stead; Landlock forbids names of files, TCP and foreign abstract sockets
//! however they are reached, but no other sockets. `--io=preadv` has no io_uring to forbid.

mod ahead;
mod files;
mod filter;
mod probe;
mod user;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cryptline_engine::{BackendChoice, Connections};
use cryptline_sys::Restriction;
use rustix::fs::{Access, AtFlags, Gid, Mode as FileMode, OFlags, Uid};
use rustix::io::Errno;

use super::cleanup::{Cleanup, FileIdentity, folder_of};
use super::front::ServedVolume;
use super::parent::ParentProcess;
use crate::CliError;
use crate::harden::protect_process;
use crate::output::warn;
use filter::{FilterTerms, Filters};
use probe::SandboxProbe;
use user::UserAndGroup;

/// `--sandbox`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SandboxMode {
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
    /// Drop the rights to open files other than the disks, to start programs and to make connections, and all
    /// capabilities, before the first client is served
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub sandbox: SandboxMode,

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
    /// Clients at a time.
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
pub struct ServerRights<'a> {
    /// Resources that its front needs.
    pub needs: &'a Needs<'a>,
    /// Served volumes.
    pub volumes: &'a [ServedVolume],
    /// How connections do their I/O.
    pub backend: BackendChoice,
    /// Objects that must be removed at the end.
    pub cleanup: &'a Cleanup,
    /// `--run` was given; its command runs.
    pub command: bool,
    /// Whose end is ours (`--exit-with-parent`).
    pub parent: Option<ParentProcess>,
}

/// A sandbox to be entered.
pub struct Sandbox {
    mode: SandboxMode,
    identity: Option<UserAndGroup>,
    probe: Option<SandboxProbe>,
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
            identity: UserAndGroup::find(self.user.as_deref(), self.group.as_deref())?,
            probe: self.sandbox_probe.then(SandboxProbe::new).transpose()?,
        })
    }
}

impl Sandbox {
    /// Enters it, with all threads, for good.
    ///
    /// Errors: with `--sandbox=on`, where a part of it is missing; where the user cannot be
    /// changed to. The process may have given up rights by then, and must end.
    pub fn enforce(self, server: &ServerRights<'_>) -> Result<InForce, CliError> {
        let mut in_force = InForce::default();
        if self.mode == SandboxMode::Off {
            in_force.off = Some(ASKED_OFF.to_owned());
        }
        if self.mode != SandboxMode::Off || self.identity.is_some() {
            // With the rights to look for what it names.
            let ruleset = ruleset(server);
            // Another user may have no right to the disk's file, and without Landlock all files could be opened.
            let reopens = self.mode != SandboxMode::Off && self.identity.is_none() && ruleset.is_ok();
            // A shortage never takes the sandbox away, only clients.
            let clients = ahead::get(server, reopens)?;
            in_force.clients = (clients < server.needs.clients).then_some(clients);
            self.confine(server, ruleset, reopens, &mut in_force)?;
        }
        if let (SandboxMode::On, false) = (self.mode, in_force.missing.is_empty()) {
            return Err(CliError::parameters(format!(
                "--sandbox=on: there is no {}; use --sandbox=auto to do without",
                in_force.missing.join(", no ")
            )));
        }
        self.probe.map_or(Ok(()), SandboxProbe::run)?;
        Ok(in_force)
    }

    fn confine(
        &self,
        server: &ServerRights<'_>,
        ruleset: io::Result<OwnedFd>,
        reopens: bool,
        in_force: &mut InForce,
    ) -> Result<(), CliError> {
        let made = server.cleanup.made();
        let connections = connections(server);
        if self.mode != SandboxMode::Off {
            // Without the right to do it, execve still gives nothing: no_new_privs is set below.
            let _ = everywhere(Restriction::EmptyBoundingSet);
        }
        if let Some(identity) = &self.identity {
            hand_over(&made.identities, identity)?;
            identity.assume()?;
            // Nor does it keep that nobody may look into our memory.
            protect_process();
            // The kernel forgets it when the user changes.
            server.parent.map_or(Ok(()), ParentProcess::follow)?;
            in_force.user = Some(identity.name().to_owned());
        }
        if self.mode != SandboxMode::Off {
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
        if self.mode != SandboxMode::Off {
            let io_uring = server.backend != BackendChoice::Syscalls;
            let locked = landlock(ruleset, io_uring);
            let allowed = FilterTerms {
                io_uring,
                // Queues go without files of their own where that has failed after all.
                opens: reopens && locked.is_ok(),
                command: server.command,
                connections,
                calls: server.needs.calls,
                ioctls: server.needs.ioctls,
            };
            in_force.note("landlock", locked);
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

/// The connections that the volumes make while they are served.
fn connections(server: &ServerRights<'_>) -> Connections {
    let volumes = server.volumes.iter();
    volumes.map(|volume| volume.gate.traits().connects).fold(Connections::default(), Connections::and)
}

fn ruleset(server: &ServerRights<'_>) -> io::Result<OwnedFd> {
    let (made, connections) = (server.cleanup.made(), connections(server));
    files::ruleset(&files::AllowedActions {
        disks: server.volumes.iter().flat_map(|volume| volume.gate.files()).collect(),
        files: made.files.clone(),
        folders: made.directories.clone(),
        signals: server.command,
        connections: connections.tcp,
        unix: connections.unix,
    })
}

/// The others first: once confined, this thread may not signal them.
fn everywhere(restriction: Restriction<'_>) -> Result<(), String> {
    let others = restriction.apply_to_others();
    restriction.apply_here().map_err(|error| error.to_string())?;
    others.map_err(|error| format!("not for all threads: {error}"))
}

fn landlock(ruleset: io::Result<OwnedFd>, io_uring: bool) -> Result<String, String> {
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

fn seccomp(allowed: &FilterTerms<'_>) -> Result<String, String> {
    let filters = Filters::new(allowed).and_then(|filters| filters.install());
    filters.map(|()| String::new()).map_err(|error| error.to_string())
}

/// So that the new user may reach and remove what was made for the old one.
///
/// By descriptor, and only what is still what we made: others may have rights in its folder.
fn hand_over(made: &[(PathBuf, FileIdentity)], identity: &UserAndGroup) -> Result<(), CliError> {
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
