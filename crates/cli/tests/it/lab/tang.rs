//! A tang server of this machine, and clevis.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use cryptline_testkit::peer::{self, Peer, TIMEOUT_DEFAULT, run};
use cryptline_testkit::pki::Pki;
use rustix::net::Shutdown;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::common::Folder;

const TANGD: &str = "/usr/libexec/tangd";

/// Debian's server, a process for each connection, with keys of its own.
pub struct Tang {
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
    pub url: String,
    pub keys: PathBuf,
    clevis: Peer,
}

impl Tang {
    pub fn new(folder: &Folder) -> Option<Self> {
        let [jose, clevis] = peer::require_all(["jose", "clevis"])?;
        peer::require("tang")?;
        let keys = folder.path("tang");
        std::fs::create_dir(&keys).unwrap();
        for (name, algorithm) in [("sign", "ES512"), ("exchange", "ECMR")] {
            let key = keys.join(format!("{name}.jwk"));
            let made = format!(r#"{{"alg":"{algorithm}"}}"#);
            jose.run(["jwk", "gen", "-i", &made, "-o", key.to_str().unwrap()]).success();
        }
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (accepts, served) = (Arc::clone(&listener), keys.clone());
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, _)) = accepts.accept() {
                let out = OwnedFd::from(stream.try_clone().unwrap());
                let mut server = Command::new(TANGD);
                server.arg(&served).stderr(Stdio::null());
                server.stdin(OwnedFd::from(stream)).stdout(out);
                std::thread::spawn(move || server.status());
            }
        });
        Some(Self { listener, accepting: Some(accepting), url, keys, clevis })
    }

    /// The name of the key that it signs with.
    pub fn thumbprint(&self) -> String {
        let key = self.keys.join("sign.jwk");
        let jose = peer::require("jose").expect("it was there before");
        let run = jose.run(["jwk", "thp", "-i", key.to_str().unwrap()]);
        run.success().stdout_text().trim_end().to_owned()
    }

    /// Returns what it says of its keys.
    pub fn advertisement(&self) -> String {
        let address = self.listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /adv HTTP/1.0\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        body.to_owned()
    }

    /// Where it is behind TLS, by any address of this machine and a certificate for localhost.
    pub fn behind_tls(&self, pki: &Pki) -> u16 {
        let chain = CertificateDer::pem_file_iter(pki.file("server-cert.pem")).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(pki.file("server-key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        let tang = self.listener.local_addr().unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Until the test ends.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                // Who does not believe the certificate goes.
                let _ = pass_on(rustls::StreamOwned::new(connection, stream), tang);
            }
        });
        port
    }

    /// Without its keys the server knows nothing.
    pub fn forget(&self) {
        for entry in std::fs::read_dir(&self.keys).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    pub fn clevis(&self, arguments: &[&str]) -> peer::Run {
        run(self.clevis.command().args(arguments), TIMEOUT_DEFAULT)
    }

    /// The same where these certificates are believed.
    pub fn clevis_believing(&self, roots: &str, arguments: &[&str]) -> peer::Run {
        let mut command = self.clevis.command();
        command.env("CURL_CA_BUNDLE", roots).args(arguments);
        run(&mut command, TIMEOUT_DEFAULT)
    }
}

impl Drop for Tang {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// One request, and its answer.
fn pass_on(stream: rustls::StreamOwned<rustls::ServerConnection, TcpStream>, tang: SocketAddr) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if stream.read_line(&mut head)? <= 2 {
            break;
        }
        let line = head[start..].to_ascii_lowercase();
        if let Some(found) = line.strip_prefix("content-length:") {
            length = found.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let mut server = TcpStream::connect(tang)?;
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    server.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let mut stream = stream.into_inner();
    stream.write_all(&answer)?;
    stream.conn.send_close_notify();
    stream.flush()
}
