//! Key files that are sockets: whoever listens there is told which volume the key is for, as crypttab(5) says it.
//!
//! ```text
//! connect, from the abstract address RANDOM/cryptsetup/NAME ─► everything up to the end of the stream
//! ```

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_sys::peer_of;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

/// Time for all of a key.
const PATIENCE: Duration = Duration::from_secs(30);
/// An address has 107 bytes, of which the others are taken.
const NAME_MAX: usize = 64;

/// A connection to a server of keys.
pub(crate) struct KeySocket {
    stream: UnixStream,
    deadline: Instant,
    /// The user who listens.
    pub user: u32,
}

impl KeySocket {
    /// Connects to the socket at `path`, for the key of `name`.
    pub fn new(path: &Path, name: &str) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(address(name)?.as_bytes())?)?;
        // A server that accepts nobody has a full queue some time.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| late(error.into()))?;
        let user = peer_of(&socket)?.uid.as_raw();
        Ok(Self { stream: UnixStream::from(socket), deadline, user })
    }
}

impl Read for KeySocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(io::ErrorKind::WouldBlock.into()));
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes).map_err(late)
    }
}

/// Address that tells the name, and that nobody can take beforehand.
fn address(name: &str) -> io::Result<String> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let end = (0..=NAME_MAX.min(name.len())).rfind(|&end| name.is_char_boundary(end)).unwrap_or(0);
    Ok(format!("{:016x}/cryptsetup/{}", u64::from_ne_bytes(random), &name[..end]))
}

fn late(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let why = format!("whoever listens there has not sent all of the key within {} seconds", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::keys::KeyFile;

    #[test]
    fn server_is_told_the_name_and_everything_that_it_sends_is_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        for (name, told) in [("disk", "disk".to_owned()), (&*"ä".repeat(99), "ä".repeat(32))] {
            let mut user = None;
            let (key, address) = std::thread::scope(|scope| {
                let key = scope.spawn(|| KeyFile::new(&path).read_for(name, |uid| user = Some(uid)));
                let (mut stream, address) = listener.accept().unwrap();
                for part in ["pass ", "phrase\n"] {
                    stream.write_all(part.as_bytes()).unwrap();
                }
                drop(stream);
                (key.join().unwrap().unwrap(), address)
            });
            assert_eq!(*key, *b"pass phrase\n");
            assert_eq!(user, Some(rustix::process::geteuid().as_raw()));
            let address = String::from_utf8(address.as_abstract_name().unwrap().to_vec()).unwrap();
            let (random, rest) = address.split_at(16);
            assert!(random.bytes().all(|digit| digit.is_ascii_hexdigit()), "{address}");
            assert_eq!(rest, format!("/cryptsetup/{told}"));
        }
    }

    #[test]
    fn server_that_is_slow_or_sends_too_much_gives_no_key() {
        let (stream, mut server) = UnixStream::pair().unwrap();
        let mut socket = KeySocket { stream, deadline: Instant::now() + Duration::from_millis(50), user: 0 };
        server.write_all(b"x").unwrap();
        let mut byte = [0];
        assert_eq!(socket.read(&mut byte).unwrap(), 1);
        assert_eq!(socket.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(socket.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let refused = std::thread::scope(|scope| {
            let key = scope.spawn(|| KeyFile::new(&path).read(false).map(drop));
            let (mut stream, _) = listener.accept().unwrap();
            let chunk = vec![b'x'; 1 << 20];
            while stream.write_all(&chunk).is_ok() {}
            key.join().unwrap().unwrap_err()
        });
        assert!(refused.to_string().contains("8"), "{refused}");
        drop(listener);
        let refused = KeyFile::new(&path).read(false).map(drop).unwrap_err();
        assert!(refused.to_string().contains("Connection refused"), "{refused}");
    }
}
