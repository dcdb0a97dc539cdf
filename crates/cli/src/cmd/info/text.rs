//! The report for people: one block for each part of the header.

use std::fmt::Write as _;

use cryptline_luks::info::{DigestInfo, KdfInfo, KeyslotInfo, SegmentInfo, TokenInfo};

use super::Report;
use crate::error::on_one_line;
use crate::size::human;

/// Width of the column of names.
const NAME_WIDTH: usize = 14;

/// The whole report.
pub fn of(report: &Report) -> String {
    let mut page = Page(String::new());
    page.heading(&format!("{}: {}", report.target, report.kind));
    general(&mut page, report);
    let header = &report.header;
    header
        .segments
        .iter()
        .for_each(|segment| of_segment(&mut page, segment, report.device_size));
    header
        .keyslots
        .iter()
        .for_each(|slot| of_keyslot(&mut page, slot));
    header
        .tokens
        .iter()
        .for_each(|token| of_token(&mut page, token));
    header
        .digests
        .iter()
        .for_each(|digest| of_digest(&mut page, digest));
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
}

fn general(page: &mut Page, report: &Report) {
    let header = &report.header;
    page.line("UUID", &header.uuid);
    let text_of = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if let Some(label) = text_of(&header.label) {
        page.line("Label", &label);
    }
    if let Some(subsystem) = text_of(&header.subsystem) {
        page.line("Subsystem", &subsystem);
    }
    for copy in &header.header_copies {
        let used = if header.header_copy == Some(copy.copy) {
            ", in use"
        } else {
            ""
        };
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
    if !header.flags.is_empty() {
        page.line("Flags", &header.flags.join(" "));
    }
    if !header.requirements.is_empty() {
        page.line("Requirements", &header.requirements.join(" "));
    }
    page.line("Device size", &bytes(report.device_size));
    match (report.data_size, &report.refused) {
        (Some(size), _) => page.line("Clear disk", &bytes(size)),
        (None, Some(why)) => page.line("Not served", why),
        (None, None) => {}
    }
    for warning in &header.warnings {
        page.line("Warning", warning);
    }
}

fn of_segment(page: &mut Page, segment: &SegmentInfo, device_size: u64) {
    page.heading(&format!("Segment {}: {}", segment.id, segment.kind));
    if let Some(cipher) = &segment.cipher {
        page.line("Cipher", &with_key(cipher, segment.key_bits));
    }
    if let Some(size) = segment.sector_size {
        page.line("Sector size", &format!("{size} bytes"));
    }
    if let Some(integrity) = &segment.integrity {
        page.line("Integrity", integrity);
    }
    page.line("Offset", &bytes(segment.offset));
    page.line(
        "Size",
        &match segment.size {
            Some(size) => bytes(size),
            None => {
                let rest = device_size.saturating_sub(segment.offset);
                format!("to the end of the device: {}", bytes(rest))
            }
        },
    );
    if !segment.flags.is_empty() {
        page.line("Flags", &segment.flags.join(" "));
    }
}

fn of_keyslot(page: &mut Page, slot: &KeyslotInfo) {
    page.heading(&format!("Key slot {}: {}", slot.id, slot.kind));
    page.line("Priority", slot.priority);
    page.line("Key", &format!("{} bits", slot.key_bits));
    if let Some(kdf) = &slot.kdf {
        page.line("KDF", &of_kdf(kdf));
    }
    if let Some(hash) = &slot.af_hash {
        page.line("AF hash", hash);
    }
    if let Some(cipher) = &slot.cipher {
        let bits = slot
            .cipher_key_bits
            .and_then(|bits| usize::try_from(bits).ok());
        page.line("Area cipher", &with_key(cipher, bits));
    }
    let area = format!(
        "{} at offset {}",
        bytes(slot.area_size),
        bytes(slot.area_offset)
    );
    page.line("Area", &area);
}

fn of_kdf(kdf: &KdfInfo) -> String {
    let mut text = kdf.kind.clone();
    let numbers = [
        ("time", kdf.time),
        ("memory", kdf.memory_kib),
        ("lanes", kdf.cpus),
        ("iterations", kdf.iterations),
    ];
    if let Some(hash) = &kdf.hash {
        text += &format!(", hash {hash}");
    }
    for (name, number) in numbers {
        let Some(number) = number else { continue };
        text += &match name {
            "memory" => format!(", memory {}", human(u64::from(number) * 1024)),
            _ => format!(", {name} {number}"),
        };
    }
    text
}

fn of_token(page: &mut Page, token: &TokenInfo) {
    page.heading(&format!("Token {}: {}", token.id, token.kind));
    page.line("Key slots", &numbers(&token.keyslots));
}

fn of_digest(page: &mut Page, digest: &DigestInfo) {
    page.heading(&format!("Digest {}: {}", digest.id, digest.kind));
    if let (Some(hash), Some(iterations)) = (&digest.hash, digest.iterations) {
        page.line("Hash", &format!("{hash}, iterations {iterations}"));
    }
    page.line("Key slots", &numbers(&digest.keyslots));
    page.line("Segments", &numbers(&digest.segments));
}

fn with_key(cipher: &str, bits: Option<usize>) -> String {
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
