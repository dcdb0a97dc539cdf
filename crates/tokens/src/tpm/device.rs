//! Where a TPM is, and the exchange of one command with its response: bounded in bytes and in time.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cryptline::TokenRefusal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::wire::{HEADER, MESSAGE_MAX, ResponseReader};
use crate::clevis::{connect, left};

/// Where Linux has the machine's own, with a resource manager between it and several users.
const DEVICE: &str = "/dev/tpmrm0";
/// Where swtpm listens unless it is told otherwise.
const SWTPM_PORT: u16 = 2321;

/// Where a TPM is: `/dev/tpmrm0`, another device, or a socket of swtpm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpmDevice(TpmPath);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TpmPath {
    /// A character device or a socket.
    Path(PathBuf),
    Tcp(String, u16),
}

impl Default for TpmDevice {
    fn default() -> Self {
        Self(TpmPath::Path(DEVICE.into()))
    }
}

impl fmt::Display for TpmDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TpmPath::Path(path) => write!(f, "{}", path.display()),
            TpmPath::Tcp(host, port) => write!(f, "swtpm:host={host},port={port}"),
        }
    }
}

impl TpmDevice {
    /// A path, or as tpm2-tss and systemd name one: `device:PATH`, `swtpm:path=SOCKET` or `swtpm:host=HOST,port=N`.
    ///
    /// # Errors
    /// Fails for what is none of these.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (driver, rest) = match text.split_once(':') {
            _ if text.is_empty() => return Err("that names no TPM"),
            _ if text.starts_with(['/', '.']) => ("device", text),
            None => ("device", text),
            Some(parts) => parts,
        };
        match driver {
            "device" if rest.is_empty() => Ok(Self::default()),
            "device" => Ok(Self(TpmPath::Path(rest.into()))),
            "swtpm" => Self::of_swtpm(rest),
            _ => Err("only device:PATH and swtpm:... are known here"),
        }
    }

    fn of_swtpm(rest: &str) -> Result<Self, &'static str> {
        let (mut host, mut port) = ("localhost", SWTPM_PORT);
        for option in rest.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("path", path)) if !path.is_empty() => {
                    return Ok(Self(TpmPath::Path(path.into())));
                }
                Some(("host", name)) if !name.is_empty() => host = name,
                Some(("port", number)) => port = number.parse().map_err(|_| "that is no port")?,
                _ => return Err("swtpm has the options path, host and port"),
            }
        }
        Ok(Self(TpmPath::Tcp(host.to_owned(), port)))
    }

    pub(super) fn open(&self, deadline: Instant) -> Result<OpenTpm, TokenRefusal> {
        let path = match &self.0 {
            TpmPath::Path(path) => path,
            TpmPath::Tcp(host, port) => {
                let stream = connect(host, *port, deadline).map_err(|why| format!("the TPM at {self}: {why}"))?;
                return Ok(OpenTpm::of_socket(stream.into())?);
            }
        };
        open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if self.0 == Self::default().0 => {
                TokenRefusal::NotUsed("this machine has no TPM".to_owned())
            }
            io::ErrorKind::PermissionDenied => TokenRefusal::Failed(format!(
                "the TPM {self} may not be used: permission denied; on most systems members of the group tss may"
            )),
            io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => {
                TokenRefusal::Failed(format!("the TPM {self} is in use by another program"))
            }
            _ => TokenRefusal::Failed(format!("the TPM {self} cannot be opened: {error}")),
        })
    }
}

fn open(path: &Path) -> io::Result<OpenTpm> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_socket() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        return OpenTpm::of_socket(socket);
    }
    if !kind.is_char_device() {
        return Err(io::Error::other("it is no device and no socket"));
    }
    // With a kernel that can, the write does not wait for the response.
    let mut options = File::options();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).write(true).custom_flags(flags);
    Ok(OpenTpm { file: file.open(path)?.into(), is_socket: false })
}

/// Receiver of commands.
pub trait TpmLink {
    /// Sends a command and returns the response to it, at most [`MESSAGE_MAX`] bytes.
    fn exchange(&mut self, command: &[u8], deadline: Instant) -> Result<Vec<u8>, String>;
}

/// An open TPM.
pub struct OpenTpm {
    file: OwnedFd,
    is_socket: bool,
}

