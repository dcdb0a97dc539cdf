//! NBD URIs, printed and parsed.
//!
//! ```text
//! nbd://host:port/export        nbds:// the same with TLS
//! nbd+unix:///export?socket=PATH    nbds+unix:// the same with TLS
//! ```
//!
//! libnbd's other ways to a server (`nbd+vsock`, `nbd+ssh`, keys shared beforehand) are refused by name.
//!
//! Source: `doc/uri.md` of the NBD project, RFC 3986.

use std::ffi::OsString;
use std::fmt;
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// All but the unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same, but for those that separate nothing there.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');
const RESERVED_IN_IPV6: &AsciiSet = &RESERVED.remove(b':');

/// The port that IANA gave to NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// Where and how to reach an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    /// TLS is a must.
    pub tls: bool,
    /// Where the server listens.
    pub address: Address,
    /// The export's name; may be empty.
    pub export: String,
    /// Parameters about TLS.
    pub tls_options: TlsOptions,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host name or address (IPv6 without brackets) and a port.
    Tcp {
        /// Host.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix domain socket; a path that starts with NUL is in the abstract namespace.
    Unix(PathBuf),
}

/// The parameters of a URI that concern TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// User name for TLS authentication (the URI's user info).
    pub user: Option<String>,
    /// `tls-certificates`: directory of certificates.
    pub certificates: Option<PathBuf>,
    /// `tls-hostname`: the name to expect in the server's certificate.
    pub hostname: Option<String>,
    /// `tls-verify-peer`: whether to verify the server's certificate.
    pub verify_peer: Option<bool>,
}

/// A URI that is not one for NBD.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Not `nbd`, `nbds`, `nbd+unix` or `nbds+unix`.
    #[error("the URI must start with nbd://, nbds://, nbd+unix:// or nbds+unix://")]
    Scheme,
    /// `nbd+vsock` or `nbds+vsock`.
    #[error(
        "vsock is not supported; run `socat UNIX-LISTEN:PATH,fork VSOCK-CONNECT:CID:PORT` and use nbd+unix:///EXPORT?socket=PATH"
    )]
    Vsock,
    /// `nbd+ssh` or `nbds+ssh`.
    #[error("ssh is not supported; run `ssh -N -L PATH:REMOTE_SOCKET HOST` and use nbd+unix:///EXPORT?socket=PATH")]
    Ssh,
    /// `tls-psk-file`.
    #[error("pre-shared keys (PSK) are not supported; use certificates: tls-certificates=DIR, on the server as well")]
    Psk,
    /// `%` without two hexadecimal digits.
    #[error("in a URI, % must be followed by two hexadecimal digits")]
    PercentEncoding,
    /// A character that must be percent-encoded, or a text that is not UTF-8 or contains NUL.
    #[error("the URI's {0} is malformed; percent-encode it")]
    Malformed(&'static str),
    /// A TCP scheme without a host.
    #[error("the URI names no host; write nbd://HOST:PORT/EXPORT")]
    NoHost,
    /// A Unix scheme with a host.
    #[error("a Unix socket has no host; write nbd+unix:///EXPORT?socket=PATH with three slashes")]
    HostWithSocket,
    /// A port that is not a number from 1 to 65535.
    #[error("the URI's port must be a number from 1 to 65535")]
    Port,
    /// A Unix scheme without `socket=`.
    #[error("the URI names no socket; write nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// A parameter that is unknown, given twice, or does not fit the scheme.
    #[error("the URI's parameter {0:?} is not understood here; remove it")]
    Parameter(String),
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "nbds" } else { "nbd" })?;
        f.write_str(if matches!(self.address, Address::Unix(_)) { "+unix://" } else { "://" })?;
        if let Some(user) = &self.tls_options.user {
            write!(f, "{}@", percent_encode(user.as_bytes(), RESERVED))?;
        }
        if let Address::Tcp { host, port } = &self.address {
            fmt_host(f, host)?;
            if *port != DEFAULT_PORT {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", percent_encode(self.export.as_bytes(), RESERVED_IN_PATH))?;
        let mut separator = '?';
        for (key, value) in self.parameters() {
            write!(f, "{separator}{key}={}", percent_encode(&value, RESERVED_IN_PATH))?;
            separator = '&';
        }
        Ok(())
    }
}

impl NbdUri {
    /// Tells if `text` begins as URIs of NBD servers do, also those that are refused.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        let Some((scheme, _)) = text.split_once("://") else {
            return false;
        };
        let scheme = scheme.to_ascii_lowercase();
        let rest = scheme.strip_prefix("nbd");
        let rest = rest.map(|rest| rest.strip_prefix('s').unwrap_or(rest));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    }

    /// Another export at the same place.
    #[must_use]
    pub fn with_export(&self, name: &str) -> Self {
        Self { export: name.to_owned(), ..self.clone() }
    }

    fn parameters(&self) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
        let path_bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let socket = match &self.address {
            Address::Unix(path) => Some(path_bytes(path)),
            Address::Tcp { .. } => None,
        };
        let options = &self.tls_options;
        let verify = options.verify_peer.map(|verify| vec![if verify { b'1' } else { b'0' }]);
        [
            ("socket", socket),
            ("tls-certificates", options.certificates.as_ref().map(path_bytes)),
            ("tls-hostname", options.hostname.as_ref().map(|name| name.as_bytes().to_vec())),
            ("tls-verify-peer", verify),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }
}

