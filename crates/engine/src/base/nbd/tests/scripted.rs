//! A server at the other end that does what a test tells it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_nbd::reply;
use cryptline_nbd::uri::{Address, TlsOptions};
use cryptline_nbd::wire::{
    GREETING_LEN, INIT_PASSWD, OPTION_HEADER_LEN, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_LEN, info, opt, rep,
};
use cryptline_nbd::{NbdUri, RequestHeader, TransmissionFlags as Flags, parse_request};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::NbdDevice;
use crate::blocking::Blocking;
use crate::{BackendChoice, Gate};

pub const SIZE: u64 = 1 << 20;

/// Offer of a server.
#[derive(Clone, Copy)]
pub struct Offer {
    pub size: u64,
    pub flags: Flags,
    pub structured: bool,
    pub sizes: Option<[u32; 3]>,
    /// The number of `base:allocation`.
    pub allocation: Option<u32>,
}

pub const USUAL: Offer = Offer {
    size: SIZE,
    flags: Flags::HAS_FLAGS
        .with(Flags::SEND_FLUSH)
        .with(Flags::SEND_FUA)
        .with(Flags::SEND_TRIM)
        .with(Flags::SEND_WRITE_ZEROES)
        .with(Flags::SEND_CACHE),
    structured: true,
    sizes: None,
    allocation: None,
};

type Secured = StreamOwned<ServerConnection, UnixStream>;

/// The way to a client.
trait Way: Read + Write + Send {
    /// Says that nothing more comes, where there are words for that. The socket stays open.
    fn end(&mut self) {}

    /// Sends nothing more.
    fn end_socket(&mut self);
}

