//! Gets what clients need and what cannot be had any more once the server is confined.
//!
//! ```text
//! connections to a server below      made now, kept, one for each client
//! files of queues                    opened when the client comes, where Landlock allows the disk alone;
//!                                    else opened now, one for each client and volume
//! descriptors                        counted against the limit
//! ```
//!
//! A kept file of a closed queue serves the next one: opened before a write, it is told of the loss, which a later one may not be.

use cryptline_engine::{BackendChoice, Gate, OpenError, Ring};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{Needs, ServerRights};
use crate::CliError;
use crate::output::warn;
use crate::serve::memory::count_of;

/// Descriptors of a client beside those of its volume: its socket, its ring and what wakes it.
const OF_CLIENT: u64 = 3;
/// Those of the server: clients in the handshake, of the statistics and of the control socket.
const OF_SERVER: u64 = 24;
/// Those that are open where that cannot be looked up.
const OPEN_USUALLY: u64 = 32;

/// Gets it, and starts the engine's threads, with the priorities they ask for; how many clients there is enough for.
/// With `reopens`, the files of disks can be opened later.
///
/// # Errors
/// Exit code 1 or 4 where it is not enough for one, or for all if a front needs that.
pub fn get(server: &ServerRights<'_>, reopens: bool) -> Result<u64, CliError> {
    let needs = server.needs;
    let refuse = |error| Lacking(error).refusal(needs);
    start(server).map_err(refuse)?;
    let room = room(server, reopens);
    let lacking = (room < needs.clients).then(|| Lacking(OpenError::Ring(Errno::MFILE.into())));
    let (clients, lacking) = connect(server, needs.clients.min(room), lacking);
    if let Some(lacking) = lacking {
        if clients == 0 || !needs.serves_fewer {
            return Err(lacking.refusal(needs));
        }
        // Those of the clients that it is too few for were in the way of others.
        if let (_, Some(lacking)) = connect(server, clients, None) {
            return Err(lacking.refusal(needs));
        }
        lacking.warn(clients);
    }
    if !reopens {
        // One more flushes at the end.
        let queues = usize::try_from(clients).unwrap_or(usize::MAX).saturating_add(1);
        let reserve = |gate: &Gate| gate.reserve_files(queues.min(gate.traits().queues));
        server.volumes.iter().try_for_each(|volume| reserve(&volume.gate)).map_err(refuse)?;
    } else {
        // Files that were opened to start the threads.
        volumes_of_files(server).for_each(Gate::close_spare);
    }
    Ok(clients)
}

fn start(server: &ServerRights<'_>) -> Result<(), OpenError> {
    // The command that runs beside us has its own limits by now.
    raise(Resource::Nofile);
    // Buffers that are registered with a ring, where that was free of limits for root so far.
    raise(Resource::Memlock);
    // The first call looks for the fast way, which needs a file.
    let _ = rustix::thread::sched_getcpu();
    for volume in server.volumes {
        // Any ring will do: the threads have their own.
        let mut ring = Ring::new(BackendChoice::Syscalls, 1).map_err(OpenError::Ring)?;
        drop(volume.gate.open_queue(&mut ring)?);
        // A server below is asked for its holes over a connection that is made with the first question.
        let _ = volume.gate.extent(0, 1);
    }
    Ok(())
}

/// Volumes whose queues can be opened later: those of the others are connections, which are kept.
fn volumes_of_files<'a>(server: &ServerRights<'a>) -> impl Iterator<Item = &'a Gate> {
    server.volumes.iter().map(|volume| &volume.gate).filter(|gate| !gate.traits().awaits_reads)
}

/// The number of clients that the limit of descriptors leaves room for.
fn room(server: &ServerRights<'_>, reopens: bool) -> u64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return u64::MAX };
    let open = std::fs::read_dir("/proc/self/fd").map_or(OPEN_USUALLY, |open| open.count() as u64);
    let files = |queues| server.volumes.iter().map(move |volume| volume.gate.files_taken(queues) as u64);
    let of_server = OF_SERVER + files(1).sum::<u64>();
    let of_clients = files(2).zip(files(1)).map(|(two, one)| two - one);
    // A client has one volume.
    let of_client = OF_CLIENT + if reopens { of_clients.max().unwrap_or(0) } else { of_clients.sum() };
    limit.saturating_sub(open + of_server) / of_client
}

/// Opens the connections of so many clients to servers below, all of them at once. The number of those for which there
/// was enough, and what there was not enough of for more.
fn connect(server: &ServerRights<'_>, clients: u64, lacking: Option<Lacking>) -> (u64, Option<Lacking>) {
    // Queues that could not be replaced later are connections.
    let volumes = || server.volumes.iter().map(|volume| &volume.gate).filter(|gate| gate.traits().awaits_reads);
    let mut queues = Vec::new();
    // One more flushes at the end, or the only one there can be.
    for number in 0..=clients {
        let mut open = |gate: &Gate| {
            if number < gate.traits().queues as u64 {
                let mut ring = Ring::new(BackendChoice::Syscalls, 1).map_err(OpenError::Ring)?;
                queues.push((gate.open_queue(&mut ring)?, ring));
            }
            Ok(())
        };
        let lacking = match volumes().try_for_each(&mut open) {
            Ok(()) => continue,
            // The last flush waits until a client has left.
            Err(OpenError::Remote { .. }) if number > 0 && number == clients => break,
            Err(error) => Lacking(error),
        };
        let is_remote = matches!(lacking.0, OpenError::Remote { .. });
        let clients = if is_remote && number == 1 { 1 } else { number.saturating_sub(1) };
        drop(queues);
        server.volumes.iter().for_each(|volume| volume.gate.close_spare());
        return (clients, Some(lacking));
    }
    (clients, lacking)
}

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
