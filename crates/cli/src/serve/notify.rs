//! sd_notify(3): tells the service manager that started us how far we are.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The way to a service manager, connected at once: later the server may make no sockets.
pub struct Notifier(Option<UnixDatagram>);

impl Notifier {
    /// To `$NOTIFY_SOCKET`. Nobody to tell is no failure.
    #[must_use]
    pub fn connect() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        // A service manager that does not listen has other worries.
        Self(address.and_then(|address| connect(&address).ok()))
    }

    /// Sends `state`, such as `READY=1`.
    pub fn tell(&self, state: &str) {
        if let Some(socket) = &self.0 {
            // As above.
            let _ = socket.send(state.as_bytes());
        }
    }
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
    use std::time::Duration;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 64];
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn a_socket_in_the_file_system_and_an_abstract_one_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Notifier(connect(path.as_os_str()).ok()).tell("READY=1");
        assert_eq!(received(&socket), "READY=1");

        let name = format!("cryptline-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier(connect(OsStr::new(&format!("@{name}"))).ok());
        notifier.tell("STOPPING=1");
        assert_eq!(received(&socket), "STOPPING=1");
    }
}
