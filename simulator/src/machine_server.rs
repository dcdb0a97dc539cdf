//! The vhost-user server of a history: for each machine a socket, and those of an export over one disk.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use cryptline_serve::StopHandle;
use cryptline_serve::stats::ExportStats;
use cryptline_serve::vhost_user::{FrontEnds, VhostDisk, VhostServer, VhostServerOptions};

use crate::guest::QUEUES;
use crate::history::Door;
use crate::run::{GRACE, Play};
use crate::serving::Running;

impl Play<'_> {
    /// Where the machine of a client comes to the server.
    pub fn socket_of(&self, client: usize) -> PathBuf {
        self.laid.disks.path(&format!("machine-{client}"))
    }

    /// Starts the server of all exports that have this door.
    pub fn serve_machines(&self) -> Result<Running, String> {
        let numbers = self.history.behind(Door::VhostUser);
        let failed = |error: io::Error| error.to_string();
        let mut disks = Vec::new();
        for number in &numbers {
            let gate = self.laid.open(*number)?;
            let clients = self.history.clients.iter().enumerate().filter(|(_, client)| client.export == *number);
            for (client, _) in clients {
                let path = self.socket_of(client);
                let _ = std::fs::remove_file(&path);
                let name = format!("e{number}");
                disks.push(VhostDisk {
                    serial: name.clone(),
                    name,
                    gate: gate.clone(),
                    block: 512,
                    queues: QUEUES,
                    queue_size: None,
                    stats: ExportStats::new(false),
                    front: FrontEnds::Listener(UnixListener::bind(path).map_err(failed)?),
                });
            }
        }
        let world = Arc::clone(self.world);
        let options = VhostServerOptions {
            backend: self.laid.disks.media.backend(),
            poll: self.poll(),
            grace: GRACE,
            log: Arc::new(move |event| world.say(|| format!("machines: {event}"))),
        };
        let server = VhostServer::new(disks, options).map_err(|error| error.to_string())?;
        let stop = StopHandle::new().map_err(failed)?;
        let stopped = stop.clone();
        let run = move || server.run(&stopped);
        let thread = std::thread::Builder::new().name("machines".to_owned()).spawn(run).map_err(failed)?;
        Ok(Running { thread, stop, exports: numbers })
    }
}
