//! Peer of a Unix socket, as the kernel tells it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Pid, Uid};

/// Bytes of what the kernel says.
const LEN: libc::socklen_t = 12;
const _: () = assert!(size_of::<libc::ucred>() == LEN as usize);

/// The process that listened on a Unix socket, or connected to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its number; `None` where it is in a namespace that is not shown here.
    pub pid: Option<Pid>,
    /// Its effective user when it listened or connected.
    pub uid: Uid,
}

/// Asks for the peer of a connected Unix socket (`SO_PEERCRED`). The number may be another process's by now.
///
/// # Errors
/// Those of getsockopt(2); `NotConnected` where the kernel knows of nobody, as for every TCP socket.
pub fn peer_of(socket: impl AsFd) -> io::Result<PeerProcess> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = LEN;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open as long as it is borrowed; `found` is a live ucred that may hold any bytes, `len` its
    // size in bytes, and the kernel writes no more than that and keeps neither.
    let done =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if found.uid == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(PeerProcess { pid: Pid::from_raw(found.pid), uid: Uid::from_raw(found.uid) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_of_a_pair_is_this_process_and_other_sockets_have_none() {
        let (one, _other) = UnixStream::pair().unwrap();
        let expected = PeerProcess { pid: Some(rustix::process::getpid()), uid: rustix::process::geteuid() };
        assert_eq!(peer_of(&one).unwrap(), expected);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_of(&file).is_err());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(peer_of(&stream).unwrap_err().kind(), io::ErrorKind::NotConnected);
    }
}
