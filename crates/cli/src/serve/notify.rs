//! sd_notify(3): tells the service manager that started us how far we are.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const READY: &str = "READY=1";

/// The way to a service manager, connected at once: later the server may make no sockets.
pub struct Notifier {
    socket: Option<UnixDatagram>,
    is_ready: AtomicBool,
}

impl Notifier {
    /// To `$NOTIFY_SOCKET`. Nobody to tell is no failure.
    pub fn connect() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        // A service manager that does not listen has other worries.
        Self::over(address.and_then(|address| connect(&address).ok()))
    }

    fn over(socket: Option<UnixDatagram>) -> Self {
        let is_ready = AtomicBool::new(false);
        Self { socket, is_ready }
    }

    /// Sends `state`, such as `STOPPING=1`.
    pub fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // As above.
            let _ = socket.send(state.as_bytes());
        }
    }

    /// Clients can connect.
    pub fn ready(&self) {
        self.is_ready.store(true, Ordering::SeqCst);
        self.tell(READY);
    }

    /// Has something read again. A server that is not ready yet has nothing to take back.
    pub fn reload(&self, read: impl FnOnce()) {
        if !self.is_ready.load(Ordering::SeqCst) {
            return read();
        }
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::try_from(now).unwrap_or_default().as_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
        read();
        self.tell(READY);
    }
}

/// Tells if a service manager wants to be told.
pub fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 64];
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn a_socket_in_the_file_system_and_an_abstract_one_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::over(connect(path.as_os_str()).ok());
        notifier.reload(|| ());
        notifier.ready();
        assert_eq!(received(&socket), "READY=1", "nothing before");
        notifier.reload(|| ());
        assert!(received(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(received(&socket), "READY=1");

        let name = format!("cryptline-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::over(connect(OsStr::new(&format!("@{name}"))).ok());
        notifier.tell("STOPPING=1");
        assert_eq!(received(&socket), "STOPPING=1");
    }
}
