//! `luksDump`: what a header says, in cryptsetup's words and lines, which scripts look for.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use cryptline::luks::info::{KeyslotInfo, SegmentInfo};
use cryptline::luks::{HeaderInfo, LuksHeader, luks1};
use cryptline::{Inspection, Open};
use zeroize::Zeroize;

use crate::CliError;
use crate::args::{KeyArgs, PassphraseSource};
use crate::cmd::info;
use crate::cmd::key::HeaderArgs;
use crate::error::on_one_line;
use crate::new_file::NewFile;
use crate::output::{print, warn};

/// Of what, and how much.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct DumpArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// As `info --json`.
    #[arg(long)]
    pub json: bool,

    /// The JSON of a LUKS2 header as it is.
    #[arg(long)]
    pub dump_json_metadata: bool,

    /// The volume key; into --volume-key-file, where that is given.
    #[arg(long, alias = "dump-master-key")]
    pub dump_volume_key: bool,

    /// The key of a slot that keeps another one.
    #[arg(long, requires = "key_slot")]
    pub unbound: bool,

    /// As with cryptsetup: nothing is asked here in any case.
    #[arg(long, short = 'q')]
    pub batch_mode: bool,

    /// Where the key goes.
    #[arg(long, value_name = "FILE", alias = "master-key-file")]
    pub volume_key_file: Option<PathBuf>,

    /// By which key slot.
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    #[command(flatten)]
    pub passphrase: PassphraseSource,
}

impl DumpArgs {
    /// Prints it.
    ///
    /// # Errors
    /// As `info`; as `check` where a key is asked for.
    pub fn run(&self) -> Result<(), CliError> {
        if self.json {
            return info::run(&info::InfoArgs {
                target: self.place.target.clone(),
                json: true,
                zones: false,
                header: self.place.header.clone(),
            });
        }
        // The header alone is of interest, so its data need not be there.
        let found = Open::new(self.place.name()).inspect()?;
        if self.dump_volume_key || self.unbound {
            return self.dump_key(&found);
        }
        warn(found.header.warnings());
        let text = match (&found.header, self.dump_json_metadata) {
            (LuksHeader::V2(header), true) => format!("{:#}\n", header.metadata.json),
            (LuksHeader::V1(_), true) => {
                return Err(CliError::parameters("a LUKS1 header has no JSON"));
            }
            (LuksHeader::V1(header), false) => luks1_text(&found.name, header),
            (LuksHeader::V2(_), false) => luks2_text(&found.header.info()),
        };
        print(&text)
    }

    fn dump_key(&self, found: &Inspection) -> Result<(), CliError> {
        let keys = KeyArgs { passphrase: self.passphrase.clone(), key_slot: self.key_slot, ..KeyArgs::default() };
        let used =
            |path: &Path, error: io::Error| CliError::busy(format!("{}: {error}; name a new file", path.display()));
        if let Some(path) = &self.volume_key_file {
            // Before anything is asked for.
            NewFile::aside(path, 0o400).map(drop).map_err(|error| used(path, error))?;
        }
        let open = Open::new(self.place.name())
            .keys(keys.of_target(&self.place.target))
            .kdf_limits(keys.kdf_limits())
            .with(keys.key_slot, Open::key_slot);
        let unlocked = open.unlock()?;
        if let Some(path) = &self.volume_key_file {
            // Only its owner can read it.
            let file = NewFile::aside(path, 0o400).map_err(|error| used(path, error))?;
            return file.put(&unlocked.key).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => used(path, error),
                _ => CliError::device(format!("{}: {error}", path.display())),
            });
        }
        let name = on_one_line(&found.name);
        let bits = 8 * unlocked.key.len();
        let title = if self.unbound { "Unbound Key:" } else { "MK dump:" };
        // Never moved: what stays behind when a string grows is not wiped.
        let mut text = String::with_capacity(256 + name.len() + 4 * unlocked.key.len());
        let _ = write!(text, "LUKS header information for {name}\nMK bits:       \t{bits}\n{title}");
        for line in unlocked.key.chunks(16) {
            text.push('\t');
            for byte in line {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x} ");
            }
            text.push('\n');
        }
        let printed = print(&text);
        text.zeroize();
        printed
    }
}

fn luks1_text(name: &str, header: &luks1::Luks1Header) -> String {
    let mut text = format!("LUKS header information for {}\n\n", on_one_line(name));
    for (what, value) in [
        ("Version:", "1".to_owned()),
        ("Cipher name:", header.cipher_name.clone()),
        ("Cipher mode:", header.cipher_mode.clone()),
        ("Hash spec:", header.hash.clone()),
        ("Payload offset:", header.payload_sector.to_string()),
        ("MK bits:", (8 * header.key_len).to_string()),
        ("MK iterations:", header.digest_iterations.to_string()),
        ("UUID:", on_one_line(&header.uuid)),
    ] {
        let _ = writeln!(text, "{what:15}\t{value}");
    }
    text.push('\n');
    for (number, (slot, sector)) in header.slots.iter().zip(header.sectors).enumerate() {
        let Some(slot) = slot else {
            let _ = writeln!(text, "Key Slot {number}: DISABLED");
            continue;
        };
        let _ = writeln!(
            text,
            "Key Slot {number}: ENABLED\n\tIterations:         \t{}\n\tKey material offset:\t{sector}\n\tAF stripes:            \t4000",
            slot.iterations
        );
    }
    text
}