impl Way for UnixStream {
    fn end_socket(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Way for Secured {
    fn end(&mut self) {
        self.conn.send_close_notify();
        self.conn.complete_io(&mut self.sock).unwrap();
    }

    fn end_socket(&mut self) {
        self.sock.end_socket();
    }
}

/// A server that anybody can read of, and nobody believe.
pub fn secure() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(Arc::new(cryptline_net::provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let chain = vec![made.cert.der().clone()];
    let config = builder.with_no_client_auth();
    Arc::new(config.with_single_cert(chain, key.into()).unwrap())
}

/// One client as a server sees it, in transmission.
pub struct Client(Box<dyn Way>);

impl Client {
    pub fn greet(stream: UnixStream, offer: Offer) -> Self {
        Self::negotiate(stream, offer, None)
    }

    /// The same through TLS.
    pub fn greet_secure(stream: UnixStream, offer: Offer, config: &Arc<ServerConfig>) -> Self {
        Self::negotiate(stream, offer, Some(config))
    }

    /// Says that nothing more comes, and keeps the socket open.
    pub fn end_tls(&mut self) {
        self.0.end();
    }

    fn negotiate(mut stream: UnixStream, offer: Offer, config: Option<&Arc<ServerConfig>>) -> Self {
        let flags = 3u16;
        let greeting = [&INIT_PASSWD.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat();
        assert_eq!(greeting.len(), GREETING_LEN);
        stream.write_all(&greeting).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        let mut client = Self(Box::new(stream.try_clone().unwrap()));
        if let Some(config) = config {
            assert_eq!(client.option(), opt::STARTTLS);
            client.reply(opt::STARTTLS, rep::ACK, &[]);
            let connection = ServerConnection::new(Arc::clone(config)).unwrap();
            client = Self(Box::new(Secured::new(connection, stream)));
        }
        assert_eq!(client.option(), opt::STRUCTURED_REPLY);
        let kind = if offer.structured { rep::ACK } else { rep::ERR_UNSUP };
        client.reply(opt::STRUCTURED_REPLY, kind, &[]);
        let mut option = client.option();
        if option == opt::SET_META_CONTEXT {
            client.set_context(offer.allocation);
            option = client.option();
        }
        assert_eq!(option, opt::GO);
        let export = [&info::EXPORT.to_be_bytes()[..], &offer.size.to_be_bytes(), &offer.flags.bits().to_be_bytes()];
        client.reply(opt::GO, rep::INFO, &export.concat());
        if let Some(sizes) = offer.sizes {
            let sizes = sizes.map(u32::to_be_bytes).concat();
            let data = [&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat();
            client.reply(opt::GO, rep::INFO, &data);
        }
        client.reply(opt::GO, rep::ACK, &[]);
        client
    }

    fn set_context(&mut self, number: Option<u32>) {
        let option = opt::SET_META_CONTEXT;
        let Some(number) = number else {
            return self.reply(option, rep::ERR_UNSUP, &[]);
        };
        let context = [&number.to_be_bytes()[..], b"base:allocation"].concat();
        self.reply(option, rep::META_CONTEXT, &context);
        self.reply(option, rep::ACK, &[]);
    }

    /// The next option; its data is dropped.
    fn option(&mut self) -> u32 {
        let header = self.bytes(OPTION_HEADER_LEN);
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        self.bytes(number(12) as usize);
        number(8)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        let length = u32::try_from(data.len()).unwrap();
        self.0.write_all(&OPTION_REPLY_MAGIC.to_be_bytes()).unwrap();
        for number in [option, kind, length] {
            self.0.write_all(&number.to_be_bytes()).unwrap();
        }
        self.0.write_all(data).unwrap();
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn request(&mut self) -> RequestHeader {
        let bytes: [u8; REQUEST_LEN] = self.bytes(REQUEST_LEN).try_into().unwrap();
        parse_request(&bytes).unwrap()
    }

    /// The next request, while the client is there.
    pub fn next(&mut self) -> Option<RequestHeader> {
        let mut bytes = [0; REQUEST_LEN];
        self.0.read_exact(&mut bytes).ok()?;
        parse_request(&bytes).ok()
    }

    /// The next request, which must be of this kind, is answered well.
    pub fn expect(&mut self, command: u16) -> (RequestHeader, Vec<u8>) {
        let header = self.request();
        assert_eq!(header.command, command);
        let payload = self.bytes(header.payload_length() as usize);
        self.say(&reply::simple(header.cookie, Ok(())));
        (header, payload)
    }

    /// Says it, whether or not anybody hears it.
    pub fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Ends the connection at once, even while a process that is being started has its descriptor, too.
    pub fn hang_up(mut self) {
        self.0.end_socket();
    }

    /// Says the last of all, and waits until the client has heard it.
    pub fn say_last(mut self, bytes: &[u8]) {
        self.say(bytes);
        self.0.end_socket();
        self.see_end();
    }

    /// Waits until the client has hung up.
    pub fn see_end(&mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }
}

/// A server for one client that does what `script` says.
pub struct Server {
    pub uri: NbdUri,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Server {
    pub fn start(offer: Offer, script: impl FnOnce(&mut Client) + Send + 'static) -> Self {
        Self::listen(move |listener| {
            let (stream, _) = listener.accept().unwrap();
            script(&mut Client::greet(stream, offer));
        })
    }

    /// The same for a server of several connections. The second one is used for nothing but a look at the server.
    pub fn shared(script: impl FnOnce(&mut Client) + Send + 'static) -> Self {
        let offer = Offer { flags: USUAL.flags.with(Flags::CAN_MULTI_CONN), ..USUAL };
        Self::several(offer, |accept| {
            let (mut first, _witness) = (accept(), accept());
            script(&mut first);
        })
    }

    /// A server for the clients that `script` accepts.
    pub fn several(offer: Offer, script: impl FnOnce(&dyn Fn() -> Client) + Send + 'static) -> Self {
        Self::listen(move |listener| {
            script(&|| Client::greet(listener.accept().unwrap().0, offer));
        })
    }

    pub fn listen(serve: impl FnOnce(&UnixListener) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        Self::with(path, folder, move || serve(&listener))
    }

    /// A server whose clients connect at `path`, which others listen on.
    pub fn with(path: PathBuf, folder: TempDir, serve: impl FnOnce() + Send + 'static) -> Self {
        Self { uri: unix(path), thread: Some(std::thread::spawn(serve)), _folder: folder }
    }

    /// The same over TCP, for the clients that `script` accepts.
    pub fn tcp(offer: Offer, script: impl FnOnce(&dyn Fn() -> Client) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let accept = move || OwnedFd::from(listener.accept().unwrap().0);
        let mut server = Self::with(PathBuf::new(), folder, move || {
            // A stream is read and written alike, whatever it comes through.
            script(&|| Client::greet(UnixStream::from(accept()), offer));
        });
        server.uri.address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        server
    }

    pub fn gate(&self) -> Gate {
        Gate::new(NbdDevice::open(&self.uri, false).unwrap())
    }

    /// Its disk, and a queue into it.
    pub fn disk(&self, backend: BackendChoice) -> (Gate, Blocking) {
        let gate = self.gate();
        let disk = Blocking::new(&gate, backend).unwrap();
        (gate, disk)
    }

    /// Its disk, for whose server this is waited where it is lost, and a queue into it.
    pub fn disk_again(&self, patience: Duration, backend: BackendChoice) -> (Gate, Blocking) {
        let gate = Gate::new(NbdDevice::open_again(&self.uri, false, Some(patience)).unwrap());
        let disk = Blocking::new(&gate, backend).unwrap();
        (gate, disk)
    }
}

/// The script is played to its end, and must not have failed.
impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

/// A chunk with any header and payload.
pub fn chunk(cookie: u64, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = reply::none(cookie).to_vec();
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[16..].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn unix(path: PathBuf) -> NbdUri {
    NbdUri { tls: false, address: Address::Unix(path), export: String::new(), tls_options: TlsOptions::default() }
}