fn fmt_host(f: &mut fmt::Formatter<'_>, host: &str) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{}]", percent_encode(host.as_bytes(), RESERVED_IN_IPV6))
    } else {
        write!(f, "{}", percent_encode(host.as_bytes(), RESERVED))
    }
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        let (tls, unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            "nbd+vsock" | "nbds+vsock" => return Err(UriError::Vsock),
            "nbd+ssh" | "nbds+ssh" => return Err(UriError::Ssh),
            _ => return Err(UriError::Scheme),
        };
        check_characters(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(decode_text(user, "user")?), host),
            None => (None, authority),
        };
        let mut parameters = UriParameters { tls: TlsOptions { user, ..TlsOptions::default() }, socket: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            parameters.set(pair, unix)?;
        }
        let address = match (unix, parameters.socket) {
            (true, _) if !host.is_empty() => return Err(UriError::HostWithSocket),
            (true, socket) => Address::Unix(socket.ok_or(UriError::NoSocket)?),
            (false, _) => parse_host(host)?,
        };
        let export = decode_text(path, "export name")?;
        Ok(Self { tls, address, export, tls_options: parameters.tls })
    }
}

/// A URI is printable ASCII; a fragment has no meaning for NBD.
fn check_characters(text: &str) -> Result<(), UriError> {
    let allowed = |c: char| c.is_ascii_graphic() && !"#\"<>\\^`{|}".contains(c);
    if text.chars().all(allowed) { Ok(()) } else { Err(UriError::Malformed("text")) }
}

struct UriParameters {
    tls: TlsOptions,
    socket: Option<PathBuf>,
}

impl UriParameters {
    fn set(&mut self, pair: &str, unix: bool) -> Result<(), UriError> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let refused = || Err(UriError::Parameter(key.to_owned()));
        match key {
            "socket" if unix && self.socket.is_none() => {
                let path = decode_path(value)?;
                if path.as_os_str().is_empty() {
                    return Err(UriError::NoSocket);
                }
                self.socket = Some(path);
            }
            "tls-certificates" if self.tls.certificates.is_none() => {
                self.tls.certificates = Some(decode_path(value)?);
            }
            "tls-hostname" if self.tls.hostname.is_none() => {
                self.tls.hostname = Some(decode_text(value, "tls-hostname")?);
            }
            "tls-verify-peer" if self.tls.verify_peer.is_none() => {
                self.tls.verify_peer = Some(match value {
                    "0" => false,
                    "1" => true,
                    _ => return refused(),
                });
            }
            "tls-psk-file" => return Err(UriError::Psk),
            _ => return refused(),
        }
        Ok(())
    }
}

fn parse_host(text: &str) -> Result<Address, UriError> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or(UriError::Malformed("host"))?;
        // A zone ("%eth0") is allowed behind the address.
        let decoded = decode_text(host, "host")?;
        let address = decoded.split('%').next().unwrap_or_default();
        address.parse::<Ipv6Addr>().map_err(|_| UriError::Malformed("host"))?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or(UriError::Malformed("host"))?),
        };
        (decoded, port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let decoded = decode_text(host, "host")?;
        if decoded.contains(':') {
            return Err(UriError::Malformed("host"));
        }
        (decoded, port)
    };
    if host.is_empty() {
        return Err(UriError::NoHost);
    }
    Ok(Address::Tcp { host, port: parse_port(port)? })
}

fn parse_port(text: Option<&str>) -> Result<u16, UriError> {
    // RFC 3986 allows an empty port, which means the default one.
    let Some(digits) = text.filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_PORT);
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|&port| is_number && port != 0);
    port.ok_or(UriError::Port)
}

fn decode_text(text: &str, what: &'static str) -> Result<String, UriError> {
    let decoded = String::from_utf8(decode(text)?).map_err(|_| UriError::Malformed(what))?;
    if decoded.contains('\0') { Err(UriError::Malformed(what)) } else { Ok(decoded) }
}

fn decode_path(text: &str) -> Result<PathBuf, UriError> {
    Ok(OsString::from_vec(decode(text)?).into())
}

fn decode(text: &str) -> Result<Vec<u8>, UriError> {
    // The decoder would leave a % without its digits as it is.
    let mut escapes = text.split('%').skip(1).map(str::as_bytes);
    let whole = escapes.all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit));
    if whole { Ok(percent_decode_str(text).collect()) } else { Err(UriError::PercentEncoding) }
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
