//! What the server says when clients can connect: `key: value` lines, stable enough for scripts.

use std::fmt::Write as _;

use cryptline::Info;
use cryptline_nbd::uri::NbdUri;

use super::sandbox::InForce;
use crate::size;

/// Everything there is to say.
pub struct Report<'a> {
    /// Each export's name and volume.
    pub exports: &'a [(String, Info)],
    /// Each export at each address, the first export's first.
    pub uris: &'a [NbdUri],
    /// How I/O is done.
    pub io: &'a str,
    /// What is in force.
    pub sandbox: &'a InForce,
    /// `off`, `on` or `require`.
    pub tls: &'a str,
    /// The statistics socket.
    pub stats: Option<&'a std::path::Path>,
}

impl Report<'_> {
    /// The text, with commands to paste at its end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for uri in self.uris {
            line(&mut text, "uri", &uri.to_string());
        }
        for (name, info) in self.exports {
            self.export_lines(&mut text, name, info);
        }
        line(&mut text, "io", self.io);
        line(&mut text, "sandbox", &self.sandbox.text());
        if let Some(user) = &self.sandbox.user {
            line(&mut text, "user", user);
        }
        if self.tls != "off" {
            line(&mut text, "tls", self.tls);
        }
        if let Some(path) = self.stats {
            line(&mut text, "stats", &path.display().to_string());
        }
        if let Some(uri) = self.uris.first() {
            // Writing to a String does not fail.
            let _ = write!(
                text,
                "\nTry, in another terminal:\n  \
                 nbdinfo '{uri}'\n  \
                 nbdcopy --progress '{uri}' copy.img\n  \
                 qemu-img convert -p -O qcow2 '{uri}' copy.qcow2\n"
            );
            if let Some(path) = self.stats.and_then(|path| path.to_str())
                && !path.contains(|c: char| c == '\'' || c.is_control())
            {
                let _ = writeln!(text, "  cryptline top '{path}'");
            }
        }
        text
    }

    fn export_lines(&self, text: &mut String, name: &str, info: &Info) {
        if self.exports.len() > 1 {
            line(text, "export", &format!("{name:?}"));
        }
        let access = match (info.read_only, info.discards) {
            (true, _) => "read-only",
            (false, true) => "read-write, discards passed down",
            (false, false) => "read-write",
        };
        let size = size::human(info.size);
        let (source, kind) = (&info.source, &info.kind);
        line(
            text,
            "volume",
            &format!("{source} ({kind}), {size}, {access}"),
        );
        let (cipher, bits, sector) = (&info.cipher, info.key_bits, info.sector_size);
        line(
            text,
            "cipher",
            &format!("{cipher}, {bits}-bit key, {sector}-byte sectors"),
        );
        if let Some(how) = &info.small_writes {
            let block = info.logical_block;
            line(text, "blocks", &format!("{block} bytes, {how}"));
        }
        line(text, "kernel", info.cipher_kernel);
        line(text, "medium", &info.base.to_string());
        if let Some(delay) = &info.delay {
            line(text, "delay", &delay.to_string());
        }
        line(text, "dispatch", &info.dispatch_text());
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    let value = crate::error::on_one_line(value);
    // Writing to a String does not fail.
    let _ = writeln!(text, "{:<10}{value}", format!("{key}:"));
}
