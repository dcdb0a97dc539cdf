//! Certificates for tests of TLS, made by the openssl program.

use std::fs;
use std::path::Path;

use crate::peer::Peer;

/// A certificate authority, and a server and a client it vouches for, in a folder with the names
/// that libnbd, nbdkit and qemu use.
pub struct Pki {
    folder: tempfile::TempDir,
}

impl Pki {
    /// Makes all of them.
    ///
    /// # Panics
    /// When openssl fails.
    #[must_use]
    pub fn new(openssl: &Peer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pki = Self { folder };
        let path = |name: &str| text(&pki.folder.path().join(name));
        let (ca, ca_key) = (path("ca-cert.pem"), path("ca-key.pem"));
        let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let new = |arguments: &[&str]| {
            openssl.run(new.iter().chain(["-nodes", "-days", "60"].iter()).chain(arguments)).success();
        };
        new(&["-subj", "/CN=test CA", "-keyout", &ca_key, "-out", &ca]);
        for name in ["server", "client"] {
            let (cert, key) = (path(&format!("{name}-cert.pem")), path(&format!("{name}-key.pem")));
            let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
            let leaf = "basicConstraints=critical,CA:FALSE";
            new(&[
                "-subj",
                "/CN=localhost",
                "-keyout",
                &key,
                "-out",
                &cert,
                "-CA",
                &ca,
                "-CAkey",
                &ca_key,
                "-addext",
                names,
                "-addext",
                leaf,
            ]);
        }
        pki
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same as a text.
    #[must_use]
    pub fn path(&self) -> String {
        text(self.folder.path())
    }

    /// One of its files.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }

    /// `--tls-certificates` of the server.
    #[must_use]
    pub fn option(&self) -> String {
        format!("--tls-certificates={}", self.path())
    }

    /// Makes a certificate of an older version in place of that of `name`.
    ///
    /// # Panics
    /// When openssl fails.
    pub fn make_old(&self, openssl: &Peer, name: &str) {
        let certificate = self.file(&format!("{name}-cert.pem"));
        self.sign(openssl, name, "/CN=old", &["-days", "60"], &certificate);
        let shown = openssl.run(["x509", "-noout", "-text", "-in", &certificate]);
        assert!(shown.success().stdout_text().contains("Version: 1 "));
    }

    /// Writes another certificate for the key of `name`; `options` are those of `openssl x509`.
    ///
    /// # Panics
    /// When openssl fails.
    pub fn sign(&self, openssl: &Peer, name: &str, subject: &str, options: &[&str], certificate: &str) {
        let (request, key) = (self.file("request.pem"), self.file(&format!("{name}-key.pem")));
        openssl.run(["req", "-new", "-key", &key, "-subj", subject, "-out", &request]).success();
        let (ca, ca_key) = (self.file("ca-cert.pem"), self.file("ca-key.pem"));
        let sign = ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key];
        let to = ["-CAcreateserial", "-out", certificate];
        openssl.run(sign.iter().chain(&to).chain(options)).success();
    }

    /// A folder in which a client has a certificate of this subject.
    ///
    /// # Panics
    /// When openssl fails.
    #[must_use]
    pub fn client(&self, openssl: &Peer, subject: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| text(&folder.path().join(name));
        fs::copy(self.file("ca-cert.pem"), path("ca-cert.pem")).unwrap();
        openssl
            .run([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-utf8",
                "-subj",
                subject,
                "-keyout",
                &path("client-key.pem"),
                "-out",
                &path("client-cert.pem"),
                "-CA",
                &self.file("ca-cert.pem"),
                "-CAkey",
                &self.file("ca-key.pem"),
                "-addext",
                "basicConstraints=critical,CA:FALSE",
            ])
            .success();
        folder
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain name").to_owned()
}
