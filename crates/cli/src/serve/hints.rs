//! Commands by which other programs use an export: for the banner, to be pasted, and as variables for --run.
//!
//! QEMU has no `nbds` addresses. With TLS it takes an object with the certificates, and the export option by option:
//!
//! ```text
//! --object tls-creds-x509,id=tls0,dir=DIR,endpoint=client   --image-opts driver=nbd,server.type=unix,...,tls-creds=tls0
//! ```

use std::path::Path;

use cryptline_nbd::uri::{Address, NbdUri};

/// Name of QEMU's object with the certificates.
const CREDENTIALS: &str = "tls0";
/// Host that QEMU expects in a certificate that names none.
const USUAL_HOST: &str = "localhost";
#[cfg(target_arch = "aarch64")]
const MACHINE: &str = "qemu-system-aarch64 -machine virt";
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: &str = "qemu-system-x86_64";

/// An export that clients on this machine use.
pub struct Reachable<'a> {
    /// Where it is.
    pub uri: &'a NbdUri,
    /// With TLS, a name of the server's that its certificate has.
    pub host: Option<&'a str>,
    /// Bytes.
    pub size: u64,
    /// Set if it takes no writes.
    pub read_only: bool,
}

impl Reachable<'_> {
    /// Commands to paste into a shell.
    pub fn commands(&self) -> Vec<String> {
        let uri = self.uri;
        let mut commands = vec![format!("nbdinfo '{uri}'"), format!("nbdcopy --progress '{uri}' copy.img")];
        commands.extend(self.convert());
        commands.extend(self.machine());
        // The clear disk as a table of one line, since it has no header.
        let sectors = self.size / 512;
        let access = if self.read_only { " --read-only" } else { "" };
        commands.push(format!(
            "mkdir -p clear && echo '0 {sectors} linear {uri} 0' | cryptline mount{access} --table - clear"
        ));
        commands
    }

    fn convert(&self) -> Option<String> {
        let (object, options) = self.qemu()?;
        let source = match object {
            Some(object) => {
                let (object, options) = (in_quotes(&object)?, in_quotes(&joined("", &options))?);
                format!("--object {object} --image-opts -O qcow2 {options}")
            }
            None => format!("-O qcow2 '{}'", self.uri),
        };
        Some(format!("qemu-img convert -p {source} copy.qcow2"))
    }

    fn machine(&self) -> Option<String> {
        let (object, options) = self.qemu()?;
        let access = if self.read_only { ",readonly=on" } else { "" };
        let disk = format!("if=virtio,cache=none{access}");
        let drive = match object {
            Some(object) => {
                let drive = format!("driver=raw,{},{disk}", joined("file.", &options));
                format!("-object {} -drive {}", in_quotes(&object)?, in_quotes(&drive)?)
            }
            None => format!("-drive 'file={},format=raw,{disk}'", self.uri),
        };
        Some(format!("{MACHINE} -accel kvm -accel tcg -m 2G {drive}"))
    }

    /// Returns what the command of --run finds for QEMU: the image's options, and the object for them. Empty where QEMU
    /// cannot be told, and where it needs none.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        let (object, options) = self.qemu().unwrap_or_default();
        let options = joined("", &options);
        [("imageopts", options), ("tlsobject", object.unwrap_or_default())]
    }

    /// The object with the certificates, where there is TLS, and the options for the export.
    fn qemu(&self) -> Option<(Option<String>, Vec<Assigned>)> {
        let mut options = vec![("driver", "nbd".to_owned())];
        let is_unix = match &self.uri.address {
            Address::Unix(path) => {
                options.push(("server.type", "unix".to_owned()));
                options.push(("server.path", text(path)?));
                true
            }
            Address::Tcp { host, port } => {
                options.push(("server.type", "inet".to_owned()));
                options.push(("server.host", host.clone()));
                options.push(("server.port", port.to_string()));
                false
            }
        };
        if !self.uri.export.is_empty() {
            options.push(("export", self.uri.export.clone()));
        }
        if !self.uri.tls {
            return Some((None, options));
        }
        // Without the authority's certificate, QEMU trusts nobody.
        let folder = text(self.uri.tls_options.certificates.as_deref()?)?;
        options.push(("tls-creds", CREDENTIALS.to_owned()));
        if is_unix {
            // A socket has no name for the certificate to be compared with.
            let host = self.host.unwrap_or(USUAL_HOST);
            options.push(("tls-hostname", host.to_owned()));
        }
        let object = [("id", CREDENTIALS.to_owned()), ("dir", folder), ("endpoint", "client".to_owned())];
        Some((Some(format!("tls-creds-x509,{}", joined("", &object))), options))
    }
}

type Assigned = (&'static str, String);

/// As QEMU reads options: commas separate them, and two are one in a value.
fn joined(prefix: &str, options: &[Assigned]) -> String {
    let assigned = options.iter().map(|(key, value)| format!("{prefix}{key}={}", value.replace(',', ",,")));
    assigned.collect::<Vec<_>>().join(",")
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

/// As one word for a shell; `None` for what a terminal may take for something else.
fn in_quotes(word: &str) -> Option<String> {
    let is_plain = !word.contains(char::is_control);
    is_plain.then(|| format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(uri: &str, read_only: bool) -> String {
        let export = Reachable { uri: &uri.parse().unwrap(), host: Some("disk.example"), size: 1 << 20, read_only };
        export.commands().join("\n")
    }

    #[test]
    fn names_with_commas_and_quotes_are_one_value_and_one_word() {
        let told = commands("nbds+unix:///a,b?socket=/a'b&tls-certificates=/c,d", false);
        assert!(told.contains("dir=/c,,d,"), "{told}");
        assert!(told.contains("export=a,,b,"), "{told}");
        assert!(told.contains(r"server.path=/a'\''b,"), "{told}");
        assert!(told.contains("tls-hostname=disk.example"), "{told}");
    }

    #[test]
    fn qemu_is_left_out_where_it_could_not_be_told_whom_to_trust() {
        let told = commands("nbds://localhost", false);
        assert!(told.contains("nbdinfo") && !told.contains("qemu"), "{told}");
        let told = commands("nbds+unix:///?socket=/a%0a&tls-certificates=/c", false);
        assert!(!told.contains("qemu"), "{told}");
    }

    #[test]
    fn who_may_only_read_asks_for_no_more() {
        let told = commands("nbd://localhost", true);
        assert!(told.contains("readonly=on") && told.contains("--read-only"), "{told}");
        let told = commands("nbd://localhost", false);
        assert!(!told.contains("readonly=on") && !told.contains("--read-only"), "{told}");
    }
}
