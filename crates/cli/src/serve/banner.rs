//! Report of a front when clients can connect: `key: value` lines, stable enough for scripts.

use std::fmt::Write as _;
use std::path::Path;

use cryptline::Info;
use cryptline_serve::lane::Poll;

use super::front::ServedVolume;
use super::metrics_socket::MetricsAddress;
use super::sandbox::InForce;
use crate::size;

/// Facts that only the front knows.
#[derive(Default)]
pub struct Banner {
    /// Word for a volume that it serves, such as `export`.
    pub noun: &'static str,
    /// Where clients find it: the first lines.
    pub places: Vec<(&'static str, String)>,
    /// Manner in which it serves.
    pub terms: Vec<(&'static str, String)>,
    /// Commands to paste.
    pub hints: Vec<String>,
    /// Standard output belongs to a client, or nobody wants to read it.
    pub quiet: bool,
}

/// Facts that every front tells.
pub(super) struct CommonFacts<'a> {
    pub volumes: &'a [ServedVolume],
    /// How I/O is done.
    pub io: &'a str,
    pub poll: Poll,
    pub sandbox: &'a InForce,
    /// The statistics socket.
    pub stats: Option<&'a Path>,
    /// Where Prometheus is answered.
    pub metrics: Option<&'a MetricsAddress>,
}

impl Banner {
    /// The first lines.
    pub(super) fn places(&self) -> String {
        let mut text = String::new();
        self.places.iter().for_each(|(key, value)| line(&mut text, key, value));
        text
    }

    /// All that follows them, with the commands at its end.
    pub(super) fn rest(&self, common: &CommonFacts<'_>) -> String {
        let mut text = String::new();
        for volume in common.volumes {
            if common.volumes.len() > 1 {
                line(&mut text, self.noun, &format!("{:?}", volume.name));
            }
            volume_lines(&mut text, &volume.info);
        }
        line(&mut text, "io", common.io);
        line(&mut text, "poll", &common.poll.to_string());
        line(&mut text, "sandbox", &common.sandbox.text());
        if let Some(user) = &common.sandbox.user {
            line(&mut text, "user", user);
        }
        for (key, value) in &self.terms {
            line(&mut text, key, value);
        }
        if let Some(path) = common.stats {
            line(&mut text, "stats", &path.display().to_string());
        }
        if let Some(place) = common.metrics {
            line(&mut text, "metrics", &place.to_string());
        }
        text + &self.commands(common.stats)
    }

    /// A line that says that clients can connect, behind where metrics are, for programs and logs.
    pub(super) fn brief(common: &CommonFacts<'_>) -> String {
        let mut text = String::new();
        if let Some(place) = common.metrics {
            line(&mut text, "metrics", &place.to_string());
        }
        line(&mut text, "ready", &format!("{}; sandbox: {}", common.io, common.sandbox.text()));
        text
    }

    fn commands(&self, stats: Option<&Path>) -> String {
        let quotable = |path: &&str| !path.contains(|c: char| c == '\'' || c.is_control());
        let top = stats.and_then(Path::to_str).filter(quotable);
        let top = top.map(|path| format!("cryptline top '{path}'"));
        let commands: String = self.hints.iter().chain(&top).map(|command| format!("  {command}\n")).collect();
        if commands.is_empty() {
            return commands;
        }
        format!("\nTry, in another terminal:\n{commands}")
    }
}

/// Adds what there is to say of a volume.
pub fn volume_lines(text: &mut String, info: &Info) {
    let access = match (info.read_only, info.discards) {
        (true, _) => "read-only",
        (false, true) => "read-write, discards passed down",
        (false, false) => "read-write",
    };
    let size = size::human(info.size);
    let (source, kind) = (&info.source, &info.kind);
    line(text, "volume", &format!("{source} ({kind}), {size}, {access}"));
    let (cipher, bits, sector) = (&info.cipher, info.key_bits, info.sector_size);
    line(text, "cipher", &format!("{cipher}, {bits}-bit key, {sector}-byte sectors"));
    if let Some(how) = &info.small_writes {
        let block = info.logical_block;
        line(text, "blocks", &format!("{block} bytes, {how}"));
    }
    if info.segments > 1 {
        line(text, "segments", &info.segments.to_string());
    }
    line(text, "kernel", &info.cipher_kernel);
    line(text, "medium", &media(info));
    if let Some(delay) = &info.delay {
        line(text, "delay", &delay.to_string());
    }
    line(text, "dispatch", &info.dispatch_text());
}

/// Returns what the volume lies on, each kind once.
fn media(info: &Info) -> String {
    let mut media = vec![info.base.to_string()];
    for other in info.other_bases.iter().map(ToString::to_string) {
        if !media.contains(&other) {
            media.push(other);
        }
    }
    media.join(", ")
}

fn line(text: &mut String, key: &str, value: &str) {
    let value = crate::error::on_one_line(value);
    // Writing to a String does not fail.
    let _ = writeln!(text, "{:<10}{value}", format!("{key}:"));
}