fn luks2_text(info: &HeaderInfo) -> String {
    let or = |text: &Option<String>, other: &str| match text.as_deref() {
        None | Some("") => other.to_owned(),
        Some(text) => on_one_line(text),
    };
    let flags = match info.flags.len() {
        0 => "(no flags)".to_owned(),
        _ => on_one_line(&info.flags.join(" ")),
    };
    let mut text = "LUKS header information\n".to_owned();
    for (what, value) in [
        ("Version:", "2".to_owned()),
        ("Epoch:", info.epoch.unwrap_or(0).to_string()),
        ("Metadata area:", bytes(info.metadata_bytes.unwrap_or(0))),
        ("Keyslots area:", bytes(info.keyslots_bytes.unwrap_or(0))),
        ("UUID:", on_one_line(&info.uuid)),
        ("Label:", or(&info.label, "(no label)")),
        ("Subsystem:", or(&info.subsystem, "(no subsystem)")),
        ("Flags:", flags),
    ] {
        let _ = writeln!(text, "{what:15}\t{value}");
    }
    text += "\nData segments:\n";
    info.segments.iter().for_each(|it| segment(&mut text, it));
    text += "Keyslots:\n";
    info.keyslots.iter().for_each(|it| keyslot(&mut text, it, info));
    text += "Tokens:\n";
    for token in &info.tokens {
        let _ = writeln!(text, "  {}: {}", token.id, on_one_line(&token.kind));
        if let Some(description) = &token.key_description {
            let _ = writeln!(text, "\tKey description: {}", on_one_line(description));
        }
        for slot in &token.keyslots {
            let _ = writeln!(text, "\tKeyslot:    {slot}");
        }
    }
    text += "Digests:\n";
    for digest in &info.digests {
        let _ = writeln!(text, "  {}: {}", digest.id, on_one_line(&digest.kind));
        if let (Some(hash), Some(iterations)) = (&digest.hash, digest.iterations) {
            let hash = on_one_line(hash);
            let _ = writeln!(text, "\tHash:       {hash}\n\tIterations: {iterations}");
        }
    }
    text
}

fn bytes(count: u64) -> String {
    format!("{count} [bytes]")
}

fn segment(text: &mut String, segment: &SegmentInfo) {
    let _ = writeln!(text, "  {}: {}", segment.id, on_one_line(&segment.kind));
    let length = segment.size.map_or_else(|| "(whole device)".to_owned(), bytes);
    let _ = writeln!(text, "\toffset: {}\n\tlength: {length}", bytes(segment.offset));
    if let Some(cipher) = &segment.cipher {
        let _ = writeln!(text, "\tcipher: {}", on_one_line(cipher));
    }
    if let Some(size) = segment.sector_size {
        let _ = writeln!(text, "\tsector: {}", bytes(size.into()));
    }
    text.push('\n');
}

fn keyslot(text: &mut String, slot: &KeyslotInfo, info: &HeaderInfo) {
    let mut digests = info.digests.iter();
    let digest = digests.find(|digest| digest.keyslots.contains(&slot.id));
    let is_unbound = digest.is_some_and(|digest| digest.segments.is_empty());
    let unbound = if is_unbound { " (unbound)" } else { "" };
    let _ = writeln!(text, "  {}: {}{unbound}", slot.id, on_one_line(&slot.kind));
    let mut line = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "\t{what:11} {}", on_one_line(&value));
        }
    };
    line("Key:", Some(format!("{} bits", slot.key_bits)));
    line("Priority:", Some(slot.priority.to_owned()));
    line("Cipher:", slot.cipher.clone());
    line("Cipher key:", slot.cipher_key_bits.map(|bits| format!("{bits} bits")));
    if let Some(kdf) = &slot.kdf {
        line("PBKDF:", Some(kdf.kind.clone()));
        line("Hash:", kdf.hash.clone());
        line("Iterations:", kdf.iterations.map(|it| it.to_string()));
        line("Time cost:", kdf.time.map(|it| it.to_string()));
        line("Memory:", kdf.memory_kib.map(|it| it.to_string()));
        line("Threads:", kdf.cpus.map(|it| it.to_string()));
    }
    line("AF hash:", slot.af_hash.clone());
    let _ = writeln!(text, "\tArea offset:{}\n\tArea length:{}", bytes(slot.area_offset), bytes(slot.area_size));
    if let Some(digest) = digest {
        let _ = writeln!(text, "\tDigest ID:  {}", digest.id);
    }
}