impl OpenTpm {
    fn of_socket(socket: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        Ok(Self { file: socket, is_socket: true })
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, rustix::io::Errno> {
        if self.is_socket {
            // A program that uses the library may die of SIGPIPE.
            rustix::net::send(&self.file, bytes, SendFlags::NOSIGNAL)
        } else {
            rustix::io::write(&self.file, bytes)
        }
    }

    /// Does `once` until it says how many bytes it moved.
    fn patiently(
        &self,
        flags: PollFlags,
        deadline: Instant,
        mut once: impl FnMut() -> Result<usize, rustix::io::Errno>,
    ) -> Result<usize, String> {
        loop {
            let left = left(deadline)?;
            let timeout = left.try_into().map_err(|_| "it takes too long to answer")?;
            match poll(&mut [PollFd::new(&self.file.as_fd(), flags)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(broken(error)),
            }
            match once() {
                // Some kernels say that there is an answer while the device still works on it.
                Ok(0) if !self.is_socket => std::thread::sleep(Duration::from_millis(1)),
                Ok(0) => return Err("it has ended the connection".to_owned()),
                Ok(moved) => return Ok(moved),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
}

fn broken(error: rustix::io::Errno) -> String {
    format!("it does not answer: {error}")
}

impl TpmLink for OpenTpm {
    fn exchange(&mut self, command: &[u8], deadline: Instant) -> Result<Vec<u8>, String> {
        let mut sent = 0;
        while sent < command.len() {
            let rest = &command[sent..];
            sent += self.patiently(PollFlags::OUT, deadline, || self.send(rest))?;
        }
        let mut response = vec![0; MESSAGE_MAX];
        let mut len = 0;
        loop {
            let piece = &mut response[len..];
            len += self.patiently(PollFlags::IN, deadline, || rustix::io::read(&self.file, &mut *piece))?;
            // The length is behind the tag.
            let stated = ResponseReader(response[..len].get(2..).unwrap_or_default()).u32();
            match stated.map(|stated| usize::try_from(stated).unwrap_or(usize::MAX)) {
                Some(stated) if !(HEADER..=MESSAGE_MAX).contains(&stated) || stated < len => {
                    return Err("its answer has a wrong length".to_owned());
                }
                Some(stated) if stated == len => break,
                _ => {}
            }
        }
        response.truncate(len);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn names_are_those_of_tpm2_tss() {
        let tcp = |host: &str, port| Ok(TpmDevice(TpmPath::Tcp(host.to_owned(), port)));
        let path = |path: &str| Ok(TpmDevice(TpmPath::Path(path.into())));
        for (text, expected) in [
            ("/dev/tpm0", path("/dev/tpm0")),
            ("/a:b", path("/a:b")),
            ("tpm.sock", path("tpm.sock")),
            ("device:/dev/tpm1", path("/dev/tpm1")),
            ("device:", Ok(TpmDevice::default())),
            ("swtpm:path=/run/a", path("/run/a")),
            ("swtpm:", tcp("localhost", 2321)),
            ("swtpm:host=h,port=7", tcp("h", 7)),
            ("swtpm:port=7", tcp("localhost", 7)),
        ] {
            assert_eq!(TpmDevice::parse(text), expected, "{text}");
        }
        for text in ["", "tabrmd:", "swtpm:path=", "swtpm:port=x", "swtpm:a=b"] {
            assert!(TpmDevice::parse(text).is_err(), "{text}");
        }
    }

    /// Returns what is made of this answer.
    fn answered(answer: &'static [u8], patience: Duration) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tpm");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut command = [0; HEADER];
            stream.read_exact(&mut command).unwrap();
            // The other side may have gone before the last piece.
            let _ = answer.chunks(7).try_for_each(|piece| stream.write_all(piece));
            let shut = (!answer.is_empty()).then_some(std::net::Shutdown::Write);
            shut.map(|how| stream.shutdown(how));
            // Until the other side has gone.
            let _ = stream.read(&mut command);
        });
        let place = TpmDevice::parse(path.to_str().unwrap()).unwrap();
        let mut device = place.open(Instant::now() + patience).ok().unwrap();
        let said = device.exchange(&[0; HEADER], Instant::now() + patience);
        drop(device);
        server.join().unwrap();
        said
    }

    #[test]
    fn answers_are_whole_and_bounded() {
        let long = Duration::from_secs(60);
        let whole = b"\x80\x01\0\0\0\x0c\0\0\0\0ab";
        assert_eq!(answered(whole, long).as_deref(), Ok(&whole[..]));
        for (answer, why) in [
            (&b"\x80\x01\0\0\0\x0c\0\0\0\0a"[..], "ended the connection"),
            (b"\x80\x01\0\0\0\x0a\0\0\0\0ab", "wrong length"),
            (b"\x80\x01\0\0\0\x09\0\0\0", "wrong length"),
            (b"\x80\x01\xff\xff\xff\xff\0\0\0\0", "wrong length"),
        ] {
            let said = answered(answer, long).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let said = answered(b"", Duration::from_millis(50)).unwrap_err();
        assert!(said.contains("too long"), "{said}");
    }

    #[test]
    fn what_is_no_tpm_is_not_written_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let place = TpmDevice::parse(file.path().to_str().unwrap()).unwrap();
        let Err(TokenRefusal::Failed(why)) = place.open(Instant::now()) else {
            panic!("it was opened");
        };
        assert!(why.contains("no device and no socket"), "{why}");
    }
}
