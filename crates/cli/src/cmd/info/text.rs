//! The report for people: one block for each part of the header.

use std::fmt::{Display, Write as _};

use cryptline::Inspection;
use cryptline_luks::HeaderInfo;
use cryptline_luks::info::{DigestInfo, KdfInfo, KeyslotInfo, SegmentInfo, TokenInfo};

use crate::error::on_one_line;
use crate::size::human;

/// Width of the column of names.
const NAME_WIDTH: usize = 14;

/// The whole report.
pub fn of(found: &Inspection, header: &HeaderInfo, refused: Option<&str>) -> String {
    let mut page = Page(String::new());
    page.heading(&format!("{}: {}", found.name, found.kind));
    general(&mut page, found, header, refused);
    for segment in &header.segments {
        of_segment(&mut page, segment, found.device_size);
    }
    for slot in &header.keyslots {
        of_keyslot(&mut page, slot);
    }
    for token in &header.tokens {
        of_token(&mut page, token);
    }
    for digest in &header.digests {
        of_digest(&mut page, digest);
    }
    page.0
}

/// Lines of a name and what it is.
struct Page(String);

impl Page {
    fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(&on_one_line(text));
        self.0.push('\n');
    }

    /// One line. What comes from the header can not leave it.
    fn line(&mut self, name: &str, value: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "  {name:NAME_WIDTH$}{}", on_one_line(value));
    }

    /// A line where the header says something.
    fn line_of(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        let value = value.filter(|value| !value.as_ref().is_empty());
        if let Some(value) = value {
            self.line(name, value.as_ref());
        }
    }
}

fn general(page: &mut Page, found: &Inspection, header: &HeaderInfo, refused: Option<&str>) {
    page.line("UUID", &header.uuid);
    page.line_of("Label", header.label.as_ref());
    page.line_of("Subsystem", header.subsystem.as_ref());
    for copy in &header.header_copies {
        let used = if header.header_copy == Some(copy.copy) { ", in use" } else { "" };
        page.line(
            "Header copy",
            &match (&copy.damage, copy.epoch) {
                (Some(damage), _) => format!("{}: damaged ({damage})", copy.copy),
                (None, epoch) => format!("{}: good, epoch {}{used}", copy.copy, epoch.unwrap_or(0)),
            },
        );
    }
    if let (Some(metadata), Some(keyslots)) = (header.metadata_bytes, header.keyslots_bytes) {
        let sizes = format!("2 x {}, key slots {}", human(metadata), human(keyslots));
        page.line("Header size", &sizes);
    }
    page.line_of("Flags", Some(header.flags.join(" ")));
    page.line_of("Requirements", Some(header.requirements.join(" ")));
    page.line("Device size", &bytes(found.device_size));
    page.line_of("Usable", found.data_size.as_ref().ok().map(|size| bytes(*size)));
    page.line_of("Not served", refused);
    for warning in &header.warnings {
        page.line("Warning", warning);
    }
}

fn of_segment(page: &mut Page, segment: &SegmentInfo, device_size: u64) {
    page.heading(&format!("Segment {}: {}", segment.id, segment.kind));
    let cipher = segment.cipher.as_ref();
    page.line_of("Cipher", cipher.map(|it| with_key(it, segment.key_bits)));
    let sector_size = segment.sector_size.map(|size| format!("{size} bytes"));
    page.line_of("Sector size", sector_size);
    page.line_of("Integrity", segment.integrity.as_ref());
    page.line("Offset", &bytes(segment.offset));
    let rest = || bytes(device_size.saturating_sub(segment.offset));
    let to_the_end = || format!("to the end of the device: {}", rest());
    page.line("Size", &segment.size.map_or_else(to_the_end, bytes));
    page.line_of("Flags", Some(segment.flags.join(" ")));
}

fn of_keyslot(page: &mut Page, slot: &KeyslotInfo) {
    page.heading(&format!("Key slot {}: {}", slot.id, slot.kind));
    page.line("Priority", slot.priority);
    page.line("Key", &format!("{} bits", slot.key_bits));
    page.line_of("KDF", slot.kdf.as_ref().map(of_kdf));
    page.line_of("AF hash", slot.af_hash.as_ref());
    let bits = slot.cipher_key_bits;
    let cipher = slot.cipher.as_ref();
    page.line_of("Area cipher", cipher.map(|it| with_key(it, bits)));
    let (size, offset) = (bytes(slot.area_size), bytes(slot.area_offset));
    page.line("Area", &format!("{size} at offset {offset}"));
}

fn of_kdf(kdf: &KdfInfo) -> String {
    let mut text = kdf.kind.clone();
    let memory = kdf.memory_kib.map(|kib| human(u64::from(kib) * 1024));
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    for (name, value) in [
        ("hash", kdf.hash.clone()),
        ("time", number(kdf.time)),
        ("memory", memory),
        ("lanes", number(kdf.cpus)),
        ("iterations", number(kdf.iterations)),
    ] {
        if let Some(value) = value {
            text += &format!(", {name} {value}");
        }
    }
    text
}

fn of_token(page: &mut Page, token: &TokenInfo) {
    page.heading(&format!("Token {}: {}", token.id, token.kind));
    page.line("Key slots", &numbers(&token.keyslots));
    page.line_of("User key", token.key_description.as_ref());
}

fn of_digest(page: &mut Page, digest: &DigestInfo) {
    page.heading(&format!("Digest {}: {}", digest.id, digest.kind));
    if let (Some(hash), Some(iterations)) = (&digest.hash, digest.iterations) {
        page.line("Hash", &format!("{hash}, iterations {iterations}"));
    }
    page.line("Key slots", &numbers(&digest.keyslots));
    page.line("Segments", &numbers(&digest.segments));
}

fn with_key(cipher: &str, bits: Option<impl Display>) -> String {
    match bits {
        Some(bits) => format!("{cipher}, {bits}-bit key"),
        None => cipher.to_owned(),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => human(count),
        _ => format!("{} ({count} bytes)", human(count)),
    }
}

fn numbers(list: &[u32]) -> String {
    if list.is_empty() {
        return "none".into();
    }
    let words: Vec<_> = list.iter().map(u32::to_string).collect();
    words.join(", ")
}
